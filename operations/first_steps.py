"""The first steps of a new gateway: an administrator with a password, a channel, a key.

Each step makes the same edits as commands do. Values are taken literally: `env:` and `file:` have
no meaning here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import peewee

from adapters.vendor_cards import CARDS
from operations.edits import editor
from store.admin.apply import Outcome
from store.admin.document import Document, read
from store.admin.export import list_objects
from store.admin.objects import Sealing
from store.db.base_url import set_base_url
from store.db.database import first_row, transaction
from store.db.tables.catalog import Channel
from store.db.tables.users import ApiKey, User
from store.hub import first_run
from store.hub.people import Person, mark_of
from store.money import wallet
from store.values import texts
from store.values.errors import Conflict, NotFound, Refused


class VendorStart(NamedTuple):
    """The first channel of a vendor: its address, and models of the catalogue. `variable`: the
    environment variable that may hold its key."""

    name: str
    variable: str
    base_url: str
    models: Sequence[str]


VENDOR_STARTS = (
    VendorStart(
        "openai", "OPENAI_API_KEY", CARDS["openai"].base_url, ("gpt-6.1-sol", "gpt-6.1-terra")
    ),
    VendorStart(
        "anthropic",
        "ANTHROPIC_API_KEY",
        CARDS["anthropic"].base_url,
        ("claude-sonnet-5-5", "claude-haiku-5-5"),
    ),
    VendorStart(
        "gemini",
        "GEMINI_API_KEY",
        CARDS["gemini"].base_url,
        ("gemini-3.8-flash",),
    ),
)
DEMO_MODELS = {
    "chat_completions": "demo-chat",
    "responses": "demo-responses",
    "messages": "demo-messages",
    "generate_content": "demo-gemini",
}

DEMO_URL = CARDS["demo"].base_url
CREDIT_REASON = "first run"


@dataclass(frozen=True, slots=True)
class FirstAdmin:
    """The fields of the first step. `base_url`: empty keeps the present one."""

    name: str
    password: str = field(repr=False)
    base_url: str = ""


@dataclass(frozen=True, slots=True)
class FirstRunState:
    """The progress of the first run: whether there is a channel with a model, and a key."""

    channel: bool
    key: bool

    @property
    def finished(self) -> bool:
        """Return whether calls can be made."""
        return self.channel and self.key


def state(db: peewee.Database) -> FirstRunState:
    """Return the progress of the first run."""
    channel = Channel.select(Channel.id).where(Channel.models != {}).limit(1)
    key = ApiKey.select(ApiKey.id).limit(1)
    return FirstRunState(first_row(db, channel) is not None, first_row(db, key) is not None)


def is_due(db: peewee.Database, user_id: str) -> bool:
    """Return whether the user is an administrator and calls cannot be made yet."""
    admin = User.select(User.id).where(User.id == user_id, User.role == "admin")
    return first_row(db, admin) is not None and not state(db).finished


def make_admin(db: peewee.Database, sealing: Sealing, token: str, admin: FirstAdmin) -> Person:
    """Give the first administrator a password, using up the token of a first-run link.

    Hashes, so it must not run on an event loop. Raises NotFound if the link is invalid, Refused.
    """
    if not first_run.opens(db, token):
        raise NotFound("this link is no longer valid")
    try:
        texts.base_url(admin.base_url or DEMO_URL)
    except ValueError as error:
        raise Refused([f"the base URL {error}"], ["base_url"]) from None
    user = {"name": admin.name, "role": "admin", "password": admin.password, "enabled": True}
    entries, maker = _entries({"user": [user]}), editor(db, sealing, admin.name, remote=True)
    # Faults show and the password is hashed before others have to wait for the transaction.
    maker.apply(entries, dry_run=True)
    own = User.select(User.id, User.role, User.password_hash).where(User.name == admin.name)

    def work() -> Person:
        first_run.use_up(db, token)
        row = first_row(db, own)
        if row is not None and row[1] != "admin":
            raise Refused([f'"{admin.name}" is a member; choose another name'])
        maker.apply(entries)
        if admin.base_url:
            set_base_url(db, admin.base_url, admin.name)
        row = first_row(db, own)
        assert row is not None
        return Person(row[0], admin.name, "admin", mark_of(row[2]))

    return transaction(db, work, marked=True)


def group_to_begin_with(db: peewee.Database) -> str:
    """Return the group of the first channel; empty if there is none."""
    channels = list_objects(db, "channel")
    return next((name for channel in channels for name in channel["groups"]), "")


def channels_of(db: peewee.Database, group: str) -> list[dict[str, Any]]:
    """Return the enabled channels of a group that serve a model."""
    return [
        channel
        for channel in list_objects(db, "channel")
        if channel["enabled"] and channel["models"] and group in channel["groups"]
    ]


def make_key(
    db: peewee.Database, sealing: Sealing, user: str, group: str, name: str
) -> tuple[str, str]:
    """Create a key. Return its id and its secret, which is not stored. Raises Conflict, Refused."""
    key = {"user": user, "name": name, "group": group}
    outcome = _apply(db, sealing, user, {"group": [{"name": group}], "key": [key]})
    if not outcome.keys or outcome.keys[0].secret is None:
        raise Conflict(f'the key "{name}" exists; choose another name')
    return outcome.keys[0].id, outcome.keys[0].secret


def credit_once(db: peewee.Database, user: str, amount_nanos: int) -> None:
    """Credit a wallet for the first calls. Does nothing the second time. Raises Refused."""
    movement = wallet.Movement(amount_nanos, CREDIT_REASON, f"first-run:{user}", user)
    wallet.credit(db, user, movement)


def _apply(
    db: peewee.Database, sealing: Sealing, actor: str, document: Mapping[str, Any]
) -> Outcome:
    return editor(db, sealing, actor, remote=True).apply(_entries(document))


def _entries(document: Mapping[str, Any]) -> Document:
    entries, faults = read(json.dumps(document), lambda value: value)
    if faults:
        raise Refused(faults)
    return entries
