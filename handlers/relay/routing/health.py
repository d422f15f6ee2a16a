"""What this worker has learnt of channels from its own calls: which are worth asking now.

A breaker stands for a channel × model × upstream key, and one for a channel × upstream key alone,
for an account that is refused is refused for every model. Only those that have failed lately have
one, so that nothing is looked up while all is well. Sans-io: the clock (monotonic, s) and chance
are given. Nothing is stored but keys put aside: `on_key` tells of them, `take_keys_aside` takes in
what all workers have told. `on_suspect` asks for a call of our own with a key that was refused to
one caller (suspects.py); `key_checked` says how it went. `running` names the attempts in flight.

Closed: calls pass; too many faults (breaker.py), or slow starts, open it. Open: no call passes
until the cool-down is over. Then exactly one call, the probe, shows whether it closes or opens for
longer. Slow channels are not left out, only asked last: a late answer is better than none. Where
all candidates of a call are left out, the least bad is asked all the same (Planner.last_resort,
`begin_anyway`): as often as there are calls when it fails quickly, else a few at a time, for what
hangs or limits us gets no better by being asked. Whichever is answered closes the breaker.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from adapters.faults import MAX_RETRY_AFTER_S, Condition, Fault
from handlers.relay.routing.breaker import MANY, PLAIN, ROW, STREAM, Breaker, Trial
from handlers.relay.routing.suspects import Refusal, Suspect, Suspicion
from handlers.relay.routing.trials import Trials
from store.catalog.catalog import Channel, Snapshot
from store.catalog.keys_aside import MAX_ASIDE_MS, KeyAside, KeyName

__all__ = ["MANY", "PLAIN", "ROW", "STREAM", "Breaker", "Health", "KeyNews", "Refusal", "Trial"]

log = logging.getLogger("sluice.health")

COOLDOWN_S, COOLDOWN_MAX_S = 5.0, 60.0  # the first cool-down; each that follows is twice as long
MAX_DOUBLINGS = 16
PROBE_S = 60.0  # a probe without an end for so long leaves its place to another one
KEY_COOLDOWN_S, KEY_COOLDOWN_MAX_S = 600.0, MAX_ASIDE_MS / 1000  # of a refused upstream key
KEY_CHECK_S = 15.0  # how long a key that is aside waits for what a call of our own says of it
JITTER = 0.25  # a cool-down is up to this part shorter, so that workers do not come back as one
FORGET_S = 300.0  # closed for so long, the next cool-down is the first one again
SLOW_S = 5.0  # no start below this is slow, and no fault that comes sooner is late
SLOW_TIMES = 4.0  # else one that takes so many times the usual
LEARNING = 1 / 16  # weight of a new start in what is usual
MAX_BREAKERS = 20_000
MAX_USUAL = 50_000
MAX_TURNS = 50_000
MAX_SUSPECTS = 10_000

FAILING = "failing"
TIMING_OUT = "timing_out"
SLOW = "slow"
RATE_LIMITED = "rate_limited"
TOLD_TO_WAIT = "told_to_wait"  # for another reason than a limit
KEY_ASIDE = "key_put_aside"
PROBED = "being_probed"

HELD_BACK = frozenset({RATE_LIMITED, TIMING_OUT})
"""Reasons for which a channel of last resort gets a few calls at a time; else all of them."""

_LAST_OF_ROW = ROW - 1
_WAITS = frozenset(
    {
        Condition.UPSTREAM_RATE_LIMITED,
        Condition.UPSTREAM_FAILED,
        Condition.UPSTREAM_OVERLOADED,
    }
)

BreakerName = tuple[str, ...]


class KeyNews(Struct, frozen=True):
    """An upstream key was refused and is aside for `wait_s`, or (None) answers again."""

    channel: Channel
    key: int
    wait_s: float | None = None
    times: int = 0
    reason: str = ""


class Health:
    """Breakers, what start is usual, and whose turn it is among a channel's upstream keys."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self.on_key: Callable[[KeyNews], None] = _tell_nobody
        self.on_suspect: Callable[[Suspicion], bool] = _check_nothing
        self.running: Callable[[], Iterable[Trial]] = tuple
        self._stored: Mapping[KeyName, KeyAside] = {}
        self.breakers: dict[BreakerName, Breaker] = {}
        self._suspects: dict[BreakerName, Suspect] = {}
        self._turns: dict[str, int] = {}
        self._usual_s: dict[tuple[str, str, str], float] = {}  # until an answer began
        self.trials = Trials()

    # ---- for the plan ----------------------------------------------------------------------------

    def turn(self, channel: Channel) -> int:
        """Position of the upstream key that is next; 0 for a channel without keys."""
        count = len(channel.keys)
        return self._turns.get(channel.id, 0) % count if count > 1 else 0

    def fault_of(self, channel: Channel, model: str, key: int, now_s: float) -> tuple[str, float]:
        """Why an upstream key of a channel is not to be asked, and for how many seconds.

        ("", 0) when it may be; a reason of SLOW means: after all others. At -inf it is what an open
        breaker holds against the key, its cool-down over or not.
        """
        slow = ("", 0.0)
        for name in _names(channel, model, key):
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

    # ---- what all workers know ----------------------------------------------------------------

    def take_keys_aside(self, snapshot: Snapshot, now_s: float, now_ms: int) -> None:
        """Keys that the store says are aside, and no more those that it has said before.

        `now_ms`: the database's clock of now. However wrong it is, no key is aside for longer than
        KEY_COOLDOWN_MAX_S after its row was seen first.
        """
        before, stored = self._stored, snapshot.keys_aside
        if not (before or stored):
            return
        self._stored = stored
        for channel in snapshot.channels:
            for key, fingerprint in enumerate(channel.fingerprints or ("",)):
                name = (channel.id, fingerprint)
                row = stored.get(name)
                if row is None and name in before:
                    self._take_back(_key_name(channel, key))
                elif row is not None and row != before.get(name):
                    left_s = min(max(0.0, (row.until_ms - now_ms) / 1000), KEY_COOLDOWN_MAX_S)
                    self._take_aside(_key_name(channel, key), now_s, left_s, row.times)

    def forget(self, channel: Channel) -> None:
        """The channel leads elsewhere now: only what is known of its keys still counts."""
        gone = [n for n, b in self.breakers.items() if n[0] == channel.id and b.reason != KEY_ASIDE]
        for name in gone:
            del self.breakers[name]

    def _take_aside(self, name: BreakerName, now_s: float, left_s: float, times: int) -> None:
        breaker = self._breaker(name)
        breaker.open, breaker.reason, breaker.openings = True, KEY_ASIDE, times
        breaker.since_s, breaker.until_s = now_s, now_s + left_s

    def _take_back(self, name: BreakerName) -> None:
        found = self.breakers.get(name)
        if found is not None and found.reason == KEY_ASIDE:
            del self.breakers[name]

    # ---- for an attempt --------------------------------------------------------------------------

    def begin(
        self, channel: Channel, model: str, key: int, now_s: float, kind: str = STREAM
    ) -> Trial | None:
        """An attempt begins, and may be a probe; None when it may not begin any more.

        `kind`: STREAM, PLAIN, or "" for a call whose time says nothing of others.
        """
        self.trials.note(channel.id, now_s)
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
        """As `begin`, for an attempt of last resort; None when there are too many of them, or the
        key is refused."""
        trial = self.begin(channel, model, key, now_s, kind)
        if trial is not None:
            return trial
        found = [self.breakers.get(name) for name in _names(channel, model, key)]
        through = [one for one in found if one is not None and one.open]
        reasons = {one.reason for one in through}
        if KEY_ASIDE in reasons:
            return None
        trial = Trial(channel, model, key, now_s, kind)
        if reasons & HELD_BACK:
            if self.trials.wait_s(channel.id, now_s):
                return None
            self.trials.take(trial)
        trial.probes = tuple(through)
        return trial

    def started(self, trial: Trial, now_s: float, first_byte_s: float) -> None:
        """The answer of a stream was accepted, so long after it was asked for.

        That is enough to close what the trial probes; how it ends is told by `succeeded` and
        `failed` all the same.
        """
        self._learn(trial, now_s, first_byte_s)
        # It counts now, not when it ends: new calls may fail for long by then.
        trial.well_s = now_s
        if trial.probes:
            # It may still break off: then one fault is enough.
            self._close_probed(trial, now_s, head_start=_LAST_OF_ROW)
        elif self.breakers and not trial.slow:
            self._count_well(trial, now_s)

    def late(self, trial: Trial, now_s: float) -> None:
        """The answer has not begun yet: if that is slow, it counts now, and once."""
        judged = trial.well_s is not None or trial.slow or not trial.kind
        if not judged and self._is_slow(_usual_name(trial), now_s - trial.begun_s):
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
        """The attempt failed. `refusal`: the upstream says so of the key, whatever was asked.

        What the client caused counts as nothing.
        """
        if refusal is not None:
            self._refused(trial, now_s, fault, refusal)
        elif fault.retry_after_s is not None and fault.condition in _WAITS:
            self._obey(trial, now_s, fault)
        elif fault.blame != "client":
            self._count(trial, now_s, fault)
        self.release(trial)

    def release(self, trial: Trial) -> None:
        """The attempt is over and says nothing more; another call may be the probe. Idempotent."""
        if trial.probes:
            for breaker in trial.probes:
                if breaker.probe is trial:
                    breaker.probe = None
            trial.probes = ()
        if trial.limited:
            self.trials.give_back(trial)
        counting = trial.counted_by
        if counting is not None:
            trial.counted_by = None
            said = trial.failed or trial.well_s is not None
            if not (said or counting.open) and counting.judges(trial):
                counting.drop(trial)

    def key_checked(self, suspicion: Suspicion, now_s: float, refused: bool | None) -> None:
        """What a call of our own has met with a key that was refused to a caller: the refusal, an
        answer, or (None) something that tells nothing."""
        channel, key = suspicion.channel, suspicion.key
        name = _key_name(channel, key)
        suspect, breaker = self._suspects.get(name), self.breakers.get(name)
        if suspect is None or breaker is None:
            return
        meaning = suspect.checked(refused, now_s)
        if meaning == "confirmed" or (refused is None and breaker.open):
            self._put_aside(channel, key, now_s, suspicion.reason)
        elif refused is False and breaker.open:
            self.on_key(KeyNews(channel, key))
            breaker.open, breaker.since_s = False, now_s

    # ---- inside ----------------------------------------------------------------------------------

    def _claim(self, trial: Trial, now_s: float) -> bool:
        for name in _names(trial.channel, trial.model, trial.key):
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

    def _refused(self, trial: Trial, now_s: float, fault: Fault, refusal: Refusal) -> None:
        """The key is aside for this call. For all, when more than this call speaks for it."""
        channel, key = trial.channel, trial.key
        name = _key_name(channel, key)
        breaker = self._breaker(name)
        if not breaker.judges(trial):
            return
        suspect = self._suspects.get(name)
        if suspect is None:
            if len(self._suspects) >= MAX_SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
            suspect = self._suspects[name] = Suspect()
        meaning = suspect.meet(refusal, now_s)
        if meaning == "confirmed":
            self._put_aside(channel, key, now_s, refusal.reason)
        elif meaning == "of_the_model":
            self._count(trial, now_s, fault)
        elif meaning == "unknown":
            if breaker.open:  # nobody else is to ask meanwhile
                breaker.until_s = now_s + KEY_CHECK_S
            suspicion = Suspicion(channel, key, trial.model, refusal.about, refusal.reason)
            if not self.on_suspect(suspicion):
                self.key_checked(suspicion, now_s, None)

    def _put_aside(self, channel: Channel, key: int, now_s: float, reason: str) -> None:
        name = _key_name(channel, key)
        breaker = self._breaker(name)
        self._suspects.pop(name, None)
        self._open(breaker, now_s, KEY_ASIDE)
        self.on_key(KeyNews(channel, key, breaker.until_s - now_s, breaker.openings, reason))

    def _obey(self, trial: Trial, now_s: float, fault: Fault) -> None:
        """The upstream says itself how long it is not to be asked."""
        assert fault.retry_after_s is not None
        until_s = now_s + min(fault.retry_after_s, MAX_RETRY_AFTER_S)
        breaker = self._breaker(_model_name(trial.channel, trial.model, trial.key))
        limited = fault.condition is Condition.UPSTREAM_RATE_LIMITED
        reason = RATE_LIMITED if limited else TOLD_TO_WAIT
        if breaker.open and breaker.probe is not trial:
            breaker.until_s = max(breaker.until_s, until_s)
            if breaker in trial.probes:
                breaker.reason = reason
        elif breaker.judges(trial):
            self._open(breaker, now_s, reason, until_s)

    def _count_well(self, trial: Trial, now_s: float) -> None:
        breaker = trial.counted_by
        if breaker is None:
            name = _model_name(trial.channel, trial.model, trial.key)
            breaker = self.breakers.get(name)
            if breaker is not None and not breaker.open and breaker.judges(trial):
                breaker.count(trial, now_s)
        if self._suspects:
            self._clear(_key_name(trial.channel, trial.key), now_s)
        if breaker is None or breaker.open or not breaker.judges(trial):
            return
        breaker.head_start = 0
        breaker.good += 1
        breaker.note_start(now_s, slow=False)
        if breaker.is_clean and now_s - breaker.since_s > FORGET_S:
            self.breakers.pop(_model_name(trial.channel, trial.model, trial.key), None)

    def _clear(self, name: BreakerName, now_s: float) -> None:
        """A call with a key has gone well."""
        suspect = self._suspects.get(name)
        if suspect is None:
            return
        suspect.answered()
        if not suspect.checking and now_s >= max(suspect.cleared_until_s, suspect.check_s):
            del self._suspects[name]
            breaker = self.breakers.get(name)
            if breaker is not None and not breaker.open:
                del self.breakers[name]

    def _count(self, trial: Trial, now_s: float, fault: Fault) -> None:
        channel, keys = trial.channel, [trial.key]
        if fault.condition is Condition.UPSTREAM_UNREACHABLE:
            keys = list(range(max(1, len(channel.keys))))  # no key was looked at
        silent_s = now_s - trial.begun_s if trial.well_s is None else 0.0
        reason = _reason_of(fault, silent_s)
        for key in keys:
            breaker = self._model_breaker(trial, key, now_s)
            if breaker.open and breaker.probe is not trial:
                if breaker in trial.probes:
                    breaker.reason = reason  # of last resort, and no better
                continue
            if not breaker.judges(trial):
                continue
            trial.failed = True
            if not breaker.open:
                breaker.fail(trial, now_s)
            if breaker.open or breaker.too_many:
                self._open(breaker, now_s, reason)
                self._tell(trial, key, breaker, now_s, fault.code)

    def _model_breaker(self, trial: Trial, key: int, now_s: float) -> Breaker:
        """The breaker of a key for the trial's model. A closed one counts the trial from now on,
        and a new one all that are in flight."""
        name = _model_name(trial.channel, trial.model, key)
        found = self.breakers.get(name)
        if found is None:
            found = self._breaker(name)
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
        """The attempts of a breaker of which nobody knows yet how they go."""
        channel_id, model, secret = name
        for one in self.running():
            ours = one.channel.id == channel_id and one.model == model
            if ours and one.well_s is None and _secret(one.channel, one.key) == secret:
                yield one

    def _note_slow(self, trial: Trial, now_s: float) -> None:
        trial.slow = True
        breaker = self._model_breaker(trial, trial.key, now_s)
        if breaker.judges(trial) and (not breaker.open or breaker.probe is trial):
            breaker.note_start(now_s, slow=True)
            if breaker.open or breaker.too_slow:
                self._open(breaker, now_s, SLOW)
                self._tell(trial, trial.key, breaker, now_s, "slow_starts")
                self.release(trial)

    def _learn(self, trial: Trial, now_s: float, first_byte_s: float) -> None:
        """Slow is what is slow for this channel: some models think before they speak."""
        name = _usual_name(trial)
        teaches = True
        if self.breakers:
            breaker = self.breakers.get(_model_name(trial.channel, trial.model, trial.key))
            teaches = breaker is None or breaker.judges(trial)
        if first_byte_s > SLOW_S and not trial.slow and self._is_slow(name, first_byte_s):
            self._note_slow(trial, now_s)
        if not teaches:
            return
        usual_s = self._usual_s.get(name)
        if usual_s is None:
            if len(self._usual_s) >= MAX_USUAL:
                self._usual_s.clear()
            usual_s = first_byte_s
        most_s = 2 * usual_s
        new_s = first_byte_s if first_byte_s < most_s else most_s  # quicker than min()
        self._usual_s[name] = usual_s + (new_s - usual_s) * LEARNING

    def _is_slow(self, name: tuple[str, str, str], start_s: float) -> bool:
        """No start is slow while nothing is known."""
        return start_s > SLOW_S and start_s > SLOW_TIMES * self._usual_s.get(name, math.inf)

    def _close_probed(self, trial: Trial, now_s: float, head_start: int = 0) -> None:
        """The answer closes all that the trial went through, but what has closed meanwhile."""
        opened = [one for one in trial.probes if one.open]
        for breaker in opened:
            if breaker.reason == KEY_ASIDE:
                self.on_key(KeyNews(trial.channel, trial.key))
            breaker.open, breaker.probe = False, None
            breaker.clear(head_start)
            breaker.since_s = now_s
            if breaker.reason != KEY_ASIDE:
                trial.counted_by = breaker
        trial.probes = ()
        if trial.limited:
            self.trials.give_back(trial)
        if opened:
            trial.begun_s = now_s  # its end counts for the closed breakers
            if trial.counted_by is not None:
                trial.counted_by.count(trial, now_s)
            told = "circuit closed: channel=%s model=%s upstream_key=%d"
            log.warning(told, trial.channel.name, trial.model, trial.key + 1)

    def _breaker(self, name: BreakerName) -> Breaker:
        found = self.breakers.get(name)
        if found is None:
            if len(self.breakers) >= MAX_BREAKERS:
                self._make_room()
            found = self.breakers[name] = Breaker()
        return found

    def _make_room(self) -> None:
        kept = {n: b for n, b in self.breakers.items() if b.open}
        while len(kept) >= MAX_BREAKERS:
            del kept[next(iter(kept))]
        self.breakers = kept

    def _open(self, breaker: Breaker, now_s: float, reason: str, until_s: float = 0.0) -> None:
        if not breaker.open and now_s - breaker.since_s > FORGET_S:
            breaker.openings = 0
        if not until_s:
            first_s, most_s = COOLDOWN_S, COOLDOWN_MAX_S
            if reason == KEY_ASIDE:
                first_s, most_s = KEY_COOLDOWN_S, KEY_COOLDOWN_MAX_S
            cooldown_s = min(first_s * 2**breaker.openings, most_s)
            until_s = now_s + cooldown_s * (1 - JITTER * self._random())
            breaker.openings = min(breaker.openings + 1, MAX_DOUBLINGS)
        breaker.open, breaker.probe = True, None
        breaker.reason, breaker.until_s, breaker.since_s = reason, until_s, now_s
        breaker.clear()

    @staticmethod
    def _tell(trial: Trial, key: int, breaker: Breaker, now_s: float, why: str) -> None:
        told = "circuit opened for %.0f s: channel=%s model=%s upstream_key=%d cause=%s"
        wait_s = breaker.until_s - now_s
        log.warning(told, wait_s, trial.channel.name, trial.model, key + 1, why)


def _tell_nobody(news: KeyNews) -> None:
    """A Health whose keys are nobody's business, as that of a plan that is only shown."""


def _check_nothing(suspicion: Suspicion) -> bool:
    """Nobody makes calls of our own: another user's call has to confirm a refusal."""
    return False


def _reason_of(fault: Fault, silent_s: float) -> str:
    if fault.condition is Condition.UPSTREAM_RATE_LIMITED:
        return RATE_LIMITED
    late = fault.condition is Condition.UPSTREAM_TIMEOUT or silent_s >= SLOW_S
    return TIMING_OUT if late else FAILING


def _secret(channel: Channel, key: int) -> str:
    # By the key itself: a replaced one is another, with nothing against it.
    return channel.keys[key] if channel.keys else ""


def _key_name(channel: Channel, key: int) -> BreakerName:
    return (channel.id, _secret(channel, key))


def _model_name(channel: Channel, model: str, key: int) -> BreakerName:
    return (channel.id, model, _secret(channel, key))


def _usual_name(trial: Trial) -> tuple[str, str, str]:
    return trial.channel.id, trial.model, trial.kind


def _names(channel: Channel, model: str, key: int) -> Iterable[BreakerName]:
    return _key_name(channel, key), _model_name(channel, model, key)
