"""What the calls of a user cost, by UTC day, and how much of it the wallet paid.

Costs are those of the roll-ups; what the wallet paid is in the ledger, and plans paid the rest.
"""

from dataclasses import dataclass

import peewee

from store.calls import usage_stats
from store.calls.usage_queries import Filters
from store.db.database import snapshot_read
from store.money.ledger import charges_by_day
from store.values.ids import DAY_MS, day_at
from store.values.pricing import parse_money


@dataclass(frozen=True, slots=True)
class Spent:
    """Of a UTC day (yyyymmdd) or of several; in nanos."""

    day: int
    cost: int = 0
    wallet: int = 0

    @property
    def plans(self) -> int:
        """What plans paid."""
        return max(0, self.cost - self.wallet)

    def plus(self, other: "Spent") -> "Spent":
        """Both together, with the day of this one."""
        return Spent(self.day, self.cost + other.cost, self.wallet + other.wallet)


def spent_by_day(
    db: peewee.Database, user: str, user_id: str, since_ms: int, at_ms: int
) -> list[Spent]:
    """Each UTC day from that of `since_ms` to that of `at_ms`, also those without a call."""
    first_ms = since_ms - since_ms % DAY_MS
    filters = Filters(user=user, since_ms=first_ms)

    def read() -> list[Spent]:
        costs = {
            int(row["day"].replace("-", "")): parse_money(str(row["cost"]))
            for row in usage_stats.stats(db, ("day",), filters)
        }
        charges = charges_by_day(db, user_id, day_at(first_ms))
        days = [day_at(ms) for ms in range(first_ms, at_ms + 1, DAY_MS)]
        return [Spent(day, costs.get(day, 0), charges.get(day, 0)) for day in days]

    return snapshot_read(db, read)
