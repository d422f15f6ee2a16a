"""What the calls of one key have come to: one reading of its sums by day and model, and the newest
calls."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import peewee

from handlers.hub.web.parts import Column
from handlers.hub.web.sums import Sums
from store.calls import usage_stats
from store.calls.usage_queries import Filters, Row, history
from store.calls.usage_stats import Order
from store.values.ids import DAY_MS, day_begin_ms
from store.values.windows import MONTH, window_at

SHOWN_CALLS = SHOWN_MODELS = 10
DAYS = 30
MEASURES = ("cost", "calls", "tokens")


@dataclass(frozen=True, slots=True)
class Usage:
    """This month, each of the last DAYS with calls, this month's models, the newest calls."""

    month: Sums
    days: dict[str, Sums]
    models: list[tuple[str, Sums]]
    calls: list[Row]

    @property
    def most(self) -> int:
        """The nanos of the model that cost most."""
        return max((sums.cost_nanos for _, sums in self.models), default=0)


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
    dearest = sorted(
        models.items(), key=lambda pair: (pair[1].cost_nanos, pair[1].calls), reverse=True
    )
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


def measure(sums: Sums, by: str) -> Decimal:
    """One of MEASURES."""
    return Decimal(getattr(sums, by))


def columns(days: dict[str, Sums], by: str, at_ms: int, key_id: str) -> Sequence[Column]:
    """A column for each of the last DAYS, also for those without a call."""
    today = datetime.fromtimestamp(at_ms / 1000, UTC).date()
    made = []
    for back in range(DAYS - 1, -1, -1):
        day = today - timedelta(back)
        sums = days.get(day.isoformat())
        value = measure(sums, by) if sums else Decimal(0)
        since, until = f"{day}T00:00:00Z", f"{day + timedelta(1)}T00:00:00Z"
        href = "/usage?" + urlencode({"key_id": key_id, "since": since, "until": until})
        tick = str(day.day) if back % 2 == (DAYS - 1) % 2 else ""
        made.append(Column((float(value),), tick, f"{day}: {value:,f}", href if sums else ""))
    return made
