"""What the calls of one key have come to: one reading of its sums by day and model, and the newest
calls."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import peewee

from handlers.hub.web.parts import Column
from store.calls import usage_stats
from store.calls.usage_queries import Filters, Row, history
from store.calls.usage_stats import CLASSES, Order
from store.channels.figures import percentile
from store.values.ids import DAY_MS, day_begin_ms
from store.values.windows import MONTH, window_at

SHOWN_CALLS = SHOWN_MODELS = 10
LEAST_FOR_PERCENTILE = 20
DAYS = 30
MEASURES = ("cost", "calls", "tokens")


@dataclass(slots=True)
class Sums:
    """Calls added up."""

    calls: int = 0
    ok: int = 0
    refused: int = 0
    client_gone: int = 0
    failed: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    first_bytes: list[int] = field(default_factory=list)  # a histogram of the streams

    def add(self, row: dict[str, Any]) -> None:
        """Adds a row of `usage_stats.stats`."""
        for name in ("calls", *CLASSES):
            setattr(self, name, getattr(self, name) + row[name])
        self.tokens += sum(value for name, value in row.items() if name.endswith("_tokens"))
        self.cost += Decimal(row["cost"])
        before = self.first_bytes or [0] * len(row["first_bytes"])
        self.first_bytes = [sum(pair) for pair in zip(before, row["first_bytes"], strict=True)]

    @property
    def success(self) -> float | None:
        """The share of ok among all calls but those whose client left."""
        counted = self.calls - self.client_gone
        return self.ok / counted if counted else None

    @property
    def streams(self) -> int:
        """How many there were."""
        return sum(self.first_bytes)

    def first_byte_ms(self, percent: int) -> int | None:
        """A percentile of the time to the first byte; None of too few streams."""
        enough = self.streams >= LEAST_FOR_PERCENTILE
        return percentile(self.first_bytes, percent) if enough else None

    def measure(self, by: str) -> Decimal:
        """One of MEASURES."""
        return Decimal(getattr(self, by))


@dataclass(frozen=True, slots=True)
class Usage:
    """This month, each of the last DAYS with calls, this month's models, the newest calls."""

    month: Sums
    days: dict[str, Sums]
    models: list[tuple[str, Sums]]
    calls: list[Row]

    @property
    def most(self) -> Decimal:
        """The cost of the model that cost most."""
        return max((sums.cost for _, sums in self.models), default=Decimal(0))


def usage_of(db: peewee.Database, user: str, key_id: str, at_ms: int) -> Usage:
    """The usage of one key of a user. A heavy key has tens of thousands of sums: they are read
    once."""
    first_day, _ = window_at(MONTH, at_ms)
    days_ms = at_ms - at_ms % DAY_MS - (DAYS - 1) * DAY_MS
    of_key = Filters(user=user, key_id=key_id)
    since = Filters(user=user, key_id=key_id, since_ms=min(days_ms, day_begin_ms(first_day)))
    rows = usage_stats.stats(db, ("day", "model"), since, Order(first_bytes=True))
    month = [row for row in rows if int(row["day"].replace("-", "")) >= first_day]
    models = _by(month, lambda row: row["model"] or "")
    dearest = sorted(models.items(), key=lambda pair: (pair[1].cost, pair[1].calls), reverse=True)
    return Usage(
        month=_by(month, lambda row: "").get("", Sums()),
        days=_by((row for row in rows if row["day"] >= _date(days_ms)), lambda row: row["day"]),
        models=dearest[:SHOWN_MODELS],
        calls=history(db, of_key, SHOWN_CALLS),
    )


def _by(rows: Iterable[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> dict[str, Sums]:
    found: dict[str, Sums] = {}
    for row in rows:
        found.setdefault(name(row), Sums()).add(row)
    return found


def _date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


def columns(days: dict[str, Sums], by: str, at_ms: int, key_id: str) -> Sequence[Column]:
    """A column for each of the last DAYS, also for those without a call."""
    today = datetime.fromtimestamp(at_ms / 1000, UTC).date()
    made = []
    for back in range(DAYS - 1, -1, -1):
        day = today - timedelta(back)
        sums = days.get(day.isoformat())
        value = sums.measure(by) if sums else Decimal(0)
        since, until = f"{day}T00:00:00Z", f"{day + timedelta(1)}T00:00:00Z"
        href = "/usage?" + urlencode({"key_id": key_id, "since": since, "until": until})
        tick = str(day.day) if back % 2 == (DAYS - 1) % 2 else ""
        made.append(Column((float(value),), tick, f"{day}: {value:,f}", href if sums else ""))
    return made
