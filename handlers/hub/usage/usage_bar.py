"""The filter bar of the pages of usage: the page's URL with its filters, the time span with its
date picker, and the box that finds calls."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any
from urllib.parse import urlencode

from handlers.hub.usage import usage_dates
from handlers.hub.usage.usage_filters import (
    ADMIN_ONLY,
    ERROR_CODES,
    NAMES,
    SINGLE,
    UsageFilters,
    read_filters,
)
from handlers.hub.web.base import Failure, Page
from handlers.hub.web.formats import code_word, duration_text
from handlers.hub.web.zones import local, month_text, zone_name
from store.calls.reading import search
from store.calls.reading.buckets import tells_days
from store.calls.reading.groups import ADMIN_GROUPS, GROUPS
from store.calls.reading.usage_page import SHORT_MS
from store.hub import own_keys
from store.values.ids import now_ms
from store.values.usage_record import OUTCOMES

MENU_FILTERS = (
    *("outcome", "error_code", "key", "model", "endpoint", "group", "user", "channel", "status"),
    *("stream", "min_duration_ms", "request_id", "client_request_id", "upstream_request_id"),
    "trace_id",
)
"""The filters in the menu, in order."""

PAGE_FIELDS = (
    *("after", "chart", "hide", "sort", "of", "by", "per", "compare", "pick", "month", "wait"),
    "search",
)
"""Fields of the page's query other than filters."""
PASSING_FIELDS = ("after", "pick", "month", "wait", "search")
"""Fields that the page's links leave out."""
_SPAN = ("since", "until")
KEYS_LISTED = 200
SEARCH_CHARS = 256


class UsageBar(Page):
    """The base of the pages of usage. `problems`: by filter, its text and what is wrong with it.
    `days_zone`: the zone whose days the sums use; set when the filters are read."""

    problems: Mapping[str, tuple[str, str]] = {}
    days_zone: tzinfo = UTC

    @property
    def everybody(self) -> bool:
        """Return whether everybody's calls are shown."""
        return self.me.admin and self.get_query_argument("of", "") == "all"

    @property
    def by(self) -> str:
        """Return the dimension of the groups, or "" without groups."""
        by = self.get_query_argument("by", "")
        return by if by in GROUPS and (self.everybody or by not in ADMIN_GROUPS) else ""

    @property
    def waits(self) -> bool:
        """Return whether the page waits for sums that take long."""
        return bool(self.get_query_argument("wait", ""))

    async def redirected(self) -> bool:
        """Redirect to the URL for a submitted search or date picker. Return whether it did."""
        text = self.get_query_argument("search", "")[:SEARCH_CHARS].strip()
        if text:
            everybody = self.everybody
            viewer = search.Viewer(
                None if everybody else self.me.user_id,
                None if everybody else self.me.user,
                self.me.admin,
            )
            at_ms = now_ms()
            match = await self.store(search.match_of, text, viewer, at_ms)
            if match.kind == "missing":
                fields: dict[str, str | None] = {"request_id": match.value, "by": None}
            else:
                fields = {match.kind: match.value, "by": None}
            here = self.link(**{"text": None, **fields})
            self.redirect(f"/usage/{match.value}" if match.kind == "call" else here, status=303)
            return True
        names = usage_dates.PANEL_FIELDS
        fields_of_span = {name: self.get_query_argument(name, "") for name in names}
        if not fields_of_span["from_day"]:
            return False
        try:
            now = datetime.now(self.zone)
            ends = usage_dates.submitted(fields_of_span, self.zone, now)
        except ValueError as error:
            name = str(error)
            problem = self.words["usage.wrong_" + name.partition("_")[0]]
            self.problems = {name: (fields_of_span[name], problem)}
            return False
        self.redirect(self.link(**ends), status=303)
        return True

    @property
    def query(self) -> dict[str, list[str]]:
        """Return the filters and fields of the query that this page knows. Others are ignored."""
        allowed = [
            name
            for name in (*NAMES, *SINGLE, *PAGE_FIELDS)
            if self.everybody or name not in (*ADMIN_ONLY, "of")
        ]
        return {
            name: values
            for name in allowed
            if (values := [value for value in self.get_query_arguments(name) if value])
        }

    async def read_filters(self) -> UsageFilters:
        """Read the filters, of the last 24 hours by default. An invalid filter is ignored and added
        to `problems`. Days are those of the viewer's zone or, if the sums have none for it, UTC;
        sets `days_zone`."""
        query = {name: values for name, values in self.query.items() if name not in PAGE_FIELDS}
        problems = dict(self.problems)
        zone = self.zone
        while True:
            if not {"since", "until", "request_id", "client_request_id"} & query.keys():
                query["since"] = ["24h"]
            try:
                filters = await self._read(query, zone)
            except Failure as failure:
                name = failure.field
                if name not in query:
                    raise
                problems[name] = (",".join(query.pop(name)), self.in_words(failure.message))
                continue
            if not await self._tells_days(filters, zone):
                zone = UTC
                continue
            self.problems, self.days_zone = problems, zone
            return filters

    async def _read(self, query: Mapping[str, list[str]], zone: tzinfo) -> UsageFilters:
        at_ms = now_ms()
        ends = {
            name: [usage_dates.in_zone(text, zone, at_ms) for text in query[name]]
            for name in ("since", "until")
            if name in query
        }
        texts = {**query, **ends}
        return await self.store(read_filters, self.me, texts, everybody=self.everybody)

    async def _tells_days(self, filters: UsageFilters, zone: tzinfo) -> bool:
        """Return whether this page's sums can be computed for days of a zone."""
        at_ms = now_ms()
        since_ms, until_ms = filters.filters.since_ms, filters.filters.until_ms or at_ms
        short = since_ms is not None and until_ms - since_ms <= SHORT_MS
        if zone is UTC or short:
            return True
        by = [name for name in (self.by,) if name and name != "day"]
        return await self.store(tells_days, by, filters.filters, at_ms, zone)

    def link(self, **changes: str | None) -> str:
        """Return the URL of this page with changed filters, starting at its first call."""
        fields = {
            name: ",".join(values)
            for name, values in self.query.items()
            if name not in PASSING_FIELDS
        }
        if self.everybody:
            fields = {"of": "all", **fields}
        for name, value in changes.items():
            if value is None:
                fields.pop(name, None)
            else:
                fields[name] = value
        return f"/usage?{urlencode(fields, safe=',:/')}" if fields else "/usage"

    def span_of(self, filters: UsageFilters) -> usage_dates.Span:
        """Return the time span in the page's URL."""
        query = self.query
        since, until = ((query.get(name) or [""])[0] for name in ("since", "until"))
        if filters.query.get("since") == ["24h"]:
            since = "24h"
        ends = filters.filters.since_ms, filters.filters.until_ms
        return usage_dates.Span(since, until, *ends, self.days_zone)

    async def bar_values(self, filters: UsageFilters) -> dict[str, Any]:
        """Return the template values for the filter bar, which all pages of usage have."""
        query = filters.query
        keys: list[str] = []
        if not self.everybody:
            keys = await self.store(own_keys.names_of, self.me.user_id, KEYS_LISTED)
        like: list[str] = []
        if text := "".join(query.get("text", ())):
            like = await self.store(search.models_like, text)
        export = {name: ",".join(values) for name, values in query.items()}
        if self.me.admin and not self.everybody:
            export["user"] = self.me.user  # for administrators, the API covers everybody's calls
        return {
            "by": self.by,
            "dimensions": [by for by in GROUPS if self.everybody or by not in ADMIN_GROUPS],
            "link": self.link,
            "own_link": self.link(of=None, **dict.fromkeys(ADMIN_ONLY)),
            "filters": self._shown(filters),
            "choices": self._choices(keys),
            "problems": self.problems,
            "like": like,
            "address": self.link(),
            "export": urlencode(export, safe=",:/"),
            "zone": zone_name(self.zone),
            "utc_days": self.days_zone is UTC and self.zone is not UTC,
            **self._dates(self.span_of(filters)),
        }

    @staticmethod
    def _shown(filters: UsageFilters) -> dict[str, list[str]]:
        """Return the filters to show as chips and fields, without the time span."""
        texts = {name: values for name, values in filters.query.items() if name not in _SPAN}
        if filters.filters.min_duration_ms is not None:
            texts["min_duration_ms"] = [duration_text(filters.filters.min_duration_ms)]
        return texts

    def _dates(self, span: usage_dates.Span) -> dict[str, Any]:
        """Return the template values for the date picker."""
        now = datetime.now(self.days_zone)
        first = None if span.since_ms is None else local(span.since_ms, span.zone)
        last = now if span.until_ms is None else local(span.until_ms - 1, span.zone)
        month = usage_dates.day_of_text(self.get_query_argument("month", "") + "-01")
        days = None if first is None else (first.date(), last.date())
        return {
            "span": span,
            "span_text": usage_dates.chip_text(self.words, span, now, self.language),
            "presets": (
                [usage_dates.Preset(name, name) for name in usage_dates.LENGTHS],
                usage_dates.calendar_presets(now.date()),
            ),
            "first": first,
            "last": last if span.until_ms is None else local(span.until_ms, span.zone),
            "span_days": None if days is None else (days[1] - days[0]).days + 1,
            "months": usage_dates.months(month or last.date(), days, now.date(), self.language),
            "month_text": month_text,
            "picking": self.get_query_argument("pick", "") == "until",
            "dates_open": bool(month or self.get_query_argument("pick", ""))
            or any(name in self.problems for name in usage_dates.PANEL_FIELDS),
            "now": now,
            "steps": {
                step: usage_dates.moved(span, round(now.timestamp() * 1000), step)
                for step in (-1, 1)
            },
        }

    def _choices(self, keys: Sequence[str]) -> dict[str, Sequence[tuple[str, str]]]:
        """Return the filters of the menu with their choices; a filter without choices takes any
        text."""
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
