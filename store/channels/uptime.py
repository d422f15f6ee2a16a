"""The results of calls in each of the last 24 hours and each of the last 30 UTC days.

Read from the rows that status_sums folds: the newest are still in minutes, newer ones in hours.
Where no user called, probes are counted separately. In the caller's transaction.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import peewee

from store.channels import status_sums
from store.channels.figures import Figures
from store.channels.serving import ServingChannel
from store.channels.status_sums import (
    CHANNEL,
    DAY,
    DAY_S,
    GROUP,
    HOUR,
    HOUR_S,
    MINUTE,
    PROBE,
    SUMS,
)
from store.db.database import portions, raw_rows, select_rows
from store.db.tables.channels import ChannelSums as Sums

HOURS = 24
DAYS = 30

Pair = tuple[str, str]
"""The names of a group and a model."""

# Minutes are moved to hours once a minute, or a little later.
_UNFOLDED_S = status_sums.WINDOW_S + 10 * status_sums.MINUTE_S
_RUNNING = (status_sums.LAST_DAY, status_sums.LAST_MONTH)


@dataclass(slots=True)
class Slot:
    """The counted calls of an hour or a day. `probes`: those of the gateway, if there were no
    calls."""

    at_s: int
    ok: int = 0
    failed: int = 0
    probes: int = 0

    @property
    def calls(self) -> int:
        """Return the number of calls."""
        return self.ok + self.failed


@dataclass(frozen=True, slots=True)
class Uptime:
    """Slots in order of time. The last one is still in progress."""

    hours: Sequence[Slot]
    days: Sequence[Slot]


@dataclass(frozen=True, slots=True)
class DayFigures:
    """The figures of the UTC day that started at `at_s`."""

    at_s: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class Span:
    """A range of models by name, including both ends."""

    first: str
    last: str


@dataclass(slots=True)
class _Counts:
    """Ok and failed counts by the start of their slot."""

    hours: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(_zeros))
    days: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(_zeros))


def _zeros() -> list[int]:
    return [0, 0]


_Found = defaultdict[Pair, _Counts]


def uptime_of(
    db: peewee.Database,
    at_ms: int,
    groups: Sequence[str],
    channels: Sequence[ServingChannel],
    span: Span | None = None,
) -> Mapping[Pair, Uptime]:
    """Return the uptime of groups for models that were called or probed. Others are missing."""
    at_s = at_ms // 1000
    calls: _Found = defaultdict(_Counts)
    for name, model, part, slot_s, ok, failed in _rows(db, GROUP, at_s, groups, span):
        _add(calls[name, model], part, slot_s, (ok, failed))
    probes = _probes(db, at_s, groups, channels, span)
    return {
        pair: _uptime(calls[pair], probes.get(pair), at_s) for pair in calls.keys() | probes.keys()
    }


def channel_days(
    db: peewee.Database, at_ms: int, names: Sequence[str]
) -> Mapping[str, Sequence[Slot]]:
    """Return the days of channels, all models together: attempts of calls, without probes."""
    at_s, counts = at_ms // 1000, defaultdict[str, _Counts](_Counts)
    for name, _, part, slot_s, ok, failed in _rows(db, CHANNEL, at_s, names, None):
        _add(counts[name], part, slot_s, (ok, failed))
    return {name: _uptime(counts[name], None, at_s).days for name in names}


def model_days(db: peewee.Database, at_ms: int, group: str, model: str) -> list[DayFigures]:
    """Return the figures of a group's calls to one model for each of the last DAYS."""
    at_s = at_ms // 1000
    first_s = at_s - at_s % DAY_S - (DAYS - 1) * DAY_S
    days = [[0] * len(SUMS) for _ in range(DAYS)]
    whose = (Sums.scope == GROUP) & (Sums.name == group) & (Sums.model == model)
    columns = (Sums.at_s, *(getattr(Sums, name) for name in SUMS))
    for part in _times(at_s):
        for slot_s, *sums in raw_rows(db, Sums.select(*columns).where(part & whose)):
            place = (slot_s - first_s) // DAY_S
            if 0 <= place < DAYS:  # a row of an hour before the first day may still exist
                days[place] = [a + b for a, b in zip(days[place], sums, strict=True)]
    return [DayFigures(first_s + place * DAY_S, Figures(sums)) for place, sums in enumerate(days)]


def empty_uptime(at_ms: int) -> Uptime:
    """Return the uptime of a model without calls."""
    return _uptime(_Counts(), None, at_ms // 1000)


def _add(counts: _Counts, part: str, slot_s: int, ended: tuple[int, int]) -> None:
    if part != DAY:
        _sum(counts.hours[slot_s - slot_s % HOUR_S], ended)
    _sum(counts.days[slot_s - slot_s % DAY_S], ended)


def _sum(there: list[int], ended: tuple[int, int]) -> None:
    there[0] += ended[0]
    there[1] += ended[1]


def _probes(
    db: peewee.Database,
    at_s: int,
    groups: Sequence[str],
    channels: Sequence[ServingChannel],
    span: Span | None,
) -> Mapping[Pair, _Counts]:
    """Return the probes of the channels of each group. Most gateways make none."""
    serving: dict[str, list[str]] = {}
    for channel in channels:
        if group_names := [group for group in groups if group in channel.groups]:
            serving[channel.name] = group_names
    probed = _probed(db, list(serving))
    counts: _Found = defaultdict(_Counts)
    if not probed:
        return counts
    for name, model, part, slot_s, ok, failed in _rows(db, PROBE, at_s, probed, span):
        for group in serving[name]:
            _add(counts[group, model], part, slot_s, (ok, failed))
    return counts


def _probed(db: peewee.Database, names: Sequence[str]) -> list[str]:
    """Return those channels that were probed within 30 days, except in the last minutes."""
    probed: set[str] = set()
    for portion in portions(names):
        rows = Sums.span.in_(_RUNNING) & (Sums.at_s == 0) & (Sums.scope == PROBE)
        query = Sums.select(Sums.name).where(rows & Sums.name.in_(portion)).distinct()
        probed.update(name for (name,) in select_rows(db, query))
    return sorted(probed)


def _rows(
    db: peewee.Database, scope: str, at_s: int, names: Sequence[str], span: Span | None
) -> Iterator[tuple[str, str, str, int, int, int]]:
    """Yield name, model, span of the row, its time, ok, failed. The queries name each hour and day,
    because the key starts with span and time, and a range of times would read the rows of all
    others."""
    columns = (Sums.name, Sums.model, Sums.span, Sums.at_s, Sums.ok, Sums.failed)
    for portion in portions(names):
        whose = (Sums.scope == scope) & Sums.name.in_(portion)
        if span is not None:
            whose &= Sums.model.between(span.first, span.last)
        for part in _times(at_s):
            yield from raw_rows(db, Sums.select(*columns).where(part & whose))


def _times(at_s: int) -> tuple[Any, ...]:
    """Return the conditions for rows of minutes, hours and days."""
    hour_s, day_s = at_s - at_s % HOUR_S, at_s - at_s % DAY_S
    recent = (Sums.span == MINUTE) & (Sums.at_s > at_s - _UNFOLDED_S)
    # An hour stays an hour's row until it is 25 hours old.
    hours = [hour_s - ago * HOUR_S for ago in range(HOURS + 2)]
    days = [day_s - ago * DAY_S for ago in range(DAYS)]
    return (
        recent,
        (Sums.span == HOUR) & Sums.at_s.in_(hours),
        (Sums.span == DAY) & Sums.at_s.in_(days),
    )


def _uptime(calls: _Counts, probes: _Counts | None, at_s: int) -> Uptime:
    probes = probes or _Counts()
    return Uptime(
        hours=_slots(calls.hours, probes.hours, at_s - at_s % HOUR_S, (HOUR_S, HOURS)),
        days=_slots(calls.days, probes.days, at_s - at_s % DAY_S, (DAY_S, DAYS)),
    )


def _slots(
    calls: Mapping[int, list[int]],
    probes: Mapping[int, list[int]],
    last_s: int,
    width: tuple[int, int],
) -> list[Slot]:
    step_s, count = width
    slots = []
    for ago in range(count - 1, -1, -1):
        at_s = last_s - ago * step_s
        ok, failed = calls.get(at_s, (0, 0))
        probed = 0 if ok + failed else sum(probes.get(at_s, (0, 0)))
        slots.append(Slot(at_s, ok, failed, probed))
    return slots
