"""Errors by kind: the number of calls that ended with a code at an endpoint for a model, and a
sample."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import peewee
from peewee import SQL, fn

from store.calls.rollups import DAY_HOURS, record_column
from store.calls.usage_queries import Filters, conditions
from store.calls.usage_stats import Order, answerable_from_rollups, hours_of, stats
from store.db.database import in_snapshot, raw_rows
from store.db.tables.usage import UsageByKey, UsageRow
from store.values.ids import HOUR_MS, day_at, ulid_ms
from store.values.usage_record import rfc3339_or_none

KINDS_MAX = 50
_SUMMED = 2_000  # the kinds with the most calls; calls without a code are among them
_FEW_USERS = 50  # up to this many users, an hour's calls are found by the index of users
BY = ("error_code", "endpoint", "model")
"""The dimensions of a kind."""

Kind = tuple[str, ...]
"""Values of BY as the sums have them. No value is an empty text."""


@in_snapshot
def errors(db: peewee.Database, filters: Filters, limit: int = KINDS_MAX) -> list[dict[str, Any]]:
    """Return the kinds of errors of these calls, those with the most calls first, at most `limit`.

    Each has error_code, endpoint, model, calls, first_at and last_at (RFC 3339) and the id of the
    last call. A kind whose records were pruned has only its hours, and no id.
    """
    rows = stats(db, BY, filters, Order("calls", _SUMMED))
    rows = [row for row in rows if row["error_code"] is not None][:limit]
    if not rows:
        return []
    own = replace(filters, error_code=tuple({row["error_code"] for row in rows}))
    kinds = {tuple(row[name] or "" for name in BY): row for row in rows}
    if answerable_from_rollups(("hour", *BY), own):
        hours = {kind: ends for kind, ends in hours_of(db, BY, own).items() if kind in kinds}
        ends = _ends_in(db, own, hours)
    else:
        hours, ends = {}, _ends(db, own)
    return [_kind_to_plain(row, hours.get(kind), ends.get(kind)) for kind, row in kinds.items()]


def _kind_to_plain(
    row: dict[str, Any], hours: tuple[int, int] | None, ends: tuple[str, str] | None
) -> dict[str, Any]:
    first_ms, last_ms = hours or (None, None)
    if ends is not None:
        first_ms, last_ms = map(ulid_ms, ends)
    return {
        **{name: row[name] for name in (*BY, "calls")},
        "first_at": rfc3339_or_none(first_ms),
        "last_at": rfc3339_or_none(last_ms),
        "id": None if ends is None else ends[1],
    }


def _ends_in(
    db: peewee.Database, filters: Filters, hours: dict[Kind, tuple[int, int]]
) -> dict[Kind, tuple[str, str]]:
    """Return the first and the last call of each kind in these hours. Kinds often share hours, so
    an hour is read once for all of them."""
    kinds: defaultdict[int, list[Kind]] = defaultdict(list)
    for kind, (first_ms, last_ms) in hours.items():
        for at_ms in {first_ms, last_ms}:
            kinds[at_ms].append(kind)
    firsts: dict[Kind, str] = {}
    lasts: dict[Kind, str] = {}
    for at_ms, of_hour in kinds.items():
        ends = _ends(db, _within(db, filters, at_ms, of_hour))
        for kind in of_hour:
            if kind in ends:
                first, last = ends[kind]
                firsts[kind] = min(first, firsts.get(kind, first))
                lasts[kind] = max(last, lasts.get(kind, last))
    return {kind: (first, lasts[kind]) for kind, first in firsts.items()}


def _within(db: peewee.Database, filters: Filters, at_ms: int, kinds: Iterable[Kind]) -> Filters:
    """Return the filters for the calls of these kinds in an hour."""
    codes = tuple({code for code, *_ in kinds})
    of_hour = replace(filters, since_ms=at_ms, until_ms=at_ms + HOUR_MS, error_code=codes)
    if of_hour.user is not None:
        return of_hour
    # No index has error codes, and a few users' calls are fewer than all of an hour's.
    day, hour = day_at(at_ms), at_ms // HOUR_MS % DAY_HOURS
    callers = UsageByKey.select(UsageByKey.user).distinct().limit(_FEW_USERS + 1)
    terms = (UsageByKey.day == day, UsageByKey.hour == hour, UsageByKey.error_code << codes)
    users = tuple(user for (user,) in raw_rows(db, callers.where(*terms)))
    return replace(of_hour, user=users) if 0 < len(users) <= _FEW_USERS else of_hour


def _ends(db: peewee.Database, filters: Filters) -> dict[Kind, tuple[str, str]]:
    """Return the first and the last id of each kind among some records."""
    names = [record_column(UsageRow, name).alias(f"by_{name}") for name in BY]
    query = UsageRow.select(*names, fn.MIN(UsageRow.id), fn.MAX(UsageRow.id))
    query = query.where(*conditions(filters)).group_by(*(SQL(f"by_{name}") for name in BY))
    return {tuple(kind): (first, last) for *kind, first, last in raw_rows(db, query)}
