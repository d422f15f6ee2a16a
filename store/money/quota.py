"""The use of the current windows of subscriptions and spend limits, for display.

Read only, for commands and the Hub. Calls are decided from leases instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from store.db.database import in_snapshot, portions, select_rows
from store.db.tables.money import Plan, Quota
from store.money.accounts import quota_at
from store.values.fields import Instant
from store.values.pricing import format_money

_INSTANT = Instant()
Shown = list[dict[str, Any]]
"""Objects as `export.list_objects` returns them."""


@dataclass(frozen=True, slots=True)
class Use:
    """The spending of a window, and the start of the next one (None: never)."""

    spent_nanos: int
    resets_ms: int | None


def current_use(db: peewee.Database, windows: Mapping[str, str], at_ms: int) -> dict[str, Use]:
    """Return the use of the window at `at_ms`, by the id of a subscription, key or user. `windows`
    maps these ids to the names of their windows. The use is 0 if nothing has been spent."""
    accounts = {owner: quota_at(owner, window, at_ms) for owner, window in windows.items()}
    spent = _spent(db, [account_id for account_id, _ in accounts.values()])
    return {
        owner: Use(spent.get(account_id, 0), ends_ms)
        for owner, (account_id, ends_ms) in accounts.items()
    }


def with_use_of_subscriptions(
    db: peewee.Database, rows: Iterable[Mapping[str, Any]], at_ms: int
) -> Shown:
    """Return subscriptions with `spent` and `resets_at` of their plan's window."""
    plans: dict[str, str] = dict(select_rows(db, Plan.select(Plan.name, Plan.window)))
    # A plan can be removed after its subscriptions were read.
    return _with_use(
        db, [(subscription, plans.get(subscription["plan"])) for subscription in rows], at_ms
    )


def with_use_of_limits(db: peewee.Database, rows: Iterable[Mapping[str, Any]], at_ms: int) -> Shown:
    """Return keys or users with `spent` and `resets_at` of their spend limit, null without one."""
    limited = [(row, row["limit_window"] if row["limit"] is not None else None) for row in rows]
    return _with_use(db, limited, at_ms)


def _with_use(
    db: peewee.Database, rows: Sequence[tuple[Mapping[str, Any], str | None]], at_ms: int
) -> Shown:
    windows = {row["id"]: window for row, window in rows if window is not None}
    uses = current_use(db, windows, at_ms)
    return [{**row, **_plain(uses.get(row["id"]))} for row, _ in rows]


def _plain(use: Use | None) -> dict[str, str | None]:
    if use is None:
        return {"spent": None, "resets_at": None}
    resets_at = None if use.resets_ms is None else _INSTANT.plain(use.resets_ms)
    return {"spent": format_money(use.spent_nanos), "resets_at": resets_at}


@in_snapshot
def _spent(db: peewee.Database, accounts: Sequence[str]) -> dict[str, int]:
    spent: dict[str, int] = {}
    for portion in portions(accounts):
        query = Quota.select(Quota.account, Quota.spent).where(Quota.account << portion)
        spent.update(select_rows(db, query))
    return spent
