"""Problems that need an administrator: refused calls, channels, groups, the store, nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from handlers.hub.home.needs import Need, lacking, money_detail
from handlers.hub.web.admin import path_of
from handlers.hub.web.formats import money
from handlers.hub.web.parts import At
from store.calls.reading.overview import (
    SPAN_DAYS_MAX,
    ChannelLine,
    ChannelLines,
    channel_lines,
    costs_set,
)
from store.calls.reading.refusals import refused_users
from store.calls.reading.sums import CallSums, sums_of_names
from store.calls.usage_queries import Filters
from store.catalog.catalog import load_groups
from store.channels.status import DEGRADED, DOWN
from store.db import migrate, nodes
from store.db.database import in_snapshot
from store.values.ids import DAY_MS
from store.values.pricing import format_money, format_multiplier

NEEDS_SHOWN = 7
CHANNELS_READ = 50  # at most, of channels that are not up
WITHOUT_COST_SHOWN = 2  # each by name; more become one need
MONEY_DECIMALS = 2
_RANKS = ("bad", "warn", "idle")
_USERS_FIRST = 2**62  # nanos: ranks refused calls before all other red needs


@dataclass(frozen=True, slots=True)
class GatewayNeeds:
    """The most urgent needs, and the number of others."""

    first: Sequence[Need]
    more: int


Ranked = tuple[Need, int]
"""A need and the amount of money that it affects, in nanos."""


@in_snapshot
def load_gateway_needs(db: peewee.Database, at_ms: int) -> GatewayNeeds:
    """Return what needs an administrator: red needs first, then yellow ones, each sorted by the
    money affected in SPAN_DAYS_MAX days, descending."""
    since_ms = at_ms - at_ms % DAY_MS - (SPAN_DAYS_MAX - 1) * DAY_MS
    filters = Filters(since_ms=since_ms)
    sums = sums_of_names(db, "channel", filters)
    channels = channel_lines(db, at_ms, sums, CHANNELS_READ)
    refused, unread = _refused(db, at_ms)
    needs = [*refused, *_of_channels(channels), *_of_groups(db, filters)]
    needs += [*_without_cost(db, sums), *_of_store(db)]
    needs.sort(key=lambda pair: (_RANKS.index(pair[0].shape), -pair[1]))
    first = [need for need, _ in needs[:NEEDS_SHOWN]]
    return GatewayNeeds(first, len(needs) - len(first) + unread)


def _refused(db: peewee.Database, at_ms: int) -> tuple[list[Ranked], int]:
    """Return the needs of users whose calls were refused for lack of money, and the number of users
    that were not checked."""
    refused, users = refused_users(db, at_ms, NEEDS_SHOWN)
    needs = []
    for user, refusals in refused.items():
        if (values := lacking(db, user, refusals)) is not None:
            link = (money_detail(values), "need_add_money", path_of("users", user, "credit"))
            need = Need("bad", "need_user_money", *link, {"user": user, **values})
            needs.append((need, _USERS_FIRST + refusals.calls))
    return needs, users - len(refused)


def _of_channels(channels: ChannelLines) -> Iterator[Ranked]:
    for line in channels.lines:
        if line.state in (DOWN, DEGRADED) and line.status is not None:
            yield _of_channel(line), line.sums.cost_nanos


def _of_channel(line: ChannelLine) -> Need:
    assert line.status is not None
    today, begin_ms = line.days[-1], line.status.since_ms or 0
    values: dict[str, Any] = {
        **{"channel": line.name, "model": line.status.model, "reason": line.status.reason or ""},
        **{"failed": today.failed, "calls": today.calls, "since": At(begin_ms)},
    }
    detail = "need_channel_failed" if today.calls else "need_channel_since"
    href = path_of("channels", line.name)
    shape = "bad" if line.state == DOWN else "warn"
    return Need(shape, f"need_channel_{line.state}", detail, "need_channel", href, values)


def _of_groups(db: peewee.Database, filters: Filters) -> Iterator[Ranked]:
    """Yield groups that charge less than the operator pays."""
    sums = sums_of_names(db, "group", filters)
    lost = {name: -part.margin_nanos for name, part in sums.items() if part.margin_nanos < 0}
    for group in load_groups(db) if lost else ():
        if loss := lost.get(group.name, 0):
            values = {
                **{"group": group.name, "loss": money(format_money(-loss), MONEY_DECIMALS)},
                **{"days": SPAN_DAYS_MAX, "multiplier": format_multiplier(group.multiplier_ppm)},
            }
            link = ("need_multiplier", path_of("groups", group.name))
            yield Need("warn", "need_group_loses", "need_group_loss", *link, values), loss


def _without_cost(db: peewee.Database, sums: Mapping[str, CallSums]) -> Iterator[Ranked]:
    """Yield channels without a cost setting whose calls were charged."""
    charged = {
        name: sums[name].cost_nanos
        for name, is_set in costs_set(db).items()
        if not is_set and name in sums and sums[name].cost_nanos
    }
    if len(charged) > WITHOUT_COST_SHOWN:
        total = sum(charged.values())
        yield _cost_need("need_costs", path_of("channels"), total, channels=len(charged)), total
        return
    for name, nanos in charged.items():
        yield _cost_need("need_cost", path_of("channels", name, "edit"), nanos, channel=name), nanos


def _cost_need(fact: str, href: str, nanos: int, **values: Any) -> Need:
    charged = money(format_money(nanos), MONEY_DECIMALS)
    values |= {"charged": charged, "days": SPAN_DAYS_MAX}
    return Need("idle", fact, "need_cost_detail", "need_set_cost", href, values)


def _of_store(db: peewee.Database) -> Iterator[Ranked]:
    """Yield pending migrations, and nodes that stopped reporting without a proper shutdown."""
    if pending := migrate.pending(db):
        values: dict[str, Any] = {"count": len(pending), "names": ", ".join(pending)}
        yield _system_need("need_migration", "need_migration_detail", values), 0
    for node in nodes.states(db):
        if not node.alive and node.unfinished:
            values = {"node": node.name, "since": At(node.seen_ms)}
            yield _system_need("need_node", "need_node_since", values), 0


def _system_need(fact: str, detail: str, values: Mapping[str, Any]) -> Need:
    return Need("warn", fact, detail, "need_system", path_of("system"), values)
