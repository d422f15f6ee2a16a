"""The pages of usage: the calls of a user or of everybody, or their sums by group; live tails."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import Any

import msgspec

from handlers.hub.usage import usage_groups
from handlers.hub.usage.usage_bar import UsageBar
from handlers.hub.usage.usage_call import TOKEN_COLUMNS, CallRow, visible_columns
from handlers.hub.usage.usage_filters import ERROR_CODES, UsageFilters, cursor_of
from handlers.hub.web.base import Failure
from handlers.hub.web.charts import Column
from handlers.hub.web.formats import FUNCTIONS, code_word, shape_of, short_word
from handlers.hub.web.live_tail import LiveTail, TailViewer
from store.calls.reading import search, sums, usage_page
from store.calls.usage_queries import Filters, Row
from store.values.ids import HOUR_MS, now_ms, ulid_ms
from store.values.usage_record import rfc3339

CHARTS: Mapping[str, Mapping[str, str]] = {
    "calls": {"ok": "c2", "refused": "warn", "failed": "bad"},
    "tokens": {"input": "c1", "cached": "c2", "output": "c5"},
    "cost": {"cost": "c3"},
    "first_byte": {"p50": "c1", "p95": "c2"},
}
"""The charts of all calls, with the tone of each part."""

PAGE_ROWS, MORE_ROWS = 50, 100
KINDS_SHOWN = 6
TICKS = 8
TAIL_ROWS = 50  # in one message
CHART_HEIGHT = 112


class UsagePage(UsageBar):
    """/usage: the calls of the user; with `of=all`, those of everybody, for administrators."""

    async def get(self) -> None:
        if await self.redirected():
            return
        filters = await self.read_filters()
        if self.problems:
            self.set_status(400)
        if self.by:
            await usage_groups.show(self, filters)
            return
        at_ms = now_ms()
        view = await self.load(filters.filters, at_ms)
        missing = ""
        if not view.rows and (looked_for := filters.filters.request_id):
            missing = await self.store(search.reason_of, looked_for, at_ms)
        values = {**self.page_values(filters, view), **await self.bar_values(filters)}
        self.show("usage/list.html", **self.row_values(), **values, missing=missing)

    async def load(self, filters: Filters, at_ms: int) -> usage_page.UsageView:
        """Read the calls, and the sums over all matching calls unless these take long."""
        after, searched_ms = cursor_of(self), None
        sort = self.get_query_argument("sort", "") or None
        part = usage_page.UsagePart(PAGE_ROWS if after is None else MORE_ROWS, after, sort)
        if filters.text is not None or filters.trace_id is not None:
            filters, searched_ms = await self.store(usage_page.newest_calls, filters)

        async def sums() -> usage_page.UsageView | None:
            load = partial(usage_page.load_sums, zone=self.days_zone)
            work = partial(self.store, load, filters, at_ms, ERROR_CODES)
            key = f"{self.me.user_id} {self.link()} {self.zone}"
            return await self.site.unfinished.result(key, work, wait=self.waits)

        load_calls = partial(self.store, usage_page.load_calls, filters, at_ms, part)
        if after is not None:
            view = await load_calls(None)
        elif sort:
            view = await load_calls(await sums())
        else:
            summed, view = await asyncio.gather(sums(), load_calls(None))
            view = view.with_sums(summed)
        return replace(view, searched_ms=searched_ms)

    def row_values(self) -> dict[str, Any]:
        """Return the template values for rows, including those of the live tail."""
        hidden = self.get_query_argument("hide", "").split(",")
        return {
            "everybody": self.everybody,
            "visible": visible_columns(hidden, everybody=self.everybody),
            "CallRow": CallRow,
            "TOKENS": TOKEN_COLUMNS,
        }

    def page_values(self, filters: UsageFilters, view: usage_page.UsageView) -> dict[str, Any]:
        """Return the template values for the list of calls."""
        chart = self.get_query_argument("chart", "calls")
        chart = chart if chart in CHARTS else "calls"
        limit = PAGE_ROWS if cursor_of(self) is None else MORE_ROWS
        live = not (filters.query.get("until") or cursor_of(self) or view.sort or self.problems)
        _, mark, tail = self.link(since=None, chart=None).partition("?")
        return {
            "view": view,
            "after": cursor_of(self),
            "limit": limit,
            "SORTED_AT_MOST": usage_page.SORTED_AT_MOST,
            "searching": view.next is not None and len(view.rows) < limit,
            "ulid_ms": ulid_ms,
            "chart": chart,
            "charts": CHARTS,
            "bars": self.chart_columns(view, chart),
            "tail": f"/usage/tail{mark}{tail}" if live else "",
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

    def chart_columns(self, view: usage_page.UsageView, chart: str) -> list[Column]:
        """Return the bars of the chart."""
        bars = view.bars or []
        every = max(1, -(-len(bars) // TICKS))
        columns = []
        for index, bar in enumerate(bars):
            span = usage_groups.BarSpan(bar.at_ms, bar.end_ms, view.unit_ms == HOUR_MS)
            tick = index % every == 0
            columns.append(
                Column(
                    parts=_parts(bar, chart),
                    tick=span.tick(self) if tick else "",
                    title=f"{span.title(self)}: {bar.calls}, {self.words['usage.failed']} "
                    f"{bar.failed}, {self.words['usage.refused']} {bar.refused}",
                    href=self.link(since=rfc3339(bar.at_ms), until=rfc3339(bar.end_ms)),
                    at_ms=bar.at_ms if tick and span.by_hour and self.zone is UTC else None,
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
    """/admin/usage: everybody's calls, another URL for `/usage?of=all`."""

    admin = True

    @property
    def everybody(self) -> bool:
        """Return True: everybody's calls are shown."""
        return True


class UsageTail(LiveTail, UsagePage):
    """/usage/tail: table rows of new calls, as server-sent events."""

    _row_values: Mapping[str, Any] = {}

    async def get(self) -> None:
        if self.signed_in is None:
            raise Failure(401, "unauthorized", "sign in")
        filters = await self.read_filters()
        self._row_values = {**self.row_values(), **FUNCTIONS}
        await self.serve_tail(TailViewer(filters.filters, self.me.user_id))

    def messages(self, rows: Sequence[Row], missed: int) -> bytes:
        """Return an event with the newest rows, newest first, and the number of all new calls."""
        newest = [*reversed(rows)][:TAIL_ROWS]
        html = self.render_string(
            "usage/rows.html", rows=newest, words=self.words, **self._row_values
        )
        message = {"rows": html.decode(), "count": len(rows) + missed}
        return b"data: %b\n\n" % msgspec.json.encode(message)


class AdminUsageTail(UsageTail, AdminUsagePage):
    """/admin/usage/tail: the same for everybody's calls."""
