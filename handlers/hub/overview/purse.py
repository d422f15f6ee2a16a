"""What a user has and spends: the wallet, plans, the order in which they pay, how long it lasts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from handlers.hub.overview.spending import Spent, spent_by_day
from store.db.database import database_ms
from store.hub import low_balance
from store.hub.sessions import SignedIn
from store.money import subscriptions, wallet
from store.money.subscriptions import PLANS_ONLY, Payers
from store.values.ids import DAY_MS, day_at, day_begin_ms
from store.values.pricing import format_money

CHART_DAYS = 30
LOW_RUNWAY_DAYS = 2
RUNWAY_DAYS = 7  # whole days before today whose charges say what a day costs


@dataclass(frozen=True, slots=True)
class Purse:
    """All of it at one moment; `days`: CHART_DAYS at least, and this month, today the last.
    `below_nanos`: the balance below which the user wants to be told; None: none was given."""

    at_ms: int
    view: wallet.View
    payers: Payers
    days: Sequence[Spent]
    below_nanos: int | None = None

    @property
    def today(self) -> Spent:
        """Of the UTC day that it is."""
        return self.days[-1]

    @property
    def month(self) -> Spent:
        """Of the calendar month of UTC so far."""
        month = self.today.day // 100
        found = Spent(self.today.day)
        for one in self.days:
            if one.day // 100 == month:
                found = found.plus(one)
        return found

    @property
    def daily_nanos(self) -> int:
        """What the wallet pays a day, on average of the last whole days since it first paid; 0: it
        paid nothing on them."""
        before = [one.wallet for one in self.days[-RUNWAY_DAYS - 1 : -1]]
        while before and not before[0]:
            before.pop(0)
        return sum(before) // len(before) if before else 0

    @property
    def runway_days(self) -> float | None:
        """How long the balance lasts at that rate; None: unknown."""
        daily = self.daily_nanos
        return max(0, self.view.balance_nanos) / daily if daily else None

    @property
    def low(self) -> bool:
        """Whether the balance is below what the user has given, else whether it is about to end;
        what plans alone pay for needs none."""
        if self.payers.spend_order == PLANS_ONLY:
            return False
        if self.below_nanos is not None:
            return self.view.balance_nanos < self.below_nanos
        runway = self.runway_days
        return self.view.balance_nanos <= 0 or (runway is not None and runway < LOW_RUNWAY_DAYS)


def load(db: peewee.Database, me: SignedIn) -> Purse:
    """The purse of a user. Raises NotFound: there is no such user any more."""
    at_ms = database_ms(db)
    month_ms = day_begin_ms(day_at(at_ms) // 100 * 100 + 1)
    since_ms = min(month_ms, at_ms - (CHART_DAYS - 1) * DAY_MS)
    return Purse(
        at_ms=at_ms,
        view=wallet.show(db, me.user),
        payers=subscriptions.payers_of(db, me.user_id, at_ms),
        days=spent_by_day(db, me.user, me.user_id, since_ms, at_ms),
        below_nanos=low_balance.threshold(db, me.user_id),
    )


def to_plain(purse: Purse, currency: str) -> dict[str, Any]:
    """As JSON says it."""
    runway = purse.runway_days
    return {
        **wallet.to_public(purse.view, currency),
        "spend_order": purse.payers.spend_order,
        "order": purse.payers.order,
        "subscriptions": [subscriptions.to_public(one) for one in purse.payers.subscriptions],
        "spent_today": _spent(purse.today),
        "spent_month": _spent(purse.month),
        "daily": format_money(purse.daily_nanos),
        "low": purse.low,
        "low_below": None if purse.below_nanos is None else format_money(purse.below_nanos),
        "runway_days": None if runway is None else round(runway, 1),
    }


def _spent(spent: Spent) -> dict[str, str]:
    return {
        "cost": format_money(spent.cost),
        "wallet": format_money(spent.wallet),
        "plans": format_money(spent.plans),
    }
