"""Reading usage records: newest ones, following, export, and the check of every cost.

Pages are read by key, (day, id) for history and (recorded_ms, id) for new records, so that memory
stays flat and a long table does not slow them down. For commands and the Hub. Each page is a
transaction of its own. Rows are dictionaries of columns; usage.to_public gives the public form.
"""

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import peewee
from peewee import Expression, fn

from store.db.database import discard, portions, raw_rows
from store.db.partitions import days_after, next_day, previous_day
from store.db.tables.usage import UsageByChannel, UsageByKey, UsageRow
from store.values.errors import StoreUnavailable
from store.values.ids import DAY_MS, HOUR_MS, day_at, day_begin_ms, day_of, first_ulid
from store.values.meters import METERS
from store.values.pricing import format_fractions, format_money, parse_fractions, rounded_up
from store.values.usage import TOKEN_COUNTS
from store.values.usage_record import COLUMNS, charges_from_json, receipt_fields

PAGE_ROWS = 1000
OVERLAP_MS = 10_000
"""The most by which a record may become visible after its recorded_ms, since its transaction must
end."""

FOLLOW_PAUSE_S = 0.5
PAGE_BUDGET_S = 1.0
"""The time after which the search for a page stops and its results are shown."""
PRICES_CACHED = 256
LOOK_BACK_MS = 7 * DAY_MS
"""The age of the oldest call searched by a client's or vendor's id, unless a time is given."""

MATCHES_MAX = 20
_CALL = "call"

Row = dict[str, Any]

DAYS_AT_ONCE = 64  # days of roll-ups in one query: 1536 hours

IDS = ("request_id", "client_request_id", "upstream_request_id")
_BY_KEY = ("user", "key_id", "group", "model", "outcome", "endpoint", "error_code")
_BY_CHANNEL = ("channel", "model", "outcome", "endpoint", "error_code")
_UNSUMMED = ("status", "stream", "min_duration_ms", "trace_id")
"""Filters that no roll-up has."""

_CALLER_COLUMNS = frozenset({"user", "day", "id", "outcome", "key_id"})
"""The columns of the index usage_caller."""
_NO_DAY = 99_999_999
_MONEY_COLUMNS = (
    *("id", "cost_nanos", "charges", "usage_source", "multiplier_ppm", "prices", "receipt"),
    *TOKEN_COUNTS,
)


Names = str | tuple[str, ...] | None
"""A name, or several of which any one matches."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of records. None matches all. Times are those of the start of the call,
    `until_ms` excluded. `text` is part of the error message, in any case."""

    user: Names = None
    key_id: Names = None
    model: Names = None
    endpoint: Names = None
    channel: Names = None
    group: Names = None
    outcome: Names = None
    error_code: Names = None
    status: int | None = None
    request_id: str | None = None
    client_request_id: str | None = None
    upstream_request_id: str | None = None
    trace_id: str | None = None
    stream: bool | None = None
    min_duration_ms: int | None = None
    text: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


def matching(column: Any, wanted: Any) -> Any:
    """Return the condition that a column has the name, or one of the names."""
    return column << wanted if isinstance(wanted, tuple) else column == wanted


def tail(db: peewee.Database, filters: Filters, limit: int) -> list[Row]:
    """Return the newest records in order of writing, the oldest of them first, at most `limit`.

    Without filters, the newest are those written last. With filters they are those started last,
    since `history` then reads as little as possible.
    """
    if filters.request_id is None and filters != Filters():
        return sorted(history(db, filters, limit), key=lambda row: (row["recorded_ms"], row["id"]))
    newest = (UsageRow.recorded_ms.desc(), UsageRow.id.desc())
    return rows_where(db, conditions(filters), newest, limit)[::-1]


def history(
    db: peewee.Database, filters: Filters, limit: int, before: str | None = None
) -> list[Row]:
    """Return a page of calls, the last started first, at most `limit`, of those that started before
    the call with the id `before`.

    However rare the matching calls are, the roll-ups show the hours in which there were any, and
    only these are read. Calls searched by an id are found by its index.
    """
    return page(db, filters, limit, before, None).rows


@dataclass(frozen=True, slots=True)
class Page:
    """Some calls, and the id before which the search continues (None: there are no more)."""

    rows: list[Row]
    next: str | None


def page(
    db: peewee.Database,
    filters: Filters,
    limit: int,
    before: str | None = None,
    budget_s: float | None = PAGE_BUDGET_S,
) -> Page:
    """Return a page as of `history`. The search stops after `budget_s` and continues on the next
    page, so a page may have fewer rows than `limit`, or none, without being the last."""
    if any(getattr(filters, name) is not None for name in IDS):
        return _page_by_id(db, filters, limit, before)
    give_up_at = time.monotonic() + (float("inf") if budget_s is None else budget_s)
    ids_by_day: defaultdict[int, list[str]] = defaultdict(list)
    left, last, reached, begun = limit, None, None, False
    for span in _spans(db, filters, before):
        end = min(span.end, before or span.end)
        if end <= span.first:
            continue  # on an earlier page
        if left == 0 or (begun and time.monotonic() > give_up_at):
            reached = last if left == 0 else end
            break
        begun = True
        ids = _newest_ids(db, filters, replace(span, end=end), left)
        ids_by_day[span.day] += ids
        left -= len(ids)
        last = ids[-1] if ids else last
    else:
        reached = last if left == 0 else None
    return Page([row for day, ids in ids_by_day.items() for row in _rows_of(db, day, ids)], reached)


def _page_by_id(db: peewee.Database, filters: Filters, limit: int, before: str | None) -> Page:
    terms = conditions(filters)
    if before is not None:
        terms += [UsageRow.day <= day_of(before), UsageRow.id < before]
    rows = rows_where(db, terms, (UsageRow.day.desc(), UsageRow.id.desc()), limit)
    return Page(rows, rows[-1]["id"] if len(rows) == limit else None)


def _newest_ids(db: peewee.Database, filters: Filters, span: "_Span", limit: int) -> list[str]:
    """Return only ids, the newest first, since most skipped records can then be decided by an
    index."""
    if filters.user is None:
        filters = replace(filters, user=span.user)
    index: Any = UsageRow
    terms = conditions(filters)
    rest = [term for term in terms if term.lhs.name not in _CALLER_COLUMNS]
    if rest and span.user is not None:
        # In a plain query MariaDB reads a record before it checks the outcome in the index.
        index = UsageRow.alias("i")
        indexed = [term for term in terms if term.lhs.name in _CALLER_COLUMNS]
        terms = [
            Expression(getattr(index, term.lhs.name), term.op, term.rhs) for term in indexed
        ] + rest
    query = index.select(index.id).order_by(index.id.desc()).limit(limit)
    if index is not UsageRow:
        query = query.join(UsageRow, on=(UsageRow.day == index.day) & (UsageRow.id == index.id))
    within = [index.day == span.day, index.id >= span.first, index.id < span.end]
    return [call_id for (call_id,) in raw_rows(db, query.where(*terms, *within))]


def _rows_of(db: peewee.Database, day: int, ids: Sequence[str]) -> Iterator[Row]:
    for portion in portions(ids):
        yield from rows_where(
            db, [UsageRow.day == day, UsageRow.id << portion], (UsageRow.id.desc(),)
        )


def follow(
    db: peewee.Database,
    filters: Filters,
    start_ms: int,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Row]:
    """Yield every record written at or after `start_ms`, each once, forever, with pauses between
    reads. The time is that of the database's clock, so clocks of nodes do not matter.

    Each read goes back OVERLAP_MS, since records become visible slightly out of order. Memory: the
    ids of these last seconds. Waits while the store is unavailable.
    """
    printed: dict[str, int] = {}
    newest_ms = start_ms
    while True:
        horizon_ms = max(start_ms, newest_ms - OVERLAP_MS)
        printed = {call_id: at_ms for call_id, at_ms in printed.items() if at_ms >= horizon_ms}
        try:
            for row in _recorded_since(db, filters, horizon_ms, printed):
                printed[row["id"]] = row["recorded_ms"]
                newest_ms = max(newest_ms, row["recorded_ms"])
                yield row
        except StoreUnavailable:
            discard(db)
        pause(FOLLOW_PAUSE_S)


def export_rows(db: peewee.Database, filters: Filters) -> Iterator[Row]:
    """Yield all records in order of id, which is that of their start. Memory: one page."""
    return _in_order(db, with_user(db, filters), COLUMNS)


def with_user(db: peewee.Database, filters: Filters) -> Filters:
    """Return the filters with the key's user added, if the roll-ups show that it has only one. They
    match the same records, but by an index; there is none for a key alone."""
    if filters.key_id is None or filters.user is not None:
        return filters
    names = UsageByKey.select(fn.MIN(UsageByKey.user), fn.MAX(UsageByKey.user))
    [(first, last)] = raw_rows(db, names.where(matching(UsageByKey.key_id, filters.key_id)))
    return replace(filters, user=first) if first is not None and first == last else filters


def _in_order(db: peewee.Database, filters: Filters, columns: Sequence[str]) -> Iterator[Row]:
    terms = conditions(filters)
    for day in days_after(db, 0 if filters.since_ms is None else day_at(filters.since_ms) - 1):
        if filters.until_ms is not None and day > day_at(filters.until_ms):
            return
        after = ""
        while True:
            bounds = [UsageRow.day == day, UsageRow.id > after]
            page = rows_where(db, [*terms, *bounds], (UsageRow.id,), PAGE_ROWS, columns)
            yield from page
            if len(page) < PAGE_ROWS:
                break
            after = page[-1]["id"]


def verify(
    db: peewee.Database, report: Callable[[int], None] = lambda _: None, since_ms: int | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the id of each record whose cost does not match its own fields, and why. `report` is
    called with the number of records read. `since_ms`: only calls started since then."""
    for number, row in enumerate(_in_order(db, Filters(since_ms=since_ms), _MONEY_COLUMNS)):
        if number % PAGE_ROWS == 0:
            report(number)
        if fault := fault_of(row):
            yield row["id"], fault


def fault_of(row: Row) -> str | None:
    """Return the fault in the money of a row, by recomputing its cost and summing its charges.
    Needs only the columns that `verify` reads."""
    cost = row["cost_nanos"]
    try:
        charged = sum(charge.amount_nanos for charge in charges_from_json(row["charges"]))
        expected = 0
        charging = row["usage_source"] != "none" and row["multiplier_ppm"] is not None
        if charging and row["prices"] is not None:
            parts = sum(fractions for *_, fractions in _cost_parts(row))
            expected = rounded_up(parts, row["multiplier_ppm"])
    except (ValueError, OverflowError) as error:
        return f"the cost cannot be recomputed: {error}"
    if cost != expected:
        return f"the cost is {format_money(cost)}, recomputed {format_money(expected)}"
    if charged != cost:
        return f"the cost is {format_money(cost)}, its charges sum up to {format_money(charged)}"
    return None


def _recorded_since(
    db: peewee.Database, filters: Filters, since_ms: int, shown: Container[str]
) -> Iterator[Row]:
    """Yield the records not yet shown, in order of writing. Of those shown, only the ids are
    read."""
    terms, order = conditions(filters), (UsageRow.recorded_ms, UsageRow.id)
    at_ms, after = since_ms, ""
    while True:
        # A batch shares its recorded_ms, so the rest of it is skipped by id.
        shown_before = (UsageRow.recorded_ms == at_ms) & (UsageRow.id <= after)
        later = [UsageRow.recorded_ms >= at_ms, ~shown_before]
        page = rows_where(db, [*terms, *later], order, PAGE_ROWS, ("recorded_ms", "day", "id"))
        fresh: defaultdict[int, list[str]] = defaultdict(list)
        for row in page:
            if row["id"] not in shown:
                fresh[row["day"]].append(row["id"])
        rows = [row for day, ids in fresh.items() for row in _rows_of(db, day, ids)]
        yield from sorted(rows, key=lambda row: (row["recorded_ms"], row["id"]))
        if len(page) < PAGE_ROWS:
            return
        at_ms, after = page[-1]["recorded_ms"], page[-1]["id"]


def _guides(filters: Filters) -> Mapping[str, Any]:
    """Return the filters that are in the roll-up used to find hours, by column."""
    by_key = any(getattr(filters, name) is not None for name in ("user", "key_id", "group"))
    names: tuple[str, ...] = _BY_KEY if by_key else _BY_CHANNEL
    return {name: value for name in names if (value := getattr(filters, name)) is not None}


def _terms_of_guides(table: Any, filters: Filters) -> list[Any]:
    terms = [matching(getattr(table, name), value) for name, value in _guides(filters).items()]
    # Only errors have a message.
    return terms if filters.text is None else [*terms, table.error_code != ""]


@dataclass(frozen=True, slots=True)
class _Span:
    """A range of ids of one day, and the only user whose calls are searched there, if known."""

    day: int
    first: str
    end: str
    user: str | None = None


def _spans(db: peewee.Database, filters: Filters, before: str | None) -> Iterator[_Span]:
    """Yield the spans that may hold matching records, newest first."""
    last = _last_day(filters, before)
    if _guides(filters) or filters.text is not None:
        oldest = next_day(db, 0 if filters.since_ms is None else day_at(filters.since_ms) - 1)
        newest = previous_day(db, last)
        if oldest is not None and newest is not None:
            yield from _hours(db, filters, oldest, newest)
        return
    first = 0 if filters.since_ms is None else day_at(filters.since_ms)
    whole = all(getattr(filters, name) is None for name in _UNSUMMED)
    while (day := previous_day(db, last)) is not None and day >= first:
        begin, end = (first_ulid(day_begin_ms(day) + ms) for ms in (0, DAY_MS))
        yield from [_Span(day, begin, end)] if whole else _hours_of(day)
        last = day - 1


def _hours_of(day: int) -> Iterator["_Span"]:
    """Yield the hours of a day, so that a search in the records can stop between them."""
    for begin_ms in range(day_begin_ms(day) + DAY_MS - HOUR_MS, day_begin_ms(day) - 1, -HOUR_MS):
        yield _Span(day, first_ulid(begin_ms), first_ulid(begin_ms + HOUR_MS))


def _hours(db: peewee.Database, filters: Filters, oldest: int, newest: int) -> Iterator[_Span]:
    """Yield the hours in which the roll-ups have calls. Queries more days each time."""
    by_key = bool({"user", "key_id", "group"} & _guides(filters).keys())
    table: Any = UsageByKey if by_key else UsageByChannel
    # A key has one user, unless the user was renamed in this hour.
    users = (fn.MIN(table.user), fn.MAX(table.user)) if by_key else (None, None)
    query = table.select(table.day, table.hour, *users).group_by(table.day, table.hour)
    query = query.order_by(table.day.desc(), table.hour.desc())
    terms = _terms_of_guides(table, filters)
    days = 1
    while newest >= oldest:
        first = max(oldest, day_at(day_begin_ms(newest) - (days - 1) * DAY_MS))
        within = query.where(table.day.between(first, newest), *terms)
        for day, hour, user, last_user in raw_rows(db, within):
            begin_ms = day_begin_ms(day) + hour * HOUR_MS
            end = first_ulid(begin_ms + HOUR_MS)
            only = user if user == last_user else None
            yield _Span(day, first_ulid(begin_ms), end, only)
        newest = day_at(day_begin_ms(first) - DAY_MS)
        days = min(days * 4, DAYS_AT_ONCE)


def _last_day(filters: Filters, before: str | None) -> int:
    days = [] if filters.until_ms is None else [day_at(filters.until_ms)]
    if before is not None:
        days.append(day_of(before))
    return min(days, default=_NO_DAY)


def conditions(filters: Filters) -> list[Any]:
    """Return the filters as terms of a WHERE on usage_records."""
    table = UsageRow
    terms = [
        matching(getattr(table, name), value)
        for name in _EQUAL
        if (value := getattr(filters, name)) is not None
    ]
    if filters.request_id is not None:
        terms.append(table.id == filters.request_id)
        try:
            terms.append(table.day == day_of(filters.request_id))
        except ValueError:
            pass  # Not an id of ours: it is searched and not found.
    if filters.min_duration_ms is not None:
        terms.append(table.duration_ms >= filters.min_duration_ms)
    if filters.text is not None:
        terms.append(fn.LOWER(table.error_message).contains(filters.text.lower()))
    # The day lets the database skip whole partitions.
    if (at_ms := filters.since_ms) is not None:
        terms += [table.day >= day_at(at_ms), table.id >= first_ulid(at_ms)]
    if (at_ms := filters.until_ms) is not None:
        terms += [table.day <= day_at(at_ms), table.id < first_ulid(at_ms)]
    return terms


_EQUAL = tuple(
    field.name
    for field in fields(Filters)
    if field.name not in ("request_id", "min_duration_ms", "text", "since_ms", "until_ms")
)


def matches(filters: Filters, row: Mapping[str, Any]) -> bool:
    """Return whether a row of usage_records matches. For live tails, which make no query."""
    for name in _EQUAL:
        expected = getattr(filters, name)
        if expected is None:
            continue
        if row[name] not in expected if isinstance(expected, tuple) else row[name] != expected:
            return False
    started_ms, duration_ms = row["started_ms"], row["duration_ms"] or 0
    return (
        (filters.request_id is None or row["id"] == filters.request_id)
        and (filters.min_duration_ms is None or duration_ms >= filters.min_duration_ms)
        and (filters.text is None or filters.text.lower() in (row["error_message"] or "").lower())
        and (filters.since_ms is None or started_ms >= filters.since_ms)
        and (filters.until_ms is None or started_ms < filters.until_ms)
    )


def rows_where(
    db: peewee.Database,
    terms: Sequence[Any],
    order: Sequence[Any] = (),
    limit: int | None = None,
    columns: Sequence[str] = COLUMNS,
) -> list[Row]:
    """Return the records for which all terms hold, in a transaction of its own."""
    query = UsageRow.select(*(getattr(UsageRow, name) for name in columns))
    rows = raw_rows(db, _where(query, terms).order_by(*order).limit(limit))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _where(query: Any, terms: Sequence[Any]) -> Any:
    return query.where(*terms) if terms else query


def find(db: peewee.Database, wanted: str, since_ms: int = 0) -> list[Row]:
    """Return the calls with this id, newest first, at most MATCHES_MAX. It is the record's id, or
    else the client's or the vendor's, of calls started since `since_ms`."""
    try:
        if rows := rows_where(db, [UsageRow.day == day_of(wanted), UsageRow.id == wanted]):
            return rows
    except ValueError:
        pass  # Not an id of ours.
    matches: dict[str, Row] = {}
    for column in (UsageRow.client_request_id, UsageRow.upstream_request_id):
        terms = [column == wanted, UsageRow.day >= day_at(since_ms)]
        terms.append(UsageRow.id >= first_ulid(since_ms))
        newest = (UsageRow.day.desc(), UsageRow.id.desc())
        matches |= {row["id"]: row for row in rows_where(db, terms, newest, MATCHES_MAX)}
    return [matches[call_id] for call_id in sorted(matches, reverse=True)][:MATCHES_MAX]


def cost_lines(row: Row) -> list[dict[str, Any]]:
    """Return the parts of the cost of a record, before its multiplier: meter, count, price and
    amount (exact decimal strings). A part of another model has its name as `model`, but no meter
    and no price. Empty for a record that was not charged."""
    if row["usage_source"] == "none" or row["prices"] is None:
        return []
    return [
        {
            "meter": meter,
            "model": model,
            "count": count,
            "price": price,
            "amount": format_fractions(fractions),
        }
        for meter, model, count, price, fractions in _cost_parts(row)
    ]


def _cost_parts(row: Row) -> Iterator[tuple[str | None, str | None, int, str | None, int]]:
    """Yield meter, other model, count, price, and fractions for each part of a cost. Raises
    ValueError for values that no record has."""
    receipt, prices = receipt_fields(row), _prices(row["prices"])
    meters = receipt["meters"] | ({_CALL: 1} if prices.get(_CALL, "0") != "0" else {})
    for name, count in meters.items():
        if name not in prices:
            raise ValueError(f"it has no price for {name}")
        fractions = count * parse_fractions(prices[name]) // METERS[name].unit
        yield name, None, count, prices[name], fractions
    for other in receipt["other_models"]:
        tokens = sum(other["tokens"].values())
        yield None, other["model"], tokens, None, parse_fractions(other["cost"])


@functools.lru_cache(maxsize=PRICES_CACHED)
def _prices(text: str) -> dict[str, str]:
    return msgspec.json.decode(text, type=dict[str, str])
