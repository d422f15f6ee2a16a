"""The health of channels and upstream keys, judged by the calls of one worker: circuit breakers.

There is a breaker for each channel × model × upstream key, and one for each channel × upstream key
alone, since a refused account is refused for every model. A breaker exists only after a recent
failure: nothing is looked up while all calls succeed.

Closed: calls pass; too many faults or slow starts open it (breaker.py). Open: no call passes until
the cool-down is over. Half-open: exactly one call, the probe, closes it or opens it for longer.
Slow channels are not left out but tried last: a late answer is better than none. If the circuits of
all candidates of a call are open, the least bad one is tried anyway (Planner.last_resort,
`begin_anyway`): by every call if it fails quickly, by a few at a time if it hangs or limits us
(LastResorts). Any answer closes its circuit.

Sans-io: the clock (monotonic, s) and the random source are arguments. `running` returns the
attempts in flight. `keys` are the refused upstream keys, shared with all workers
(suspended_keys.py).
"""

import logging
import math
from collections.abc import Callable, Iterable
from operator import attrgetter

from adapters.faults import MAX_RETRY_AFTER_S, Condition, Fault
from handlers.relay.routing.breaker import (
    CONSECUTIVE_FAULTS,
    FAILING,
    FORGET_S,
    KEY_SUSPENDED,
    PLAIN,
    PROBED,
    RATE_LIMITED,
    RETRY_AFTER,
    SLOW,
    STREAM,
    TIMING_OUT,
    WINDOW_S,
    AttemptHealth,
    Breaker,
    BreakerName,
    Breakers,
    model_name,
    names_of,
    secret_of,
)
from handlers.relay.routing.suspended_keys import (
    KeyCheck,
    KeyRefusal,
    KeyReport,
    SuspendedKeys,
    discard_report,
    refuse_check,
)
from store.catalog.catalog import Channel

log = logging.getLogger("sluice.health")

SLOW_S = 5.0  # a start below this is not slow, and a fault that comes sooner not late
SLOW_TIMES = 4.0  # a slow start takes this many times the usual
LEARNING = 1 / 16  # weight of a new start in the average
MAX_USUAL = 50_000

CALLS_PER_LAST_RESORT = 10
LAST_RESORT_WAIT_S = 1.0  # time without an answer after which an attempt gives up its slot

HELD_BACK = frozenset({RATE_LIMITED, TIMING_OUT})
"""The reasons for which a channel of last resort gets only a few calls at a time."""

PROBE_S = 60.0  # time after which an unfinished probe gives way to another one
MAX_TURNS = 50_000

_ONE_FAULT_LEFT = CONSECUTIVE_FAULTS - 1
_WAITS = frozenset(
    {Condition.UPSTREAM_RATE_LIMITED, Condition.UPSTREAM_FAILED, Condition.UPSTREAM_OVERLOADED}
)


class StartTimes:
    """The usual time until an answer starts, for each channel, model and kind of call. A moving
    average, in which a start far above it counts as twice the average. A start is slow in
    comparison with its own channel and model: some models think before they answer."""

    def __init__(self) -> None:
        self._usual_s: dict[tuple[str, str, str], float] = {}

    def learn(self, attempt: AttemptHealth, start_s: float) -> None:
        """Learn that an answer started after `start_s`."""
        name = attempt.channel.id, attempt.model, attempt.kind
        usual_s = self._usual_s.get(name)
        if usual_s is None:
            if len(self._usual_s) >= MAX_USUAL:
                self._usual_s.clear()
            usual_s = start_s
        most_s = 2 * usual_s
        new_s = start_s if start_s < most_s else most_s  # quicker than min()
        self._usual_s[name] = usual_s + (new_s - usual_s) * LEARNING

    def is_slow(self, attempt: AttemptHealth, start_s: float) -> bool:
        """Return whether a start is slow. None is until a first one was learnt."""
        if start_s <= SLOW_S:
            return False
        name = attempt.channel.id, attempt.model, attempt.kind
        return start_s > SLOW_TIMES * self._usual_s.get(name, math.inf)


class LastResorts:
    """One worker's calls at each channel, and its calls of last resort in flight. If the circuits
    of all candidates of a call are open, the least bad one is tried anyway. A channel that fails
    quickly is not limited in this, since it costs nothing. One that hangs, or answers "too many
    requests", gets one call at a time for each CALLS_PER_LAST_RESORT calls of the last WINDOW_S."""

    def __init__(self) -> None:
        self._running: dict[str, dict[AttemptHealth, None]] = {}  # the oldest first
        self._calls: dict[str, int] = {}
        self._calls_before: dict[str, int] = {}  # calls of the window before
        self._window_ends_s = -math.inf

    def note(self, channel_id: str, now_s: float) -> None:
        """Count a call to the channel, or one that was held back."""
        if now_s >= self._window_ends_s:
            self._turn(now_s)
        calls = self._calls
        calls[channel_id] = calls.get(channel_id, 0) + 1

    def wait_s(self, channel_id: str, now_s: float) -> float:
        """Return the seconds until one more call may start; 0: now."""
        running = self._running.get(channel_id)
        while running:
            oldest = next(iter(running))
            if now_s - oldest.begun_s < LAST_RESORT_WAIT_S:
                break
            del running[oldest]
        if not running:
            return 0.0
        too_many = len(running) - max(
            1, int(self._calls_of(channel_id, now_s)) // CALLS_PER_LAST_RESORT
        )
        if too_many < 0:
            return 0.0
        return list(running)[too_many].begun_s + LAST_RESORT_WAIT_S - now_s

    def take(self, attempt: AttemptHealth) -> None:
        attempt.limited = True
        self._running.setdefault(attempt.channel.id, {})[attempt] = None

    def give_back(self, attempt: AttemptHealth) -> None:
        """Release the slot of an attempt that was answered or is over."""
        attempt.limited = False
        running = self._running.get(attempt.channel.id, {})
        running.pop(attempt, None)
        if not running:
            self._running.pop(attempt.channel.id, None)

    def _turn(self, now_s: float) -> None:
        follows = now_s < self._window_ends_s + WINDOW_S
        self._calls_before = self._calls if follows else {}
        self._window_ends_s = (self._window_ends_s if follows else now_s) + WINDOW_S
        self._calls = {}

    def _calls_of(self, channel_id: str, now_s: float) -> float:
        """Return the calls of the last WINDOW_S, as if those of the window before were evenly
        spread."""
        if now_s >= self._window_ends_s:
            self._turn(now_s)
        left = (self._window_ends_s - now_s) / WINDOW_S
        return self._calls.get(channel_id, 0) + left * self._calls_before.get(channel_id, 0)


class Health:
    """The breakers of one worker, and the turns of each channel's upstream keys."""

    def __init__(
        self,
        random: Callable[[], float],
        running: Callable[[], Iterable[AttemptHealth]] = tuple,
        on_report: Callable[[KeyReport], None] = discard_report,
        on_check: Callable[[KeyCheck], bool] = refuse_check,
    ) -> None:
        self._random = random
        self._running = running
        self.breakers = Breakers()
        self.keys = SuspendedKeys(self.breakers, random, on_report, on_check)
        self._turns: dict[str, int] = {}
        self._start_times = StartTimes()
        self.last_resorts = LastResorts()

    # ---- for the plan ----------------------------------------------------------------------------

    def turn(self, channel: Channel) -> int:
        """Return the position of the next upstream key; 0 for a channel without keys."""
        count = len(channel.keys)
        return self._turns.get(channel.id, 0) % count if count > 1 else 0

    def fault_of(self, channel: Channel, model: str, key: int, now_s: float) -> tuple[str, float]:
        """Return the reason of an upstream key's open circuit, and its remaining seconds. ("", 0)
        if the key may be used; SLOW: usable, but to be tried last. With `now_s` -inf the reason is
        given even if the cool-down is over."""
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
        """Forget the circuits of a channel with a new destination, except its suspended keys."""
        names = [
            n for n, b in self.breakers.items() if n[0] == channel.id and b.reason != KEY_SUSPENDED
        ]
        for name in names:
            del self.breakers[name]

    # ---- for an attempt --------------------------------------------------------------------------

    def begin(
        self, channel: Channel, model: str, key: int, now_s: float, kind: str = STREAM
    ) -> AttemptHealth | None:
        """Start an attempt, which may be a probe. Return None if it may no longer start. `kind`:
        STREAM, PLAIN, or "" for a call whose duration is not comparable with others."""
        self.last_resorts.note(channel.id, now_s)
        if len(channel.keys) > 1:
            if len(self._turns) >= MAX_TURNS:
                self._turns.clear()
            self._turns[channel.id] = key + 1
        attempt = AttemptHealth(channel, model, key, now_s, kind)
        if self.breakers and not self._claim(attempt, now_s):
            return None
        return attempt

    def begin_anyway(
        self, channel: Channel, model: str, key: int, now_s: float, kind: str = STREAM
    ) -> AttemptHealth | None:
        """Start an attempt of last resort, whose circuit is open. Return None if there are too many
        of them, or the key is refused."""
        attempt = self.begin(channel, model, key, now_s, kind)
        if attempt is not None:
            return attempt
        breakers = map(self.breakers.get, names_of(channel, model, key))
        probed = [breaker for breaker in breakers if breaker is not None and breaker.open]
        reasons = {breaker.reason for breaker in probed}
        if KEY_SUSPENDED in reasons:
            return None
        attempt = AttemptHealth(channel, model, key, now_s, kind)
        if reasons & HELD_BACK:
            if self.last_resorts.wait_s(channel.id, now_s):
                return None
            self.last_resorts.take(attempt)
        attempt.probes = tuple(probed)
        return attempt

    def started(self, attempt: AttemptHealth, now_s: float, first_byte_s: float) -> None:
        """Note that the answer of a stream was accepted, `first_byte_s` after the request. That
        closes the circuits that the attempt probes. A call of `succeeded` or `failed` still
        follows."""
        self._learn(attempt, now_s, first_byte_s)
        # It counts now rather than at its end, by which time new calls may have long been failing.
        attempt.succeeded_at_s = now_s
        if attempt.probes:
            # It may still break off; then one fault is enough to open the circuit again.
            self._close_probed(attempt, now_s, head_start=_ONE_FAULT_LEFT)
        elif self.breakers and not attempt.slow:
            self._count_success(attempt, now_s)

    def late(self, attempt: AttemptHealth, now_s: float) -> None:
        """Count an answer that has not yet started as slow, if it is. Counts once."""
        judged = attempt.succeeded_at_s is not None or attempt.slow or not attempt.kind
        if not judged and self._start_times.is_slow(attempt, now_s - attempt.begun_s):
            self._note_slow(attempt, now_s)

    def succeeded(self, attempt: AttemptHealth, now_s: float) -> None:
        """Note that the answer was complete."""
        if attempt.kind == PLAIN:
            self._learn(attempt, now_s, now_s - attempt.begun_s)
        if not self.breakers:
            return
        if attempt.probes:
            self._close_probed(attempt, now_s)
        if attempt.counted_by is not None:
            attempt.counted_by.head_start = 0
        counted, attempt.succeeded_at_s = attempt.succeeded_at_s is not None, now_s
        if not (attempt.slow or counted):
            self._count_success(attempt, now_s)

    def failed(
        self, attempt: AttemptHealth, now_s: float, fault: Fault, refusal: KeyRefusal | None = None
    ) -> None:
        """Note that the attempt failed. `refusal`: given if the upstream refused the key. Faults of
        the client do not count."""
        if refusal is not None:
            if self.keys.refused(attempt, now_s, refusal):
                self._count(attempt, now_s, fault)
        elif fault.retry_after_s is not None and fault.condition in _WAITS:
            self._obey(attempt, now_s, fault)
        elif fault.blame != "client":
            self._count(attempt, now_s, fault)
        self.release(attempt)

    def release(self, attempt: AttemptHealth) -> None:
        """Release an attempt that is over, so that another call may be the probe. Idempotent."""
        if attempt.probes:
            for breaker in attempt.probes:
                if breaker.probe is attempt:
                    breaker.probe = None
            attempt.probes = ()
        if attempt.limited:
            self.last_resorts.give_back(attempt)
        counting = attempt.counted_by
        if counting is not None:
            attempt.counted_by = None
            has_result = attempt.failed or attempt.succeeded_at_s is not None
            if not (has_result or counting.open) and counting.judges(attempt):
                counting.drop(attempt)

    # ---- inside ----------------------------------------------------------------------------------

    def _claim(self, attempt: AttemptHealth, now_s: float) -> bool:
        for name in names_of(attempt.channel, attempt.model, attempt.key):
            breaker = self.breakers.get(name)
            if breaker is None:
                continue
            if not breaker.open:
                if len(name) > 2:  # the model's breaker
                    breaker.count(attempt, now_s)
                    attempt.counted_by = breaker
                continue
            if now_s >= breaker.until_s and not breaker.is_probed(now_s, PROBE_S):
                breaker.probe = attempt
                attempt.probes += (breaker,)
            elif breaker.reason != SLOW:
                self.release(attempt)
                return False
        return True

    def _obey(self, attempt: AttemptHealth, now_s: float, fault: Fault) -> None:
        """Open the circuit for as long as the upstream asks."""
        assert fault.retry_after_s is not None
        until_s = now_s + min(fault.retry_after_s, MAX_RETRY_AFTER_S)
        breaker = self.breakers.named(model_name(attempt.channel, attempt.model, attempt.key))
        limited = fault.condition is Condition.UPSTREAM_RATE_LIMITED
        reason = RATE_LIMITED if limited else RETRY_AFTER
        if breaker.open and breaker.probe is not attempt:
            breaker.until_s = max(breaker.until_s, until_s)
            if breaker in attempt.probes:
                breaker.reason = reason
        elif breaker.judges(attempt):
            breaker.trip_until(now_s, reason, until_s)

    def _count_success(self, attempt: AttemptHealth, now_s: float) -> None:
        breaker = attempt.counted_by
        if breaker is None:
            name = model_name(attempt.channel, attempt.model, attempt.key)
            breaker = self.breakers.get(name)
            if breaker is not None and not breaker.open and breaker.judges(attempt):
                breaker.count(attempt, now_s)
        self.keys.answered(attempt, now_s)
        if breaker is None or breaker.open or not breaker.judges(attempt):
            return
        breaker.head_start = 0
        breaker.good += 1
        breaker.note_start(now_s, slow=False)
        if breaker.is_clean and now_s - breaker.since_s > FORGET_S:
            self.breakers.pop(model_name(attempt.channel, attempt.model, attempt.key), None)

    def _count(self, attempt: AttemptHealth, now_s: float, fault: Fault) -> None:
        channel, keys = attempt.channel, [attempt.key]
        if fault.condition is Condition.UPSTREAM_UNREACHABLE:
            keys = list(range(max(1, len(channel.keys))))  # the fault concerns all keys alike
        silent_s = now_s - attempt.begun_s if attempt.succeeded_at_s is None else 0.0
        reason = _reason_of(fault, silent_s)
        for key in keys:
            breaker = self._model_breaker(attempt, key, now_s)
            if breaker.open and breaker.probe is not attempt:
                if breaker in attempt.probes:
                    breaker.reason = reason  # a last resort
                continue
            if not breaker.judges(attempt):
                continue
            attempt.failed = True
            if not breaker.open:
                breaker.fail(attempt, now_s)
            if breaker.open or breaker.too_many_faults:
                breaker.trip(now_s, reason, self._random)
                self._log_opened(attempt, key, breaker, now_s, fault.code)

    def _model_breaker(self, attempt: AttemptHealth, key: int, now_s: float) -> Breaker:
        """Return the breaker of a key for the attempt's model. A closed breaker counts the attempt
        from now on; a new one counts all attempts in flight."""
        name = model_name(attempt.channel, attempt.model, key)
        breaker = self.breakers.get(name)
        if breaker is None:
            breaker = self.breakers.named(name)
            for running in sorted(self._in_flight(name), key=attrgetter("begun_s")):
                if running is not attempt:
                    breaker.count(running, now_s)
                    running.counted_by = breaker
        if not breaker.open and attempt.counted_by is not breaker and breaker.judges(attempt):
            breaker.count(attempt, now_s)
            if key == attempt.key:
                attempt.counted_by = breaker
        return breaker

    def _in_flight(self, name: BreakerName) -> Iterable[AttemptHealth]:
        """Yield a breaker's attempts that have no outcome yet."""
        channel_id, model, secret = name
        for attempt in self._running():
            named = attempt.channel.id == channel_id and attempt.model == model
            if not named or attempt.succeeded_at_s is not None:
                continue
            if secret_of(attempt.channel, attempt.key) == secret:
                yield attempt

    def _note_slow(self, attempt: AttemptHealth, now_s: float) -> None:
        attempt.slow = True
        breaker = self._model_breaker(attempt, attempt.key, now_s)
        if breaker.judges(attempt) and (not breaker.open or breaker.probe is attempt):
            breaker.note_start(now_s, slow=True)
            if breaker.open or breaker.too_slow:
                breaker.trip(now_s, SLOW, self._random)
                self._log_opened(attempt, attempt.key, breaker, now_s, "slow_starts")
                self.release(attempt)

    def _learn(self, attempt: AttemptHealth, now_s: float, first_byte_s: float) -> None:
        teaches = True
        if self.breakers:
            breaker = self.breakers.get(model_name(attempt.channel, attempt.model, attempt.key))
            teaches = breaker is None or breaker.judges(attempt)
        if (
            first_byte_s > SLOW_S
            and not attempt.slow
            and self._start_times.is_slow(attempt, first_byte_s)
        ):
            self._note_slow(attempt, now_s)
        if teaches:
            self._start_times.learn(attempt, first_byte_s)

    def _close_probed(self, attempt: AttemptHealth, now_s: float, head_start: int = 0) -> None:
        """Close all breakers that the answered attempt probes."""
        opened = [breaker for breaker in attempt.probes if breaker.open]
        for breaker in opened:
            if breaker.reason == KEY_SUSPENDED:
                self.keys.on_report(KeyReport(attempt.channel, attempt.key))
            breaker.open, breaker.probe = False, None
            breaker.clear(head_start)
            breaker.since_s = now_s
            if breaker.reason != KEY_SUSPENDED:
                attempt.counted_by = breaker
        attempt.probes = ()
        if attempt.limited:
            self.last_resorts.give_back(attempt)
        if opened:
            attempt.begun_s = now_s  # so that the closed breakers count its end
            if attempt.counted_by is not None:
                attempt.counted_by.count(attempt, now_s)
            place = attempt.channel.name, attempt.model, attempt.key + 1
            log.warning("circuit closed: channel=%s model=%s upstream_key=%d", *place)

    @staticmethod
    def _log_opened(
        attempt: AttemptHealth, key: int, breaker: Breaker, now_s: float, cause: str
    ) -> None:
        text = "circuit opened for %.0f s: channel=%s model=%s upstream_key=%d cause=%s"
        place = attempt.channel.name, attempt.model, key + 1
        log.warning(text, breaker.until_s - now_s, *place, cause)


def _reason_of(fault: Fault, silent_s: float) -> str:
    if fault.condition is Condition.UPSTREAM_RATE_LIMITED:
        return RATE_LIMITED
    late = fault.condition is Condition.UPSTREAM_TIMEOUT or silent_s >= SLOW_S
    return TIMING_OUT if late else FAILING
