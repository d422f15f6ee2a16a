"""What a user should look at: things with a cure, each with the link that leads to it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import peewee

from adapters.registry import LOSSES
from handlers.hub.overview.asked import asked_for
from handlers.hub.web.formats import money
from handlers.hub.web.parts import At
from operations.availability import Availability
from operations.base_url_check import diagnose
from store.channels import offers
from store.channels.status import DEGRADED, DOWN, Status
from store.hub.membership import groups_of
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.values.pricing import format_money

MOST_NEEDS = 6
MOST_ASKED = 2  # names that nobody offers
MONEY_DECIMALS = 2


@dataclass(frozen=True, slots=True)
class Need:
    """A thing with a shape, a fact, what holds besides, and a link; facts are names of words with
    their values."""

    shape: str
    fact: str
    under: str
    link: str
    href: str
    values: Mapping[str, Any] = field(default_factory=dict)


def needs_of(
    db: peewee.Database, me: SignedIn, keys: Sequence[OwnKey], base_url: str, at_ms: int
) -> list[Need]:
    """The most urgent first, at most MOST_NEEDS."""
    used = {key.group for key in keys if key.enabled and key.revoked_ms is None}
    # Of an administrator's groups only those that a member would have: of the others there may be
    # many, and their models need nobody here.
    groups = groups_of(db, me.user_id, admin=False)
    world = offers.load_world(db, at_ms, groups, LOSSES, figures_of=[])
    able = Availability(world)
    found = [_model(one, able) for one in _worst(world.statuses, used)]
    living = [key for key in keys if key.revoked_ms is None]
    found += [need for key in living if (need := _wrong_url(key, base_url)) is not None]
    found += [need for key in living if (need := _near_limit(key)) is not None]
    by_id = {key.id: key for key in living}
    if len(found) < MOST_NEEDS:
        asked = asked_for(db, me.user, by_id, able, at_ms, most=MOST_ASKED)
        for one in asked:
            values = {
                **{"model": one.model, "calls": one.calls, "key": one.key.name},
                "nearest": next(iter(one.why.nearest), ""),
            }
            under = "need_asked_try" if one.why.nearest else "need_asked_by"
            found.append(Need("idle", "need_asked", under, "need_details", "/status#asked", values))
    return found[:MOST_NEEDS]


def _worst(statuses: Sequence[Status], groups: Collection[str]) -> list[Status]:
    """Models that are down, then those that are degraded, the last to become so first."""
    bad = [one for one in statuses if one.name in groups and one.state in (DOWN, DEGRADED)]
    return sorted(bad, key=lambda one: (one.state != DOWN, -(one.since_ms or 0)))[:MOST_NEEDS]


def _model(status: Status, able: Availability) -> Need:
    elsewhere = able.elsewhere(status.name, status.model)
    values: dict[str, Any] = {"model": status.model, "group": status.name}
    values |= {"since": At(status.since_ms or 0), "groups": ", ".join(elsewhere)}
    under = "need_since_works" if elsewhere else "need_since"
    fact = f"need_{status.state}"
    href = "/status?" + urlencode({"group": status.name, "text": status.model})
    return Need("bad" if status.state == DOWN else "warn", fact, under, "need_status", href, values)


def _wrong_url(key: OwnKey, base_url: str) -> Need | None:
    """A client that asks for paths which another base URL would make right."""
    for one in key.wrong:
        use = diagnose(one.path, base_url).use
        if use is not None:
            values = {"key": key.name, "calls": one.calls, "path": one.path, "use": use}
            values["since"] = At(one.first_ms)
            href = f"/keys/{key.id}"
            return Need("warn", "need_url", "need_url_under", "need_fix", href, values)
    return None


def _near_limit(key: OwnKey) -> Need | None:
    limit = key.limit_nanos
    if not key.enabled or limit is None or not key.near_limit:
        return None
    spent, whole = (money(format_money(one), MONEY_DECIMALS) for one in (key.spent_nanos, limit))
    values: dict[str, Any] = {"key": key.name, "spent": spent, "limit": whole}
    values["resets"] = At(key.resets_ms or 0)
    under = "need_resets" if key.resets_ms else "need_no_reset"
    shape = "bad" if key.spent_nanos >= limit else "warn"
    return Need(shape, "need_limit", under, "need_limit_link", f"/keys/{key.id}", values)
