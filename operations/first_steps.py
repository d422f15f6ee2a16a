"""The first steps of a new gateway: an administrator with a password, a channel, a key.

Each step makes the same edits as commands do. Values are taken literally: `env:` and `file:` mean
nothing here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import peewee

from adapters.registry import FAMILIES, VENDORS
from operations.catalogue import listed_fields
from operations.edits import editor
from store.admin.apply import Outcome
from store.admin.document import Document, read
from store.admin.export import list_objects
from store.admin.objects import Sealing
from store.db.base_url import set_base_url
from store.db.database import first_row, transaction
from store.db.tables.users import User
from store.hub import first_run
from store.hub.people import Person, mark_of
from store.money import wallet
from store.values import texts
from store.values.errors import Conflict, NotFound, Refused


class VendorStart(NamedTuple):
    """The first channel of a vendor: its address, and models of the catalogue. `variable`: of the
    environment, which may hold its key."""

    name: str
    variable: str
    base_url: str
    models: Sequence[str]


VENDOR_STARTS = (
    VendorStart(
        "openai", "OPENAI_API_KEY", "https://api.openai.com", ("gpt-6.1-sol", "gpt-6.1-terra")
    ),
    VendorStart(
        "anthropic",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com",
        ("claude-sonnet-5-5", "claude-haiku-5-5"),
    ),
    VendorStart(
        "gemini",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com",
        ("gemini-3.8-flash",),
    ),
)
DEMO_MODELS = {
    "chat_completions": "demo-chat",
    "responses": "demo-responses",
    "messages": "demo-messages",
    "generate_content": "demo-gemini",
}

DEMO_URL = "http://127.0.0.1:18800"
CREDIT_REASON = "first run"

START_URLS: Mapping[str, str] = {
    **{start.name: start.base_url for start in VENDOR_STARTS},
    "openai-compatible": "",
    "demo": DEMO_URL,
}
"""Address of the first channel of each vendor that the first run offers."""
START_MODELS: Mapping[str, Sequence[str]] = {
    **{start.name: start.models for start in VENDOR_STARTS},
    "openai-compatible": (),
    "demo": (DEMO_MODELS["chat_completions"],),
}


@dataclass(frozen=True, slots=True)
class FirstAdmin:
    """The fields of the first step. `base_url`: empty keeps the present one."""

    name: str
    password: str = field(repr=False)
    base_url: str = ""


@dataclass(frozen=True, slots=True)
class FirstChannel:
    """The fields of the second step. `key`: empty keeps that of the channel; `input_price` and
    `output_price`, per million tokens, are of models whose prices are not known here."""

    vendor: str
    name: str
    group: str
    models: Sequence[str]
    base_url: str = ""
    key: str = field(default="", repr=False)
    input_price: str = ""
    output_price: str = ""


@dataclass(frozen=True, slots=True)
class FirstRunState:
    """The progress of the first run: numbers of channels and keys."""

    channels: int
    keys: int

    @property
    def finished(self) -> bool:
        """Calls can be made."""
        return bool(self.channels and self.keys)


def state(db: peewee.Database) -> FirstRunState:
    """Return the progress of the first run."""
    return FirstRunState(len(list_objects(db, "channel")), len(list_objects(db, "key")))


def make_admin(db: peewee.Database, sealing: Sealing, token: str, admin: FirstAdmin) -> Person:
    """Give the first administrator a password for the token of a first-run link, which is used up.
    Hashes: not on an event loop. Raises NotFound when the link opens nothing, Refused."""
    if not first_run.opens(db, token):
        raise NotFound("this link opens nothing")
    try:
        texts.base_url(admin.base_url or DEMO_URL)
    except ValueError as error:
        raise Refused([f"the base URL {error}"]) from None
    user = {"name": admin.name, "role": "admin", "password": admin.password, "enabled": True}
    entries, maker = _entries({"user": [user]}), editor(db, sealing, admin.name, remote=True)
    # Faults show, and the password is hashed, before others have to wait for the transaction.
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

    return transaction(db, work)


def make_channel(db: peewee.Database, sealing: Sealing, actor: str, first: FirstChannel) -> None:
    """Create or change the first channel, with its group and its models. Raises Refused."""
    if first.vendor not in START_URLS:
        raise Refused([f'vendor "{first.vendor}" is not offered here'])
    if not first.models:
        raise Refused(["name one model at least"])
    vendor_families = VENDORS[first.vendor].families
    existing = {channel["name"] for channel in list_objects(db, "channel")}
    priced = {model["name"] for model in list_objects(db, "model") if model["price"]}
    channel: dict[str, Any] = {
        "name": first.name,
        "vendor": first.vendor,
        "family": next(family for family in FAMILIES if family in vendor_families),
        "base_url": first.base_url or START_URLS[first.vendor],
        "groups": [first.group],
        "models": {model: model for model in first.models},
    }
    if first.key or first.name not in existing:
        channel["keys"] = [first.key or "demo"] if first.key or first.vendor == "demo" else []
    models = [
        {"name": model, **_model_fields(model, first)}
        for model in first.models
        if model not in priced
    ]
    document = {"group": [{"name": first.group}], "model": models, "channel": [channel]}
    _apply(db, sealing, actor, document)


def keep_models(
    db: peewee.Database, sealing: Sealing, actor: str, channel: str, models: Sequence[str]
) -> None:
    """Keep only these models of a channel. Raises NotFound, Refused."""
    stored = next((row for row in list_objects(db, "channel") if row["name"] == channel), None)
    if stored is None:
        raise NotFound(f'there is no channel "{channel}"')
    remaining = {name: up for name, up in stored["models"].items() if name in models}
    if not remaining:
        raise Refused(["keep one model at least"])
    _apply(db, sealing, actor, {"channel": [{"name": channel, "models": remaining}]})


def group_to_begin_with(db: peewee.Database) -> str:
    """Return the group of the first channel; empty: there is none."""
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
    """Create a key; return its id and its secret, which is not stored. Conflict, Refused."""
    key = {"user": user, "name": name, "group": group}
    outcome = _apply(db, sealing, user, {"group": [{"name": group}], "key": [key]})
    if not outcome.keys or outcome.keys[0].secret is None:
        raise Conflict(f'the key "{name}" exists; choose another name')
    return outcome.keys[0].id, outcome.keys[0].secret


def credit_once(db: peewee.Database, user: str, amount_nanos: int) -> None:
    """Credit a wallet for the first calls; a second time nothing. Raises Refused."""
    movement = wallet.Movement(amount_nanos, CREDIT_REASON, f"first-run:{user}", user)
    wallet.credit(db, user, movement)


def _model_fields(model: str, first: FirstChannel) -> Mapping[str, Any]:
    fields = listed_fields(first.vendor, model)
    if fields is not None:
        return fields
    if not first.input_price or not first.output_price:
        raise Refused([f'the prices of "{model}" are not known here; write them, or "0"'])
    return {"price": {"input": first.input_price, "output": first.output_price}}


def _apply(
    db: peewee.Database, sealing: Sealing, actor: str, document: Mapping[str, Any]
) -> Outcome:
    return editor(db, sealing, actor, remote=True).apply(_entries(document))


def _entries(document: Mapping[str, Any]) -> Document:
    entries, faults = read(json.dumps(document), lambda value: value)
    if faults:
        raise Refused(faults)
    return entries
