"""What this worker has learnt of channels from its own calls: which are worth asking now.

A breaker stands for a channel × model × upstream key, and one for a channel × upstream key alone,
for an account that is refused is refused for every model. Only those that have failed lately have
one, so that nothing is looked up while all is well. Sans-io: the clock (monotonic, s) and chance
are given. Nothing is stored but keys put aside: `on_key` tells of them, `take_keys_aside` takes in
what all workers have told.

Closed: calls pass; ROW faults (or slow starts) in a row, or RATE of the last WINDOW, open it.
Open: no call passes until the cool-down is over. Then exactly one call, the probe, shows whether it
closes or opens for longer. Slow channels are not left out, only asked last: a late answer is better
than none.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from adapters.faults import MAX_RETRY_AFTER_S, Condition, Fault
from store.catalog import Channel, Snapshot
from store.keys_aside import MAX_ASIDE_MS, KeyAside, KeyName

log = logging.getLogger("sluice.health")

ROW = 5  # faults in a row that open a breaker; fewer say nothing
WINDOW = 20  # results that the rate is taken of
RATE = 10  # of them, bad
WINDOW_S = 60.0  # silence after which older results do not count for the rate
COOL_S, COOL_MAX_S = 5.0, 60.0  # the first cool-down; each one that follows is twice as long
MAX_DOUBLINGS = 16
PROBE_S = 60.0  # a probe without an end for so long leaves its place to another one
KEY_COOL_S, KEY_COOL_MAX_S = 600.0, MAX_ASIDE_MS / 1000  # of an upstream key that was refused
JITTER = 0.25  # a cool-down is up to this part shorter, so that workers do not come back as one
FORGET_S = 300.0  # closed for so long, the next cool-down is the first one again
SLOW_S = 5.0  # no start below this is slow
SLOW_TIMES = 4.0  # else one that takes so many times the usual
LEARNING = 1 / 16  # weight of a new start in what is usual
MAX_BREAKERS = 20_000
MAX_USUAL = 50_000
MAX_TURNS = 50_000

FAILING = "failing"
SLOW = "slow"
RATE_LIMITED = "rate_limited"
TOLD_TO_WAIT = "told_to_wait"  # for another reason than a limit
KEY_ASIDE = "key_put_aside"
PROBED = "being_probed"

STREAM = "stream"  # begins with the first bytes of its answer
PLAIN = "plain"  # begins and ends when its answer is whole

_LAST_ROW = (1 << ROW) - 1
_LAST_WINDOW = (1 << WINDOW) - 1
_WAITS = frozenset(
    {
        Condition.UPSTREAM_RATE_LIMITED,
        Condition.UPSTREAM_FAILED,
        Condition.UPSTREAM_OVERLOADED,
    }
)

BreakerName = tuple[str, ...]


class Breaker(Struct, eq=False):
    """Results as bits, the newest lowest. `since_s`: when it opened or closed last."""

    failed: int = 0
    slow: int = 0
    open: bool = False
    probe: "Trial | None" = None  # the one that is running
    reason: str = ""
    until_s: float = 0.0
    since_s: float = float("-inf")
    last_s: float = float("-inf")
    openings: int = 0

    def is_probed(self, now_s: float) -> bool:
        """Whether its probe is running; one that hangs keeps no other call away for ever."""
        return self.probe is not None and now_s - self.probe.begun_s < PROBE_S


class Trial(Struct):
    """One attempt while it runs; `probes`: the breakers whose one probe it is."""

    channel: Channel
    model: str
    key: int  # position of the upstream key
    begun_s: float
    kind: str = STREAM  # its start is compared with those of its kind; "": with none
    probes: tuple[Breaker, ...] = ()
    started: bool = False  # the answer has begun
    slow: bool = False
    counted: bool = False  # as one that went well, when its answer began


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
        self._stored: Mapping[KeyName, KeyAside] = {}
        self.breakers: dict[BreakerName, Breaker] = {}
        self._turns: dict[str, int] = {}
        self._usual_s: dict[tuple[str, str, str], float] = {}  # until an answer began

    # ---- for the plan ----------------------------------------------------------------------------

    def turn(self, channel: Channel) -> int:
        """Position of the upstream key that is next; 0 for a channel without keys."""
        count = len(channel.keys)
        return self._turns.get(channel.id, 0) % count if count > 1 else 0

    def fault_of(self, channel: Channel, model: str, key: int, now_s: float) -> tuple[str, float]:
        """Why an upstream key of a channel is not to be asked, and for how many seconds.

        ("", 0) when it may be; a reason of SLOW means: after all others.
        """
        slow = ("", 0.0)
        for name in _names(channel, model, key):
            breaker = self.breakers.get(name)
            if breaker is None or not breaker.open:
                continue
            wait_s = max(0.0, breaker.until_s - now_s)
            if wait_s or breaker.is_probed(now_s):
                reason = breaker.reason if wait_s else PROBED
                if breaker.reason != SLOW:
                    return reason, wait_s
                slow = SLOW, wait_s
        return slow

    # ---- what all workers know ----------------------------------------------------------------

    def take_keys_aside(self, snapshot: Snapshot, now_s: float, now_ms: int) -> None:
        """Keys that the store says are aside, and no more those that it has said before.

        `now_ms`: the wall clock of now. However wrong it is, no key is aside for longer than
        KEY_COOL_MAX_S after its row was seen first.
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
                    left_s = min(max(0.0, (row.until_ms - now_ms) / 1000), KEY_COOL_MAX_S)
                    self._take_aside(_key_name(channel, key), now_s, left_s, row.times)

    def forget(self, channel: Channel) -> None:
        """The channel leads elsewhere now: only what is known of its keys still counts."""
        gone = [n for n, b in self.breakers.items() if n[0] == channel.id and b.reason != KEY_ASIDE]
        for name in gone:
            del self.breakers[name]

    def _take_aside(self, name: BreakerName, now_s: float, left_s: float, times: int) -> None:
        breaker = self._breaker(name, now_s)
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
        if len(channel.keys) > 1:
            if len(self._turns) >= MAX_TURNS:
                self._turns.clear()
            self._turns[channel.id] = key + 1
        trial = Trial(channel, model, key, now_s, kind)
        if self.breakers and not self._claim(trial, now_s):
            return None
        return trial

    def started(self, trial: Trial, now_s: float, first_byte_s: float) -> None:
        """The answer of a stream was accepted, so long after it was asked for.

        That is enough to close what the trial probes; how it ends is told by `succeeded` and
        `failed` all the same.
        """
        trial.started = True
        self._learn(trial, now_s, first_byte_s)
        if trial.probes:
            # It may still break off: then one fault is enough.
            self._close_probed(trial, now_s, failed=_LAST_ROW >> 1)
        else:
            # It counts now, not when it ends: new calls may fail for long by then.
            trial.counted = True
            if self.breakers and not trial.slow:
                self._count_well(trial, now_s)

    def late(self, trial: Trial, now_s: float) -> None:
        """The answer has not begun yet: if that is slow, it counts now, and once."""
        judged = trial.started or trial.slow or not trial.kind
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
        if not (trial.slow or trial.counted):
            self._count_well(trial, now_s)

    def failed(self, trial: Trial, now_s: float, fault: Fault, key_aside: str = "") -> None:
        """The attempt failed. `key_aside`: how the upstream refuses this key, whatever is asked.

        What the client caused counts as nothing.
        """
        if key_aside:
            self._put_key_aside(trial, now_s, key_aside)
        elif fault.retry_after_s is not None and fault.condition in _WAITS:
            self._obey(trial, now_s, fault)
        elif fault.blame != "client":
            self._count(trial, now_s, fault)
        self.release(trial)

    def release(self, trial: Trial) -> None:
        """The attempt is over and says nothing more; another call may be the probe. Idempotent."""
        for breaker in trial.probes:
            if breaker.probe is trial:
                breaker.probe = None
        trial.probes = ()

    # ---- inside ----------------------------------------------------------------------------------

    def _claim(self, trial: Trial, now_s: float) -> bool:
        for name in _names(trial.channel, trial.model, trial.key):
            breaker = self.breakers.get(name)
            if breaker is None or not breaker.open:
                continue
            if now_s >= breaker.until_s and not breaker.is_probed(now_s):
                breaker.probe = trial
                trial.probes += (breaker,)
            elif breaker.reason != SLOW:
                self.release(trial)
                return False
        return True

    def _put_key_aside(self, trial: Trial, now_s: float, reason: str) -> None:
        name = _key_name(trial.channel, trial.key)
        breaker = self._breaker(name, now_s)
        if self._may_judge(breaker, trial):
            self._open(breaker, now_s, KEY_ASIDE)
            wait_s, times = breaker.until_s - now_s, breaker.openings
            self.on_key(KeyNews(trial.channel, trial.key, wait_s, times, reason))

    def _obey(self, trial: Trial, now_s: float, fault: Fault) -> None:
        """The upstream says itself how long it is not to be asked."""
        assert fault.retry_after_s is not None
        until_s = now_s + min(fault.retry_after_s, MAX_RETRY_AFTER_S)
        breaker = self._breaker(_model_name(trial.channel, trial.model, trial.key), now_s)
        if breaker.open and breaker.probe is not trial:
            breaker.until_s = max(breaker.until_s, until_s)
        elif self._may_judge(breaker, trial):
            limited = fault.condition is Condition.UPSTREAM_RATE_LIMITED
            self._open(breaker, now_s, RATE_LIMITED if limited else TOLD_TO_WAIT, until_s)

    def _count_well(self, trial: Trial, now_s: float) -> None:
        name = _model_name(trial.channel, trial.model, trial.key)
        breaker = self.breakers.get(name)
        if breaker is None or breaker.open or trial.begun_s < breaker.since_s:
            return
        self._add(breaker, now_s, failed=0, slow=0)
        clean = not (breaker.failed or breaker.slow)
        if clean and now_s - breaker.since_s > FORGET_S:
            del self.breakers[name]

    def _count(self, trial: Trial, now_s: float, fault: Fault) -> None:
        channel, keys = trial.channel, [trial.key]
        if fault.condition is Condition.UPSTREAM_UNREACHABLE:
            keys = list(range(max(1, len(channel.keys))))  # no key was looked at
        for key in keys:
            breaker = self._breaker(_model_name(channel, trial.model, key), now_s)
            if not self._may_judge(breaker, trial):
                continue
            if trial.counted:
                breaker.failed |= breaker.failed + 1  # one that counted as well did not end so
            else:
                self._add(breaker, now_s, failed=1, slow=0)
            if breaker.open or _too_many(breaker.failed):
                self._open(breaker, now_s, FAILING)
                self._tell(trial, key, breaker, now_s, fault.code)

    def _note_slow(self, trial: Trial, now_s: float) -> None:
        trial.slow = True
        breaker = self._breaker(_model_name(trial.channel, trial.model, trial.key), now_s)
        if self._may_judge(breaker, trial):
            self._add(breaker, now_s, failed=0, slow=1)
            if breaker.open or _too_many(breaker.slow):
                self._open(breaker, now_s, SLOW)
                self._tell(trial, trial.key, breaker, now_s, "slow starts")
                self.release(trial)

    def _learn(self, trial: Trial, now_s: float, first_byte_s: float) -> None:
        """Slow is what is slow for this channel: some models think before they speak."""
        name = _usual_name(trial)
        teaches = True
        if self.breakers:
            breaker = self.breakers.get(_model_name(trial.channel, trial.model, trial.key))
            teaches = breaker is None or self._may_judge(breaker, trial)
        if not trial.slow and self._is_slow(name, first_byte_s):
            self._note_slow(trial, now_s)
        if not teaches:
            return
        usual_s = self._usual_s.get(name)
        if usual_s is None:
            if len(self._usual_s) >= MAX_USUAL:
                self._usual_s.clear()
            usual_s = first_byte_s
        self._usual_s[name] = usual_s + (min(first_byte_s, 2 * usual_s) - usual_s) * LEARNING

    def _is_slow(self, name: tuple[str, str, str], start_s: float) -> bool:
        """No start is slow while nothing is known."""
        return start_s > SLOW_S and start_s > SLOW_TIMES * self._usual_s.get(name, math.inf)

    def _close_probed(self, trial: Trial, now_s: float, failed: int = 0) -> None:
        for breaker in trial.probes:
            if breaker.reason == KEY_ASIDE:
                self.on_key(KeyNews(trial.channel, trial.key))
            breaker.open, breaker.probe = False, None
            breaker.failed, breaker.slow = failed, 0
            breaker.since_s = now_s
        trial.probes = ()
        trial.begun_s = now_s  # its end counts for the closed breaker
        told = "channel %s answers again for model %s"
        log.warning(told, trial.channel.name, trial.model)

    def _breaker(self, name: BreakerName, now_s: float) -> Breaker:
        found = self.breakers.get(name)
        if found is None:
            if len(self.breakers) >= MAX_BREAKERS:
                self._make_room(now_s)
            found = self.breakers[name] = Breaker()
        return found

    def _make_room(self, now_s: float) -> None:
        kept = {n: b for n, b in self.breakers.items() if b.open and b.until_s > now_s}
        while len(kept) >= MAX_BREAKERS:
            del kept[next(iter(kept))]
        self.breakers = kept

    @staticmethod
    def _may_judge(breaker: Breaker, trial: Trial) -> bool:
        """An open breaker is judged by its probe alone, and never by calls of an earlier state."""
        return breaker.probe is trial if breaker.open else trial.begun_s >= breaker.since_s

    @staticmethod
    def _add(breaker: Breaker, now_s: float, *, failed: int, slow: int) -> None:
        mask = _LAST_WINDOW if now_s - breaker.last_s <= WINDOW_S else _LAST_ROW
        breaker.failed = (breaker.failed << 1 | failed) & mask
        breaker.slow = (breaker.slow << 1 | slow) & mask
        breaker.last_s = now_s

    def _open(self, breaker: Breaker, now_s: float, reason: str, until_s: float = 0.0) -> None:
        if not breaker.open and now_s - breaker.since_s > FORGET_S:
            breaker.openings = 0
        if not until_s:
            first_s, most_s = COOL_S, COOL_MAX_S
            if reason == KEY_ASIDE:
                first_s, most_s = KEY_COOL_S, KEY_COOL_MAX_S
            cool_s = min(first_s * 2**breaker.openings, most_s)
            until_s = now_s + cool_s * (1 - JITTER * self._random())
            breaker.openings = min(breaker.openings + 1, MAX_DOUBLINGS)
        breaker.open, breaker.probe = True, None
        breaker.reason, breaker.until_s, breaker.since_s = reason, until_s, now_s
        breaker.failed = breaker.slow = 0

    @staticmethod
    def _tell(trial: Trial, key: int, breaker: Breaker, now_s: float, why: str) -> None:
        told = "channel %s, model %s, upstream key %d is left alone for %.0f s: %s"
        wait_s = breaker.until_s - now_s
        log.warning(told, trial.channel.name, trial.model, key + 1, wait_s, why)


def _tell_nobody(news: KeyNews) -> None:
    """A Health whose keys are nobody's business, as that of a plan that is only shown."""


def _too_many(bits: int) -> bool:
    return bits & _LAST_ROW == _LAST_ROW or bits.bit_count() >= RATE


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
