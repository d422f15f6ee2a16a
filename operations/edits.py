"""Edits of the objects in the document of `apply`, and what lists show beyond their fields."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import peewee

from adapters.models import OPTIONS, is_option
from adapters.registry import LOSSES, VENDORS, address_of
from store.admin import listing
from store.admin.apply import Editor
from store.admin.objects import Sealing
from store.admin.plan import Upstreams
from store.catalog import suspended_keys
from store.channels.status import Status, of_channels, to_public, worst
from store.db.database import database_ms
from store.hub import openid_links
from store.money import codes
from store.money.quota import with_use_of_limits, with_use_of_subscriptions
from store.values.errors import Refused
from store.values.pricing import format_money
from store.values.usage_record import rfc3339, rfc3339_or_none

_UPSTREAMS = Upstreams(
    {name: vendor.families for name, vendor in VENDORS.items()},
    OPTIONS,
    is_option,
    frozenset(name for name, vendor in VENDORS.items() if vendor.any_version),
)

Objects = Sequence[Mapping[str, Any]]


def editor(
    db: peewee.Database,
    sealing: Sealing,
    actor: str,
    environ: Mapping[str, str] | None = None,
    *,
    remote: bool = False,
) -> Editor:
    """Return an editor that acts as `actor` in the audit log. `environ`: for values env:NAME of
    single edits; `remote`: the actor's requests come over HTTP."""
    # A separate Sealing each time, because it remembers the passwords that it has hashed.
    own = Sealing(sealing.cipher, sealing.peppers)
    return Editor(db, own, _UPSTREAMS, actor, environ, remote=remote)


def reinstate_keys(db: peewee.Database, channel: str, position: int | None, actor: str) -> int:
    """Reinstate suspended upstream keys of a channel: the one at a position, or all. Return their
    number. Raises NotFound, Refused."""
    return suspended_keys.reinstate(db, listing.show_one(db, "channel", channel), position, actor)


def link_account(db: peewee.Database, issuer: str, user: str, subject: str, actor: str) -> str:
    """Let an account of the OpenID provider `issuer` sign in as a user. Return the link's id.
    Raises NotFound, Conflict, Refused."""
    if not issuer:
        raise Refused(["hub.oidc_issuer is not set: there is no provider to link to"])
    return openid_links.link(db, user, issuer, subject, actor)


def create_codes(
    db: peewee.Database, batch: codes.NewCodes, pepper: str, actor: str
) -> list[dict[str, Any]]:
    """Create redeem codes. Return them in clear text, which is never shown again. Raises
    Refused."""
    return [
        {
            "id": code.id,
            "code": code.code,
            "amount": format_money(batch.amount_nanos),
            "expires_at": rfc3339_or_none(batch.expires_ms),
        }
        for code in codes.create(db, batch, pepper, actor)
    ]


def with_use(db: peewee.Database, subscriptions: Objects) -> list[dict[str, Any]]:
    """Return subscriptions with the spent part of their quota."""
    return with_use_of_subscriptions(db, subscriptions, database_ms(db))


def with_use_of_limit(db: peewee.Database, owners: Objects) -> list[dict[str, Any]]:
    """Return keys or users with the spent part of their limit."""
    return with_use_of_limits(db, owners, database_ms(db))


def with_status(db: peewee.Database, channels: Objects) -> list[dict[str, Any]]:
    """Return channels with the address that is called, the status of each model, the worst of
    these, and suspended keys."""
    by_name: defaultdict[str, list[Status]] = defaultdict(list)
    for status in of_channels(db, database_ms(db), LOSSES):
        by_name[status.name].append(status)
    channels = suspended_keys.with_suspended_keys(db, channels)
    return [
        {**channel, "address": _address_of(channel), **_status_fields(by_name[channel["name"]])}
        for channel in channels
    ]


def _address_of(channel: Mapping[str, Any]) -> str | None:
    """Return the URL that calls of a channel go to, or None if its vendor no longer has a row."""
    if channel["vendor"] not in VENDORS:
        return None
    return address_of(channel["vendor"], channel["family"], channel["base_url"])


def _status_fields(models: list[Status]) -> dict[str, object]:
    first = worst(models)
    together = Status("", "", parts=[part for model in models for part in model.parts])
    return {
        "state": first.state if first else None,
        "since": rfc3339(first.since_ms) if first and first.since_ms else None,
        "reason": first.reason if first else None,
        "entries": {name: how for row in models for name, how in (row.entries or {}).items()},
        "windows": to_public(together)["windows"],
        "status": [to_public(model) for model in models],
    }
