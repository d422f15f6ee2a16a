"""Usage in the JSON API: calls, sums, errors by kind, exports and the live tail."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any

import msgspec

from handlers.hub.usage.usage_call import public_record
from handlers.hub.usage.usage_dates import COMPARISONS, Span, span_before
from handlers.hub.usage.usage_filters import cursor_of, read_filters
from handlers.hub.web import exports
from handlers.hub.web.base import Api, invalid
from handlers.hub.web.live_tail import LiveTail, TailViewer
from store.calls.reading import usage_page
from store.calls.reading.errors import BY, errors
from store.calls.usage_queries import Filters, Row, export_rows, page
from store.calls.usage_stats import CLASSES, DIMENSIONS, MARGIN, Order, calls_to_read, stats
from store.calls.usage_stats import SORTS as STATS_SORTS
from store.values.ids import now_ms
from store.values.usage import TOKEN_COUNTS
from store.values.usage_record import FIELDS, rfc3339

API_CALLS, API_CALLS_MAX = 100, 1000
API_SEARCH_S = 0.2  # for the calls of one page; `next` continues the search
LAST_DAY = "24h"  # the span of errors by default


class UsageApiBase(Api):
    """The base of the endpoints of usage."""

    def query(self) -> dict[str, list[str]]:
        """Return the values of the query by name."""
        return {name: self.get_query_arguments(name) for name in self.request.query_arguments}

    async def read_filters(self, *other_names: str, **defaults: str) -> Filters:
        """Read the filters of the request. `defaults`: values for missing ones."""
        query = {**{name: [text] for name, text in defaults.items()}, **self.query()}
        filters = await self.store(
            read_filters, self.me, query, everybody=self.me.admin, other_names=other_names
        )
        return filters.filters

    async def require_few(self, by: Sequence[str], filters: Filters) -> None:
        """Raise Failure if the sums would have to read too many calls."""
        most = usage_page.READ_AT_MOST
        if await self.store(calls_to_read, by, filters) > most:
            text = f"these sums are made from the calls themselves, of at most {most:,}"
            raise invalid("since", f"{text}: choose a shorter time, or leave a filter out")


class UsageApi(UsageApiBase):
    """GET /api/usage: calls, latest start first."""

    async def get(self) -> None:
        limit, after = self.number("limit", API_CALLS, API_CALLS_MAX), cursor_of(self)
        filters = await self.read_filters("limit", "after")
        calls = await self.store(page, filters, limit, after, API_SEARCH_S)
        items = [public_record(row, admin=self.me.admin) for row in calls.rows]
        self.answer_list(items, calls.next)


class UsageStatsApi(UsageApiBase):
    """GET /api/usage/stats: sums by day, hour, key_id, model and other dimensions. With `compare`,
    also those of an earlier span; with `format`, as a file."""

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
        filters = await self.read_filters("by", "sort", "top", "compare", exports.FORM)
        order = Order(sort, top, margin=self.me.admin)
        rows = await self._rows(by, filters, order)
        before = self._before(filters)
        if exports.FORM in self.query():
            await self._send(by, rows)
        elif before is None:
            self.answer({"items": rows})
        else:
            ends = {"since": before.since_ms, "until": before.until_ms}
            times = {name: rfc3339(at_ms or 0) for name, at_ms in ends.items()}
            self.answer(
                {"items": rows, "before": times | {"items": await self._rows(by, before, order)}}
            )

    async def _rows(
        self, by: Sequence[str], filters: Filters, order: Order
    ) -> list[dict[str, Any]]:
        await self.require_few(by, filters)
        return await self.store(stats, by, filters, order)

    def _before(self, filters: Filters) -> Filters | None:
        """Return the filters of the span to compare with, in UTC days. None: no comparison."""
        comparison = self.get_query_argument("compare", "")
        if not comparison:
            return None
        if comparison not in COMPARISONS:
            raise invalid("compare", f"compare must be one of {', '.join(COMPARISONS)}")
        span = Span("", "", filters.since_ms, filters.until_ms, UTC)
        before = span_before(span, comparison, now_ms())
        if before is None:
            raise invalid("compare", "compare needs since")
        return replace(filters, since_ms=before[0], until_ms=before[1])

    async def _send(self, by: Sequence[str], rows: list[dict[str, Any]]) -> None:
        sums = ("calls", *CLASSES, *TOKEN_COUNTS, "cost", *(MARGIN if self.me.admin else ()))
        await exports.send(self, "usage-sums", (*by, *sums), iter(rows), lambda row: row)


class UsageErrorsApi(UsageApiBase):
    """GET /api/usage/errors: errors by kind, of the last 24 hours by default."""

    async def get(self) -> None:
        defaults = {} if "until" in self.query() else {"since": LAST_DAY}
        filters = await self.read_filters(**defaults)
        await self.require_few(BY, filters)
        kinds = await self.store(errors, filters)
        self.answer_list(kinds)


class UsageExportApi(UsageApiBase):
    """GET /api/usage/export?format=csv|ndjson: all calls in order of their start."""

    async def get(self) -> None:
        exports.requested_format(self)
        filters = await self.read_filters(exports.FORM)
        rows = await self.store(export_rows, filters)
        to_record = functools.partial(public_record, admin=self.me.admin)
        await exports.send(self, "usage", FIELDS, rows, to_record)


class UsageTailApi(LiveTail, UsageApiBase):
    """GET /api/usage/tail: an event for each new call, and `missed` events with the number of calls
    that did not fit."""

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
