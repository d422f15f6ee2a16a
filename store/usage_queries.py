"""Reading usage records: newest ones, following, export, and the proof of every cost.

Pages are taken by key, (day, id) for history and (recorded_ms, id) for what is new, so that
memory stays flat and a long table makes them no slower. For commands and the Hub; each page is a
transaction of its own. Rows are dictionaries of columns; usage.to_public gives the public form.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import peewee

from store.database import discard, execute, snapshot_read
from store.errors import StoreUnavailable
from store.ids import day_at, day_begin_ms, day_of, ulid
from store.pricing import Prices, cost_nanos, format_money, prices_from_json
from store.usage import COLUMNS, charges_from_json

PAGE_ROWS = 1000
OVERLAP_MS = 5_000
"""How late a record may become visible after its recorded_ms: open transactions, clocks."""

FOLLOW_PAUSE_S = 0.5
PRICES_CACHED = 256

Row = dict[str, Any]

HOUR_MS = 3_600_000

_NO_RANDOM = bytes(10)
_NO_DAY = 99_999_999
_AFTER_ALL = "~"
_COUNTS = tuple(name for name in COLUMNS if name.endswith("_tokens"))
_SELECT = f"""SELECT {", ".join(f'"{name}"' for name in COLUMNS)} FROM "usage_records" """
_prices = functools.lru_cache(maxsize=PRICES_CACHED)(prices_from_json)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which records: None takes all. Times are of the start of the call, `until_ms` excluded."""

    user: str | None = None
    key_id: str | None = None
    model: str | None = None
    endpoint: str | None = None
    channel: str | None = None
    outcome: str | None = None
    status: int | None = None
    request_id: str | None = None
    client_request_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


def tail(db: peewee.Database, filters: Filters, limit: int) -> list[Row]:
    """The newest records in order of their writing, oldest of them first, at most `limit`.

    Newest is as they were written, or with a filter that `history` is quick with, as they began.
    """
    if filters.request_id is None and _guides(filters):
        return sorted(history(db, filters, limit), key=lambda row: (row["recorded_ms"], row["id"]))
    terms, values = conditions(filters)
    rows = _rows(db, terms, 'ORDER BY "recorded_ms" DESC, "id" DESC LIMIT ?', [*values, limit])
    return rows[::-1]


def history(
    db: peewee.Database, filters: Filters, limit: int, before: str | None = None
) -> list[Row]:
    """A page of calls, the last begun first, at most `limit`; those that began before a call's id.

    However rare the calls are that a user, key, model, channel or outcome chooses, the roll-ups
    tell the hours in which there were any, and only these are read.
    """
    terms, values = conditions(filters)
    found: list[Row] = []
    for day, first, end in _spans(db, filters, before):
        found += _rows(
            db,
            [*terms, '"day" = ?', '"id" >= ?', '"id" < ?'],
            'ORDER BY "id" DESC LIMIT ?',
            [*values, day, first, min(end, before or end), limit - len(found)],
        )
        if len(found) == limit:
            break
    return found


def follow(
    db: peewee.Database,
    filters: Filters,
    start_ms: int,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Row]:
    """Every record written at or after `start_ms`, each once, for ever; pauses between looks.

    Looks back OVERLAP_MS each time, since records become visible a little out of order. Memory:
    the ids of those last seconds. While the store is away it waits.
    """
    shown: dict[str, int] = {}
    newest_ms = start_ms
    while True:
        horizon_ms = max(start_ms, newest_ms - OVERLAP_MS)
        shown = {call_id: at_ms for call_id, at_ms in shown.items() if at_ms >= horizon_ms}
        try:
            for row in _recorded_since(db, filters, horizon_ms):
                if row["id"] not in shown:
                    shown[row["id"]] = row["recorded_ms"]
                    newest_ms = max(newest_ms, row["recorded_ms"])
                    yield row
        except StoreUnavailable:
            discard(db)
        pause(FOLLOW_PAUSE_S)


def export_rows(db: peewee.Database, filters: Filters) -> Iterator[Row]:
    """All records in order of id, that is of their start. Memory: one page."""
    terms, values = conditions(filters)
    day = 0 if filters.since_ms is None else day_at(filters.since_ms) - 1
    while (following := next_day(db, day)) is not None:
        day = following
        if filters.until_ms is not None and day > day_at(filters.until_ms):
            return
        after = ""
        while True:
            page = _rows(
                db,
                [*terms, '"day" = ?', '"id" > ?'],
                'ORDER BY "id" LIMIT ?',
                [*values, day, after, PAGE_ROWS],
            )
            yield from page
            if len(page) < PAGE_ROWS:
                break
            after = page[-1]["id"]


def next_day(db: peewee.Database, after: int) -> int | None:
    """The first UTC day after a day (yyyymmdd) that has records; None: there is none."""
    query = 'SELECT "day" FROM "usage_records" WHERE "day" > ? ORDER BY "day" LIMIT 1'
    rows = _fetch(db, query, (after,))
    return int(rows[0][0]) if rows else None


def verify(db: peewee.Database) -> Iterator[tuple[str, str]]:
    """The id of each record whose cost is not what its own fields give, and why."""
    for row in export_rows(db, Filters()):
        if fault := fault_of(row):
            yield row["id"], fault


def fault_of(row: Row) -> str | None:
    """What is wrong with the money of one row: its cost recomputed, its charges summed up."""
    cost = row["cost_nanos"]
    try:
        charged = sum(charge.amount_nanos for charge in charges_from_json(row["charges"]))
        expected = 0
        charging = row["usage_source"] != "none" and row["multiplier_ppm"] is not None
        if charging and row["prices"] is not None:
            counts = _TokenCounts(*(row[name] for name in _COUNTS))
            prices: Prices = _prices(row["prices"])
            expected = cost_nanos(counts, prices, row["multiplier_ppm"])
    except (ValueError, OverflowError) as error:
        return f"the cost cannot be recomputed: {error}"
    if cost != expected:
        return f"the cost is {format_money(cost)}, recomputed {format_money(expected)}"
    if charged != cost:
        return f"the cost is {format_money(cost)}, its charges sum up to {format_money(charged)}"
    return None


@dataclass(frozen=True, slots=True)
class _TokenCounts:
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    reasoning_tokens: int


def _recorded_since(db: peewee.Database, filters: Filters, since_ms: int) -> Iterator[Row]:
    terms, values = conditions(filters)
    # A batch shares its recorded_ms, so the rest of that moment is skipped by id.
    terms += ['"recorded_ms" >= ?', 'NOT ("recorded_ms" = ? AND "id" <= ?)']
    at_ms, after = since_ms, ""
    while True:
        page = _rows(
            db,
            terms,
            'ORDER BY "recorded_ms", "id" LIMIT ?',
            [*values, at_ms, at_ms, after, PAGE_ROWS],
        )
        yield from page
        if len(page) < PAGE_ROWS:
            return
        at_ms, after = page[-1]["recorded_ms"], page[-1]["id"]


def _guides(filters: Filters) -> dict[str, str]:
    """The filters that roll-ups know, by column."""
    names = (
        ("user", "key_id", "model", "outcome")
        if filters.user is not None or filters.key_id is not None
        else ("channel", "model", "outcome")
    )
    return {name: value for name in names if (value := getattr(filters, name)) is not None}


def _spans(
    db: peewee.Database, filters: Filters, before: str | None
) -> Iterator[tuple[int, str, str]]:
    """Days and ranges of ids that may hold what is looked for, newest first."""
    guides = _guides(filters)
    by_key = "user" in guides or "key_id" in guides
    days, hours = (
        ("usage_by_key", "usage_by_key") if by_key else ("usage_by_day", "usage_by_channel")
    )
    known = "".join(f' AND "{name}" = ?' for name in guides)
    last = _last_day(filters, before)
    if not guides:
        while (day := _previous_day(db, last)) is not None:
            last = day - 1
            yield day, "", _AFTER_ALL
        return
    oldest = next_day(db, 0 if filters.since_ms is None else day_at(filters.since_ms) - 1)
    query = f'SELECT DISTINCT "day" FROM "{days}" WHERE "day" BETWEEN ? AND ?{known}'
    bounds = (oldest or last + 1, last, *guides.values())
    for (day,) in _fetch(db, f'{query} ORDER BY "day" DESC', bounds):
        query = f'SELECT DISTINCT "hour" FROM "{hours}" WHERE "day" = ?{known}'
        for (hour,) in _fetch(db, f'{query} ORDER BY "hour" DESC', (day, *guides.values())):
            begin_ms = day_begin_ms(day) + hour * HOUR_MS
            yield day, ulid(begin_ms, _NO_RANDOM), ulid(begin_ms + HOUR_MS, _NO_RANDOM)


def _last_day(filters: Filters, before: str | None) -> int:
    days = [] if filters.until_ms is None else [day_at(filters.until_ms)]
    if before is not None:
        days.append(day_of(before))
    return min(days, default=_NO_DAY)


def _previous_day(db: peewee.Database, last: int) -> int | None:
    query = 'SELECT "day" FROM "usage_records" WHERE "day" <= ? ORDER BY "day" DESC LIMIT 1'
    rows = _fetch(db, query, (last,))
    return int(rows[0][0]) if rows else None


def conditions(filters: Filters) -> tuple[list[str], list[Any]]:
    """Terms of a WHERE over usage_records, to be joined by AND, and their parameters."""
    terms: list[str] = []
    values: list[Any] = []
    for column, value in _wanted(filters):
        terms.append(f'"{column}" = ?')
        values.append(value)
    for bound, at_ms in ((">=", filters.since_ms), ("<", filters.until_ms)):
        if at_ms is not None:
            # The day lets the database pass over whole partitions.
            terms += [f'"day" {bound[0]}= ?', f'"id" {bound} ?']
            values += [day_at(at_ms), ulid(at_ms, _NO_RANDOM)]
    return terms, values


def _wanted(filters: Filters) -> Iterator[tuple[str, Any]]:
    for field in fields(filters):
        value = getattr(filters, field.name)
        if value is None or field.name in ("since_ms", "until_ms"):
            continue
        if field.name != "request_id":
            yield field.name, value
            continue
        yield "id", value
        try:
            yield "day", day_of(value)
        except ValueError:
            pass  # No id of ours: the record is looked for and not found.


def _rows(db: peewee.Database, terms: list[str], tail_text: str, values: list[Any]) -> list[Row]:
    where = f"WHERE {' AND '.join(terms)} " if terms else ""
    rows = _fetch(db, _SELECT + where + tail_text, values)
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def _fetch(db: peewee.Database, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]]
    rows = snapshot_read(db, lambda: execute(db, query, values).fetchall())
    return rows
