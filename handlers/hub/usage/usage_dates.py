"""The time span of a page of usage: presets, date fields, the calendar, and the span that it is
compared with. Days are those of a time zone: the viewer's if the sums support it.

In a URL a span is `since` and `until`, each one of: a length before now (24h), a day (2026-11-21,
meaning its start), or RFC 3339.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from handlers.hub.web.zones import day_text, local, weekday_text, with_clock
from store.calls.reading.buckets import begin_of
from store.values.ids import DAY_MS, HOUR_MS
from store.values.usage_record import rfc3339

LENGTHS = ("1h", "6h", "24h", "7d", "30d")
CALENDAR = ("today", "yesterday", "this_week", "this_month", "last_month")
COMPARISONS = ("previous", "month")
PANEL_FIELDS = ("from_day", "from_time", "to_day", "to_time")
"""Fields of the date picker's form, which become `since` and `until`."""
WHOLE_DAYS_FROM = 3  # longer spans begin at the start of a day
_DAYS = re.compile(r"(\d{1,4})d", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_FIRST_YEAR, _LAST_YEAR = 2000, 9998
_MIDNIGHT = "00:00"


@dataclass(frozen=True, slots=True)
class Preset:
    """A named span. `until` None: up to now."""

    name: str
    since: str
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A span as in the URL, and its ends in a time zone. `until_ms` None: up to now."""

    since: str
    until: str
    since_ms: int | None
    until_ms: int | None
    zone: tzinfo


def calendar_presets(today: date) -> list[Preset]:
    """Return the presets relative to the calendar (this week, last month, …) on a day."""
    week = today - timedelta(today.weekday())
    month = today.replace(day=1)
    last_month = (month - timedelta(1)).replace(day=1)
    yesterday = today - timedelta(1)
    spans = (
        (today, None),
        (yesterday, today),
        (week, None),
        (month, None),
        (last_month, month),
    )
    return [
        Preset(name, since.isoformat(), until.isoformat() if until else None)
        for name, (since, until) in zip(CALENDAR, spans, strict=True)
    ]


def in_zone(text: str, zone: tzinfo, at_ms: int) -> str:
    """Return the start in a zone of a day, or of the first day of a length in days, as RFC 3339.
    Any other text is returned unchanged."""
    day = day_of_text(text)
    if (days := _DAYS.fullmatch(text)) and int(days[1]) > WHOLE_DAYS_FROM:
        day = local(at_ms, zone).date() - timedelta(int(days[1]))
    return text if day is None or zone is UTC else rfc3339(begin_of(day, zone))


def day_of_text(text: str) -> date | None:
    """Return the date in a text. None: it is no date, or outside the supported years."""
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None
    return day if day is not None and _FIRST_YEAR <= day.year <= _LAST_YEAR else None


def chip_text(words: Mapping[str, str], span: Span, now: datetime, language: str) -> str:
    """Return the text for a span: its preset's name with its days, or its ends."""
    if span.since in LENGTHS and not span.until:
        return words[f"usage.span_{span.since}"]
    for preset in calendar_presets(now.date()):
        if (preset.since, preset.until or "") == (span.since, span.until):
            name = words[f"usage.span_{preset.name}"]
            if preset.name in ("today", "yesterday"):
                return name
            return f"{name}, {ends_text(span.since_ms, span.until_ms, now, language)}"
    if span.since_ms is None and span.until_ms is None:
        return words["any"]
    return ends_text(span.since_ms, span.until_ms, now, language)


def ends_text(since_ms: int | None, until_ms: int | None, now: datetime, language: str) -> str:
    """Return the first and last day of a span (1 – 27 Nov), with times if it has partial days."""
    zone = now.tzinfo or UTC
    first = None if since_ms is None else local(since_ms, zone)
    last = now if until_ms is None else local(until_ms, zone)
    whole = all(at is None or at.time() == time() for at in (first, last if until_ms else None))
    if until_ms is not None and whole:
        last -= timedelta(seconds=1)
    if first is None:
        return f"– {_moment(last, now, language, whole=whole)}"
    if whole and first.date() == last.date():
        return _moment(last, now, language, whole=True)
    if whole and language != "zh" and (first.year, first.month) == (last.year, last.month):
        return f"{first.day} – {_moment(last, now, language, whole=True)}"
    begin = _moment(first, now, language, whole=whole)
    if not whole and first.date() == last.date():
        return f"{begin} – {last:%H:%M}"
    return f"{begin} – {_moment(last, now, language, whole=whole)}"


def days_text(since_ms: int, until_ms: int, now: datetime, language: str) -> str:
    """Return the days of a span, without times if it is longer than two days."""
    if until_ms - since_ms > 2 * DAY_MS:
        zone = now.tzinfo or UTC
        first = local(since_ms, zone).date()
        last = (local(until_ms, zone) - timedelta(seconds=1)).date() + timedelta(1)
        since_ms, until_ms = begin_of(first, zone), begin_of(last, zone)
    return ends_text(since_ms, until_ms, now, language)


def _moment(at: datetime, now: datetime, language: str, *, whole: bool) -> str:
    day = day_text(at, language, year=at.year != now.year)
    return day if whole else with_clock(day, f"{at:%H:%M}", language)


def submitted(fields: Mapping[str, str], zone: tzinfo, now: datetime) -> dict[str, str | None]:
    """Return `since` and `until` for the submitted fields of the date picker. Raises ValueError
    with the name of a field that is no day or time, or whose span would be empty."""
    ends: list[datetime | None] = []
    for end in ("from", "to"):
        day_value, time_value = fields.get(f"{end}_day", ""), fields.get(f"{end}_time", "")
        if not day_value and end == "to":
            ends.append(None)
            continue
        day = day_of_text(day_value)
        if day is None:
            raise ValueError(f"{end}_day")
        try:
            clock = time.fromisoformat(time_value or _MIDNIGHT)
        except ValueError:
            raise ValueError(f"{end}_time") from None
        ends.append(datetime.combine(day, clock.replace(tzinfo=None), zone))
    first, last = ends
    assert first is not None
    if last is not None and last >= now:
        last = None
    if (last is not None and last <= first) or (last is None and first >= now):
        raise ValueError("to_day" if last is not None else "from_day")
    return {"since": _address(first), "until": None if last is None else _address(last)}


def _address(at: datetime) -> str:
    return at.date().isoformat() if at.time() == time() else rfc3339(round(at.timestamp() * 1000))


# ---- the calendar --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A day in the calendar. `place`: its place in the chosen span (first, last, only, in, or ""
    outside). Future days are no links."""

    day: date
    label: str
    place: str
    future: bool
    today: bool

    @property
    def classes(self) -> str:
        """Return the CSS classes of its cell."""
        ends = {"first": "end first", "last": "end last", "only": "end first last", "in": "in"}
        return " ".join(filter(None, (ends.get(self.place), "today" if self.today else "")))

    @property
    def after(self) -> str:
        """Return the following day, for the end of a span."""
        return (self.day + timedelta(1)).isoformat()


@dataclass(frozen=True, slots=True)
class Month:
    """A month of the calendar in weeks that start on Monday. None: a cell without a day."""

    first: date
    weeks: Sequence[Sequence[CalendarDay | None]]

    @property
    def next(self) -> date:
        """Return the first day of the following month."""
        return (self.first + timedelta(31)).replace(day=1)


def months(last: date, span: tuple[date, date] | None, today: date, language: str) -> list[Month]:
    """Return the calendar of a day's month and of the month before it, with the days of a span
    marked."""
    second = last.replace(day=1)
    return [
        _month(first, span, today, language)
        for first in ((second - timedelta(1)).replace(day=1), second)
    ]


def _month(first: date, span: tuple[date, date] | None, today: date, language: str) -> Month:
    cells: list[CalendarDay | None] = [None] * first.weekday()
    day = first
    while day.month == first.month:
        label = weekday_text(datetime.combine(day, time()), language)
        cells.append(CalendarDay(day, label, _place(day, span), day > today, day == today))
        day += timedelta(1)
    return Month(first, [cells[at : at + 7] for at in range(0, len(cells), 7)])


def _place(day: date, span: tuple[date, date] | None) -> str:
    if span is None or not span[0] <= day <= span[1]:
        return ""
    if span[0] == span[1]:
        return "only"
    return "first" if day == span[0] else "last" if day == span[1] else "in"


# ---- the span before -----------------------------------------------------------------------------


def default_comparison(span: Span) -> str:
    """Return the default comparison of a span: with the month before for whole months, otherwise
    with the preceding span of the same length."""
    ends = [local(at_ms, span.zone).day for at_ms in (span.since_ms, span.until_ms) if at_ms]
    return "month" if span.since_ms is not None and set(ends) == {1} else "previous"


def span_before(span: Span, comparison: str, at_ms: int) -> tuple[int, int] | None:
    """Return the start and end, in ms and whole hours, of the span to compare with. None: the span
    has no start."""
    if span.since_ms is None or comparison not in COMPARISONS:
        return None
    until_ms = min(span.until_ms or at_ms, at_ms)
    until_ms += -until_ms % HOUR_MS
    if comparison == "previous":
        length_ms = max(until_ms - span.since_ms, HOUR_MS)
        length_ms += -length_ms % HOUR_MS
        return span.since_ms - length_ms, span.since_ms
    since = _month_before(local(span.since_ms, span.zone))
    until = _month_before(local(until_ms, span.zone))
    begin_ms, end_ms = (round(at.timestamp() * 1000) for at in (since, until))
    return (begin_ms, end_ms) if begin_ms < end_ms else None


def _month_before(at: datetime) -> datetime:
    last = at.replace(day=1) - timedelta(1)
    return at.replace(year=last.year, month=last.month, day=min(at.day, last.day))


def moved(span: Span, at_ms: int, steps: int) -> tuple[str, str | None] | None:
    """Return `since` and `until` of the span before (-1) or after (1), of the same length. None:
    the span has no start, or would start in the future."""
    if span.since_ms is None:
        return None
    until_ms = min(span.until_ms or at_ms, at_ms)
    until_ms += -until_ms % HOUR_MS
    shift = timedelta(milliseconds=max(until_ms - span.since_ms, HOUR_MS))
    first, last = local(span.since_ms, span.zone), local(until_ms, span.zone)
    if span.until_ms is None and first.time() == time():
        last = datetime.combine(last.date() + timedelta(1), time(), span.zone)
    if first.time() == last.time() == time():
        shift = timedelta((last.date() - first.date()).days)
    first, last = first + steps * shift, last + steps * shift
    if first.timestamp() * 1000 >= at_ms:
        return None
    future = last.timestamp() * 1000 >= at_ms
    return _address(first), None if future else _address(last)
