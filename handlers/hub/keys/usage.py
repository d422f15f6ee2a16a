"""The chart of one key's calls by day."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode

from handlers.hub.web.parts import Column
from store.calls.reading.sums import KEY_DAYS as DAYS
from store.calls.reading.sums import CallSums as Sums

MEASURES = ("cost", "calls", "tokens")


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
