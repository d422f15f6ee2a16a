"""What became of a user's calls: of the last 24 hours by hour, of a week, today by model and key.

From the roll-ups; only the part of an hour that has begun is read from records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from store.calls import usage_stats
from store.calls.usage_queries import Filters, Row, history
from store.calls.usage_stats import Order
from store.channels.figures import percentile
from store.values.ids import DAY_MS, HOUR_MS
from store.values.pricing import parse_money
from store.values.usage_record import OUTCOMES, rfc3339

HOURS = 24
WEEK_DAYS = 7
TOP = 6  # rows of a list of models or keys
FAILURES = 6
LEAST_CALLS = 20  # of a percentile
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


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of some calls by model or key; `name` None: of all that are not shown."""

    name: str | None
    calls: int
    tokens_in: int
    tokens_out: int
    cost_nanos: int


@dataclass(frozen=True, slots=True)
class Calls:
    """What home shows of a user's calls; a share is None without a call."""

    hours: Sequence[Hour]
    week_share: float | None
    yesterday_nanos: int
    by_model: Sequence[Sums]
    by_key: Sequence[Sums]
    failures: Sequence[Row]
    first_bytes: Sequence[int] = ()  # a histogram of the streams of the 24 hours

    @property
    def p50_ms(self) -> int | None:
        """Half of the streams began in this time; None: there were too few."""
        return self._percentile(50)

    @property
    def p95_ms(self) -> int | None:
        """19 of 20 streams did."""
        return self._percentile(95)

    def _percentile(self, percent: int) -> int | None:
        enough = sum(self.first_bytes) >= LEAST_CALLS
        return percentile(self.first_bytes, percent) if enough else None

    def count(self, name: str) -> int:
        """Calls of the 24 hours: `calls`, or one of the ends of Hour."""
        return sum(int(getattr(hour, name)) for hour in self.hours)

    @property
    def share(self) -> float | None:
        """Those that went well, of all but those whose client left."""
        return _share(self.count("ok"), self.count("calls") - self.count("client_gone"))


def has_called(db: peewee.Database, user: str) -> bool:
    """Whether there is a record of any call."""
    return bool(history(db, Filters(user=user), 1))


def load(db: peewee.Database, user: str, at_ms: int) -> Calls:
    """The calls of a user up to a moment; a day is that of UTC."""
    hours, ends = _hours(db, user, at_ms)
    week = Filters(user=user, since_ms=at_ms - at_ms % DAY_MS - (WEEK_DAYS - 1) * DAY_MS)
    sums = next(iter(usage_stats.stats(db, (), week)), None)
    today = Filters(user=user, since_ms=at_ms - at_ms % DAY_MS)
    return Calls(
        hours=hours,
        week_share=_share(sums["ok"], sums["calls"] - sums["client_gone"]) if sums else None,
        yesterday_nanos=_yesterday(db, user, at_ms),
        by_model=_top(db, "model", today),
        by_key=_top(db, "key_id", today),
        failures=_failures(db, user, hours[0].at_ms, ends),
        first_bytes=_first_bytes(db, Filters(user=user, since_ms=hours[0].at_ms)),
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


def _first_bytes(db: peewee.Database, filters: Filters) -> list[int]:
    rows = usage_stats.stats(db, (), filters, Order(first_bytes=True))
    return rows[0]["first_bytes"] if rows else []


def _yesterday(db: peewee.Database, user: str, at_ms: int) -> int:
    """What the calls of yesterday up to this time of the day cost."""
    begin_ms = at_ms - at_ms % DAY_MS - DAY_MS
    until_ms = at_ms - DAY_MS
    hour_ms = until_ms - until_ms % HOUR_MS
    parts = [Filters(user=user, since_ms=hour_ms, until_ms=until_ms)]
    if hour_ms > begin_ms:
        parts.append(Filters(user=user, since_ms=begin_ms, until_ms=hour_ms))
    rows = [row for part in parts for row in usage_stats.stats(db, (), part)]
    return sum(parse_money(str(row["cost"])) for row in rows)


def _top(db: peewee.Database, by: str, filters: Filters) -> list[Sums]:
    """The dearest, and all others together."""
    rows = usage_stats.stats(db, (by,), filters, Order("cost", TOP))
    found = [_sums(row, row[by]) for row in rows if row[by] is not None]
    for row in usage_stats.stats(db, (), filters):
        whole = _sums(row, None)
        rest = Sums(
            None,
            whole.calls - sum(one.calls for one in found),
            whole.tokens_in - sum(one.tokens_in for one in found),
            whole.tokens_out - sum(one.tokens_out for one in found),
            whole.cost_nanos - sum(one.cost_nanos for one in found),
        )
        found += [rest] if rest.calls else []
    return found


def _sums(row: Mapping[str, Any], name: str | None) -> Sums:
    cached = row["cache_read_tokens"] + row["cache_write_tokens"] + row["cache_write_1h_tokens"]
    return Sums(
        name,
        row["calls"],
        row["input_tokens"] + cached,
        row["output_tokens"] + row["reasoning_tokens"],
        parse_money(str(row["cost"])),
    )


def _failures(db: peewee.Database, user: str, since_ms: int, ends: set[str]) -> list[Row]:
    """The newest calls that failed or were refused."""
    outcomes = tuple(one for one in FAILED if one in ends)
    if not outcomes:
        return []
    return history(db, Filters(user=user, outcome=outcomes, since_ms=since_ms), FAILURES)


def _share(ok: int, calls: int) -> float | None:
    return ok / calls if calls else None
