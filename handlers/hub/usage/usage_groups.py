"""Usage by group: the figures, the stacked chart and the table of a page with `by` in its query.

The table is the chart's legend: its first rows have the chart's colours. Sums that take long are
fetched by a second request; until then, the page has grey placeholders.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from handlers.hub.usage import usage_dates
from handlers.hub.usage.usage_bar import UsageBar
from handlers.hub.usage.usage_filters import UsageFilters
from handlers.hub.web import formats
from handlers.hub.web.charts import Column
from handlers.hub.web.zones import day_text, local, moment_text, weekday_text
from store.calls.reading import groups
from store.calls.reading.buckets import DAY, HOUR, UNITS, WEEK
from store.calls.reading.groups import Bar, GroupedUsage, Grouping, GroupSums
from store.calls.reading.usage_page import READ_AT_MOST, SHORT_MS
from store.values.ids import DAY_MS, now_ms
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

HOURS_SPAN_MS = 7 * DAY_MS  # columns of hours only in spans up to this
WEEKS_SPAN_MS = 14 * DAY_MS  # columns of weeks only in spans from this
TICKS = 9
SCALES = {"calls": 1, "tokens": 1, "cost": 10**9, "margin": 10**9, "first_byte": 1000}
"""For each chart, the number of its values' units that make one unit of its scale."""
CHART_HEIGHT = 208
COLUMNS = (
    *("bar", "change", "calls", "success", "in", "cached", "out", "first", "margin", "spark"),
)
"""The columns that can be hidden, in order."""


@dataclass(frozen=True, slots=True)
class BarSpan:
    """The time span of a chart's column, in ms."""

    begin_ms: int
    end_ms: int
    by_hour: bool

    def tick(self, page: UsageBar) -> str:
        """Return the text below the column."""
        at = local(self.begin_ms, page.zone if self.by_hour else page.days_zone)
        return f"{at:%H}" if self.by_hour else str(at.day) if at.day > 1 else _month_tick(page, at)

    def title(self, page: UsageBar) -> str:
        """Return the weekday and date, with the hour of an hour's column, or the days of a week."""
        zone = page.zone if self.by_hour else page.days_zone
        at = local(self.begin_ms, zone)
        if self.by_hour:
            return moment_text(at, "weekday", page.language, at)
        if self.end_ms - self.begin_ms > 2 * DAY_MS:
            now = datetime.now(zone)
            return usage_dates.ends_text(self.begin_ms, self.end_ms, now, page.language)
        return weekday_text(at, page.language)


def _month_tick(page: UsageBar, at: datetime) -> str:
    return day_text(at, page.language)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as a table row. `href`: the URL of its calls, empty if no filter selects them;
    `tone`: the class of its colour; `mono`: show the name in a monospaced font."""

    sums: GroupSums
    name: str
    href: str
    tone: str
    mono: bool = False


@dataclass(frozen=True, slots=True)
class ChartPart:
    """A part of each column, from the bottom up: its tone and name."""

    tone: str
    name: str


def dimensions(page: UsageBar) -> list[str]:
    """Return the dimensions that the viewer may choose."""
    return [by for by in groups.GROUPS if page.everybody or by not in groups.ADMIN_GROUPS]


async def show(page: UsageBar, filters: UsageFilters) -> None:
    """Render the page of groups."""
    at_ms = now_ms()
    span = page.span_of(filters)
    since_ms = span.since_ms if span.since_ms is not None else at_ms - 30 * DAY_MS
    length_ms = min(span.until_ms or at_ms, at_ms) - since_ms
    per, off = units(page, length_ms)
    comparison = page.get_query_argument("compare", "") or usage_dates.default_comparison(span)
    before = usage_dates.span_before(span, comparison, at_ms)
    grouping = Grouping(
        by=page.by,
        chart=chart_of(page),
        unit=per,
        zone=page.days_zone,
        before=before,
        sort=sort_of(page),
    )
    work = functools.partial(page.store, groups.load_groups, filters.filters, at_ms, grouping)
    key = f"{page.me.user_id} {page.link()} {page.zone}"
    view = await page.site.unfinished.result(key, work, wait=page.waits)
    now = datetime.now(page.days_zone)
    before_text = usage_dates.days_text(*before, now, page.language) if before else ""
    page.show(
        "usage/groups.html",
        view=view,
        everybody=page.everybody,
        margins=page.everybody,
        per=per,
        units_off=off,
        UNITS=UNITS,
        chart=grouping.chart,
        charts=charts_of(page),
        usual_chart=usual_chart(page),
        before_text=before_text,
        sort=grouping.sort,
        READ_AT_MOST=READ_AT_MOST,
        local=local,
        **await page.bar_values(filters),
        **_table_values(page, before_text),
        **(_sum_values(page, view, per) if view and view.total else {}),
    )


def _table_values(page: UsageBar, before_text: str) -> dict[str, Any]:
    """Return the template values for the table's header and number formats."""
    words, currency = page.words, page.site.settings.money.currency
    heads = {
        "group": words[f"usage.by_{page.by}"],
        "share": words["usage.share"],
        "cost": words["usage.col_cost"].format(currency=currency),
        "bar": words["usage.col_share"],
        "change": words["usage.col_change"].format(span=before_text),
        "cached": words["usage.col_cached_share"],
        **{
            name: words[f"usage.col_{name}"]
            for name in ("calls", "success", "in", "out", "first", "margin", "spark")
        },
    }
    hide = [name for name in page.get_query_argument("hide", "").split(",") if name]
    unused = {
        *([] if page.everybody else ["margin"]),
        *([] if before_text else ["change"]),
        *(["spark"] if page.by == DAY else []),
    }
    columns = [name for name in COLUMNS if name not in unused]
    visible = {"group", "share", "cost", *(name for name in columns if name not in hide)}
    return {
        "heads": heads,
        "columns": columns,
        "hide": hide,
        "visible": visible,
        "signed": _signed,
        "percent": _percent,
    }


def _sum_values(page: UsageBar, view: GroupedUsage, per: str) -> dict[str, Any]:
    """Return the template values for the sums: table rows, parts and columns of the chart."""
    parts, total = parts_of(page, view), view.total
    rows = rows_of(page, view)
    by_cost = page.by != "error_code" and bool(total and total.cost_nanos)
    whole = 0 if total is None else total.cost_nanos if by_cost else total.calls
    sizes = [row.sums.cost_nanos if by_cost else row.sums.calls for row in rows]
    return {
        "rows": rows,
        "rest": rest_row(page, view),
        "parts": parts,
        "bars": view.bars,
        "chart_columns": columns_of(page, view, per == HOUR),
        "amount": functools.partial(amount_text, chart_of(page)),
        "by_cost": by_cost,
        "top_share": max(sizes, default=0) / whole if whole else 1,
    }


def _percent(part: float | None) -> str:
    """Return a fraction as a percentage with one decimal."""
    return formats.UNKNOWN if part is None else f"{100 * part:,.1f}".replace("-", formats.MINUS)


def _signed(part: float | None) -> str:
    """Return a change as a percentage with its sign."""
    return formats.UNKNOWN if part is None else f"{100 * part:+,.1f}".replace("-", formats.MINUS)


def charts_of(page: UsageBar) -> list[str]:
    """Return the charts that the viewer may choose."""
    return [name for name in groups.CHARTS if name != "margin" or page.everybody]


def chart_of(page: UsageBar) -> str:
    """Return the chart that the query chooses, or the default."""
    chart = page.get_query_argument("chart", "")
    return chart if chart in charts_of(page) else usual_chart(page)


def usual_chart(page: UsageBar) -> str:
    """Return the default chart: calls for errors, cost otherwise."""
    return "calls" if page.by == "error_code" else "cost"


def sort_of(page: UsageBar) -> str:
    """Return the order of the rows that the query chooses. By default days are sorted by time,
    errors by calls, others by cost."""
    usual = {DAY: "begin", "error_code": "calls"}.get(page.by, "cost")
    sort = page.get_query_argument("sort", usual)
    return sort if sort in groups.SORTS and (sort != "margin" or page.everybody) else usual


def units(page: UsageBar, length_ms: int) -> tuple[str, Mapping[str, str]]:
    """Return the unit of the columns, and the unavailable units with the reason."""
    off = {}
    if length_ms > HOURS_SPAN_MS:
        off[HOUR] = page.words["usage.no_hours"]
    if length_ms < DAY_MS:
        off[DAY] = page.words["usage.no_days"]
    if length_ms < WEEKS_SPAN_MS:
        off[WEEK] = page.words["usage.no_weeks"]
    usual = HOUR if length_ms <= SHORT_MS else DAY
    per = page.get_query_argument("per", usual)
    return (per if per in UNITS and per not in off else usual), off


# ---- rows and columns ----------------------------------------------------------------------------


def rows_of(page: UsageBar, view: GroupedUsage) -> list[GroupRow]:
    """Return the rows of the table."""
    by = page.by
    tones = {name: f"g{place}" for place, name in enumerate(view.coloured, 1)}
    rows = []
    for sums in view.groups:
        tone = tones.get(sums.name, "g1" if by == DAY else "g6")
        mono = bool(sums.name) and by in ("model", "endpoint")
        rows.append(GroupRow(sums, _name(page, by, sums), _href(page, by, sums), tone, mono))
    return rows


def _name(page: UsageBar, by: str, sums: GroupSums) -> str:
    if by == DAY and sums.begin_ms is not None:
        return weekday_text(local(sums.begin_ms, page.days_zone), page.language)
    if not sums.name:
        return page.words[f"usage.no_{by}"]
    if by == "error_code":
        return formats.code_word(page.words, sums.name) or sums.name
    return sums.label


def _href(page: UsageBar, by: str, sums: GroupSums) -> str:
    """Return the URL of a group's calls, or "" if no filter selects them."""
    plain: dict[str, str | None] = dict.fromkeys(("by", "chart", "per", "compare", "sort", "hide"))
    if by == DAY and sums.begin_ms is not None and sums.end_ms is not None:
        ends = {"since": rfc3339(sums.begin_ms), "until": rfc3339(sums.end_ms)}
        return page.link(**{**plain, **ends})
    if sums.name:
        return page.link(**{**plain, by: sums.name})
    return page.link(**{**plain, "outcome": "ok"}) if by == "error_code" else ""


def rest_row(page: UsageBar, view: GroupedUsage) -> GroupRow | None:
    """Return the row for all groups without a row of their own."""
    if view.rest is None:
        return None
    name = page.words[f"usage.more_{page.by}"].format(count=formats.count(view.more))
    return GroupRow(view.rest, name, "", "g6")


def parts_of(page: UsageBar, view: GroupedUsage) -> list[ChartPart]:
    """Return the parts of the columns, from the bottom up."""
    by = page.by
    names = {sums.name: _name(page, by, sums) for sums in view.groups}
    parts = [
        ChartPart(f"g{place}", names.get(name, name or ""))
        for place, name in enumerate(view.coloured, 1)
    ]
    first_byte = chart_of(page) == "first_byte"
    if not parts:
        return [ChartPart("g1", page.words[f"usage.chart_{chart_of(page)}"])]
    number = len(view.groups) + view.more - len(parts)
    if number and not first_byte:
        text = page.words["usage.n_more"].format(count=formats.count(number))
        parts.append(ChartPart("g6", text))
    return parts


def columns_of(page: UsageBar, view: GroupedUsage, by_hour: bool) -> list[Column]:
    """Return the columns of the chart, each with a link to its calls."""
    chart, every = chart_of(page), max(1, -(-len(view.bars) // TICKS))
    plain: dict[str, str | None] = dict.fromkeys(("by", "chart", "per", "compare", "sort", "hide"))
    columns = []
    for index, bar in enumerate(view.bars):
        span = BarSpan(bar.begin_ms, bar.end_ms, by_hour)
        ends = {"since": rfc3339(bar.begin_ms), "until": rfc3339(bar.end_ms)}
        columns.append(
            Column(
                parts=[(value or 0) / SCALES[chart] for value in bar.values],
                tick="" if index % every else span.tick(page),
                title=_column_title(page, bar, span.title(page)),
                href=page.link(**{**plain, **ends}),
                at_ms=bar.begin_ms if by_hour and page.zone is UTC and not index % every else None,
            )
        )
    return columns


def _column_title(page: UsageBar, bar: Bar, span: str) -> str:
    calls = page.words["usage.tip_calls"].format(count=formats.count(bar.calls))
    return f"{span}: {calls}"


def amount_text(chart: str, value: int | None) -> str:
    """Return a value of a chart, formatted for the tooltip and the table."""
    if value is None:
        return formats.UNKNOWN
    if chart in ("cost", "margin"):
        return formats.money(format_money(value))
    return formats.seconds(value) if chart == "first_byte" else formats.count(value)
