"""The data that an API key shows of itself: its spend limits, its payers, its spending.

The reads grow with the days of a month, not with the calls. Read only, blocking.
"""

from dataclasses import dataclass

import peewee
from peewee import fn

from store.db.database import first_row, in_snapshot, raw_rows
from store.db.tables.usage import UsageByKey
from store.db.tables.users import ApiKey
from store.money.quota import current_use
from store.money.subscriptions import ACTIVE, Payers, SpendLimit, payers_of
from store.money.wallet import balances
from store.values.errors import NotFound
from store.values.ids import day_at
from store.values.times import MONTH, window_at
from store.values.usage_record import WALLET


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key's money at one time. `masked` is the visible part of its secret. `limit` None: it has
    no spend limit. `today_nanos`, `month_nanos`: the cost of its calls in the UTC day and month."""

    masked: str
    created_ms: int
    limit: SpendLimit | None
    payers: Payers
    balance_nanos: int
    today_nanos: int
    month_nanos: int

    @property
    def left_nanos(self) -> int:
        """Return the amount that the key's calls may cost now: the funds of its payers, within the
        spend limits."""
        order = self.payers.order
        funds = self.balance_nanos if WALLET in order else 0
        active = (held for held in self.payers.subscriptions if held.state == ACTIVE)
        funds += sum(held.left_nanos for held in active if held.plan in order)
        limits = [limit for limit in (self.limit, self.payers.limit) if limit is not None]
        return max(0, min([funds, *(limit.limit_nanos - limit.spent_nanos for limit in limits)]))

    @property
    def spent_nanos(self) -> int:
        """Return the cost of the key's calls in the window of its limit, or in the month if it has
        none."""
        return self.month_nanos if self.limit is None else self.limit.spent_nanos


@in_snapshot
def view_of(db: peewee.Database, key_id: str, user_id: str, at_ms: int) -> KeyView:
    """Return the view of a user's key. Raises NotFound, StoreUnavailable."""
    query = ApiKey.select(
        *(ApiKey.prefix, ApiKey.last_four, ApiKey.created_ms),
        *(ApiKey.limit_nanos, ApiKey.limit_window),
    )
    row = first_row(db, query.where(ApiKey.id == key_id))
    if row is None:
        raise NotFound(f"there is no key {key_id!r}")
    prefix, last_four, created_ms, limit_nanos, window = row
    limit = None
    if limit_nanos is not None:
        use = current_use(db, {key_id: window}, at_ms)[key_id]
        limit = SpendLimit(limit_nanos, window, use.spent_nanos, use.resets_ms)
    by_day = _by_day(db, key_id, window_at(MONTH, at_ms)[0])
    return KeyView(
        masked=f"{prefix}…{last_four}",
        created_ms=created_ms,
        limit=limit,
        payers=payers_of(db, user_id, at_ms),
        balance_nanos=balances(db, [user_id]).get(user_id, 0),
        today_nanos=by_day.get(day_at(at_ms), 0),
        month_nanos=sum(by_day.values()),
    )


def _by_day(db: peewee.Database, key_id: str, first_day: int) -> dict[int, int]:
    """Return the cost of a key's calls by UTC day, from `first_day` on."""
    query = UsageByKey.select(UsageByKey.day, fn.SUM(UsageByKey.cost_nanos)).where(
        UsageByKey.key_id == key_id, UsageByKey.day >= first_day
    )
    return {day: int(nanos) for day, nanos in raw_rows(db, query.group_by(UsageByKey.day))}
