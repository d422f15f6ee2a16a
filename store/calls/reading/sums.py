"""Sums of calls for the Hub: outcomes, tokens, money and first bytes, by user and by key.

From the roll-ups. Records are read only for a partial hour at the start of a span. Days are those
of UTC.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import peewee

from store.calls import usage_stats
from store.calls.usage_queries import Filters, Row, history
from store.calls.usage_stats import CLASSES, Order
from store.channels.figures import percentile
from store.db.database import database_ms, in_snapshot
from store.db.tables.channels import FIRST_BYTE
from store.money.ledger import charges_by_day
from store.values.ids import DAY_MS, HOUR_MS, day_at, day_begin_ms
from store.values.pricing import format_money, parse_money
from store.values.times import MONTH, window_at
from store.values.usage_record import OUTCOMES, rfc3339

Name = TypeVar("Name", str, tuple[str, str])

MIN_STREAMS = 20
"""The fewest streams for which a percentile is returned; with fewer it would be chance."""

RECENT_HOURS = 24
WEEK_DAYS = 7
TOP_ROWS = 6  # of models or keys
RECENT_FAILURES = 6
KEY_CALLS = KEY_MODELS = 10
KEY_DAYS = MARGIN_DAYS = 30
FAILED = tuple(outcome for outcome in OUTCOMES if outcome not in ("ok", "client_gone"))
"""Outcomes of calls that failed or were refused."""

_PLAIN = Order()
MONEY_SUMS = ("cost_nanos", "upstream_nanos", "upstream_known_nanos")
"""The roll-up columns that CallSums has as `cost_nanos`, `upstream_nanos`, `known_nanos`."""

_MONEY = ("cost_nanos", "upstream_nanos", "known_nanos")
_TOKENS = {
    "input": ("input_tokens", "cache_write_tokens", "cache_write_1h_tokens"),
    "cached": ("cache_read_tokens",),
    "output": ("output_tokens", "reasoning_tokens"),
}


@dataclass(slots=True)
class CallSums:
    """Sums of calls. `first_bytes` is a histogram of the streams. `upstream_nanos` is the
    operator's cost of the calls for which it is known, `known_nanos` what those calls were charged.
    Both are 0 if the margin was not requested."""

    calls: int = 0
    ok: int = 0
    refused: int = 0
    client_gone: int = 0
    failed: int = 0
    cost_nanos: int = 0
    upstream_nanos: int = 0
    known_nanos: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    first_bytes: list[int] = field(default_factory=lambda: [0] * len(FIRST_BYTE))

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row of `usage_stats.stats`, with or without first bytes."""
        for name in ("calls", *CLASSES):
            setattr(self, name, getattr(self, name) + row[name])
        for name, columns in _TOKENS.items():
            setattr(self, name, getattr(self, name) + sum(row[column] for column in columns))
        self.cost_nanos += parse_money(row["cost"])
        if "upstream_cost" in row:
            self.upstream_nanos += parse_money(row["upstream_cost"])
            self.known_nanos += parse_money(row["cost_known"])
        if (first_bytes := row.get("first_bytes")) is not None:
            pairs = zip(self.first_bytes, first_bytes, strict=True)
            self.first_bytes = [a + b for a, b in pairs]

    def plus(self, part: "CallSums", sign: int = 1) -> None:
        """Add the sums of other calls; with the sign -1 subtract those of a part."""
        for name in ("calls", *CLASSES, *_MONEY, *_TOKENS):
            setattr(self, name, getattr(self, name) + sign * getattr(part, name))
        pairs = zip(self.first_bytes, part.first_bytes, strict=True)
        self.first_bytes = [a + sign * b for a, b in pairs]

    @property
    def cost(self) -> str:
        """Return the cost as decimal text."""
        return format_money(self.cost_nanos)

    @property
    def margin_nanos(self) -> int:
        """Return the margin: what was charged for calls whose cost to the operator is known, less
        that cost."""
        return self.known_nanos - self.upstream_nanos

    @property
    def margin(self) -> float | None:
        """Return the margin as a part of those charges, or None if nothing was charged or no cost
        is known."""
        return self.margin_nanos / self.known_nanos if self.known_nanos else None

    @property
    def known_share(self) -> float | None:
        """Return the part of the charges whose cost to the operator is known, or None without
        charges."""
        return self.known_nanos / self.cost_nanos if self.cost_nanos else None

    @property
    def tokens(self) -> int:
        """Return the number of tokens of all kinds."""
        return self.input + self.cached + self.output

    @property
    def counted(self) -> int:
        """Return the number of calls except those whose client left."""
        return self.calls - self.client_gone

    @property
    def share(self) -> float | None:
        """Return the part of the counted calls that succeeded, or None without calls."""
        return self.ok / self.counted if self.counted else None

    @property
    def streams(self) -> int:
        """Return the number of streams that started."""
        return sum(self.first_bytes)

    def first_byte(self, percent: int) -> int | None:
        """Return a percentile of the time until a stream started, in ms, or None for fewer than
        MIN_STREAMS."""
        enough = self.streams >= MIN_STREAMS
        return percentile(self.first_bytes, percent) if enough else None


def sum_of(db: peewee.Database, filters: Filters, order: Order = _PLAIN) -> CallSums:
    """Return the sums of all matching calls."""
    sums = CallSums()
    for row in usage_stats.stats(db, (), filters, order):
        sums.add(row)
    return sums


def margins(db: peewee.Database, by: str, channel: str | None = None) -> dict[str, str]:
    """Return the operator's margins of the last MARGIN_DAYS by `by` (model or channel), as
    `usage_stats.stats` has them. Unknown margins are left out. `channel` limits them to one
    channel."""
    since_ms = (database_ms(db) // DAY_MS - MARGIN_DAYS + 1) * DAY_MS
    filters = Filters(channel=channel, since_ms=since_ms)
    rows = usage_stats.stats(db, (by,), filters, Order(margin=True))
    return {row[by]: row["margin"] for row in rows if row["margin"] is not None}


def sums_by(
    rows: Iterable[dict[str, Any]], name_of: Callable[[dict[str, Any]], Name]
) -> dict[Name, CallSums]:
    """Return rows of `usage_stats.stats` summed up by the name, or pair of names, that `name_of`
    returns, in order of appearance."""
    sums: dict[Name, CallSums] = {}
    for row in rows:
        sums.setdefault(name_of(row), CallSums()).add(row)
    return sums


# ---- the calls of a user -------------------------------------------------------------------------


@dataclass(slots=True)
class SumsBar(CallSums):
    """Calls that started in an hour or a day: from `at_ms` until before `end_ms`, if that is
    set."""

    at_ms: int = 0
    end_ms: int = 0


@dataclass(slots=True)
class NamedSums(CallSums):
    """Calls of a model or a key. `name` is None for all others together."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class RecentCalls:
    """Recent calls of a user: the last 24 hours by hour, a week (today and the six days before),
    today by model and key, the cost of yesterday up to this time, and the newest failures."""

    hours: Sequence[SumsBar]
    day: CallSums
    week: CallSums
    yesterday_nanos: int
    by_model: Sequence[NamedSums]
    by_key: Sequence[NamedSums]
    failures: Sequence[Row]


def newest_call(db: peewee.Database, user: str) -> str:
    """Return the id of a user's newest recorded call, or an empty text."""
    return next((row["id"] for row in history(db, Filters(user=user), 1)), "")


def recent_calls(db: peewee.Database, user: str, at_ms: int) -> RecentCalls:
    """Return the calls of a user up to `at_ms`."""
    hours, outcomes = _hours(db, user, at_ms)
    today_ms = at_ms - at_ms % DAY_MS
    today = Filters(user=user, since_ms=today_ms)
    day = Filters(user=user, since_ms=hours[0].at_ms)
    week = Filters(user=user, since_ms=today_ms - (WEEK_DAYS - 1) * DAY_MS)
    return RecentCalls(
        hours=hours,
        day=sum_of(db, day, Order(first_bytes=True)),
        week=sum_of(db, week),
        yesterday_nanos=_yesterday(db, user, at_ms),
        by_model=_top(db, "model", today),
        by_key=_top(db, "key_id", today),
        failures=_failures(db, user, hours[0].at_ms, outcomes),
    )


def _hours(db: peewee.Database, user: str, at_ms: int) -> tuple[list[SumsBar], set[str]]:
    """Return the bars of the last 24 hours, from the hour in which they start as `since=24h` counts
    them everywhere, and the outcomes in them."""
    first_ms = (at_ms // HOUR_MS - RECENT_HOURS) * HOUR_MS
    starts = range(first_ms, at_ms + 1, HOUR_MS)
    hours = {rfc3339(start): SumsBar(at_ms=start) for start in starts}
    outcomes = set()
    filters = Filters(user=user, since_ms=first_ms)
    for row in usage_stats.stats(db, ("hour", "outcome"), filters):
        outcomes.add(row["outcome"])
        if hour := hours.get(row["hour"]):
            hour.add(row)
    return list(hours.values()), outcomes


def _yesterday(db: peewee.Database, user: str, at_ms: int) -> int:
    """Return the cost of yesterday's calls up to this time of the day (nanos)."""
    begin_ms = at_ms - at_ms % DAY_MS - DAY_MS
    until_ms = at_ms - DAY_MS
    hour_ms = until_ms - until_ms % HOUR_MS
    parts = [Filters(user=user, since_ms=hour_ms, until_ms=until_ms)]
    if hour_ms > begin_ms:
        parts.append(Filters(user=user, since_ms=begin_ms, until_ms=hour_ms))
    return sum(sum_of(db, part).cost_nanos for part in parts)


def _top(db: peewee.Database, by: str, filters: Filters) -> list[NamedSums]:
    """Return the most expensive models or keys, and all others together."""
    top, remaining = [], NamedSums()
    for row in usage_stats.stats(db, (), filters):
        remaining.add(row)
    for row in usage_stats.stats(db, (by,), filters, Order("cost", TOP_ROWS)):
        if row[by] is not None:
            sums = NamedSums(name=row[by])
            sums.add(row)
            remaining.plus(sums, -1)
            top.append(sums)
    return [*top, remaining] if remaining.calls else top


@dataclass(frozen=True, slots=True)
class RankedSums:
    """The groups with the greatest costs. `remaining` (name None) are all others together,
    including calls without a name. `groups` is the number of all groups."""

    rows: list[NamedSums]
    remaining: NamedSums
    groups: int


def ranked_sums(db: peewee.Database, by: str, filters: Filters, top: int) -> RankedSums:
    """Return the `top` groups with the greatest costs, by one of DIMENSIONS. Reads only calls,
    costs and margins, which takes a third of the time of all sums."""
    named = sums_of_names(db, by, filters)
    remaining = NamedSums()
    for sums in named.values():
        remaining.plus(sums)
    unnamed = named.pop("", None)
    rows = heapq.nlargest(top, named.values(), key=lambda sums: (sums.cost_nanos, sums.calls))
    for row in rows:
        remaining.plus(row, -1)
    return RankedSums(rows, remaining, len(named) + (unnamed is not None))


def sums_of_names(db: peewee.Database, by: str, filters: Filters) -> dict[str, NamedSums]:
    """Return calls, costs and margins by one of DIMENSIONS. Calls without a name are under ""."""
    rows = usage_stats.series(db, (by,), filters, ("calls", *MONEY_SUMS))
    return {
        name: NamedSums(
            calls, cost_nanos=cost, upstream_nanos=upstream, known_nanos=with_cost, name=name
        )
        for name, calls, cost, upstream, with_cost in rows
    }


def _failures(db: peewee.Database, user: str, since_ms: int, outcomes: set[str]) -> list[Row]:
    """Return the newest calls that failed or were refused."""
    failed = tuple(outcome for outcome in FAILED if outcome in outcomes)
    if not failed:
        return []
    return history(db, Filters(user=user, outcome=failed, since_ms=since_ms), RECENT_FAILURES)


# ---- the calls of a key --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """Calls of a key: this month's sums and models, the last KEY_DAYS, the newest calls."""

    month: CallSums
    days: dict[str, CallSums]
    models: list[tuple[str, CallSums]]
    calls: list[Row]

    @property
    def max_nanos(self) -> int:
        """Return the cost of the most expensive model."""
        return max((sums.cost_nanos for _, sums in self.models), default=0)


@in_snapshot
def key_usage(db: peewee.Database, user: str, key_id: str, at_ms: int) -> KeyUsage:
    """Return the usage of a user's key. Its sums, which may be many, are read once."""
    first_day, _ = window_at(MONTH, at_ms)
    days_ms = at_ms - at_ms % DAY_MS - (KEY_DAYS - 1) * DAY_MS
    first_date = datetime.fromtimestamp(days_ms / 1000, UTC).date().isoformat()
    since = Filters(user=user, key_id=key_id, since_ms=min(days_ms, day_begin_ms(first_day)))
    rows = usage_stats.stats(db, ("day", "model"), since, Order(first_bytes=True))
    month = [row for row in rows if int(row["day"].replace("-", "")) >= first_day]
    models = sums_by(month, lambda row: row["model"] or "")
    by_cost = sorted(
        models.items(), key=lambda pair: (pair[1].cost_nanos, pair[1].calls), reverse=True
    )
    return KeyUsage(
        month=sums_by(month, lambda row: "").get("", CallSums()),
        days=sums_by((row for row in rows if row["day"] >= first_date), lambda row: row["day"]),
        models=by_cost[:KEY_MODELS],
        calls=history(db, Filters(user=user, key_id=key_id), KEY_CALLS),
    )


# ---- the spend of a user -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DaySpend:
    """The cost of calls of one or several UTC days (yyyymmdd), and the wallet's part, in nanos."""

    day: int
    cost: int = 0
    wallet: int = 0

    @property
    def plans(self) -> int:
        """Return the part that plans paid."""
        return max(0, self.cost - self.wallet)

    def plus(self, other: "DaySpend") -> "DaySpend":
        """Return the sum of both, with this one's day."""
        return DaySpend(self.day, self.cost + other.cost, self.wallet + other.wallet)


@in_snapshot
def spend_by_day(
    db: peewee.Database, user: str, user_id: str, since_ms: int, at_ms: int
) -> list[DaySpend]:
    """Return each UTC day from that of `since_ms` to that of `at_ms`, including days without calls.

    Costs are from the roll-ups. The ledger has the wallet's part; plans paid the rest.
    """
    first_ms = since_ms - since_ms % DAY_MS
    filters = Filters(user=user, since_ms=first_ms)
    costs = {
        int(row["day"].replace("-", "")): parse_money(str(row["cost"]))
        for row in usage_stats.stats(db, ("day",), filters)
    }
    charges = charges_by_day(db, user_id, day_at(first_ms))
    days = [day_at(ms) for ms in range(first_ms, at_ms + 1, DAY_MS)]
    return [DaySpend(day, costs.get(day, 0), charges.get(day, 0)) for day in days]
