"""Calls that wallet, plan or limit did not cover: their number, their keys, since when.

The roll-ups have the number and the hours; two records have the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import peewee

from store.calls.usage_queries import Filters, Row, conditions, rows_where
from store.calls.usage_stats import series
from store.db.tables.usage import UsageRow
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms
from store.values.usage_record import MONEY_CODES

USERS_BY_NAME = 200
"""Up to this many users are looked up by their index; more, by reading the sums of the day."""

_CALLS = ("calls",)


@dataclass(frozen=True, slots=True)
class MoneyRefusals:
    """Refused calls of a user: the time of the first, the last with its message, and the names of
    keys as the records have them."""

    calls: int
    first_ms: int
    last: Row
    keys: Sequence[str]

    @property
    def last_ms(self) -> int:
        """Return the time of the last call."""
        return int(self.last["started_ms"])


def of_today(at_ms: int, user: str | None = None) -> Filters:
    """Return the filters for the calls of this UTC day that were refused for money."""
    return Filters(user=user, error_code=MONEY_CODES, since_ms=at_ms - at_ms % DAY_MS)


def refused_users(
    db: peewee.Database, at_ms: int, limit: int
) -> tuple[dict[str, MoneyRefusals], int]:
    """Return today's refusals by user, for at most `limit` users with the most calls, and the
    number of all such users."""
    filters = of_today(at_ms)
    # A day has few sums without the user, and few users have refused calls.
    if not series(db, (), filters, _CALLS)[0][0]:
        return {}, 0
    refused = Filters(outcome="refused", since_ms=filters.since_ms)
    names = tuple(name for name, _ in series(db, ("user",), refused, _CALLS))
    if len(names) <= USERS_BY_NAME:
        filters = replace(filters, user=names)
    hours: dict[str, list[_KeyHour]] = {}
    for user, *hour in series(db, ("user", "hour", "key_id"), filters, _CALLS):
        hours.setdefault(user, []).append(tuple(hour))
    calls = {name: sum(count for *_, count in of_user) for name, of_user in hours.items()}
    first = sorted(calls, key=lambda name: (-calls[name], name))[:limit]
    refusals = {name: _refusals(db, of_today(at_ms, name), hours[name]) for name in first}
    return {name: value for name, value in refusals.items() if value is not None}, len(calls)


def money_refusals(db: peewee.Database, filters: Filters) -> MoneyRefusals | None:
    """Return the matching calls, or None if there are none or their records were pruned. `filters`
    has one user, error codes and a start time."""
    return _refusals(db, filters, series(db, ("hour", "key_id"), filters, _CALLS))


_KeyHour = tuple[Any, ...]
"""Day, hour, id of a key, and its number of refused calls in that hour."""


def _refusals(
    db: peewee.Database, filters: Filters, sums: Iterable[_KeyHour]
) -> MoneyRefusals | None:
    calls = 0
    hours: dict[str, list[int]] = {}
    for day, hour, key_id, count in sums:
        hours.setdefault(key_id, []).append(day_begin_ms(day) + int(hour) * HOUR_MS)
        calls += count
    if not calls:
        return None
    refused = replace(filters, outcome="refused")
    begin_ms = min(min(begins) for begins in hours.values())
    begun = conditions(replace(refused, since_ms=begin_ms))
    first = rows_where(db, begun, (UsageRow.day, UsageRow.id), 1)
    newest_first = (UsageRow.day.desc(), UsageRow.id.desc())
    last = [
        row
        for key_id, begins in hours.items()
        for row in rows_where(
            db, conditions(replace(refused, key_id=key_id, since_ms=max(begins))), newest_first, 1
        )
    ]
    if not first or not last:
        return None
    names = dict.fromkeys(row["key_name"] for row in last)
    newest = max(last, key=lambda row: row["id"])
    return MoneyRefusals(calls, first[0]["started_ms"], newest, list(names))
