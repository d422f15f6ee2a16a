"""The subscriptions of a user as their owner sees them: what is left, until when, and in which
order they pay. Read only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from store.db.database import first_row, in_snapshot, select_rows
from store.db.tables.money import Plan, Subscription
from store.db.tables.users import User
from store.money.quota import current_use
from store.values.pricing import format_money
from store.values.usage_record import WALLET, rfc3339, rfc3339_or_none

ACTIVE, USED_UP, EXPIRED, WAITING, DISABLED = "active", "used_up", "expired", "waiting", "disabled"

PLANS_FIRST, WALLET_FIRST, PLANS_ONLY = "plan_first", "wallet_first", "plan_only"


@dataclass(frozen=True, slots=True)
class Held:
    """A subscription and its quota in the current window. `resets_ms` is the end of the window."""

    plan: str
    window: str
    quota_nanos: int
    spent_nanos: int
    starts_ms: int
    expires_ms: int
    resets_ms: int | None
    state: str

    @property
    def left_nanos(self) -> int:
        """Return the rest of the window, 0 if a call has cost more than that."""
        return max(0, self.quota_nanos - self.spent_nanos)


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """The spend limit of a user in the current window. `resets_ms` is the end of the window."""

    limit_nanos: int
    window: str
    spent_nanos: int
    resets_ms: int | None


@dataclass(frozen=True, slots=True)
class Payers:
    """All subscriptions of a user, the first to end first, and the user's spend order. `limit` is
    None if there is no spend limit."""

    spend_order: str
    subscriptions: Sequence[Held]
    limit: SpendLimit | None = None

    @property
    def order(self) -> list[str]:
        """Return the names of the plans, and WALLET, in the order in which they pay."""
        plans = [
            subscription.plan
            for subscription in self.subscriptions
            if subscription.state in (ACTIVE, USED_UP)
        ]
        if self.spend_order == PLANS_FIRST:
            return [*plans, WALLET]
        if self.spend_order == WALLET_FIRST:
            return [WALLET, *plans]
        return plans if self.spend_order == PLANS_ONLY else [WALLET]


@in_snapshot
def payers_of(db: peewee.Database, user_id: str, at_ms: int) -> Payers:
    """Return the payers of a user's calls, including subscriptions that ended long ago."""
    row = Subscription
    query = (
        row.select(
            *(row.id, Plan.name, Plan.window, Plan.quota, row.starts_ms, row.expires_ms),
            *(row.disabled, Plan.disabled),
        )
        .join(Plan, on=(Plan.id == row.plan_id))
        .where(row.user_id == user_id)
        .order_by(row.expires_ms, row.id)
    )
    rows = select_rows(db, query)
    uses = current_use(db, {row[0]: row[2] for row in rows}, at_ms)
    own = User.select(User.spend_order, User.limit_nanos, User.limit_window)
    user = first_row(db, own.where(User.id == user_id))
    limit = None
    if user is not None and user[1] is not None:
        use = current_use(db, {user_id: user[2]}, at_ms)[user_id]
        limit = SpendLimit(user[1], user[2], use.spent_nanos, use.resets_ms)
    held = []
    for sub_id, plan, window, quota, starts_ms, expires_ms, *off in rows:
        use = uses[sub_id]
        state = _state(off, (starts_ms, expires_ms, at_ms), use.spent_nanos >= quota)
        times = (starts_ms, expires_ms, use.resets_ms)
        held.append(Held(plan, window, quota, use.spent_nanos, *times, state))
    return Payers(PLANS_FIRST if user is None else user[0], held, limit)


def _state(off: Sequence[Any], times: tuple[int, int, int], used_up: bool) -> str:
    starts_ms, expires_ms, at_ms = times
    if any(off):
        return DISABLED
    if expires_ms <= at_ms:
        return EXPIRED
    if starts_ms > at_ms:
        return WAITING
    return USED_UP if used_up else ACTIVE


def limit_to_public(limit: SpendLimit | None) -> dict[str, Any] | None:
    """Return a user's spend limit as JSON."""
    if limit is None:
        return None
    return {
        "limit": format_money(limit.limit_nanos),
        "limit_window": limit.window,
        "spent": format_money(limit.spent_nanos),
        "resets_at": rfc3339_or_none(limit.resets_ms),
    }


def to_public(one: Held) -> dict[str, Any]:
    """Return a subscription as JSON."""
    return {
        "plan": one.plan,
        "state": one.state,
        "window": one.window,
        "quota": format_money(one.quota_nanos),
        "spent": format_money(one.spent_nanos),
        "left": format_money(one.left_nanos),
        "resets_at": rfc3339_or_none(one.resets_ms),
        "starts_at": rfc3339(one.starts_ms),
        "expires_at": rfc3339(one.expires_ms),
    }
