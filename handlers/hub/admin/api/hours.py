"""Everybody's calls of the last 24 hours, hour by hour: from the roll-ups, so that it takes no
longer for many calls."""

from dataclasses import dataclass

import peewee

from handlers.hub.web.sums import Sums
from store.calls.usage_queries import Filters
from store.calls.usage_stats import Order, stats
from store.db.database import database_ms
from store.values.ids import HOUR_MS
from store.values.usage_record import rfc3339

HOURS = 24


@dataclass(slots=True)
class Hour(Sums):
    """Calls that began in an hour."""

    at_ms: int = 0


def last_hours(db: peewee.Database) -> list[Hour]:
    """The hours before now, the one that runs last."""
    now_ms = database_ms(db)
    first_ms = now_ms - now_ms % HOUR_MS - (HOURS - 1) * HOUR_MS
    hours = [Hour(at_ms=first_ms + place * HOUR_MS) for place in range(HOURS)]
    by_begin = {rfc3339(hour.at_ms): hour for hour in hours}
    for row in stats(db, ("hour",), Filters(since_ms=first_ms), Order(first_bytes=True)):
        if hour := by_begin.get(row["hour"]):
            hour.add(row)
    return hours
