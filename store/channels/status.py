"""The status of channels and models: what operators see of accounts, what users see of models.

Read in one snapshot from the sums of status_sums and the open circuits of running workers. The cost
is some rows for each channel × model, whatever the traffic was. For commands and the Hub; calls are
not decided by it.

A channel, for one of its models, is

disabled   if an operator has switched it off;
down       if a worker has an open circuit for each of its upstream keys and no call succeeded
           since the last of them opened, or if DOWN_CALLS or more attempts of the last minutes
           (without any: probes of the last hours) failed and none succeeded;
degraded   if a part of that is true: one upstream key has an open circuit, first bytes are slow,
           less than DEGRADED_RATE of at least DEGRADED_CALLS attempts succeed, the last probe
           failed;
available  otherwise. The reason is `no_recent_traffic` if there were no recent calls.

A model, for a group, is disabled without an enabled channel; down if all of those are or all of its
last calls failed; degraded if one of them is not available, or if calls fail as above.

An open circuit counts until RECENT_MS after the end of its cool-down. Without a call since then it
is out of date.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from operator import or_
from typing import Any

import peewee

from store.catalog.catalog import NOTHING_TRANSLATED, Losses, load_groups, load_models
from store.catalog.suspended_keys import load_suspended_keys
from store.channels.breakers import Breaker, all_open
from store.channels.figures import Figures, Part, day_probes, of_windows, recent_sums, running_sums
from store.channels.serving import Entries, ServingChannel, load_serving
from store.channels.status_sums import CHANNEL, GROUP, HOUR, MINUTE, PROBE, WIDTH_S, WINDOW_S
from store.db.database import in_snapshot, raw_rows
from store.db.tables.channels import ChannelSums as Sums
from store.values.usage_record import rfc3339

AVAILABLE, DEGRADED, DOWN, DISABLED = "available", "degraded", "down", "disabled"

FAILING, ERRORS, SLOW, PROBE_FAILED = "failing", "errors", "slow", "probe_failed"
FEWER_CHANNELS, NO_CHANNEL, MODEL_DISABLED = "fewer_channels", "no_channel", "model_disabled"
NO_TRAFFIC, DRAINING, KEY_SUSPENDED = "no_recent_traffic", "draining", "key_suspended"
_ACCOUNT_REASONS = frozenset({KEY_SUSPENDED})  # nothing for users

DOWN_CALLS = 3
DEGRADED_CALLS = 10
DEGRADED_RATE = 0.95
RECENT_MS = WINDOW_S * 1000
PROBES_S = WIDTH_S[HOUR]  # probes are rare

Pair = tuple[str, str]
"""Name of a channel or group, and of a model."""

_NO_FIGURES = Figures()


@dataclass(slots=True)
class Status:
    """The status of a channel or a group, for one model. `probes` are those of the last 24 hours,
    `entries` those by which a channel can be called (`Entries`). `retry_ms`: when a circuit or key
    is tried again. For a group, `serving` counts the enabled channels, `well` the available
    ones."""

    name: str
    model: str
    state: str = AVAILABLE
    since_ms: int | None = None
    reason: str | None = None
    last_ok_ms: int | None = None
    last_error: str | None = None
    last_error_ms: int | None = None
    probes: Figures = _NO_FIGURES
    parts: list[Part] = field(default_factory=list)
    entries: Mapping[str, str] | None = None
    retry_ms: int | None = None
    serving: int = 0
    well: int = 0

    def windows(self) -> dict[str, Figures]:
        """Return the figures of all windows, computed on each call."""
        return of_windows(self.parts)

    def saw(self, error: str, failed_ms: int, ok_ms: int) -> None:
        """Update the last error and the last success with those of some rows."""
        if ok_ms > (self.last_ok_ms or 0):
            self.last_ok_ms = ok_ms
        if failed_ms > (self.last_error_ms or 0):
            self.last_error, self.last_error_ms = error, failed_ms

    def become(self, state: str, reason: str | None, since_ms: int | None = None) -> None:
        """Set state, reason and start time."""
        self.state, self.reason, self.since_ms = state, reason, since_ms


@in_snapshot
def of_channels(
    db: peewee.Database, at_ms: int, losses: Losses = NOTHING_TRANSLATED, *, figures: bool = True
) -> list[Status]:
    """Return each channel for each of its models, in order of their names. For operators only.
    `losses`: the possible translations. If not `figures`, see `add_channel_figures`."""
    channels = load_serving(db)
    statuses = _channel_states(db, at_ms, channels)
    if figures:
        add_channel_figures(db, statuses.values(), at_ms)
    entries = Entries(load_groups(db), losses)
    for channel in channels:
        for model in channel.models:
            statuses[channel.name, model].entries = entries.of(
                channel.family, channel.groups, model, translate=channel.translate
            )
    return [statuses[pair] for pair in sorted(statuses)]


@in_snapshot
def of_models(
    db: peewee.Database,
    at_ms: int,
    groups: Sequence[str] | None = None,
    *,
    figures_of: Collection[str] | None = None,
) -> list[Status]:
    """Return each model that groups (None: all) may use, in order of names, without accounts.

    Unknown groups have none. `name` is the group's. `figures_of`: the groups whose figures are
    included (None: all).
    """
    channels = load_serving(db)
    statuses = _group_states(db, at_ms, groups, channels)
    with_figures = {
        pair: status
        for pair, status in statuses.items()
        if figures_of is None or pair[0] in figures_of
    }
    add_model_figures(db, with_figures.values(), channels, at_ms)
    return [statuses[pair] for pair in sorted(statuses)]


def add_channel_figures(db: peewee.Database, statuses: Collection[Status], at_ms: int) -> None:
    """Add the figures of channels to their statuses, in the caller's transaction."""
    by_pair = {(status.name, status.model): status for status in statuses}
    _add_windows(db, CHANNEL, by_pair, at_ms)
    _add_probes(db, by_pair, {name: (name,) for name, _ in by_pair})


def add_model_figures(
    db: peewee.Database,
    statuses: Collection[Status],
    channels: Sequence[ServingChannel],
    at_ms: int,
) -> None:
    """Add the figures of models to their statuses for groups. `channels`: all that serve them."""
    by_pair = {(status.name, status.model): status for status in statuses}
    _add_windows(db, GROUP, by_pair, at_ms)
    _add_probes(db, by_pair, {channel.name: channel.groups for channel in channels})


def to_public(status: Status) -> dict[str, Any]:
    """Return a status as JSON, without the name of its channel or group. Times are RFC 3339."""
    entries = {} if status.entries is None else {"entries": dict(status.entries)}
    return {
        "model": status.model,
        **entries,
        "state": status.state,
        "since": _time(status.since_ms),
        "reason": status.reason,
        "retry_at": _time(status.retry_ms),
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


def by_name(statuses: Iterable[Status]) -> list[dict[str, Any]]:
    """Return statuses as JSON: each channel or group once, with its `models`."""
    models_of: dict[str, list[dict[str, Any]]] = {}
    for status in statuses:
        models_of.setdefault(status.name, []).append(to_public(status))
    return [{"name": name, "models": models} for name, models in models_of.items()]


def worst(states: Iterable[Status]) -> Status | None:
    """Return the status of a channel or group that an operator should look at first."""
    order = (DOWN, DEGRADED, AVAILABLE, DISABLED)
    return min(states, key=lambda status: order.index(status.state), default=None)


# ---- states --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Recent:
    """Recent attempts, probes or calls of a pair."""

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
        """Return the first failure since the last success, to the minute."""
        return max(self.failing_from_ms, self.last_ok_ms)


_NOTHING = _Recent()


def _channel_states(
    db: peewee.Database, at_ms: int, channels: Sequence[ServingChannel]
) -> dict[Pair, Status]:
    traffic = _recently(db, CHANNEL, at_ms // 1000 - WINDOW_S)
    probes = _recently(db, PROBE, at_ms // 1000 - PROBES_S, (HOUR, MINUTE))
    circuits: defaultdict[tuple[str, str], list[Breaker]] = defaultdict(list)
    for breaker in (*all_open(db), *_suspended_keys(db)):
        if breaker.until_ms + RECENT_MS > at_ms:
            circuits[breaker.channel_id, breaker.model].append(breaker)
    statuses = {}
    for channel in channels:
        for model in channel.models:
            pair = channel.name, model
            status = statuses[pair] = Status(channel.name, model)
            breakers = _breakers_of(circuits, channel, model) if circuits else []
            recent = traffic.get(pair, _NOTHING)
            status.saw(recent.last_error, recent.last_failed_ms, recent.last_ok_ms)
            if not channel.enabled:
                status.become(DISABLED, None)
            elif channel.draining:
                status.become(DISABLED, DRAINING)
            elif not _judge_breakers(status, channel, breakers, recent):
                _judge_calls(status, recent, probes.get(pair, _NOTHING))
    return statuses


def _suspended_keys(db: peewee.Database) -> list[Breaker]:
    """Return suspended upstream keys as open circuits, even if no gateway runs."""
    return [
        Breaker(
            "", "", key.channel_id, "", key.fingerprint, KEY_SUSPENDED, key.since_ms, key.until_ms
        )
        for key in load_suspended_keys(db).values()
    ]


def _breakers_of(
    circuits: Mapping[tuple[str, str], list[Breaker]], channel: ServingChannel, model: str
) -> list[Breaker]:
    """Return the open circuits of the channel's current keys."""
    breakers = [*circuits.get((channel.id, model), ()), *circuits.get((channel.id, ""), ())]
    return [breaker for breaker in breakers if breaker.fingerprint in channel.fingerprints]


def _judge_breakers(
    status: Status, channel: ServingChannel, breakers: Sequence[Breaker], recent: _Recent
) -> bool:
    """Set a status by open circuits, or by the calls of all workers. Return False if neither
    applies."""
    opened = [breaker for breaker in breakers if breaker.reason != SLOW]
    all_keys = {breaker.fingerprint for breaker in opened} == set(channel.fingerprints)
    if all_keys and recent.last_ok_ms <= max(breaker.since_ms for breaker in opened):
        last = _last_opened(opened, recent.last_ok_ms)
        status.become(DOWN, last.reason, last.since_ms)
        status.retry_ms = min(breaker.until_ms for breaker in opened)
        return True
    if recent.all_failed:
        status.become(DOWN, FAILING, recent.failing_since_ms)
        return True
    if breakers:
        first = min(breakers, key=lambda breaker: (breaker.reason == SLOW, breaker.since_ms))
        status.become(DEGRADED, first.reason, first.since_ms)
        status.retry_ms = first.until_ms
        return True
    return False


def _last_opened(opened: Sequence[Breaker], last_ok_ms: int) -> Breaker:
    """Return the circuit that opened last and left no usable key, without a success since."""
    firsts: dict[str, Breaker] = {}
    # Circuits older than the last success are sorted last.
    for breaker in sorted(
        opened, key=lambda breaker: (breaker.since_ms < last_ok_ms, breaker.since_ms)
    ):
        firsts.setdefault(breaker.fingerprint, breaker)
    return max(firsts.values(), key=lambda breaker: breaker.since_ms)


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
    db: peewee.Database,
    at_ms: int,
    groups: Sequence[str] | None,
    channels: Sequence[ServingChannel],
) -> dict[Pair, Status]:
    if groups is not None:
        channels = [channel for channel in channels if channel.groups.intersection(groups)]
    states = _channel_states(db, at_ms, channels)
    traffic = _recently(db, GROUP, at_ms // 1000 - WINDOW_S)
    serving: defaultdict[Pair, list[Status]] = defaultdict(list)
    for channel in channels:
        group_names = channel.groups if groups is None else channel.groups.intersection(groups)
        for pair in product(group_names, channel.models):
            serving[pair].append(states[channel.name, pair[1]])
    served = frozenset(model for channel in channels for model in channel.models)
    models = {model.name: model for model in load_models(db)}
    statuses = {}
    for group in load_groups(db):
        if groups is not None and group.name not in groups:
            continue
        # A model without any channel is listed if the group names it.
        names = served if group.models is None else group.models
        for name in names & models.keys():
            status = statuses[group.name, name] = Status(group.name, name)
            recent = traffic.get((group.name, name), _NOTHING)
            status.saw(recent.last_error, recent.last_failed_ms, recent.last_ok_ms)
            if group.disabled or models[name].disabled or not models[name].prices:
                status.become(DISABLED, MODEL_DISABLED)
            else:
                _judge_model(status, serving[group.name, name], recent)
    return statuses


def _judge_model(status: Status, channels: Sequence[Status], recent: _Recent) -> None:
    enabled = [channel for channel in channels if channel.state != DISABLED]
    available = [channel for channel in enabled if channel.state == AVAILABLE]
    down = [channel for channel in enabled if channel.state == DOWN]
    status.serving, status.well = len(enabled), len(available)
    status.retry_ms = min(
        (channel.retry_ms for channel in enabled if channel.retry_ms), default=None
    )
    if not enabled:
        status.become(DISABLED, NO_CHANNEL)
    elif len(down) == len(enabled):
        reasons = {channel.reason for channel in down}
        reason = reasons.pop() if len(reasons) == 1 else FAILING
        since_ms = max(channel.since_ms or 0 for channel in down)
        status.become(DOWN, FAILING if reason in _ACCOUNT_REASONS else reason, since_ms)
    elif recent.all_failed:
        status.become(DOWN, FAILING, recent.failing_since_ms)
    elif recent.too_many_failed:
        status.become(DEGRADED, ERRORS, recent.failing_from_ms)
    elif len(available) < len(enabled):
        since_ms = min(channel.since_ms or 0 for channel in enabled if channel.state != AVAILABLE)
        status.become(DEGRADED, FEWER_CHANNELS, since_ms)
    elif not (recent.ok or recent.failed) and all(
        channel.reason == NO_TRAFFIC for channel in available
    ):
        status.become(AVAILABLE, NO_TRAFFIC)


def _recently(
    db: peewee.Database, scope: str, since_s: int, spans: Iterable[str] = (MINUTE,)
) -> dict[Pair, _Recent]:
    """Return, by pair, the totals of its rows of these spans that end after `since_s`."""
    rows = [(Sums.span == span) & (Sums.at_s > since_s - WIDTH_S[span]) for span in spans]
    query = Sums.select(
        *(Sums.name, Sums.model, Sums.ok, Sums.failed, Sums.last_ok_ms, Sums.last_failed_ms),
        *(Sums.last_error, Sums.at_s),
    ).where((Sums.scope == scope) & reduce(or_, rows))
    totals: defaultdict[Pair, _Recent] = defaultdict(_Recent)
    for name, model, *row, at_s in raw_rows(db, query.order_by(Sums.at_s)):
        _take(totals[name, model], row, at_s)
    return totals


def _take(recent: _Recent, row: Sequence[Any], at_s: int) -> None:
    ok, failed, last_ok_ms, last_failed_ms, last_error = row
    recent.ok += ok
    recent.failed += failed
    if failed:
        # Rows are in order of time. This keeps the first failure that no success in a later minute
        # followed.
        if not recent.failing_from_ms or recent.last_ok_ms > recent.last_failed_ms:
            recent.failing_from_ms = at_s * 1000
        if last_failed_ms >= recent.last_failed_ms:
            recent.last_failed_ms, recent.last_error = last_failed_ms, last_error
    recent.last_ok_ms = max(recent.last_ok_ms, last_ok_ms)


def _add_windows(
    db: peewee.Database, scope: str, statuses: Mapping[Pair, Status], at_ms: int
) -> None:
    """Add figures, last errors and last successes to statuses."""
    names = sorted({name for name, _ in statuses})
    for name, model, part in recent_sums(db, scope, names, at_ms):
        if (status := statuses.get((name, model))) is not None:
            status.parts.append(part)
    for name, model, part, latest in running_sums(db, scope, names):
        if (status := statuses.get((name, model))) is not None:
            status.parts.append(part)
            status.saw(*latest)


def _add_probes(
    db: peewee.Database, found: Mapping[Pair, Status], serving: Mapping[str, Collection[str]]
) -> None:
    """Add the counts of probes to statuses. `serving`: channel -> the names for which it is
    probed."""
    for channel, model, ok, failed in day_probes(db):
        for name in serving.get(channel, ()):
            if (status := found.get((name, model))) is not None:
                status.probes = status.probes.plus(ok, failed)
