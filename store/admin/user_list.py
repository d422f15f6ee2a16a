"""The list of users for administrators: filtered, sorted, each with recent spending, last call and
number of keys.

A page reads only its own users, unless it is sorted by spending, which sums up one roll-up of
SPENT_DAYS days.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import fn

from store.admin.export import shown
from store.admin.objects import of_rows
from store.db.database import database_ms, has_words, in_snapshot, raw_rows, select_rows
from store.db.partitions import sums_of_callers
from store.db.tables.money import Wallet
from store.db.tables.usage import UsageByUser, UsageRow
from store.db.tables.users import ApiKey, User
from store.values.errors import Refused
from store.values.ids import DAY_MS, day_at
from store.values.pricing import format_money
from store.values.usage_record import rfc3339_or_none

SPENT_DAYS = 30
NAME, SPENT, BALANCE = "name", "spent", "balance"
SORTS = (NAME, SPENT, BALANCE)
"""The sort orders: by name, or the greatest first."""
ACTIVE, DISABLED = "active", "disabled"
STATES = (ACTIVE, DISABLED)
MAX_OFFSET = 10_000_000


@dataclass(frozen=True, slots=True)
class UserQuery:
    """A part of the list. `after` is the `next` of the previous page. An empty filter matches
    all."""

    limit: int
    after: str = ""
    search: str = ""
    role: str = ""
    state: str = ""
    sort: str = NAME


@in_snapshot
def page(db: peewee.Database, query: UserQuery) -> tuple[list[dict[str, Any]], str | None]:
    """Return users as `export.show` shows them, each with `spent_30_days`, `last_call_at` and
    `keys` (how many are not revoked), and the cursor of the next page. Raises Refused for an
    invalid cursor."""
    since_day = day_at(database_ms(db) - (SPENT_DAYS - 1) * DAY_MS)
    rows = User.select().limit(query.limit + 1)
    if query.search:
        rows = rows.where(has_words(User.name, query.search))
    if query.role:
        rows = rows.where(User.role == query.role)
    if query.state:
        rows = rows.where(User.disabled == (query.state == DISABLED))
    offset = 0
    if query.sort == NAME:
        rows = rows.order_by(User.name)
        rows = rows.where(User.name > query.after) if query.after else rows
    else:
        offset = _offset(query.after)
        rows = _ordered(db, rows, query.sort, since_day).offset(offset)
    selected: Any = rows.bind(db).dicts()
    user_rows = list(selected)
    more, user_rows = len(user_rows) > query.limit, user_rows[: query.limit]
    items = [shown(stored) for stored in of_rows(db, "user", user_rows)]
    following = None
    if more:
        following = items[-1]["name"] if query.sort == NAME else str(offset + query.limit)
    return _with_use(db, items, since_day), following


def _offset(after: str) -> int:
    if not after:
        return 0
    if not (after.isascii() and after.isdigit() and int(after[:9]) <= MAX_OFFSET):
        raise Refused([f'"{after}" is not the end of a page of this order'])
    return int(after[:9])


def _ordered(db: peewee.Database, rows: Any, sort: str, since_day: int) -> Any:
    if sort == BALANCE:
        rows = rows.join(Wallet, peewee.JOIN.LEFT_OUTER, on=(Wallet.user_id == User.id))
        return rows.order_by(fn.COALESCE(Wallet.balance, 0).desc(), User.name)
    sums = sums_of_callers(db, since_day)
    spent = (
        sums.select(sums.user, fn.SUM(sums.cost_nanos).alias("nanos"))
        .where(sums.day >= since_day)
        .group_by(sums.user)
        .alias("spent")
    )
    rows = rows.join(spent, peewee.JOIN.LEFT_OUTER, on=(spent.c.user == User.name))
    return rows.order_by(fn.COALESCE(spent.c.nanos, 0).desc(), User.name)


def _with_use(
    db: peewee.Database, users: Sequence[dict[str, Any]], since_day: int
) -> list[dict[str, Any]]:
    names = [user["name"] for user in users]
    if not names:
        return []
    last = UsageByUser.select(UsageByUser.user, fn.MAX(UsageByUser.day))
    last = last.where(UsageByUser.user << names).group_by(UsageByUser.user)
    last_days = dict(raw_rows(db, last))
    sums = sums_of_callers(db, since_day)
    spent_query = sums.select(sums.user, fn.SUM(sums.cost_nanos)).where(
        sums.user << names, sums.day >= since_day
    )
    spent = dict(raw_rows(db, spent_query.group_by(sums.user)))
    counted = ApiKey.select(ApiKey.user_id, fn.COUNT(ApiKey.id)).where(
        ApiKey.user_id << [user["id"] for user in users], ApiKey.revoked_ms.is_null()
    )
    keys = dict(select_rows(db, counted.group_by(ApiKey.user_id)))
    return [
        {
            **user,
            "spent_30_days": format_money(int(spent.get(user["name"], 0))),
            "last_call_at": rfc3339_or_none(_last_call(db, user["name"], last_days)),
            "keys": keys.get(user["id"], 0),
        }
        for user in users
    ]


def _last_call(db: peewee.Database, user: str, last_days: dict[str, int]) -> int | None:
    """Return the time of a user's newest call, using the day from a roll-up. None if no call is
    stored."""
    if (day := last_days.get(user)) is None:
        return None
    query = UsageRow.select(UsageRow.started_ms).where(UsageRow.user == user, UsageRow.day == day)
    rows = raw_rows(db, query.order_by(UsageRow.id.desc()).limit(1))
    return int(rows[0][0]) if rows else None
