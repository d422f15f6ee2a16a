"""Sums of usage by day, model, user and so on: from the smallest roll-up that can tell them.

Only what no roll-up tells (an endpoint, a status, a group, an error code, a user together with a
channel, times within an hour) is summed up from the records themselves, which takes as long as
there are records and knows nothing of days that were pruned. For commands and the Hub.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import peewee

from store.calls.rollups import DAY_HOURS, SUMS
from store.calls.usage_queries import HOUR_MS, Filters, conditions, with_user
from store.db.database import execute, snapshot_read
from store.values.errors import Refused
from store.values.ids import day_at
from store.values.pricing import format_money

DIMENSIONS = (
    *("hour", "day", "user", "key_id", "model", "channel", "outcome", "endpoint", "status"),
    *("group", "error_code"),
)
"""What sums may be told apart by."""

CLASSES = ("ok", "refused", "client_gone", "failed")
"""Classes of outcomes whose calls are counted; `failed` are all outcomes but the other three."""

SORTS = ("cost", "calls")
"""What rows may be sorted by, the greatest first."""

ROWS_MAX = 100_000

_DAY_MS = DAY_HOURS * HOUR_MS
_TIMES = frozenset({"hour", "day", "since_ms", "until_ms"})
_RECORD_HOUR = '(("started_ms" % 86400000) - ("started_ms" % 3600000)) / 3600000'
_KNOWN = ", ".join(f"'{name}'" for name in CLASSES[:-1])


# Where in _sums each of SORTS is.
_SUM_PLACES = {"calls": 0, "cost": len(CLASSES) + len(SUMS) - 1}


@dataclass(frozen=True, slots=True)
class _Source:
    """A table with sums: what its rows tell apart besides time, and how finely they know time."""

    table: str
    names: frozenset[str]
    unit_ms: int


_SOURCES = (
    _Source("usage_by_day", frozenset({"channel", "model", "outcome"}), _DAY_MS),
    _Source("usage_by_channel", frozenset({"channel", "model", "outcome"}), HOUR_MS),
    _Source("usage_by_key", frozenset({"key_id", "user", "model", "outcome"}), HOUR_MS),
)
_RECORDS = _Source("usage_records", frozenset(), 1)


@dataclass(frozen=True, slots=True)
class Order:
    """Which rows come first (of SORTS; None: in order of what they are told apart by), and how many
    are wanted (None: all)."""

    sort: str | None = None
    top: int | None = None


def stats(
    db: peewee.Database, by: Sequence[str], filters: Filters, order: Order = Order()
) -> list[dict[str, Any]]:
    """Sums of all matching calls, a row for each value of `by` (of DIMENSIONS), in its order.

    A row has the names of `by` (day as 2026-11-22, hour as RFC 3339, None: the calls had none),
    calls, the CLASSES, the token counts and cost (decimal text). Refused: more than ROWS_MAX rows
    and no smaller number of them wanted.
    """
    source = _source_of(by, filters)
    if source is _RECORDS:
        filters = with_user(db, filters)
    terms, values = _conditions(source, filters)
    columns, sums = _columns(source, by), _sums(source)
    grouped = ", ".join(columns)
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    ordered = [f"{sums[_SUM_PLACES[order.sort]]} DESC", *columns] if order.sort else columns
    group = f" GROUP BY {grouped} ORDER BY {', '.join(ordered)}" if columns else ""
    limit = min(order.top or ROWS_MAX + 1, ROWS_MAX + 1)
    query = (
        f'SELECT {", ".join([*columns, *sums])} FROM "{source.table}"{where}{group} LIMIT {limit}'
    )
    rows = snapshot_read(db, lambda: execute(db, query, values).fetchall())
    if len(rows) > ROWS_MAX:
        raise Refused([f"more than {ROWS_MAX} sums; choose fewer calls or sum them up by less"])
    return [_row(by, row) for row in rows if row[len(columns)]]


def _source_of(by: Sequence[str], filters: Filters) -> _Source:
    set_filters = {one.name for one in fields(filters) if getattr(filters, one.name) is not None}
    needed = (set(by) | set_filters) - _TIMES
    finest = HOUR_MS if "hour" in by else _DAY_MS
    for source in _SOURCES:
        bounds = (filters.since_ms or 0, filters.until_ms or 0)
        whole = all(at_ms % source.unit_ms == 0 for at_ms in bounds)
        if needed <= source.names and source.unit_ms <= finest and whole:
            return source
    return _RECORDS


def _conditions(source: _Source, filters: Filters) -> tuple[list[str], list[Any]]:
    if source is _RECORDS:
        return conditions(filters)
    equal = [name for name in sorted(source.names) if getattr(filters, name) is not None]
    terms = [f'"{name}" = ?' for name in equal]
    values: list[Any] = [getattr(filters, name) for name in equal]
    for sign, at_ms in ((">", filters.since_ms), ("<", filters.until_ms)):
        if at_ms is None:
            continue
        day = day_at(at_ms)
        if source.unit_ms == _DAY_MS:
            terms.append(f'"day" {">=" if sign == ">" else "<"} ?')
            values.append(day)
            continue
        # The second half alone would be right; the first is for the index.
        at_or = ">=" if sign == ">" else "<"
        terms.append(f'"day" {sign}= ? AND ("day" {sign} ? OR "hour" {at_or} ?)')
        values += [day, day, at_ms // HOUR_MS % DAY_HOURS]
    return terms, values


def _columns(source: _Source, by: Sequence[str]) -> list[str]:
    columns = []
    for name in by:
        if name == "hour":
            columns += ['"day"', _RECORD_HOUR if source is _RECORDS else '"hour"']
        elif name in ("model", "channel", "error_code") and source is _RECORDS:
            columns.append(f"COALESCE(\"{name}\", '')")
        else:
            columns.append(f'"{name}"')
    return columns


def _sums(source: _Source) -> list[str]:
    calls = "1" if source is _RECORDS else '"calls"'
    counted = [
        *(
            f"SUM(CASE WHEN \"outcome\" = '{name}' THEN {calls} ELSE 0 END)"
            for name in CLASSES[:-1]
        ),
        f'SUM(CASE WHEN "outcome" IN ({_KNOWN}) THEN 0 ELSE {calls} END)',
    ]
    return [f"SUM({calls})", *counted, *(f'SUM("{name}")' for name in SUMS[1:])]


def _row(by: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    values = iter(row)
    for name in by:
        value = next(values)
        if name == "day":
            found[name] = _date(value)
        elif name == "hour":
            found[name] = f"{_date(value)}T{int(next(values)):02d}:00:00.000Z"
        else:
            found[name] = None if value == "" else value
    for name, value in zip(("calls", *CLASSES, *SUMS[1:]), values, strict=True):
        found[name] = int(value)
    found["cost"] = format_money(found.pop("cost_nanos"))
    return found


def _date(day: int) -> str:
    return f"{day // 10_000}-{day // 100 % 100:02d}-{day % 100:02d}"
