"""Errors by kind: how many calls ended with a code at an endpoint for a model, and a sample."""

from dataclasses import replace
from typing import Any

import peewee

from store.calls.usage_queries import Filters, conditions, page, rows_where
from store.calls.usage_stats import Order, stats
from store.db.tables.usage import UsageRow
from store.values.ids import HOUR_MS, day_begin_ms
from store.values.usage_record import rfc3339

KINDS_MAX = 50
_LOOKED_THROUGH = 50  # of calls among which those without a model are looked for
_SUMMED = 2_000  # the kinds with the most calls, among which are also those of calls without a code


def errors(db: peewee.Database, filters: Filters, limit: int = KINDS_MAX) -> list[dict[str, Any]]:
    """The kinds of errors of these calls, those with the most calls first, at most `limit`.

    Each: error_code, endpoint, model, calls, first_at and last_at (RFC 3339) and the id of the last
    one. A kind whose records were pruned has its hours only, and no id.
    """
    by = ("error_code", "endpoint", "model")
    rows = stats(db, by, filters, Order("calls", _SUMMED))
    kinds = [row for row in rows if row["error_code"] is not None][:limit]
    return [_kind(db, filters, row) for row in kinds]


def _kind(db: peewee.Database, filters: Filters, row: dict[str, Any]) -> dict[str, Any]:
    # No model is an empty text in the sums, and nothing in a record.
    names = {name: row[name] for name in ("error_code", "endpoint", "model") if row[name]}
    own = replace(filters, **names)
    hours = [_hour_ms(one["hour"]) for one in stats(db, ("hour",), own)]
    first = [] if not hours else _first_of(db, own, hours[0])
    newest = page(db, own, 1 if row["model"] else _LOOKED_THROUGH).rows
    last = [one for one in newest if (one["model"] or None) == row["model"]][:1]
    return {
        **{name: row[name] for name in ("error_code", "endpoint", "model", "calls")},
        "first_at": rfc3339(first[0]["started_ms"] if first else hours[0]) if hours else None,
        "last_at": rfc3339(last[0]["started_ms"] if last else hours[-1]) if hours else None,
        "id": last[0]["id"] if last else None,
    }


def _first_of(db: peewee.Database, filters: Filters, hour_ms: int) -> list[dict[str, Any]]:
    begin_ms = max(filters.since_ms or 0, hour_ms)
    end_ms = min(filters.until_ms or hour_ms + HOUR_MS, hour_ms + HOUR_MS)
    within = replace(filters, since_ms=begin_ms, until_ms=end_ms)
    return rows_where(db, conditions(within), (UsageRow.id,), 1)


def _hour_ms(hour: str) -> int:
    """The beginning of an hour as `stats` names it."""
    return day_begin_ms(int(hour[:10].replace("-", ""))) + int(hour[11:13]) * HOUR_MS
