"""The circuit breakers of one worker: what its own calls say of channels and upstream keys.

There is a breaker for each channel × model × upstream key, and one for each channel × upstream key
alone, since a refused account is refused for every model. Only those exist that have failed lately:
nothing is looked up while all is well.

Closed: calls pass; too many faults or slow starts open it (breaker.py). Open: no call passes until
the cool-down is over. Half-open: exactly one call, the probe, closes it or opens it for longer.
Slow channels are not left out but asked last: a late answer is better than none. When the circuits
of all candidates of a call are open, the least bad one is asked all the same (Planner.last_resort,
`begin_anyway`): by every call when it fails quickly, by a few at a time when it hangs or limits us
(last_resort.py). Any answer closes its circuit.

Sans-io: the clock (monotonic, s) and chance are given. Refused keys are shared with all workers:
`on_key` reports them, `take_keys_aside` takes in what others have reported. `on_suspect` asks for a
check of a key that was refused to one caller (suspects.py), `key_checked` gets its result.
`running` names the attempts in flight.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from adapters.faults import MAX_RETRY_AFTER_S, Condition, Fault
from handlers.relay.routing.breaker import (
    FAILING,
    FORGET_S,
    KEY_ASIDE,
    KEY_COOLDOWN_MAX_S,
    PLAIN,
    PROBED,
    RATE_LIMITED,
    ROW,
    SLOW,
    STREAM,
    TIMING_OUT,
    TOLD_TO_WAIT,
    Breaker,
    BreakerName,
    Trial,
    key_name,
    model_name,
    names_of,
    secret_of,
)
from handlers.relay.routing.last_resort import HELD_BACK, LastResorts
from handlers.relay.routing.start_times import SLOW_S, StartTimes
from handlers.relay.routing.suspects import Refusal, Suspect, Suspicion
from store.catalog.catalog import Channel, Snapshot
from store.catalog.keys_aside import KeyAside, KeyName

log = logging.getLogger("sluice.health")

PROBE_S = 60.0  # after which a probe without an end gives way to another one
KEY_CHECK_S = 15.0  # for which a refused key stays open while it is checked
MAX_BREAKERS = 20_000
MAX_TURNS = 50_000
MAX_SUSPECTS = 10_000

_LAST_OF_ROW = ROW - 1
_WAITS = frozenset(
    {
        Condition.UPSTREAM_RATE_LIMITED,
        Condition.UPSTREAM_FAILED,
        Condition.UPSTREAM_OVERLOADED,
    }
)


class KeyNews(Struct, frozen=True):
    """An upstream key was refused, its circuit is open for `wait_s`; None: it answers again."""

    channel: Channel
    key: int
    wait_s: float | None = None
    times: int = 0
    reason: str = ""


class Health:
    """Breakers, and whose turn it is among a channel's upstream keys."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self.on_key: Callable[[KeyNews], None] = _tell_nobody
        self.on_suspect: Callable[[Suspicion], bool] = _check_nothing
        self.running: Callable[[], Iterable[Trial]] = tuple
        self._stored: Mapping[KeyName, KeyAside] = {}
        self.breakers: dict[BreakerName, Breaker] = {}
        self._suspects: dict[BreakerName, Suspect] = {}
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

    # ---- what all workers know ----------------------------------------------------------------

    def take_keys_aside(self, snapshot: Snapshot, now_s: float, now_ms: int) -> None:
        """Opens the circuits of the keys that the store lists, closes those it lists no more.

        `now_ms`: the database's clock. However wrong it is, no circuit stays open for longer than
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
                    self._take_back(key_name(channel, key))
                elif row is not None and row != before.get(name):
                    left_s = min(max(0.0, (row.until_ms - now_ms) / 1000), KEY_COOLDOWN_MAX_S)
                    self._take_aside(key_name(channel, key), now_s, left_s, row.times)

    def forget(self, channel: Channel) -> None:
        """The channel leads elsewhere now: only the circuits of its keys stay as they are."""
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
        if KEY_ASIDE in reasons:
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
            self._refused(trial, now_s, fault, refusal)
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

    def key_checked(self, suspicion: Suspicion, now_s: float, refused: bool | None) -> None:
        """The result of a check: whether the key is refused to us, too; None: it could not tell."""
        channel, key = suspicion.channel, suspicion.key
        name = key_name(channel, key)
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

    def _refused(self, trial: Trial, now_s: float, fault: Fault, refusal: Refusal) -> None:
        """This call avoids the key. All calls do when the refusal is known to be about the key."""
        channel, key = trial.channel, trial.key
        name = key_name(channel, key)
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
            if breaker.open:  # the check is the only probe
                breaker.until_s = now_s + KEY_CHECK_S
            suspicion = Suspicion(channel, key, trial.model, refusal.about, refusal.reason)
            if not self.on_suspect(suspicion):
                self.key_checked(suspicion, now_s, None)

    def _put_aside(self, channel: Channel, key: int, now_s: float, reason: str) -> None:
        name = key_name(channel, key)
        breaker = self._breaker(name)
        self._suspects.pop(name, None)
        breaker.trip(now_s, KEY_ASIDE, self._random)
        self.on_key(KeyNews(channel, key, breaker.until_s - now_s, breaker.openings, reason))

    def _obey(self, trial: Trial, now_s: float, fault: Fault) -> None:
        """The upstream says how long to wait."""
        assert fault.retry_after_s is not None
        until_s = now_s + min(fault.retry_after_s, MAX_RETRY_AFTER_S)
        breaker = self._breaker(model_name(trial.channel, trial.model, trial.key))
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
        if self._suspects:
            self._clear(key_name(trial.channel, trial.key), now_s)
        if breaker is None or breaker.open or not breaker.judges(trial):
            return
        breaker.head_start = 0
        breaker.good += 1
        breaker.note_start(now_s, slow=False)
        if breaker.is_clean and now_s - breaker.since_s > FORGET_S:
            self.breakers.pop(model_name(trial.channel, trial.model, trial.key), None)

    def _clear(self, name: BreakerName, now_s: float) -> None:
        """A call with the key has gone well."""
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
        """A breaker's attempts whose outcome is open."""
        channel_id, model, secret = name
        for one in self.running():
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
            if breaker.reason == KEY_ASIDE:
                self.on_key(KeyNews(trial.channel, trial.key))
            breaker.open, breaker.probe = False, None
            breaker.clear(head_start)
            breaker.since_s = now_s
            if breaker.reason != KEY_ASIDE:
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

    @staticmethod
    def _tell(trial: Trial, key: int, breaker: Breaker, now_s: float, why: str) -> None:
        told = "circuit opened for %.0f s: channel=%s model=%s upstream_key=%d cause=%s"
        wait_s = breaker.until_s - now_s
        log.warning(told, wait_s, trial.channel.name, trial.model, key + 1, why)


def _tell_nobody(news: KeyNews) -> None:
    """For plans that are only shown: refused keys are not reported."""


def _check_nothing(suspicion: Suspicion) -> bool:
    """No checks: another user's call has to confirm a refusal."""
    return False


def _reason_of(fault: Fault, silent_s: float) -> str:
    if fault.condition is Condition.UPSTREAM_RATE_LIMITED:
        return RATE_LIMITED
    late = fault.condition is Condition.UPSTREAM_TIMEOUT or silent_s >= SLOW_S
    return TIMING_OUT if late else FAILING
