"""Calls that wallet, plan or limit did not cover: how many, of which keys, since when.

The roll-ups tell how many there were and in which hours; two records tell the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import peewee

from store.calls.usage_queries import Filters, Row, conditions, history, rows_where
from store.calls.usage_stats import series, stats
from store.db.tables.usage import UsageRow
from store.values.fields import Instant
from store.values.ids import DAY_MS
from store.values.usage_record import MONEY_CODES

USERS_BY_NAME = 200
"""So many users are looked for by their index, more by going through the sums of the day."""

_CALLS = ("calls",)


@dataclass(frozen=True, slots=True)
class MoneyRefusals:
    """Refused calls of a user: the first of them, the last of them with its message, and the names
    of keys, as the records have them."""

    calls: int
    first_ms: int
    last: Row
    keys: Sequence[str]

    @property
    def last_ms(self) -> int:
        """The time of the last call."""
        return int(self.last["started_ms"])


def of_today(at_ms: int, user: str | None = None) -> Filters:
    """Return the filters of the calls of this UTC day that were refused for money."""
    return Filters(user=user, error_code=MONEY_CODES, since_ms=at_ms - at_ms % DAY_MS)


def refused_users(
    db: peewee.Database, at_ms: int, limit: int
) -> tuple[dict[str, MoneyRefusals], int]:
    """Return the refusals of today by user, of at most `limit` users with the most calls, and the
    number of all such users."""
    filters = of_today(at_ms)
    # Of a day without the user there are few sums, and few users are refused anything.
    if not series(db, (), filters, _CALLS)[0][0]:
        return {}, 0
    refused = Filters(outcome="refused", since_ms=filters.since_ms)
    names = tuple(name for name, _ in series(db, ("user",), refused, _CALLS))
    if len(names) <= USERS_BY_NAME:
        filters = replace(filters, user=names)
    calls = {name: count for name, count in series(db, ("user",), filters, _CALLS) if count}
    first = sorted(calls, key=lambda name: (-calls[name], name))[:limit]
    refusals = {name: money_refusals(db, of_today(at_ms, name)) for name in first}
    return {name: value for name, value in refusals.items() if value is not None}, len(calls)


def money_refusals(db: peewee.Database, filters: Filters) -> MoneyRefusals | None:
    """Return the calls that match; `filters` names one user, codes of errors and a beginning. None:
    there is none, or its records were pruned."""
    by_key: dict[str, int] = {}
    hours = set()
    for row in stats(db, ("hour", "key_id"), filters):
        by_key[row["key_id"]] = by_key.get(row["key_id"], 0) + row["calls"]
        hours.add(row["hour"])
    if not by_key:
        return None
    from_hour = replace(filters, since_ms=Instant().parse(min(hours)), outcome="refused")
    oldest_first = (UsageRow.day, UsageRow.id)
    first = rows_where(db, conditions(from_hour), oldest_first, 1)
    last = [row for key in by_key for row in history(db, replace(filters, key_id=key), 1)]
    if not first or not last:
        return None
    names = dict.fromkeys(row["key_name"] for row in last)
    newest = max(last, key=lambda row: row["id"])
    return MoneyRefusals(sum(by_key.values()), first[0]["started_ms"], newest, list(names))
