"""What became of a user's calls: of the last 24 hours by hour, of a week, today by model and key.

From the roll-ups; only the part of an hour that has begun is read from records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import peewee

from handlers.hub.web.sums import Sums
from store.calls import usage_stats
from store.calls.usage_queries import Filters, Row, history
from store.calls.usage_stats import Order
from store.values.ids import DAY_MS, HOUR_MS
from store.values.usage_record import OUTCOMES, rfc3339

HOURS = 24
WEEK_DAYS = 7
TOP = 6  # rows of a list of models or keys
FAILURES = 6
PLAIN = Order()
FAILED = tuple(one for one in OUTCOMES if one not in ("ok", "client_gone"))
"""Outcomes of calls that failed or were refused."""


@dataclass(frozen=True, slots=True)
class Hour:
    """Calls that began in an hour, by how they ended."""

    at_ms: int
    ok: int = 0
    refused: int = 0
    failed: int = 0
    client_gone: int = 0

    @property
    def calls(self) -> int:
        """All of them."""
        return self.ok + self.refused + self.failed + self.client_gone


@dataclass(slots=True)
class Named(Sums):
    """Calls of a model or a key; `name` None: of all that are not shown."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class Calls:
    """What home shows of a user's calls; `week` is of today and the six days before."""

    hours: Sequence[Hour]
    day: Sums
    week: Sums
    yesterday_nanos: int
    by_model: Sequence[Named]
    by_key: Sequence[Named]
    failures: Sequence[Row]


def has_called(db: peewee.Database, user: str) -> bool:
    """Whether there is a record of any call."""
    return bool(history(db, Filters(user=user), 1))


def load(db: peewee.Database, user: str, at_ms: int) -> Calls:
    """The calls of a user up to a moment; a day is that of UTC."""
    hours, ends = _hours(db, user, at_ms)
    today_ms = at_ms - at_ms % DAY_MS
    today = Filters(user=user, since_ms=today_ms)
    day = Filters(user=user, since_ms=hours[0].at_ms)
    week = Filters(user=user, since_ms=today_ms - (WEEK_DAYS - 1) * DAY_MS)
    return Calls(
        hours=hours,
        day=_sums(db, day, Order(first_bytes=True)),
        week=_sums(db, week),
        yesterday_nanos=_yesterday(db, user, at_ms),
        by_model=_top(db, "model", today),
        by_key=_top(db, "key_id", today),
        failures=_failures(db, user, hours[0].at_ms, ends),
    )


def _hours(db: peewee.Database, user: str, at_ms: int) -> tuple[list[Hour], set[str]]:
    """The last 24 hours, the one that runs last, and the outcomes that there were."""
    first_ms = at_ms - at_ms % HOUR_MS - (HOURS - 1) * HOUR_MS
    found: dict[str, dict[str, int]] = {}
    ends = set()
    filters = Filters(user=user, since_ms=first_ms)
    for row in usage_stats.stats(db, ("hour", "outcome"), filters):
        there = found.setdefault(row["hour"], dict.fromkeys(usage_stats.CLASSES, 0))
        ends.add(row["outcome"])
        for name in usage_stats.CLASSES:
            there[name] += row[name]
    starts = range(first_ms, first_ms + HOURS * HOUR_MS, HOUR_MS)
    hours = [Hour(start, **found.get(rfc3339(start), {})) for start in starts]
    return hours, ends


def _sums(db: peewee.Database, filters: Filters, order: Order = PLAIN) -> Sums:
    found = Sums()
    for row in usage_stats.stats(db, (), filters, order):
        found.add(row)
    return found


def _yesterday(db: peewee.Database, user: str, at_ms: int) -> int:
    """What the calls of yesterday up to this time of the day cost."""
    begin_ms = at_ms - at_ms % DAY_MS - DAY_MS
    until_ms = at_ms - DAY_MS
    hour_ms = until_ms - until_ms % HOUR_MS
    parts = [Filters(user=user, since_ms=hour_ms, until_ms=until_ms)]
    if hour_ms > begin_ms:
        parts.append(Filters(user=user, since_ms=begin_ms, until_ms=hour_ms))
    return sum(_sums(db, part).cost_nanos for part in parts)


def _top(db: peewee.Database, by: str, filters: Filters) -> list[Named]:
    """The dearest, and all others together."""
    found, rest = [], Named()
    for row in usage_stats.stats(db, (), filters):
        rest.add(row)
    for row in usage_stats.stats(db, (by,), filters, Order("cost", TOP)):
        if row[by] is not None:
            one = Named(name=row[by])
            one.add(row)
            rest.remove(one)
            found.append(one)
    return [*found, rest] if rest.calls else found


def _failures(db: peewee.Database, user: str, since_ms: int, ends: set[str]) -> list[Row]:
    """The newest calls that failed or were refused."""
    outcomes = tuple(one for one in FAILED if one in ends)
    if not outcomes:
        return []
    return history(db, Filters(user=user, outcome=outcomes, since_ms=since_ms), FAILURES)
