"""The status of channels and models: what operators see of accounts, what users see of models.

Read in one snapshot from the sums of status_sums and from what workers show of their breakers; the
cost is that of some rows for each channel × model, whatever the traffic was. For commands and the
Hub; nothing here decides a call.

A channel, for one of its models, is

disabled   when an operator has switched it off;
down       when each of its upstream keys is left alone by some worker and nothing has succeeded
           since the last of them was, or when DOWN_CALLS or more attempts of the last minutes
           (without any: probes of the last hours) have failed and none has succeeded;
degraded   when something of that is true of a part: an upstream key is left alone, starts are slow,
           less than DEGRADED_RATE of at least DEGRADED_CALLS attempts succeed, the last probe
           failed;
available  else; its reason is `no_recent_traffic` when nothing is known of the last minutes.

A model, for a group, is disabled without an enabled channel, down when all of those are, or all
of its last calls have failed; degraded when one of them is not available, or calls fail as above.

A breaker counts until RECENT_MS after it lets the next call through: then nobody has asked, and
what it knew is old.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any

import msgspec
import peewee

from store.catalog.catalog import EVERYTHING
from store.catalog.keys_aside import load_keys_aside
from store.channels.breakers import Breaker, all_open
from store.channels.status_sums import (
    CHANNEL,
    GROUP,
    HOUR,
    HOUR_S,
    LAST_DAY,
    LAST_MONTH,
    MINUTE,
    MINUTE_S,
    PROBE,
    SUMS,
    WINDOW_S,
)
from store.db.database import execute, snapshot_read
from store.db.tables.channels import BOUNDS_MS, FIRST_BYTE, TOTAL
from store.values.usage_record import rfc3339

AVAILABLE, DEGRADED, DOWN, DISABLED = "available", "degraded", "down", "disabled"

FAILING, ERRORS, SLOW, PROBE_FAILED = "failing", "errors", "slow", "probe_failed"
FEWER_CHANNELS, NO_CHANNEL, MODEL_DISABLED = "fewer_channels", "no_channel", "model_disabled"
NO_TRAFFIC, DRAINING, KEY_ASIDE = "no_recent_traffic", "draining", "key_put_aside"
_ACCOUNT_REASONS = frozenset({KEY_ASIDE})  # nothing for users

DOWN_CALLS = 3
DEGRADED_CALLS = 10
DEGRADED_RATE = 0.95
RECENT_MS = WINDOW_S * 1000
PROBES_S = HOUR_S
NAMES_PER_QUERY = 500

WINDOWS = ("5m", "24h", "30d")

Pair = tuple[str, str]
"""Name of a channel or group, and of a model."""

_Rows = Sequence[tuple[Any, ...]]
_FIRST_BYTE = SUMS.index(FIRST_BYTE[0])
_TOTAL = SUMS.index(TOTAL[0])
_ZEROS = [0] * len(SUMS)
_REST = (0,) * (len(SUMS) - 2)
_decode = msgspec.json.Decoder(list[int]).decode


@dataclass(frozen=True, slots=True)
class Figures:
    """What one window knows, from `sums` of SUMS; None: nothing that could tell it."""

    sums: Sequence[int] = (0,) * len(SUMS)

    @property
    def calls(self) -> int:
        """Those that tell anything."""
        return self.sums[0] + self.sums[1]

    @property
    def success(self) -> float | None:
        """The part of the calls that succeeded."""
        return round(self.sums[0] / self.calls, 4) if self.calls else None

    @property
    def tokens_per_s(self) -> float | None:
        """Output of streams, from the first byte on."""
        tokens, generation_ms = self.sums[2:_FIRST_BYTE]
        return round(tokens * 1000 / generation_ms, 1) if generation_ms else None

    def first_byte_ms(self, percent: int) -> int | None:
        """A percentile of the time until a stream began."""
        return percentile(self.sums[_FIRST_BYTE:_TOTAL], percent)

    def total_ms(self, percent: int) -> int | None:
        """A percentile of the time until an answer was whole."""
        return percentile(self.sums[_TOTAL:], percent)


_NO_FIGURES = Figures()


@dataclass(slots=True)
class Status:
    """Of a channel or a group, for one model; `probes`: those of the last 24 hours."""

    name: str
    model: str
    state: str = AVAILABLE
    since_ms: int | None = None
    reason: str | None = None
    last_ok_ms: int | None = None
    last_error: str | None = None
    last_error_ms: int | None = None
    probes: Figures = _NO_FIGURES
    parts: list[tuple[int, str]] = field(default_factory=list)
    """Sums (JSON) and the first of WINDOWS that they lie in."""

    def windows(self) -> dict[str, Figures]:
        """The figures of all WINDOWS, added up when they are asked for."""
        found = [_ZEROS for _ in WINDOWS]
        for first, text in self.parts:
            row = _decode(text)
            # What lies in a window lies in all longer ones.
            for place in range(first, len(WINDOWS)):
                found[place] = row if found[place] is _ZEROS else [*map(add, found[place], row)]
        return dict(zip(WINDOWS, map(Figures, found), strict=True))

    def saw(self, error: str, failed_ms: int, ok_ms: int) -> None:
        """The last error and the last success of some rows."""
        if ok_ms > (self.last_ok_ms or 0):
            self.last_ok_ms = ok_ms
        if failed_ms > (self.last_error_ms or 0):
            self.last_error, self.last_error_ms = error, failed_ms

    def become(self, state: str, reason: str | None, since_ms: int | None = None) -> None:
        """Say what is the matter."""
        self.state, self.reason, self.since_ms = state, reason, since_ms


def of_channels(db: peewee.Database, at_ms: int) -> list[Status]:
    """Each channel for each of its models, in order of their names. For operators alone."""

    def read() -> list[Status]:
        found = _channel_states(db, at_ms, _channels(db))
        _add_windows(db, CHANNEL, found, at_ms)
        return [found[pair] for pair in sorted(found)]

    return snapshot_read(db, read)


def of_models(db: peewee.Database, at_ms: int, groups: Sequence[str] | None = None) -> list[Status]:
    """Each model that groups (None: all) may use, in order of names; tells nothing of accounts.

    Unknown groups have none. `name` is the group's.
    """

    def read() -> list[Status]:
        found = _group_states(db, at_ms, groups)
        _add_windows(db, GROUP, found, at_ms)
        return [found[pair] for pair in sorted(found)]

    return snapshot_read(db, read)


def to_public(status: Status) -> dict[str, Any]:
    """A status as JSON says it, without the name of its channel or group; times RFC 3339."""
    return {
        "model": status.model,
        "state": status.state,
        "since": _time(status.since_ms),
        "reason": status.reason,
        "last_ok_at": _time(status.last_ok_ms),
        "last_error": status.last_error,
        "last_error_at": _time(status.last_error_ms),
        "windows": {name: _plain(figures) for name, figures in status.windows().items()},
        "probes_24h": {"calls": status.probes.calls, "success": status.probes.success},
    }


def _time(at_ms: int | None) -> str | None:
    return rfc3339(at_ms) if at_ms else None


def _plain(figures: Figures) -> dict[str, Any]:
    return {
        "calls": figures.calls,
        "success": figures.success,
        "first_byte_p50_ms": figures.first_byte_ms(50),
        "first_byte_p95_ms": figures.first_byte_ms(95),
        "total_p50_ms": figures.total_ms(50),
        "total_p95_ms": figures.total_ms(95),
        "tokens_per_s": figures.tokens_per_s,
    }


def worst(states: Iterable[Status]) -> Status | None:
    """The one of a channel's or a group's statuses that an operator has to look at first."""
    order = (DOWN, DEGRADED, AVAILABLE, DISABLED)
    return min(states, key=lambda one: order.index(one.state), default=None)


# ---- what is known of now ------------------------------------------------------------------------


@dataclass(slots=True)
class _Recent:
    """Attempts, probes or calls of a pair lately."""

    ok: int = 0
    failed: int = 0
    last_ok_ms: int = 0
    last_failed_ms: int = 0
    last_error: str = ""
    failing_from_ms: int = 0

    @property
    def all_failed(self) -> bool:
        return self.failed >= DOWN_CALLS and not self.ok

    @property
    def too_many_failed(self) -> bool:
        calls = self.ok + self.failed
        return calls >= DEGRADED_CALLS and self.ok < DEGRADED_RATE * calls

    @property
    def failing_since_ms(self) -> int:
        """When the first of the failures was that no success has followed, to the minute."""
        return max(self.failing_from_ms, self.last_ok_ms)


_NOTHING = _Recent()


@dataclass(frozen=True, slots=True)
class _Channel:
    id: str
    name: str
    groups: frozenset[str]
    models: frozenset[str]
    enabled: bool
    draining: bool
    fingerprints: tuple[str, ...]  # ("",) for a channel without upstream keys


def _channel_states(
    db: peewee.Database, at_ms: int, channels: Sequence[_Channel]
) -> dict[Pair, Status]:
    traffic = _recently(db, CHANNEL, MINUTE, at_ms // 1000 - WINDOW_S)
    probes = _probed_recently(db, at_ms)
    against: defaultdict[tuple[str, str], list[Breaker]] = defaultdict(list)
    for breaker in (*all_open(db), *_keys_aside(db)):
        if breaker.until_ms + RECENT_MS > at_ms:
            against[breaker.channel_id, breaker.model].append(breaker)
    found = {}
    for channel in channels:
        for model in channel.models:
            pair = channel.name, model
            status = found[pair] = Status(channel.name, model)
            known = _known(against, channel, model) if against else []
            recent = traffic.get(pair, _NOTHING)
            status.saw(recent.last_error, recent.last_failed_ms, recent.last_ok_ms)
            if not channel.enabled:
                status.become(DISABLED, None)
            elif channel.draining:
                status.become(DISABLED, DRAINING)
            elif not _judge_breakers(status, channel, known, recent):
                _judge_calls(status, recent, probes.get(pair, _NOTHING))
    return found


def _keys_aside(db: peewee.Database) -> list[Breaker]:
    """Refused upstream keys, which are known while no gateway runs, too."""
    return [
        Breaker("", "", one.channel_id, "", one.fingerprint, KEY_ASIDE, one.since_ms, one.until_ms)
        for one in load_keys_aside(db).values()
    ]


def _known(
    against: Mapping[tuple[str, str], list[Breaker]], channel: _Channel, model: str
) -> list[Breaker]:
    """What workers have against the keys that a channel has now."""
    found = [*against.get((channel.id, model), ()), *against.get((channel.id, ""), ())]
    return [one for one in found if one.fingerprint in channel.fingerprints]


def _judge_breakers(
    status: Status, channel: _Channel, known: Sequence[Breaker], recent: _Recent
) -> bool:
    """Whether breakers, or the calls of all workers together, say that it is not available."""
    left_alone = [one for one in known if one.reason != SLOW]
    all_keys = {one.fingerprint for one in left_alone} == set(channel.fingerprints)
    if all_keys and recent.last_ok_ms <= max(one.since_ms for one in left_alone):
        last = _last_opened(left_alone, recent.last_ok_ms)
        status.become(DOWN, last.reason, last.since_ms)
        return True
    if recent.all_failed:
        status.become(DOWN, FAILING, recent.failing_since_ms)
        return True
    if known:
        first = min(known, key=lambda one: (one.reason == SLOW, one.since_ms))
        status.become(DEGRADED, first.reason, first.since_ms)
        return True
    return False


def _last_opened(left_alone: Sequence[Breaker], last_ok_ms: int) -> Breaker:
    """The breaker with which the last of the keys was gone, not to come back until now."""
    firsts: dict[str, Breaker] = {}
    # Those that a success has shown to be wrong come last, whoever had them.
    for one in sorted(left_alone, key=lambda one: (one.since_ms < last_ok_ms, one.since_ms)):
        firsts.setdefault(one.fingerprint, one)
    return max(firsts.values(), key=lambda one: one.since_ms)


def _judge_calls(status: Status, recent: _Recent, probes: _Recent) -> None:
    if recent.too_many_failed:
        status.become(DEGRADED, ERRORS, recent.failing_from_ms)
    elif not (recent.ok or recent.failed):
        if probes.all_failed:
            status.become(DOWN, PROBE_FAILED, probes.failing_since_ms)
        elif probes.last_failed_ms > probes.last_ok_ms:
            status.become(DEGRADED, PROBE_FAILED, probes.last_failed_ms)
        elif not probes.ok:
            status.become(AVAILABLE, NO_TRAFFIC)


def _group_states(
    db: peewee.Database, at_ms: int, groups: Sequence[str] | None
) -> dict[Pair, Status]:
    channels = _channels(db)
    if groups is not None:
        channels = [channel for channel in channels if channel.groups.intersection(groups)]
    states = _channel_states(db, at_ms, channels)
    traffic = _recently(db, GROUP, MINUTE, at_ms // 1000 - WINDOW_S)
    serving: defaultdict[Pair, list[Status]] = defaultdict(list)
    for channel in channels:
        for group in channel.groups if groups is None else channel.groups.intersection(groups):
            for model in channel.models:
                serving[group, model].append(states[channel.name, model])
    served = frozenset(model for channel in channels for model in channel.models)
    on_sale = _models(db)
    found = {}
    for group, permitted, disabled in _groups(db):
        if groups is not None and group not in groups:
            continue
        for model in on_sale if permitted is None else permitted & on_sale.keys():
            if model not in served and permitted is None:
                continue  # a model without any channel is worth a line where it was named
            status = found[group, model] = Status(group, model)
            recent = traffic.get((group, model), _NOTHING)
            status.saw(recent.last_error, recent.last_failed_ms, recent.last_ok_ms)
            if disabled or not on_sale[model]:
                status.become(DISABLED, MODEL_DISABLED)
            else:
                _judge_model(status, serving[group, model], recent)
    return found


def _judge_model(status: Status, channels: Sequence[Status], recent: _Recent) -> None:
    able = [one for one in channels if one.state != DISABLED]
    well = [one for one in able if one.state == AVAILABLE]
    down = [one for one in able if one.state == DOWN]
    if not able:
        status.become(DISABLED, NO_CHANNEL)
    elif len(down) == len(able):
        reasons = {one.reason for one in down}
        reason = reasons.pop() if len(reasons) == 1 else FAILING
        since_ms = max(one.since_ms or 0 for one in down)
        status.become(DOWN, FAILING if reason in _ACCOUNT_REASONS else reason, since_ms)
    elif recent.all_failed:
        status.become(DOWN, FAILING, recent.failing_since_ms)
    elif recent.too_many_failed:
        status.become(DEGRADED, ERRORS, recent.failing_from_ms)
    elif len(well) < len(able):
        since_ms = min(one.since_ms or 0 for one in able if one.state != AVAILABLE)
        status.become(DEGRADED, FEWER_CHANNELS, since_ms)
    elif not (recent.ok or recent.failed) and all(one.reason == NO_TRAFFIC for one in well):
        status.become(AVAILABLE, NO_TRAFFIC)


def _recently(db: peewee.Database, scope: str, span: str, since_s: int) -> dict[Pair, _Recent]:
    """By pair, what its rows of a span that reach beyond a moment say together."""
    query = (
        'SELECT "name", "model", "ok", "failed", "last_ok_ms", "last_failed_ms", "last_error",'
        ' "at_s" FROM "channel_sums" WHERE "span" = ? AND "at_s" > ? AND "scope" = ?'
        ' ORDER BY "at_s"'
    )
    width_s = MINUTE_S if span == MINUTE else HOUR_S
    found: defaultdict[Pair, _Recent] = defaultdict(_Recent)
    for name, model, *row, at_s in execute(db, query, (span, since_s - width_s, scope)).fetchall():
        _take(found[name, model], row, at_s)
    return found


def _take(recent: _Recent, row: Sequence[Any], at_s: int) -> None:
    ok, failed, last_ok_ms, last_failed_ms, last_error = row
    recent.ok += ok
    recent.failed += failed
    if failed:
        # Rows come in order of time: the first failure that no success of a later minute followed.
        if not recent.failing_from_ms or recent.last_ok_ms > recent.last_failed_ms:
            recent.failing_from_ms = at_s * 1000
        if last_failed_ms >= recent.last_failed_ms:
            recent.last_failed_ms, recent.last_error = last_failed_ms, last_error
    recent.last_ok_ms = max(recent.last_ok_ms, last_ok_ms)


def _probed_recently(db: peewee.Database, at_ms: int) -> dict[Pair, _Recent]:
    """Of the last hours: probes are rare."""
    since_s = at_ms // 1000 - PROBES_S
    found = _recently(db, PROBE, HOUR, since_s)
    for pair, recent in _recently(db, PROBE, MINUTE, since_s).items():
        there = found.get(pair)
        if there is None:
            found[pair] = recent
            continue
        row = (recent.ok, recent.failed, recent.last_ok_ms, recent.last_failed_ms)
        _take(there, (*row, recent.last_error), recent.failing_from_ms // 1000)
    return found


# ---- figures of windows --------------------------------------------------------------------------


def _add_windows(db: peewee.Database, scope: str, found: Mapping[Pair, Status], at_ms: int) -> None:
    """Give statuses their figures, and what they saw last."""
    names = sorted({name for name, _ in found})
    since_s = at_ms // 1000 - WINDOW_S - MINUTE_S
    for start in range(0, len(names), NAMES_PER_QUERY):
        part = names[start : start + NAMES_PER_QUERY]
        for name, model, within, text in _minutes(db, scope, part, since_s):
            if (status := found.get((name, model))) is not None:
                status.parts.append((0 if within else 1, text))
        for first, span in ((1, LAST_DAY), (2, LAST_MONTH)):
            for name, model, text, *latest in _running(db, scope, part, span):
                if (status := found.get((name, model))) is not None:
                    status.parts.append((first, text))
                    status.saw(*latest)
    _add_probes(db, scope, found)


def _minutes(db: peewee.Database, scope: str, names: Sequence[str], since_s: int) -> _Rows:
    """Name, model, whether it is of the shortest window, sums. Others are on their way to hours."""
    sums = ", ".join(f'SUM("{name}")' for name in SUMS)
    query = (
        f'SELECT "name", "model", "at_s" > ? AS "within", JSON_ARRAY({sums}) FROM "channel_sums"'
        f' WHERE "span" = ? AND "scope" = ? AND "name" IN ({_places(names)})'
        f' GROUP BY "name", "model", "within"'
    )
    return _fetch(db, query, (since_s, MINUTE, scope, *names))


def _running(db: peewee.Database, scope: str, names: Sequence[str], span: str) -> _Rows:
    """Name, model, sums, last error, its time, time of the last success."""
    # As one text: drivers take their time for each column.
    sums = ", ".join(f'"{name}"' for name in SUMS)
    query = (
        f'SELECT "name", "model", JSON_ARRAY({sums}), "last_error", "last_failed_ms",'
        ' "last_ok_ms" FROM "channel_sums" WHERE "span" = ? AND "at_s" = 0 AND "scope" = ?'
        f' AND "name" IN ({_places(names)})'
    )
    return _fetch(db, query, (span, scope, *names))


def _fetch(db: peewee.Database, query: str, values: Sequence[Any]) -> _Rows:
    rows: _Rows = execute(db, query, values).fetchall()
    return rows


def _places(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _add_probes(db: peewee.Database, scope: str, found: Mapping[Pair, Status]) -> None:
    """The counts of probes; for a group those of all channels that may serve it."""
    query = (
        'SELECT "name", "model", SUM("ok"), SUM("failed") FROM "channel_sums"'
        ' WHERE "span" IN (?, ?) AND "scope" = ? GROUP BY "name", "model"'
    )
    rows = execute(db, query, (MINUTE, LAST_DAY, PROBE)).fetchall()
    if not rows:
        return
    groups = {channel.name: channel.groups for channel in _channels(db)}
    for name, model, ok, failed in rows:
        whose = groups.get(name, frozenset()) if scope == GROUP else (name,)
        for one in whose:
            status = found.get((one, model))
            if status is not None:
                before = status.probes.sums
                status.probes = Figures((before[0] + int(ok), before[1] + int(failed), *_REST))


def percentile(buckets: Sequence[int], percent: int) -> int | None:
    """The time (ms) below which so many percent of a histogram lie, even within its bucket.

    None: it is empty. Beyond the last bound it is that bound.
    """
    left = sum(buckets) * percent / 100
    if not left:
        return None
    low_ms = 0
    for count, high_ms in zip(buckets, BOUNDS_MS, strict=False):
        if count >= left:
            return round(low_ms + (high_ms - low_ms) * left / count)
        left -= count
        low_ms = high_ms
    return low_ms


# ---- the catalog, without secrets ----------------------------------------------------------------


def _channels(db: peewee.Database) -> list[_Channel]:
    marks: defaultdict[str, list[str]] = defaultdict(list)
    query = 'SELECT "channel_id", "fingerprint" FROM "channel_keys"'
    for channel_id, fingerprint in execute(db, query).fetchall():
        marks[channel_id].append(fingerprint)
    query = 'SELECT "id", "name", "groups", "models", "enabled", "draining" FROM "channels"'
    return [
        _Channel(
            channel_id,
            name,
            frozenset(json.loads(groups)),
            frozenset(json.loads(models)),
            bool(enabled),
            bool(draining),
            tuple(marks.get(channel_id, ("",))),
        )
        for channel_id, name, groups, models, enabled, draining in execute(db, query).fetchall()
    ]


def _groups(db: peewee.Database) -> list[tuple[str, frozenset[str] | None, bool]]:
    """Name, models (None: all), disabled."""
    query = 'SELECT "name", "models", "disabled" FROM "groups"'
    found = []
    for name, models, disabled in execute(db, query).fetchall():
        names = frozenset(json.loads(models))
        found.append((name, None if EVERYTHING in names else names, bool(disabled)))
    return found


def _models(db: peewee.Database) -> dict[str, bool]:
    """Name -> whether it can be called: enabled, and with prices."""
    query = (
        'SELECT "name", "disabled" = 0 AND EXISTS'
        ' (SELECT 1 FROM "prices" p WHERE p."model_id" = m."id") FROM "models" m'
    )
    return {name: bool(able) for name, able in execute(db, query).fetchall()}
