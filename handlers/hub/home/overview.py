"""The home page for administrators: the gateway's earnings, the state of its channels, problems to
fix.

The parts of the page are read independently. One that fails is replaced by a notice; one that takes
long, by grey placeholders until the page's script has fetched it. Days are UTC days.
"""

import asyncio
import logging
import statistics
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import peewee

from handlers.hub.admin.system import node_state
from handlers.hub.home import set_up
from handlers.hub.home.gateway_needs import load_gateway_needs
from handlers.hub.home.home import OwnHomePage
from handlers.hub.home.needs import need_to_plain
from handlers.hub.web.admin import AdminApi, path_of
from handlers.hub.web.base import Failure, HubHandler, Page, invalid
from handlers.hub.web.charts import HOUR, Column
from handlers.hub.web.formats import STATE_SHAPES, address
from handlers.hub.web.unfinished import forget
from handlers.hub.web.zones import local, weekday_text
from operations.catalogue import unpriced_uses
from store.calls.reading import overview
from store.calls.reading.overview import SPANS, ChannelLines, OverviewSums
from store.calls.reading.sums import CallSums, RankedSums, SumsBar, ranked_sums, sums_of_names
from store.calls.usage_queries import Filters
from store.db.database import database_ms, in_snapshot, portions, select_rows
from store.db.tables.users import ApiKey, User
from store.hub import notices
from store.values.errors import StoreUnavailable
from store.values.ids import DAY_MS, HOUR_MS, new_ulid
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

log = logging.getLogger("sluice.hub")

CHARGED_BY: Mapping[str, str] = {
    **{"models": "model", "users": "user", "channels": "channel", "keys": "key_id"},
}
"""The choices to group charges by, each with its filter of usage."""

WHOSE = ("gateway", "me")
SPAN, BY = "30d", "models"
CHARGED_ROWS = 8
UNPRICED_ROWS = 4
PATIENCE_S = 0.22  # for all parts; later ones are placeholders
OPS_PATIENCE_S = 0.2  # for the ops port of this node
TICKS_EVERY = 3
WORKING_DAYS = range(5)  # Monday to Friday
WORKING_DAYS_MIN = 3  # no median of fewer
NANOS = 10**9
SHARE_DIGITS = 4
CHART_HEIGHT = 246
TONES = ("c4", "c3", "c6")


# ---- the parts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PagePart:
    """A part of the page. `value` None: reading it failed, and `failure_id` finds the error in the
    log; or, without `failure_id`, it takes longer than PATIENCE_S."""

    value: Any = None
    failure_id: str = ""

    @property
    def missing(self) -> bool:
        """Return whether the part has no value."""
        return self.value is None


async def read_parts(
    works: Mapping[str, Awaitable[Any]], patience_s: float | None
) -> dict[str, PagePart]:
    """Return the parts by name. `patience_s` None: wait for all of them."""
    tasks = {name: asyncio.ensure_future(work) for name, work in works.items()}
    await asyncio.wait(tasks.values(), timeout=patience_s)
    return {name: _part(name, task) for name, task in tasks.items()}


def _part(name: str, task: "asyncio.Future[Any]") -> PagePart:
    if not task.done():
        task.add_done_callback(forget)
        return PagePart()
    error = task.exception()
    if error is None:
        return PagePart(task.result())
    failure_id = new_ulid()
    expected = isinstance(error, (StoreUnavailable, Failure))
    trace = None if expected else (type(error), error, error.__traceback__)
    log.error("part %s of the overview failed (%s): %s", name, failure_id, error, exc_info=trace)
    return PagePart(failure_id=failure_id)


@dataclass(frozen=True, slots=True)
class Charged:
    """The charges of a span by model, user, channel or key. `names`: the names of keys by id."""

    by: str
    ranked: RankedSums
    names: Mapping[str, str]

    @property
    def largest(self) -> int:
        """Return the charges of the first row."""
        return max((row.cost_nanos for row in self.ranked.rows), default=0)

    @property
    def unlisted(self) -> int:
        """Return the number of groups without a row of their own."""
        return max(0, self.ranked.groups - len(self.ranked.rows))


@in_snapshot
def load_charged(db: peewee.Database, by: str, since_ms: int) -> Charged:
    """Read the largest charges since a time."""
    ranked = ranked_sums(db, CHARGED_BY[by], Filters(since_ms=since_ms), CHARGED_ROWS)
    names: dict[str, str] = {}
    for portion in portions([row.name or "" for row in ranked.rows]) if by == "keys" else ():
        query = ApiKey.select(ApiKey.id, ApiKey.name, User.name)
        query = query.join(User, on=(User.id == ApiKey.user_id)).where(ApiKey.id << portion)
        names |= {key: f"{user} / {name}" for key, name, user in select_rows(db, query)}
    return Charged(by, ranked, names)


@in_snapshot
def load_channels(db: peewee.Database, at_ms: int, since_ms: int) -> ChannelLines:
    """Read the channels with their sums since a time."""
    sums = sums_of_names(db, "channel", Filters(since_ms=since_ms))
    return overview.channel_lines(db, at_ms, sums)


async def read_nodes(handler: HubHandler) -> set_up.NodeLines:
    """Return the nodes. Details of this node are included if its ops port answers in time."""
    states, verified_ms = await handler.store(set_up.load_nodes)
    try:
        answer = asyncio.shield(node_state(handler.site))  # has a timeout of its own
        here = await asyncio.wait_for(answer, OPS_PATIENCE_S)
    except TimeoutError:
        here = {"node": None}
    return set_up.node_lines(states, here, verified_ms)


@dataclass(frozen=True, slots=True)
class Overview:
    """The overview's parts, for the chosen span and grouping."""

    at_ms: int
    span: str
    by: str
    parts: Mapping[str, PagePart]

    @property
    def since_ms(self) -> int:
        """Return the start of the span."""
        return since_ms_of(self.at_ms, self.span)


def since_ms_of(at_ms: int, span: str) -> int:
    """Return the start of a span that ends now."""
    return at_ms - at_ms % DAY_MS - (SPANS[span] - 1) * DAY_MS


async def read_overview(handler: HubHandler, patience_s: float | None) -> Overview:
    """Read the overview for the request's query. Raises Failure."""
    span, by = _choice(handler, "span", SPANS, SPAN), _choice(handler, "by", CHARGED_BY, BY)
    settings = handler.site.settings
    addressed, mailed = handler.site.has_base_url, bool(settings.mail.url)
    at_ms = await handler.store(database_ms)
    since_ms = since_ms_of(at_ms, span)
    works: dict[str, Awaitable[Any]] = {
        "sums": handler.store(overview.overview_sums, at_ms),
        "needs": handler.store(load_gateway_needs, at_ms),
        "charged_by": handler.store(load_charged, by, since_ms),
        "channels": handler.store(load_channels, at_ms, since_ms),
        "unpriced": handler.store(unpriced_uses),
        "set_up": handler.store(set_up.load_set_up, addressed=addressed, mailed=mailed),
        "nodes": read_nodes(handler),
        "notices": handler.store(notices.current),
    }
    return Overview(at_ms, span, by, await read_parts(works, patience_s))


def _choice(handler: HubHandler, name: str, choices: Mapping[str, object], default: str) -> str:
    value = handler.get_query_argument(name, "") or default
    if value not in choices:
        raise invalid(name, f"{name} must be one of {', '.join(choices)}")
    return value


# ---- the page ------------------------------------------------------------------------------------


class HomePage(OwnHomePage):
    """The first page after signing in. Administrators see the gateway's, unless `of` chooses their
    own, which a cookie remembers."""

    async def get(self) -> None:
        if (whose := self.get_query_argument("of", "")) in WHOSE:
            self.set_preference("home", whose)
        else:
            whose = self.get_cookie("home", "")
        if self.me.admin and whose != "me":
            await show_overview(self)
        else:
            await self.show_own()


async def show_overview(page: Page) -> None:
    """Render the page."""
    waits = page.get_query_argument("wait", "") == "1"
    seen = await read_overview(page, None if waits else PATIENCE_S)
    sums: OverviewSums | None = seen.parts["sums"].value
    bars = sums.bars(seen.span) if sums else ()
    since = {"since": rfc3339(seen.since_ms)}
    page.show(
        "overview.html",
        seen=seen,
        parts=seen.parts,
        CHARGED_BY=CHARGED_BY,
        UNPRICED_ROWS=UNPRICED_ROWS,
        CHART_HEIGHT=CHART_HEIGHT,
        TONES=TONES,
        bars=bars,
        columns=[_column(page, seen.span, bars, index) for index in range(len(bars))],
        most=max(bars, key=lambda bar: bar.cost_nanos, default=None),
        median=median_of_working_days(bars, seen.at_ms) if seen.span != "today" else None,
        day_words=lambda at_ms: weekday_text(local(at_ms, UTC), page.language, short=True),
        bar_words=lambda bar: _bar_words(page, seen.span, bar),
        percent=percent,
        spoken=lambda values: _spoken(page, values),
        state_shape=STATE_SHAPES,
        state_counts=_state_counts,
        here=lambda **changes: address(
            "/", **{"of": "gateway", "span": seen.span, "by": seen.by, **changes}
        ),
        usage=lambda **filters: usage_path({**filters, **since}),
        place=path_of,
        set_up_hidden=page.get_cookie("set_up") == "hidden",
        DAY_MS=DAY_MS,
        two_decimals=two_decimals,
        whose="gateway",
    )


def usage_path(query: Mapping[str, Any]) -> str:
    """Return the URL of everybody's calls with these filters."""
    return address("/usage", of="all", **query)


def percent(part: float | None) -> str:
    """Format a margin or a change as a percentage with 1 decimal."""
    return "–" if part is None else f"{100 * part:,.1f}".replace("-", "−")


def median_of_working_days(bars: Sequence[SumsBar], at_ms: int) -> int | None:
    """Return the median charge of the whole working days among the bars. None: too few of them."""
    charged = [
        bar.cost_nanos
        for bar in bars
        if bar.at_ms + DAY_MS <= at_ms
        and datetime.fromtimestamp(bar.at_ms / 1000, UTC).weekday() in WORKING_DAYS
    ]
    return round(statistics.median(charged)) if len(charged) >= WORKING_DAYS_MIN else None


def chart_parts(sums: CallSums) -> tuple[int, int, int]:
    """Return the parts of a charge in nanos: the operator's cost, the margin, and charges of
    unknown cost. A loss has no height of its own: the cost part then equals the charge."""
    cost = min(sums.upstream_nanos, sums.known_nanos)
    return cost, sums.known_nanos - cost, sums.cost_nanos - sums.known_nanos


def _column(page: Page, span: str, bars: Sequence[SumsBar], index: int) -> Column:
    bar, by_day = bars[index], span != "today"
    last = len(bars) - 1 if by_day else 0
    tick = (last - index) % TICKS_EVERY == 0 or len(bars) <= SPANS["7d"]
    title = page.words["overview.bar"].format(
        at=_bar_words(page, span, bar),
        charged=two_decimals(bar.cost_nanos),
        currency=page.site.settings.money.currency,
        margin=percent(bar.margin),
    )
    until_ms = bar.at_ms + (DAY_MS if by_day else HOUR_MS)
    href = usage_path({"since": rfc3339(bar.at_ms), "until": rfc3339(until_ms)})
    parts = tuple(part / NANOS for part in chart_parts(bar))
    word = str(local(bar.at_ms, UTC).day) if by_day else HOUR
    return Column(parts, word if tick else "", title, href, bar.at_ms)


def _bar_words(page: Page, span: str, bar: SumsBar) -> str:
    """Return the UTC day of a bar, or its hour in the viewer's zone."""
    if span == "today":
        return page.time_text(bar.at_ms, "clock")
    return weekday_text(local(bar.at_ms, UTC), page.language, short=True)


def two_decimals(nanos: int) -> str:
    """Format a sum of money with two decimals."""
    return f"{nanos / NANOS:,.2f}".replace("-", "−")


def _spoken(page: Page, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a text, with the currency and with the reason of a state as text."""
    reason = values.get("reason", "")
    words = {"reason": page.words.get(f"admin.why_{reason}", reason)}
    return {**values, **words, "currency": page.site.settings.money.currency}


def _state_counts(words: Mapping[str, str], lines: ChannelLines) -> str:
    """Return the number of channels without a row, by state: 291 Up, 3 Disabled."""
    return ", ".join(
        f"{number:,} {words[f'admin.state_{state}']}" for state, number in lines.unlisted.items()
    )


# ---- the JSON ------------------------------------------------------------------------------------


class OverviewApi(AdminApi):
    """GET /api/admin/overview."""

    async def get(self) -> None:
        self.answer(overview_to_plain(await read_overview(self, None)))


def overview_to_plain(seen: Overview) -> dict[str, Any]:
    """Return the overview as JSON. A part that could not be read is null."""
    sums: OverviewSums | None = seen.parts["sums"].value
    return {
        "at": rfc3339(seen.at_ms),
        "span": seen.span,
        "since": rfc3339(seen.since_ms),
        "spans": sums and {name: _span_to_plain(sums.spans[name]) for name in SPANS},
        "charged": sums
        and [{"at": rfc3339(bar.at_ms), **sums_to_plain(bar)} for bar in sums.bars(seen.span)],
        **{
            name: None if seen.parts[name].missing else to_plain(seen.parts[name].value)
            for name, to_plain in _TO_PLAIN.items()
        },
    }


def sums_to_plain(sums: CallSums) -> dict[str, Any]:
    """Return calls, charges and margin as JSON."""
    return {
        "calls": sums.calls,
        "cost": sums.cost,
        "upstream_cost": format_money(sums.upstream_nanos),
        "cost_known": format_money(sums.known_nanos),
        "margin": rounded(sums.margin),
    }


def rounded(part: float | None) -> float | None:
    """Round a fraction for JSON."""
    return None if part is None else round(part, SHARE_DIGITS)


def _span_to_plain(span: overview.SpanSums) -> dict[str, Any]:
    sums = span.sums
    return {
        **sums_to_plain(sums),
        "since": rfc3339(span.since_ms),
        "change": rounded(span.change),
        **{name: getattr(sums, name) for name in ("failed", "refused", "streams")},
        "success": rounded(sums.share),
        "first_byte_p50_ms": sums.first_byte(50),
        "first_byte_p95_ms": sums.first_byte(95),
    }


def _ranked_to_plain(charged: Charged) -> dict[str, Any]:
    name = CHARGED_BY[charged.by]
    items = [{name: row.name, **sums_to_plain(row)} for row in charged.ranked.rows]
    remaining = sums_to_plain(charged.ranked.remaining)
    return {"by": charged.by, "items": items, "others": charged.unlisted, "remaining": remaining}


def _channels_to_plain(channels: ChannelLines) -> dict[str, Any]:
    items = [
        {
            "name": line.name,
            "state": line.state,
            **sums_to_plain(line.sums),
            "failed_today": rounded(line.failed_today),
            "failed_30d": rounded(line.failed_share),
            "reached_today": line.days[-1].calls,
        }
        for line in channels.lines
    ]
    return {"items": items, "others": dict(channels.unlisted)}


_TO_PLAIN: Mapping[str, Any] = {
    "notices": lambda current: [notices.public(notice) for notice in current],
    "needs": lambda needs: {
        "items": [need_to_plain(need) for need in needs.first],
        "more": needs.more,
    },
    "charged_by": _ranked_to_plain,
    "channels": _channels_to_plain,
    "unpriced": lambda lines: [
        {
            **{"model": line.model, "meter": line.meter, "count": line.count},
            "cost": None if line.cost_nanos is None else format_money(line.cost_nanos),
        }
        for line in lines
    ],
    "set_up": lambda steps: [{"step": step.name, "done": step.done} for step in steps.steps],
    "nodes": lambda nodes: [
        {
            **{"name": line.name, "state": line.state, "workers": line.workers},
            **{"streams": line.streams, "calls": line.calls, "own_ms": line.own_ms},
            "seen_at": rfc3339(line.seen_ms),
        }
        for line in nodes.lines
    ],
}
