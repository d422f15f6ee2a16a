"""Previews: how often a rule would have fired in the last 30 days, from the sums of hours and days,
or None for kinds whose past no sum shows.

With these sums an outage counts at most once an hour, and consecutive hours count once, so previews
say "about" for channels and errors.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import fn

from store.alerts import kinds
from store.channels.status import DEGRADED_CALLS, DEGRADED_RATE, DOWN_CALLS
from store.db.database import database_ms, in_snapshot, portions, raw_rows, select_rows
from store.db.partitions import sums_of_callers
from store.db.tables.money import LedgerLine
from store.db.tables.usage import UsageByChannel, UsageByRate
from store.db.tables.users import ApiKey, User
from store.values.ids import DAY_MS, HOUR_MS, day_at, day_begin_ms, first_ulid
from store.values.pricing import parse_money
from store.values.times import DAY, window_at

DAYS = 30
MAX_ROWS = 200_000
LATE_MS = 7 * DAY_MS
"""A line of charges is created with the first charge of its day; the last one may be this much
later."""

Event = tuple[int, str]
"""The time, in ms, and the object."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The messages of the last DAYS days: their number, their days (the oldest first), the last
    one's time and object. `about`: only as exact as hours."""

    count: int
    days: tuple[int, ...]
    last_ms: int | None
    last_object: str
    about: bool


@in_snapshot
def preview(
    db: peewee.Database, owner_id: str, kind: str, settings: Mapping[str, Any]
) -> Preview | None:
    """Return the preview of a rule with checked settings, or None if its past is unknown."""
    read = _READERS.get(kind)
    if read is None:
        return None
    at_ms = database_ms(db)
    since_ms = day_begin_ms(day_at(at_ms - (DAYS - 1) * DAY_MS))
    names = settings.get("names", ())
    events = sorted(
        event
        for event in read(db, owner_id, settings, since_ms)
        if kinds.listed(names, event[1]) and event[0] >= since_ms
    )
    days = [0] * DAYS
    for event_ms, _ in events:
        days[min(DAYS - 1, (event_ms - since_ms) // DAY_MS)] += 1
    last_ms, last_object = events[-1] if events else (None, "")
    return Preview(len(events), tuple(days), last_ms, last_object, kind in _BY_HOURS)


_BY_HOURS = (kinds.CHANNEL_DOWN, kinds.ERRORS)


def to_public(found: Preview | None) -> dict[str, Any]:
    """Return a preview as JSON."""
    if found is None:
        return {"count": None}
    return {
        "count": found.count,
        "about": found.about,
        "days": list(found.days),
        "last_object": found.last_object or None,
    }


def _balance(
    db: peewee.Database, owner_id: str, settings: Mapping[str, Any], since_ms: int
) -> Iterable[Event]:
    """Yield each fall of a balance below the amount, from the ledger, whose charges are by day."""
    below, line = parse_money(settings["below"]), LedgerLine
    query = line.select(line.at_ms, User.name).join(User, on=(User.id == line.user_id))
    # The only index with times is the ledger's key, with those at which lines were created.
    recent = (line.id >= first_ulid(since_ms - LATE_MS)) & (line.at_ms >= since_ms)
    fell = (line.balance_after < below) & (line.balance_after - line.amount >= below)
    query = query.where(recent, fell)
    if owner_id:
        query = query.where(line.user_id == owner_id)
    yield from select_rows(db, query.limit(MAX_ROWS))


def _key(
    db: peewee.Database, owner_id: str, settings: Mapping[str, Any], since_ms: int
) -> Iterable[Event]:
    columns = (ApiKey.id, ApiKey.name, ApiKey.limit_nanos, ApiKey.limit_window, User.name)
    limited = ApiKey.limit_nanos.is_null(False) & ApiKey.revoked_ms.is_null()
    own = limited & (User.id == owner_id) if owner_id else limited
    query = ApiKey.select(*columns).join(User, on=(User.id == ApiKey.user_id)).where(own)
    keys = {row[0]: row[1:] for row in select_rows(db, query)}
    if not keys:
        return
    first = day_at(since_ms)
    sums, spent = sums_of_callers(db, first), defaultdict[tuple[str, int], int](int)
    within = sums.day >= first
    # For most keys, the sum of all days is below the first level.
    least, level = fn.SUM(sums.cost_nanos), min(kinds.KEY_LEVELS)
    totals = _of_owner(sums, sums.select(sums.key_id, least).where(within), owner_id)
    totals = totals.group_by(sums.key_id)
    lowest = min(limit for _, limit, *_ in keys.values()) * level // 100
    near = [
        key_id
        for key_id, total in raw_rows(db, totals.having(least >= lowest))
        if key_id in keys and total * 100 >= keys[key_id][1] * level
    ]
    days = _days(sums, "key_id", owner_id).where(within).order_by(sums.day)
    for portion in portions(near):
        for day, key_id, nanos in raw_rows(db, days.where(sums.key_id << portion)):
            name, limit, window, user = keys[key_id]
            at_ms = day_begin_ms(day)
            place = (key_id, window_at(window, at_ms)[0])
            before, after = spent[place], spent[place] + int(nanos)
            spent[place] = after
            for level in kinds.KEY_LEVELS:
                if before * 100 < limit * level <= after * 100:
                    yield at_ms, f"{user}/{name}"


def _spending(
    db: peewee.Database, owner_id: str, settings: Mapping[str, Any], since_ms: int
) -> Iterable[Event]:
    of, above = settings["of"], parse_money(settings["above"])
    windows = _windows(db, settings["window"], since_ms)
    sums = sums_of_callers(db, windows[0][0])
    days = _days(sums, kinds.SPENDERS.get(of), owner_id)
    rows: list[tuple[int, str]] = []
    for first, last in windows:
        within = days.where(sums.day.between(first, last))
        if settings["window"] == DAY:
            over = within.having(fn.SUM(sums.cost_nanos) > above)
            rows += [row[:2] for row in raw_rows(db, over.limit(MAX_ROWS))]
            continue
        day = within.alias("of_day")
        total = fn.SUM(day.c.nanos).over(partition_by=[day.c.name], order_by=[day.c.day])
        columns = [day.c.day, day.c.name, day.c.nanos, total.alias("total")]
        by_day = peewee.Select([day], columns).alias("by_day")
        passed = (by_day.c.total > above) & (by_day.c.total - by_day.c.nanos <= above)
        query = peewee.Select([by_day], [by_day.c.day, by_day.c.name]).where(passed)
        rows += raw_rows(db, query.limit(MAX_ROWS))
    labels = _key_names(db) if of == "key" and rows else {}
    for day, name in rows:
        yield day_begin_ms(day), labels.get(name, name)


def _windows(db: peewee.Database, window: str, since_ms: int) -> list[tuple[int, int]]:
    """Return the first and the last day of the windows since a time. Windows of a day are one
    span."""
    at_ms = database_ms(db)
    if window == DAY:
        return [(day_at(since_ms), day_at(at_ms))]
    windows = []
    while since_ms <= at_ms:
        first, ends_ms = window_at(window, since_ms)
        assert ends_ms is not None
        windows.append((first, day_at(ends_ms - 1)))
        since_ms = ends_ms
    return windows


def _key_names(db: peewee.Database) -> dict[str, str]:
    query = ApiKey.select(ApiKey.id, ApiKey.name, User.name)
    rows = select_rows(db, query.join(User, on=(User.id == ApiKey.user_id)))
    return {key_id: f"{user}/{name}" for key_id, name, user in rows}


def _days(sums: Any, column: str | None, owner_id: str) -> Any:
    """Return a query of `day`, `name`, `nanos`, with one name for all if there is no column."""
    names = [] if column is None else [getattr(sums, column)]
    name = names[0] if names else peewee.Value("")
    nanos = fn.SUM(sums.cost_nanos).alias("nanos")
    query = sums.select(sums.day, name.alias("name"), nanos).group_by(sums.day, *names)
    return _of_owner(sums, query, owner_id)


def _of_owner(sums: Any, query: Any, owner_id: str) -> Any:
    own = User.select(User.name).where(User.id == owner_id)
    return query.where(sums.user << own) if owner_id else query


def _unpriced(
    db: peewee.Database, owner_id: str, settings: Mapping[str, Any], since_ms: int
) -> Iterable[Event]:
    used = (UsageByRate.day >= day_at(since_ms)) & (UsageByRate.meter != "")
    query = UsageByRate.select(UsageByRate.day, UsageByRate.model, UsageByRate.meter).where(used)
    for day, model, meter in select_rows(db, query.distinct().limit(MAX_ROWS)):
        yield day_begin_ms(day), f"{model} {meter}"


# ---- channels, by hours --------------------------------------------------------------------------


def _channel_down(
    db: peewee.Database, owner_id: str, settings: Mapping[str, Any], since_ms: int
) -> Iterable[Event]:
    degraded = settings["state"] == "degraded"

    def fires(calls: int, failed: int) -> bool:
        down = calls >= DOWN_CALLS and failed == calls
        few = calls >= DEGRADED_CALLS and calls - failed < DEGRADED_RATE * calls
        return down or (degraded and few)

    return _first_hours(db, since_ms, fires)


def _errors(
    db: peewee.Database, owner_id: str, settings: Mapping[str, Any], since_ms: int
) -> Iterable[Event]:
    def fires(calls: int, failed: int) -> bool:
        return bool(calls >= settings["calls"] and failed * 100 > settings["percent"] * calls)

    return _first_hours(db, since_ms, fires)


def _first_hours(
    db: peewee.Database, since_ms: int, fires: Callable[[int, int], bool]
) -> Iterable[Event]:
    """Yield the first of consecutive hours in which a rule fires for a channel."""
    columns = (UsageByChannel.day, UsageByChannel.hour, UsageByChannel.channel)
    reached = (UsageByChannel.channel != "") & UsageByChannel.outcome.not_in(
        ["refused", "client_gone"]
    )
    query = UsageByChannel.select(
        *columns, UsageByChannel.outcome == "ok", fn.SUM(UsageByChannel.calls)
    )
    query = query.where((UsageByChannel.day >= day_at(since_ms)) & reached)
    query = query.group_by(*columns, UsageByChannel.outcome == "ok")
    hours: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for day, hour, channel, ok, calls in raw_rows(db, query.limit(MAX_ROWS)):
        at_ms = day_begin_ms(day) + hour * HOUR_MS
        hours[channel, at_ms][bool(ok)] += int(calls)
    before: dict[str, int] = {}
    for (channel, at_ms), (failed, good) in sorted(hours.items()):
        if fires(failed + good, failed):
            if before.get(channel) != at_ms - HOUR_MS:
                yield at_ms, channel
            before[channel] = at_ms


_READERS: Mapping[str, Callable[..., Iterable[Event]]] = {
    kinds.BALANCE: _balance,
    kinds.KEY: _key,
    kinds.CHANNEL_DOWN: _channel_down,
    kinds.ERRORS: _errors,
    kinds.SPENDING: _spending,
    kinds.UNPRICED: _unpriced,
}
