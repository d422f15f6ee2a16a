"""The circuit breakers of one worker: what its own calls say of channels and upstream keys.

There is a breaker for each channel × model × upstream key, and one for each channel × upstream key
alone, since a refused account is refused for every model. Only those exist that have failed lately:
nothing is looked up while all is well.

Closed: calls pass; too many faults or slow starts open it (breaker.py). Open: no call passes until
the cool-down is over. Half-open: exactly one call, the probe, closes it or opens it for longer.
Slow channels are not left out but asked last: a late answer is better than none. When the circuits
of all candidates of a call are open, the least bad one is asked all the same (Planner.last_resort,
`begin_anyway`): by every call when it fails quickly, by a few at a time when it hangs or limits us
(LastResorts). Any answer closes its circuit.

Sans-io: the clock (monotonic, s) and chance are given. `running` names the attempts in flight;
`keys` are the refused upstream keys, which are shared with all workers (suspended_keys.py).
"""

import logging
import math
from collections.abc import Callable, Iterable

from adapters.faults import MAX_RETRY_AFTER_S, Condition, Fault
from handlers.relay.routing.breaker import (
    FAILING,
    FORGET_S,
    KEY_SUSPENDED,
    PLAIN,
    PROBED,
    RATE_LIMITED,
    ROW,
    SLOW,
    STREAM,
    TIMING_OUT,
    TOLD_TO_WAIT,
    WINDOW_S,
    Breaker,
    BreakerName,
    Breakers,
    Trial,
    model_name,
    names_of,
    secret_of,
)
from handlers.relay.routing.suspended_keys import (
    KeyNews,
    Refusal,
    RefusedKeys,
    Suspicion,
    check_nothing,
    tell_nobody,
)
from store.catalog.catalog import Channel

log = logging.getLogger("sluice.health")

SLOW_S = 5.0  # no start below this is slow, and no fault that comes sooner is late
SLOW_TIMES = 4.0  # a slow start takes so many times the usual
LEARNING = 1 / 16  # weight of a new start in what is usual
MAX_USUAL = 50_000

TRIALS_OF = 10
TRIAL_S = 1.0  # without an answer, after which a trial gives its place to another

HELD_BACK = frozenset({RATE_LIMITED, TIMING_OUT})
"""Reasons for which a channel of last resort gets a few calls at a time; else all of them."""

PROBE_S = 60.0  # after which a probe without an end gives way to another one
MAX_TURNS = 50_000

_LAST_OF_ROW = ROW - 1
_WAITS = frozenset(
    {
        Condition.UPSTREAM_RATE_LIMITED,
        Condition.UPSTREAM_FAILED,
        Condition.UPSTREAM_OVERLOADED,
    }
)


class StartTimes:
    """A moving average for each; one far above it counts as twice the average."""

    def __init__(self) -> None:
        self._usual_s: dict[tuple[str, str, str], float] = {}

    def learn(self, trial: Trial, start_s: float) -> None:
        """An answer began after so long."""
        name = trial.channel.id, trial.model, trial.kind
        usual_s = self._usual_s.get(name)
        if usual_s is None:
            if len(self._usual_s) >= MAX_USUAL:
                self._usual_s.clear()
            usual_s = start_s
        most_s = 2 * usual_s
        new_s = start_s if start_s < most_s else most_s  # quicker than min()
        self._usual_s[name] = usual_s + (new_s - usual_s) * LEARNING

    def is_slow(self, trial: Trial, start_s: float) -> bool:
        """Whether such a start is slow; none is while nothing is known."""
        if start_s <= SLOW_S:
            return False
        name = trial.channel.id, trial.model, trial.kind
        return start_s > SLOW_TIMES * self._usual_s.get(name, math.inf)


class LastResorts:
    """The calls of one worker at each channel, and those of last resort in flight."""

    def __init__(self) -> None:
        self._running: dict[str, dict[Trial, None]] = {}  # the oldest first
        self._calls: dict[str, int] = {}
        self._calls_before: dict[str, int] = {}  # of the window before
        self._window_ends_s = -math.inf

    def note(self, channel_id: str, now_s: float) -> None:
        """A call asks the channel, or would have."""
        if now_s >= self._window_ends_s:
            self._turn(now_s)
        calls = self._calls
        calls[channel_id] = calls.get(channel_id, 0) + 1

    def wait_s(self, channel_id: str, now_s: float) -> float:
        """How long until one more may ask; 0: now."""
        running = self._running.get(channel_id)
        while running:
            oldest = next(iter(running))
            if now_s - oldest.begun_s < TRIAL_S:
                break
            del running[oldest]
        if not running:
            return 0.0
        too_many = len(running) - max(1, int(self._calls_of(channel_id, now_s)) // TRIALS_OF)
        if too_many < 0:
            return 0.0
        return list(running)[too_many].begun_s + TRIAL_S - now_s

    def take(self, trial: Trial) -> None:
        """The trial takes a place."""
        trial.limited = True
        self._running.setdefault(trial.channel.id, {})[trial] = None

    def give_back(self, trial: Trial) -> None:
        """The trial was answered, or is over."""
        trial.limited = False
        running = self._running.get(trial.channel.id, {})
        running.pop(trial, None)
        if not running:
            self._running.pop(trial.channel.id, None)

    def _turn(self, now_s: float) -> None:
        follows = now_s < self._window_ends_s + WINDOW_S
        self._calls_before = self._calls if follows else {}
        self._window_ends_s = (self._window_ends_s if follows else now_s) + WINDOW_S
        self._calls = {}

    def _calls_of(self, channel_id: str, now_s: float) -> float:
        """Calls of the last WINDOW_S, those of the window before taken as evenly spread."""
        if now_s >= self._window_ends_s:
            self._turn(now_s)
        left = (self._window_ends_s - now_s) / WINDOW_S
        return self._calls.get(channel_id, 0) + left * self._calls_before.get(channel_id, 0)


class Health:
    """Breakers, and whose turn it is among a channel's upstream keys."""

    def __init__(
        self,
        random: Callable[[], float],
        running: Callable[[], Iterable[Trial]] = tuple,
        on_key: Callable[[KeyNews], None] = tell_nobody,
        on_suspect: Callable[[Suspicion], bool] = check_nothing,
    ) -> None:
        self._random = random
        self._running = running
        self.breakers = Breakers()
        self.keys = RefusedKeys(self.breakers, random, on_key, on_suspect)
        self._turns: dict[str, int] = {}
        self._start_times = StartTimes()
        self.last_resorts = LastResorts()

    # ---- for the plan ----------------------------------------------------------------------------

    def turn(self, channel: Channel) -> int:
        """Position of the upstream key that is next; 0 for a channel without keys."""
        count = len(channel.keys)
        return self._turns.get(channel.id, 0) % count if count > 1 else 0

    def fault_of(self, channel: Channel, model: str, key: int, now_s: float) -> tuple[str, float]:
        """Why the circuit of an upstream key is open, and for how many seconds yet.

        ("", 0) when the key may be asked; a reason of SLOW means: after all others. At -inf the
        reason of an open breaker, its cool-down over or not.
        """
        slow = ("", 0.0)
        for name in names_of(channel, model, key):
            breaker = self.breakers.get(name)
            if breaker is None or not breaker.open:
                continue
            wait_s = max(0.0, breaker.until_s - now_s)
            if wait_s or breaker.is_probed(now_s, PROBE_S):
                reason = breaker.reason if wait_s else PROBED
                if breaker.reason != SLOW:
                    return reason, wait_s
                slow = SLOW, wait_s
        return slow

    def forget(self, channel: Channel) -> None:
        """The channel leads elsewhere now: only the circuits of its keys stay as they are."""
        gone = [
            n for n, b in self.breakers.items() if n[0] == channel.id and b.reason != KEY_SUSPENDED
        ]
        for name in gone:
            del self.breakers[name]

    # ---- for an attempt --------------------------------------------------------------------------

    def begin(
        self, channel: Channel, model: str, key: int, now_s: float, kind: str = STREAM
    ) -> Trial | None:
        """An attempt begins, and may be a probe; None when it may not begin any more.

        `kind`: STREAM, PLAIN, or "" for a call whose time says nothing of others.
        """
        self.last_resorts.note(channel.id, now_s)
        if len(channel.keys) > 1:
            if len(self._turns) >= MAX_TURNS:
                self._turns.clear()
            self._turns[channel.id] = key + 1
        trial = Trial(channel, model, key, now_s, kind)
        if self.breakers and not self._claim(trial, now_s):
            return None
        return trial

    def begin_anyway(
        self, channel: Channel, model: str, key: int, now_s: float, kind: str = STREAM
    ) -> Trial | None:
        """As `begin`, for an attempt of last resort, whose circuit is open; None when there are too
        many of them, or the key is refused."""
        trial = self.begin(channel, model, key, now_s, kind)
        if trial is not None:
            return trial
        found = [self.breakers.get(name) for name in names_of(channel, model, key)]
        through = [one for one in found if one is not None and one.open]
        reasons = {one.reason for one in through}
        if KEY_SUSPENDED in reasons:
            return None
        trial = Trial(channel, model, key, now_s, kind)
        if reasons & HELD_BACK:
            if self.last_resorts.wait_s(channel.id, now_s):
                return None
            self.last_resorts.take(trial)
        trial.probes = tuple(through)
        return trial

    def started(self, trial: Trial, now_s: float, first_byte_s: float) -> None:
        """The answer of a stream was accepted, so long after it was asked for.

        That closes what the trial probes; `succeeded` or `failed` follows all the same.
        """
        self._learn(trial, now_s, first_byte_s)
        # It counts now, not at its end: new calls may have failed for long by then.
        trial.well_s = now_s
        if trial.probes:
            # It may still break off: then one fault is enough to open again.
            self._close_probed(trial, now_s, head_start=_LAST_OF_ROW)
        elif self.breakers and not trial.slow:
            self._count_well(trial, now_s)

    def late(self, trial: Trial, now_s: float) -> None:
        """The answer has not begun yet: if that is slow, it counts now, and once."""
        judged = trial.well_s is not None or trial.slow or not trial.kind
        if not judged and self._start_times.is_slow(trial, now_s - trial.begun_s):
            self._note_slow(trial, now_s)

    def succeeded(self, trial: Trial, now_s: float) -> None:
        """The answer was whole."""
        if trial.kind == PLAIN:
            self._learn(trial, now_s, now_s - trial.begun_s)
        if not self.breakers:
            return
        if trial.probes:
            self._close_probed(trial, now_s)
        if trial.counted_by is not None:
            trial.counted_by.head_start = 0
        counted, trial.well_s = trial.well_s is not None, now_s
        if not (trial.slow or counted):
            self._count_well(trial, now_s)

    def failed(
        self, trial: Trial, now_s: float, fault: Fault, refusal: Refusal | None = None
    ) -> None:
        """The attempt failed. `refusal`: the upstream refused the key, whatever was asked.

        Faults of the client do not count.
        """
        if refusal is not None:
            if self.keys.refused(trial, now_s, refusal):
                self._count(trial, now_s, fault)
        elif fault.retry_after_s is not None and fault.condition in _WAITS:
            self._obey(trial, now_s, fault)
        elif fault.blame != "client":
            self._count(trial, now_s, fault)
        self.release(trial)

    def release(self, trial: Trial) -> None:
        """The attempt is over; another call may be the probe. Idempotent."""
        if trial.probes:
            for breaker in trial.probes:
                if breaker.probe is trial:
                    breaker.probe = None
            trial.probes = ()
        if trial.limited:
            self.last_resorts.give_back(trial)
        counting = trial.counted_by
        if counting is not None:
            trial.counted_by = None
            said = trial.failed or trial.well_s is not None
            if not (said or counting.open) and counting.judges(trial):
                counting.drop(trial)

    # ---- inside ----------------------------------------------------------------------------------

    def _claim(self, trial: Trial, now_s: float) -> bool:
        for name in names_of(trial.channel, trial.model, trial.key):
            breaker = self.breakers.get(name)
            if breaker is None:
                continue
            if not breaker.open:
                if len(name) > 2:  # of the model
                    breaker.count(trial, now_s)
                    trial.counted_by = breaker
                continue
            if now_s >= breaker.until_s and not breaker.is_probed(now_s, PROBE_S):
                breaker.probe = trial
                trial.probes += (breaker,)
            elif breaker.reason != SLOW:
                self.release(trial)
                return False
        return True

    def _obey(self, trial: Trial, now_s: float, fault: Fault) -> None:
        """The upstream says how long to wait."""
        assert fault.retry_after_s is not None
        until_s = now_s + min(fault.retry_after_s, MAX_RETRY_AFTER_S)
        breaker = self.breakers.named(model_name(trial.channel, trial.model, trial.key))
        limited = fault.condition is Condition.UPSTREAM_RATE_LIMITED
        reason = RATE_LIMITED if limited else TOLD_TO_WAIT
        if breaker.open and breaker.probe is not trial:
            breaker.until_s = max(breaker.until_s, until_s)
            if breaker in trial.probes:
                breaker.reason = reason
        elif breaker.judges(trial):
            breaker.trip_until(now_s, reason, until_s)

    def _count_well(self, trial: Trial, now_s: float) -> None:
        breaker = trial.counted_by
        if breaker is None:
            name = model_name(trial.channel, trial.model, trial.key)
            breaker = self.breakers.get(name)
            if breaker is not None and not breaker.open and breaker.judges(trial):
                breaker.count(trial, now_s)
        self.keys.answered(trial, now_s)
        if breaker is None or breaker.open or not breaker.judges(trial):
            return
        breaker.head_start = 0
        breaker.good += 1
        breaker.note_start(now_s, slow=False)
        if breaker.is_clean and now_s - breaker.since_s > FORGET_S:
            self.breakers.pop(model_name(trial.channel, trial.model, trial.key), None)

    def _count(self, trial: Trial, now_s: float, fault: Fault) -> None:
        channel, keys = trial.channel, [trial.key]
        if fault.condition is Condition.UPSTREAM_UNREACHABLE:
            keys = list(range(max(1, len(channel.keys))))  # no key was read
        silent_s = now_s - trial.begun_s if trial.well_s is None else 0.0
        reason = _reason_of(fault, silent_s)
        for key in keys:
            breaker = self._model_breaker(trial, key, now_s)
            if breaker.open and breaker.probe is not trial:
                if breaker in trial.probes:
                    breaker.reason = reason  # a last resort
                continue
            if not breaker.judges(trial):
                continue
            trial.failed = True
            if not breaker.open:
                breaker.fail(trial, now_s)
            if breaker.open or breaker.too_many:
                breaker.trip(now_s, reason, self._random)
                self._tell(trial, key, breaker, now_s, fault.code)

    def _model_breaker(self, trial: Trial, key: int, now_s: float) -> Breaker:
        """The breaker of a key for the trial's model. A closed one counts the trial from now on, a
        new one all attempts in flight."""
        name = model_name(trial.channel, trial.model, key)
        found = self.breakers.get(name)
        if found is None:
            found = self.breakers.named(name)
            for one in sorted(self._in_flight(name), key=lambda one: one.begun_s):
                if one is not trial:
                    found.count(one, now_s)
                    one.counted_by = found
        if not found.open and trial.counted_by is not found and found.judges(trial):
            found.count(trial, now_s)
            if key == trial.key:
                trial.counted_by = found
        return found

    def _in_flight(self, name: BreakerName) -> Iterable[Trial]:
        """A breaker's attempts whose outcome is open."""
        channel_id, model, secret = name
        for one in self._running():
            ours = one.channel.id == channel_id and one.model == model
            if ours and one.well_s is None and secret_of(one.channel, one.key) == secret:
                yield one

    def _note_slow(self, trial: Trial, now_s: float) -> None:
        trial.slow = True
        breaker = self._model_breaker(trial, trial.key, now_s)
        if breaker.judges(trial) and (not breaker.open or breaker.probe is trial):
            breaker.note_start(now_s, slow=True)
            if breaker.open or breaker.too_slow:
                breaker.trip(now_s, SLOW, self._random)
                self._tell(trial, trial.key, breaker, now_s, "slow_starts")
                self.release(trial)

    def _learn(self, trial: Trial, now_s: float, first_byte_s: float) -> None:
        teaches = True
        if self.breakers:
            breaker = self.breakers.get(model_name(trial.channel, trial.model, trial.key))
            teaches = breaker is None or breaker.judges(trial)
        if (
            first_byte_s > SLOW_S
            and not trial.slow
            and self._start_times.is_slow(trial, first_byte_s)
        ):
            self._note_slow(trial, now_s)
        if teaches:
            self._start_times.learn(trial, first_byte_s)

    def _close_probed(self, trial: Trial, now_s: float, head_start: int = 0) -> None:
        """The answer closes all breakers that the trial probes."""
        opened = [one for one in trial.probes if one.open]
        for breaker in opened:
            if breaker.reason == KEY_SUSPENDED:
                self.keys.on_key(KeyNews(trial.channel, trial.key))
            breaker.open, breaker.probe = False, None
            breaker.clear(head_start)
            breaker.since_s = now_s
            if breaker.reason != KEY_SUSPENDED:
                trial.counted_by = breaker
        trial.probes = ()
        if trial.limited:
            self.last_resorts.give_back(trial)
        if opened:
            trial.begun_s = now_s  # so that its end counts for the closed breakers
            if trial.counted_by is not None:
                trial.counted_by.count(trial, now_s)
            told = "circuit closed: channel=%s model=%s upstream_key=%d"
            log.warning(told, trial.channel.name, trial.model, trial.key + 1)

    @staticmethod
    def _tell(trial: Trial, key: int, breaker: Breaker, now_s: float, why: str) -> None:
        told = "circuit opened for %.0f s: channel=%s model=%s upstream_key=%d cause=%s"
        wait_s = breaker.until_s - now_s
        log.warning(told, wait_s, trial.channel.name, trial.model, key + 1, why)


def _reason_of(fault: Fault, silent_s: float) -> str:
    if fault.condition is Condition.UPSTREAM_RATE_LIMITED:
        return RATE_LIMITED
    late = fault.condition is Condition.UPSTREAM_TIMEOUT or silent_s >= SLOW_S
    return TIMING_OUT if late else FAILING
