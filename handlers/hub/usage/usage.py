"""Usage: the calls of a user or of everybody; as pages, as JSON, as exports and as live tails."""

import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from handlers.hub.usage.usage_call import TOKEN_COLUMNS, CallRow, public_record, visible_columns
from handlers.hub.usage.usage_filters import (
    ADMIN_ONLY,
    ERROR_CODES,
    NAMES,
    SINGLE,
    UsageFilters,
    read_filters,
)
from handlers.hub.web import exports
from handlers.hub.web.base import Api, Failure, HubHandler, Page, invalid
from handlers.hub.web.charts import Column
from handlers.hub.web.formats import FUNCTIONS, code_word, shape_of, short_word
from handlers.hub.web.live_tail import LiveTail, TailViewer
from store.calls.reading import sums, usage_page
from store.calls.reading.errors import BY, errors
from store.calls.usage_queries import Filters, Row, export_rows, page
from store.calls.usage_stats import DIMENSIONS, Order, calls_to_read, stats
from store.calls.usage_stats import SORTS as STATS_SORTS
from store.hub import own_keys
from store.values.ids import HOUR_MS, ulid_ms
from store.values.usage_record import FIELDS, OUTCOMES, rfc3339

SPANS = ("1h", "6h", "24h", "7d", "30d")
CHARTS: Mapping[str, Mapping[str, str]] = {
    "calls": {"ok": "c2", "refused": "warn", "failed": "bad"},
    "tokens": {"input": "c1", "cached": "c2", "output": "c5"},
    "cost": {"cost": "c3"},
    "first_byte": {"p50": "c1", "p95": "c2"},
}
"""The charts, and the tones of their parts by name."""

MENU_FILTERS = (
    *("outcome", "error_code", "key", "model", "endpoint", "group", "user", "channel", "status"),
    *("stream", "min_duration_ms", "request_id", "client_request_id", "upstream_request_id"),
    "trace_id",
)
"""The filters of the menu, in their order."""

PAGE_FIELDS = ("after", "chart", "hide", "sort")
"""Fields of the page's address that are no filters."""
PAGE_ROWS, MORE_ROWS = 50, 100
KINDS_SHOWN = 6
TICKS = 8
KEYS_LISTED = 200
TAIL_ROWS = 50  # of one message
CHART_HEIGHT = 112
API_CALLS, API_CALLS_MAX = 100, 1000
API_SEARCH_S = 0.2  # for calls of one page; `next` goes on with the following ones
LAST_DAY = "24h"  # the span of errors unless a time is given


def cursor_of(handler: HubHandler) -> str | None:
    """Return the id before which a page begins. Raises Failure."""
    after = handler.get_query_argument("after", "") or None
    try:
        if after is not None:
            ulid_ms(after)
    except ValueError:
        raise invalid("after", "after must be what `next` of a page said") from None
    return after


class UsagePage(Page):
    """/usage: the calls of the user."""

    everybody = False

    async def get(self) -> None:
        filters = await self.read_filters()
        after = cursor_of(self)
        limit = PAGE_ROWS if after is None else MORE_ROWS
        at_ms = time.time_ns() // 1_000_000
        part = usage_page.UsagePart(limit, after, self.get_query_argument("sort", "") or None)
        view = await self.store(usage_page.load_usage, filters.filters, at_ms, part, ERROR_CODES)
        keys: list[str] = []
        if not self.everybody:
            keys = await self.store(own_keys.names_of, self.me.user_id, KEYS_LISTED)
        values = self.page_values(filters, view, keys)
        self.show("usage/list.html", **self.row_values(), **values)

    @property
    def query(self) -> dict[str, list[str]]:
        """The filters and fields of the request that this page knows; others are ignored."""
        allowed = [
            name
            for name in (*NAMES, *SINGLE, *PAGE_FIELDS)
            if self.everybody or name not in ADMIN_ONLY
        ]
        return {
            name: values
            for name in allowed
            if (values := [value for value in self.get_query_arguments(name) if value])
        }

    async def read_filters(self) -> UsageFilters:
        """Read the filters: of the last 24 hours unless a time is given."""
        query = {name: values for name, values in self.query.items() if name not in PAGE_FIELDS}
        if not {"since", "until", "request_id", "client_request_id"} & query.keys():
            query["since"] = ["24h"]
        return await self.store(read_filters, self.me, query, everybody=self.everybody)

    def link(self, **changes: str | None) -> str:
        """Return the address of this page with other filters, from its first call on."""
        fields = {name: ",".join(values) for name, values in self.query.items() if name != "after"}
        for name, value in changes.items():
            if value is None:
                fields.pop(name, None)
            else:
                fields[name] = value
        path = "/admin/usage" if self.everybody else "/usage"
        return f"{path}?{urlencode(fields, safe=',:/')}" if fields else path

    def row_values(self) -> dict[str, Any]:
        """Return the template values of rows, also of those of the live tail."""
        hidden = self.get_query_argument("hide", "").split(",")
        return {
            "everybody": self.everybody,
            "visible": visible_columns(hidden, everybody=self.everybody),
            "CallRow": CallRow,
            "TOKENS": TOKEN_COLUMNS,
        }

    def page_values(
        self, filters: UsageFilters, view: usage_page.UsageView, keys: Sequence[str]
    ) -> dict[str, Any]:
        """Return the template values of the page."""
        query = filters.query
        chart = self.get_query_argument("chart", "calls")
        chart = chart if chart in CHARTS else "calls"
        limit = PAGE_ROWS if cursor_of(self) is None else MORE_ROWS
        export = {name: ",".join(values) for name, values in query.items()}
        if not self.everybody and self.me.admin:
            export["user"] = self.me.user  # the API shows administrators everybody's calls
        live = not (query.get("until") or cursor_of(self) or view.sort)
        path, mark, tail = self.link(since=None, chart=None).partition("?")
        choices = self.choices(keys)
        return {
            "view": view,
            "link": self.link,
            "after": cursor_of(self),
            "limit": limit,
            "SORTED_AT_MOST": usage_page.SORTED_AT_MOST,
            "searching": view.next is not None and len(view.rows) < limit,
            "ulid_ms": ulid_ms,
            "chart": chart,
            "charts": CHARTS,
            "bars": self.chart_columns(view, chart),
            "filters": {
                name: values for name, values in query.items() if name not in ("since", "until")
            },
            "choices": choices,
            "span": query.get("since", [""])[0],
            "until": query.get("until", [""])[0],
            "spans": SPANS,
            "address": self.link(),
            "export": urlencode(export, safe=",:/"),
            "tail": f"{path}/tail{mark}{tail}" if live else "",
            "columns": visible_columns([], everybody=self.everybody),
            "hide": [name for name in self.get_query_argument("hide", "").split(",") if name],
            "KINDS_SHOWN": KINDS_SHOWN,
            "MORE_ROWS": MORE_ROWS,
            "READ_AT_MOST": usage_page.READ_AT_MOST,
            "CHART_HEIGHT": CHART_HEIGHT,
            "HOUR_MS": HOUR_MS,
            "shape_of": shape_of,
            "code_word": code_word,
            "short_word": short_word,
            "rfc3339": rfc3339,
        }

    def choices(self, keys: Sequence[str]) -> dict[str, Sequence[tuple[str, str]]]:
        """Return the filters of the menu with their choices (none: any text)."""
        words = self.words
        choices: dict[str, Sequence[tuple[str, str]]] = {
            "outcome": [(outcome, words["codes.outcome_" + outcome]) for outcome in OUTCOMES],
            "error_code": [(code, code_word(words, code) or code) for code in ERROR_CODES],
            "stream": [(value, words["usage.stream_" + value]) for value in ("true", "false")],
            "key": [(key, key) for key in keys],
        }
        return {
            name: choices.get(name, ())
            for name in MENU_FILTERS
            if self.everybody or name not in ADMIN_ONLY
        }

    def chart_columns(self, view: usage_page.UsageView, chart: str) -> list[Column]:
        """Return the bars of the chart."""
        bars = view.bars or []
        every = max(1, -(-len(bars) // TICKS))
        by_hour = view.unit_ms == HOUR_MS
        columns = []
        for index, bar in enumerate(bars):
            tick = index % every == 0
            at = rfc3339(bar.at_ms)
            label = at[11:13] if by_hour else at[5:10]
            span = {"since": at, "until": rfc3339(bar.at_ms + view.unit_ms)}
            columns.append(
                Column(
                    parts=_parts(bar, chart),
                    tick=label if tick else "",
                    title=f"{at[:10]} {at[11:16]} UTC: {bar.calls}, {self.words['usage.failed']} "
                    f"{bar.failed}, {self.words['usage.refused']} {bar.refused}",
                    href=self.link(**span),
                    at_ms=bar.at_ms if tick and by_hour else None,
                )
            )
        return columns


def _parts(bar: sums.SumsBar, chart: str) -> tuple[float, ...]:
    if chart == "calls":
        return (bar.ok + bar.client_gone, bar.refused, bar.failed)
    if chart == "tokens":
        return (bar.input, bar.cached, bar.output)
    if chart == "cost":
        return (bar.cost_nanos / 10**9,)
    p50, p95 = bar.first_byte(50) or 0, bar.first_byte(95) or 0
    return (p50 / 1000, max(p95 - p50, 0) / 1000)


class AdminUsagePage(UsagePage):
    """/admin/usage: everybody's calls."""

    admin = True
    everybody = True


class UsageTail(LiveTail, UsagePage):
    """/usage/tail: rows of the table for new calls, as server-sent events."""

    _row_values: Mapping[str, Any] = {}

    async def get(self) -> None:
        if self.signed_in is None:
            raise Failure(401, "unauthorized", "sign in")
        filters = await self.read_filters()
        self._row_values = {**self.row_values(), **FUNCTIONS}
        await self.serve_tail(TailViewer(filters.filters, self.me.user_id))

    def messages(self, rows: Sequence[Row], missed: int) -> bytes:
        """Return an event with the newest rows, the newest first, and the number of all."""
        newest = [*reversed(rows)][:TAIL_ROWS]
        html = self.render_string(
            "usage/rows.html", rows=newest, words=self.words, **self._row_values
        )
        message = {"rows": html.decode(), "count": len(rows) + missed}
        return b"data: %b\n\n" % msgspec.json.encode(message)


class AdminUsageTail(UsageTail):
    """/admin/usage/tail: the same of everybody's calls."""

    admin = True
    everybody = True


class UsageApiBase(Api):
    """The base of the endpoints of usage."""

    def query(self) -> dict[str, list[str]]:
        """Return the query of the request by name."""
        return {name: self.get_query_arguments(name) for name in self.request.query_arguments}

    async def read_filters(self, *other_names: str, **defaults: str) -> Filters:
        """Read the filters of the request; `defaults` stand for missing ones."""
        query = {**{name: [text] for name, text in defaults.items()}, **self.query()}
        filters = await self.store(
            read_filters, self.me, query, everybody=self.me.admin, other_names=other_names
        )
        return filters.filters

    async def require_few(self, by: Sequence[str], filters: Filters) -> None:
        """Refuse sums for which too many calls would have to be read."""
        most = usage_page.READ_AT_MOST
        if await self.store(calls_to_read, by, filters) > most:
            text = f"these sums are made from the calls themselves, of at most {most:,}"
            raise invalid("since", f"{text}: choose a shorter time, or leave a filter out")


class UsageApi(UsageApiBase):
    """GET /api/usage: calls, the last begun first."""

    async def get(self) -> None:
        limit, after = self.number("limit", API_CALLS, API_CALLS_MAX), cursor_of(self)
        filters = await self.read_filters("limit", "after")
        calls = await self.store(page, filters, limit, after, API_SEARCH_S)
        items = [public_record(row, admin=self.me.admin) for row in calls.rows]
        self.answer_list(items, calls.next)


class UsageStatsApi(UsageApiBase):
    """GET /api/usage/stats: sums by day, hour, key_id, model and so on."""

    async def get(self) -> None:
        by = [name for name in self.get_query_argument("by", "day,model").split(",") if name]
        allowed = [name for name in DIMENSIONS if self.me.admin or name != "channel"]
        for name in by:
            if name not in allowed or by.count(name) > 1:
                raise invalid("by", f"by must name some of these once: {', '.join(allowed)}")
        sort = self.get_query_argument("sort", "") or None
        if sort not in (None, *STATS_SORTS):
            raise invalid("sort", f"sort must be one of {', '.join(STATS_SORTS)}")
        top = self.number("top", API_CALLS_MAX, API_CALLS_MAX) if "top" in self.query() else None
        filters = await self.read_filters("by", "sort", "top")
        await self.require_few(by, filters)
        order = Order(sort, top, margin=self.me.admin)
        rows = await self.store(stats, by, filters, order)
        self.answer({"items": rows})


class UsageErrorsApi(UsageApiBase):
    """GET /api/usage/errors: of the last 24 hours unless a time is given."""

    async def get(self) -> None:
        defaults = {} if "until" in self.query() else {"since": LAST_DAY}
        filters = await self.read_filters(**defaults)
        await self.require_few(BY, filters)
        kinds = await self.store(errors, filters)
        self.answer_list(kinds)


class UsageExportApi(UsageApiBase):
    """GET /api/usage/export?format=csv|ndjson: in order of the calls' start."""

    async def get(self) -> None:
        exports.requested_format(self)
        filters = await self.read_filters(exports.FORM)
        rows = await self.store(export_rows, filters)
        to_record = functools.partial(public_record, admin=self.me.admin)
        await exports.send(self, "usage", FIELDS, rows, to_record)


class UsageTailApi(LiveTail, UsageApiBase):
    """GET /api/usage/tail: a record for each new call; `missed` for those that were too many."""

    async def get(self) -> None:
        filters = await self.read_filters()
        await self.serve_tail(TailViewer(filters, self.me.user_id))

    def messages(self, rows: Sequence[Row], missed: int) -> bytes:
        """Return an event for each call."""
        admin = self.me.admin
        events = [
            b"id: %b\ndata: %b\n\n"
            % (row["id"].encode(), msgspec.json.encode(public_record(row, admin=admin)))
            for row in rows
        ]
        if missed:
            events.append(b"event: missed\ndata: %d\n\n" % missed)
        return b"".join(events)
