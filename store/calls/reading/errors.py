"""Errors by kind: how many calls ended with a code at an endpoint for a model, and a sample."""

from dataclasses import replace
from typing import Any

import peewee

from store.calls.usage_queries import Filters, conditions, page, rows_where
from store.calls.usage_stats import Order, stats
from store.db.tables.usage import UsageRow
from store.values.ids import DAY_MS, HOUR_MS, day_begin_ms
from store.values.usage_record import rfc3339

KINDS_MAX = 50
_LOOKED_THROUGH = 50  # of calls among which those without a model are looked for
_SUMMED = 2_000  # the kinds with the most calls, among which are also those of calls without a code


def errors(db: peewee.Database, filters: Filters, limit: int = KINDS_MAX) -> list[dict[str, Any]]:
    """The kinds of errors of these calls, those with the most calls first, at most `limit`.

    Each: error_code, endpoint, model, calls, first_at and last_at (RFC 3339) and the id of the last
    one. A kind whose records were pruned has its days only, and no id.
    """
    by = ("error_code", "endpoint", "model")
    rows = stats(db, by, filters, Order("calls", _SUMMED))
    kinds = [row for row in rows if row["error_code"] is not None][:limit]
    return [_kind(db, filters, row) for row in kinds]


def _kind(db: peewee.Database, filters: Filters, row: dict[str, Any]) -> dict[str, Any]:
    # No model is an empty text in the sums, and nothing in a record.
    names = {name: row[name] for name in ("error_code", "endpoint", "model") if row[name]}
    own = replace(filters, **names)
    days = [_day_ms(one["day"]) for one in stats(db, ("day",), own)]
    first = _first_of(db, own, days[0]) if days else None
    newest = page(db, own, 1 if row["model"] else _LOOKED_THROUGH).rows
    last = [one for one in newest if (one["model"] or None) == row["model"]][:1]
    last_ms = last[0]["started_ms"] if last else days[-1] if days else None
    return {
        **{name: row[name] for name in ("error_code", "endpoint", "model", "calls")},
        "first_at": None if first is None else rfc3339(first),
        "last_at": None if last_ms is None else rfc3339(last_ms),
        "id": last[0]["id"] if last else None,
    }


def _first_of(db: peewee.Database, filters: Filters, day_ms: int) -> int:
    """When the first of these calls began, of those of a day; the day, if its records are gone."""
    begin_ms = max(filters.since_ms or 0, day_ms)
    end_ms = min(filters.until_ms or day_ms + DAY_MS, day_ms + DAY_MS)
    hours = stats(db, ("hour",), replace(filters, since_ms=begin_ms, until_ms=end_ms))
    if not hours:
        return begin_ms
    hour_ms = day_ms + int(hours[0]["hour"][11:13]) * HOUR_MS
    until_ms = min(hour_ms + HOUR_MS, end_ms)
    within = replace(filters, since_ms=max(hour_ms, begin_ms), until_ms=until_ms)
    rows = rows_where(db, conditions(within), (UsageRow.id,), 1)
    return int(rows[0]["started_ms"]) if rows else hour_ms


def _day_ms(day: str) -> int:
    """The beginning of a day as `stats` names it."""
    return day_begin_ms(int(day.replace("-", "")))
