"""The pages of calls: one's own, and for administrators everybody's; their live tail."""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
import peewee
from tornado.web import HTTPError

from handlers.hub.usage import columns
from handlers.hub.usage.asked import ADMIN_ONLY, ERROR_CODES, NAMES, SINGLE, Asked, asked
from handlers.hub.usage.listing import (
    KINDS_SHOWN,
    MORE_ROWS,
    PAGE_ROWS,
    READ_AT_MOST,
    SORTED_AT_MOST,
    SORTS,
    Bar,
    Part,
    View,
    load,
)
from handlers.hub.usage.tail import Onlooking, Viewer
from handlers.hub.web.base import Failure, Page
from handlers.hub.web.formats import FUNCTIONS, code_word, shape_of, short_word
from handlers.hub.web.parts import Column
from store.calls.usage_queries import Row
from store.db.database import select_rows
from store.db.tables.users import ApiKey
from store.hub.sessions import SignedIn
from store.values.ids import HOUR_MS, ulid_ms
from store.values.usage_record import OUTCOMES, rfc3339

SPANS = ("1h", "6h", "24h", "7d", "30d")
CHARTS: Mapping[str, tuple[str, ...]] = {
    "calls": ("c2", "warn", "bad"),
    "tokens": ("c1", "c2", "c5"),
    "cost": ("c3",),
    "first_byte": ("c1", "c2"),
}
"""What may be drawn, and the tones of its parts."""

LEGENDS: Mapping[str, tuple[str, ...]] = {
    "calls": ("ok", "refused", "failed"),
    "tokens": ("input", "cached", "output"),
    "cost": ("cost",),
    "first_byte": ("p50", "p95"),
}
CHOSEN = (
    *("outcome", "error_code", "key", "model", "endpoint", "group", "user", "channel", "status"),
    *("stream", "min_duration_ms", "request_id", "client_request_id", "upstream_request_id"),
    "trace_id",
)
"""The filters of the menu, in their order."""

OWN = ("after", "chart", "hide", "sort")
TICKS = 8
KEYS_LISTED = 200
TAIL_ROWS = 50  # of one message
CHART_HEIGHT = 112


class UsagePage(Page):
    """/usage: the calls of who has signed in."""

    everybody = False

    async def get(self) -> None:
        wanted = await self.wanted()
        after = self.cursor()
        limit = PAGE_ROWS if after is None else MORE_ROWS
        at_ms = time.time_ns() // 1_000_000
        part = Part(limit, after, self.get_query_argument("sort", "") or None)
        view: View = await self.store(load, wanted, at_ms, part)
        keys = [] if self.everybody else await self.store(key_names, self.me)
        self.show("usage/list.html", **self.shared(wanted), **self.own(wanted, view, keys))

    @property
    def me(self) -> SignedIn:
        """Who asks."""
        assert self.signed_in is not None
        return self.signed_in

    @property
    def query(self) -> dict[str, list[str]]:
        """The filters of the request and what this page knows besides; all else is left aside."""
        allowed = [
            name for name in (*NAMES, *SINGLE, *OWN) if self.everybody or name not in ADMIN_ONLY
        ]
        return {
            name: values
            for name in allowed
            if (values := [one for one in self.get_query_arguments(name) if one])
        }

    async def wanted(self) -> Asked:
        """The filters: of the last 24 hours unless a time is given."""
        query = {name: values for name, values in self.query.items() if name not in OWN}
        if not {"since", "until", "request_id", "client_request_id"} & query.keys():
            query["since"] = ["24h"]
        return await self.store(asked, self.me, query, everybody=self.everybody)

    def cursor(self) -> str | None:
        """The id before which the page begins."""
        after = self.get_query_argument("after", "")
        try:
            if after:
                ulid_ms(after)
        except ValueError:
            raise HTTPError(400) from None
        return after or None

    def link(self, **changes: str | None) -> str:
        """This page with other filters, from its first call on."""
        fields = {name: ",".join(values) for name, values in self.query.items() if name != "after"}
        fields |= {name: value for name, value in changes.items() if value is not None}
        kept = {name: value for name, value in fields.items() if changes.get(name, "") is not None}
        return self.path_of(kept)

    def path_of(self, fields: Mapping[str, str]) -> str:
        """The address of this page."""
        path = "/admin/usage" if self.everybody else "/usage"
        return f"{path}?{urlencode(fields, safe=',:/')}" if fields else path

    def shared(self, wanted: Asked) -> dict[str, Any]:
        """What rows need, also those of the live tail."""
        hidden = self.get_query_argument("hide", "").split(",")
        return {
            "everybody": self.everybody,
            "hidden": hidden,
            "visible": columns.visible(hidden, everybody=self.everybody),
            "Shown": columns.Shown,
            "TOKENS": columns.TOKENS,
            "given": wanted.given,
        }

    def own(self, wanted: Asked, view: View, keys: Sequence[str]) -> dict[str, Any]:
        """What the page itself needs."""
        chart = self.get_query_argument("chart", "calls")
        chart = chart if chart in CHARTS else "calls"
        limit = PAGE_ROWS if self.cursor() is None else MORE_ROWS
        hidden = [name for name in self.get_query_argument("hide", "").split(",") if name]
        filters = {
            name: values for name, values in wanted.given.items() if name not in ("since", "until")
        }
        export = {name: ",".join(values) for name, values in wanted.given.items()}
        if not self.everybody and self.me.admin:
            export["user"] = self.me.user  # the API shows administrators everybody's calls
        live = not (wanted.given.get("until") or self.cursor() or view.sort)
        tail = self.link(since=None, chart=None).partition("?")
        return {
            "view": view,
            "link": self.link,
            "after": self.cursor(),
            "limit": limit,
            "SORTS": SORTS,
            "SORTED_AT_MOST": SORTED_AT_MOST,
            "searching": view.next is not None and len(view.rows) < limit,
            "ulid_ms": ulid_ms,
            "chart": chart,
            "charts": CHARTS,
            "legend": [*zip(LEGENDS[chart], CHARTS[chart], strict=True)],
            "bars": self.drawn(view, chart),
            "filters": filters,
            "fields": [one for one in self.fields(keys) if one not in ("since", "until")],
            "choices": self.fields(keys),
            "span": wanted.given.get("since", [""])[0],
            "until": wanted.given.get("until", [""])[0],
            "spans": SPANS,
            "address": self.link(),
            "export": urlencode(export, safe=",:/"),
            "tail": f"{tail[0]}/tail{tail[1]}{tail[2]}" if live else "",
            "columns": [
                name for name in columns.COLUMNS if self.everybody or name not in columns.OF_ALL
            ],
            "hide": hidden,
            "KINDS_SHOWN": KINDS_SHOWN,
            "MORE_ROWS": MORE_ROWS,
            "READ_AT_MOST": READ_AT_MOST,
            "CHART_HEIGHT": CHART_HEIGHT,
            "HOUR_MS": HOUR_MS,
            "shape_of": shape_of,
            "code_word": code_word,
            "short_word": short_word,
            "rfc3339": rfc3339,
        }

    def fields(self, keys: Sequence[str]) -> dict[str, Sequence[tuple[str, str]]]:
        """The filters that may be added, with what may be chosen (nothing: any text)."""
        words = self.words
        choices: dict[str, Sequence[tuple[str, str]]] = {
            "outcome": [(one, words["codes.outcome_" + one]) for one in OUTCOMES],
            "error_code": [(one, code_word(words, one) or one) for one in ERROR_CODES],
            "stream": [(one, words["usage.stream_" + one]) for one in ("true", "false")],
            "key": [(one, one) for one in keys],
        }
        return {
            name: choices.get(name, ())
            for name in CHOSEN
            if self.everybody or name not in ADMIN_ONLY
        }

    def drawn(self, view: View, chart: str) -> list[Column]:
        """The bars of the chart."""
        bars = view.bars or []
        every = max(1, -(-len(bars) // TICKS))
        made = []
        for place, one in enumerate(bars):
            tick = place % every == 0
            hours = view.unit_ms == HOUR_MS
            at = rfc3339(one.at_ms)
            shown = at[11:13] if hours else at[5:10]
            span = {"since": at, "until": rfc3339(one.at_ms + view.unit_ms)}
            made.append(
                Column(
                    parts=_parts(one, chart),
                    tick=shown if tick else "",
                    title=f"{at[:10]} {at[11:16]} UTC: {one.calls}, {self.words['usage.failed']} "
                    f"{one.failed}, {self.words['usage.refused']} {one.refused}",
                    href=self.link(**span),
                    at_ms=one.at_ms if tick and hours else None,
                )
            )
        return made


def _parts(one: Bar, chart: str) -> tuple[float, ...]:
    if chart == "calls":
        return (one.ok + one.client_gone, one.refused, one.failed)
    if chart == "tokens":
        return (one.input, one.cached, one.output)
    if chart == "cost":
        return (one.cost_nanos / 10**9,)
    p50, p95 = one.first_byte(50) or 0, one.first_byte(95) or 0
    return (p50 / 1000, max(p95 - p50, 0) / 1000)


def key_names(db: peewee.Database, me: SignedIn) -> list[str]:
    """The names of a user's keys that may be chosen from."""
    query = ApiKey.select(ApiKey.name).where(ApiKey.user_id == me.user_id).distinct()
    return [name for (name,) in select_rows(db, query.order_by(ApiKey.name).limit(KEYS_LISTED))]


class AdminUsagePage(UsagePage):
    """/admin/usage: everybody's calls."""

    admin = True
    everybody = True


class UsageTail(Onlooking, UsagePage):
    """/usage/tail: rows of the table for new calls, as server-sent events."""

    async def get(self) -> None:
        if self.signed_in is None:
            raise Failure(401, "unauthorized", "sign in")
        wanted = await self.wanted()
        self._shared = self.shared(wanted)
        await self.serve_tail(Viewer(wanted.filters, self.me.user_id))

    def messages(self, rows: Sequence[Row], missed: int) -> bytes:
        """The newest rows, the newest first, and how many there were."""
        newest = [*reversed(rows)][:TAIL_ROWS]
        html = self.render_string("usage/rows.html", rows=newest, words=self.words, **self.told())
        said = {"rows": html.decode(), "count": len(rows) + missed}
        return b"data: %b\n\n" % msgspec.json.encode(said)

    def told(self) -> dict[str, Any]:
        """What the rows' template needs besides."""
        return {**self._shared, **FUNCTIONS}

    _shared: Mapping[str, Any] = {}


class AdminUsageTail(UsageTail):
    """/admin/usage/tail: the same of everybody's calls."""

    admin = True
    everybody = True
