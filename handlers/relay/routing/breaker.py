"""Circuit breakers of one worker: the calls that they count, the conditions that open them, their
cool-downs.

Calls are counted by their start, since failures end first: if eight of forty concurrent calls fail,
the first eight to end are failures, but their share is a fifth. Sans-io. Times are of a monotonic
clock, in s. Imported by health.py and the files beside it.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from store.catalog.catalog import Channel, Snapshot
from store.catalog.suspended_keys import MAX_SUSPENDED_MS
from store.channels.breakers import Breaker as StoredBreaker
from store.channels.breakers import Name, Open

CONSECUTIVE_FAULTS = 5  # open the circuit while the window has fewer than MIN_WINDOW_CALLS
MIN_WINDOW_CALLS = 20  # calls in a window from which its share of failures counts
MAX_CONSECUTIVE_FAULTS = 10  # open the circuit, however many calls there are
FAILED_SHARE = 2  # the circuit opens if one in this many calls of the window failed
WINDOW_S = 10.0  # two windows count: the current one and the one before
SILENCE_S = 60.0  # time without calls after which older starts no longer count
MAX_SLOW_STARTS = 10  # of the last MIN_WINDOW_CALLS

COOLDOWN_S, COOLDOWN_MAX_S = 5.0, 60.0  # the first and the longest; each is twice the one before
KEY_COOLDOWN_S, KEY_COOLDOWN_MAX_S = 600.0, MAX_SUSPENDED_MS / 1000  # of a refused upstream key
MAX_DOUBLINGS = 16
JITTER = 0.25  # a cool-down is shortened by up to this part, so that workers do not probe at once
MAX_BREAKERS = 20_000
STORED_MAX = 1000  # open circuits of a worker
FORGET_S = 300.0  # time closed after which the next cool-down is the first one again

# Reasons for an open circuit.
FAILING = "failing"
TIMING_OUT = "timing_out"
SLOW = "slow"
RATE_LIMITED = "rate_limited"
RETRY_AFTER = "retry_after"  # for another reason than a limit
KEY_SUSPENDED = "key_suspended"
PROBED = "being_probed"

STREAM = "stream"  # the answer starts with its first bytes
PLAIN = "plain"  # the answer starts and ends when it is complete

BreakerName = tuple[str, ...]
"""(channel's id, secret of the upstream key), or (channel's id, model, secret)."""

_CONSECUTIVE_MASK = (1 << CONSECUTIVE_FAULTS) - 1
_WINDOW_MASK = (1 << MIN_WINDOW_CALLS) - 1


class AttemptHealth(Struct, eq=False):
    """One attempt while it runs. `probes`: the open breakers that it passes through."""

    channel: Channel
    model: str
    key: int  # position of the upstream key
    begun_s: float
    kind: str = STREAM  # its start is compared with those of its kind; "": with none
    probes: "tuple[Breaker, ...]" = ()
    counted_by: "Breaker | None" = None  # a closed breaker
    slow: bool = False
    failed: bool = False
    succeeded_at_s: float | None = None  # when its answer started, or was complete
    limited: bool = False  # it holds one of the slots of last resorts


class Breaker(Struct, eq=False):
    """A circuit breaker: closed, or open until `until_s`, then half-open. `since_s`: the time of
    its last change between open and closed."""

    open: bool = False
    probe: AttemptHealth | None = None  # the running probe
    reason: str = ""
    until_s: float = 0.0
    since_s: float = -math.inf
    openings: int = 0
    good: int = 0  # successful calls since the last failure
    head_start: int = 0  # faults added to the count until a call after the probe succeeds
    slow: int = 0  # one bit for each start, 1 if slow; the newest is the lowest
    slow_s: float = -math.inf  # time of the newest start
    window_s: float = -math.inf  # start of the current window
    calls: int = 0
    failed: int = 0
    calls_before: int = 0
    failed_before: int = 0
    recent: deque[AttemptHealth] = field(default_factory=lambda: deque(maxlen=MIN_WINDOW_CALLS))

    def trip(self, now_s: float, reason: str, random: Callable[[], float]) -> None:
        """Open for a cool-down twice as long as the one before."""
        if not self.open and now_s - self.since_s > FORGET_S:
            self.openings = 0
        first_s, most_s = COOLDOWN_S, COOLDOWN_MAX_S
        if reason == KEY_SUSPENDED:
            first_s, most_s = KEY_COOLDOWN_S, KEY_COOLDOWN_MAX_S
        cooldown_s = min(first_s * 2**self.openings, most_s)
        until_s = now_s + cooldown_s * (1 - JITTER * random())
        self.openings = min(self.openings + 1, MAX_DOUBLINGS)
        self._open_until(now_s, reason, until_s)

    def trip_until(self, now_s: float, reason: str, until_s: float) -> None:
        """Open until the time that the upstream asked for. The next cool-down does not grow."""
        if not self.open and now_s - self.since_s > FORGET_S:
            self.openings = 0
        self._open_until(now_s, reason, until_s)

    def _open_until(self, now_s: float, reason: str, until_s: float) -> None:
        self.open, self.probe = True, None
        self.reason, self.until_s, self.since_s = reason, until_s, now_s
        self.clear()

    def is_probed(self, now_s: float, patience_s: float) -> bool:
        """Return whether a probe is running. After `patience_s` it gives way to another one."""
        return self.probe is not None and now_s - self.probe.begun_s < patience_s

    def judges(self, attempt: AttemptHealth) -> bool:
        """Return whether the attempt counts: for an open breaker only its own probes do, for a
        closed one the attempts that started since it closed."""
        return self in attempt.probes if self.open else attempt.begun_s >= self.since_s

    def count(self, attempt: AttemptHealth, now_s: float) -> None:
        """Count a call that starts or is in flight. For a closed breaker."""
        self._roll_windows(now_s)
        if attempt.begun_s > now_s - WINDOW_S:
            self.calls += 1
        self.recent.append(attempt)

    def drop(self, attempt: AttemptHealth) -> None:
        """Stop counting a call, which ended without a result."""
        if attempt.begun_s >= self.window_s:
            self.calls = max(0, self.calls - 1)
        elif attempt.begun_s >= self.window_s - WINDOW_S:
            self.calls_before = max(0, self.calls_before - 1)
        if attempt in self.recent:
            self.recent.remove(attempt)

    def fail(self, attempt: AttemptHealth, now_s: float) -> None:
        """Count the fault of a counted call."""
        self._roll_windows(now_s)
        self.good = 0
        if attempt.begun_s >= self.window_s:
            self.failed += 1
        else:
            self.failed_before += 1
            if attempt.begun_s < self.window_s - WINDOW_S:
                self.calls_before += 1  # it was counted in an older window

    def note_start(self, now_s: float, *, slow: bool) -> None:
        """Note that an answer has started, or is late."""
        mask = _WINDOW_MASK if now_s - self.slow_s <= SILENCE_S else _CONSECUTIVE_MASK
        self.slow = (self.slow << 1 | slow) & mask
        self.slow_s = now_s

    @property
    def too_slow(self) -> bool:
        """True if too many answers started late."""
        return (
            self.slow & _CONSECUTIVE_MASK == _CONSECUTIVE_MASK
            or self.slow.bit_count() >= MAX_SLOW_STARTS
        )

    @property
    def too_many_faults(self) -> bool:
        """True if too many calls failed."""
        consecutive = self._consecutive_faults()
        calls, failed = self.calls + self.calls_before, self.failed + self.failed_before
        if calls < MIN_WINDOW_CALLS:
            return consecutive >= CONSECUTIVE_FAULTS
        return consecutive >= MAX_CONSECUTIVE_FAULTS or failed * FAILED_SHARE >= calls

    @property
    def is_clean(self) -> bool:
        """True if the last calls all succeeded."""
        return self.good >= MIN_WINDOW_CALLS and not self.slow

    def clear(self, head_start: int = 0) -> None:
        self.calls = self.failed = self.calls_before = self.failed_before = self.slow = 0
        self.good, self.head_start = 0, head_start
        self.recent.clear()

    def _roll_windows(self, now_s: float) -> None:
        if now_s < self.window_s + WINDOW_S:
            return
        follows = now_s < self.window_s + 2 * WINDOW_S
        self.calls_before, self.failed_before = (self.calls, self.failed) if follows else (0, 0)
        self.window_s = self.window_s + WINDOW_S if follows else now_s
        self.calls = self.failed = 0

    def _consecutive_faults(self) -> int:
        """Return the number of consecutive faults, in the order in which the calls started. 0 while
        a call that started before them is in flight, since it may succeed. Faults of calls that
        started before an older call's success was seen do not count."""
        faults_s: list[float] = []
        ended, succeeded_at_s = False, -math.inf
        for attempt in reversed(self.recent):
            if attempt.failed:
                if not ended:
                    faults_s.append(attempt.begun_s)
            elif attempt.succeeded_at_s is not None:
                ended = True
                succeeded_at_s = max(succeeded_at_s, attempt.succeeded_at_s)
            elif faults_s:
                return 0
        return self.head_start + sum(begun_s >= succeeded_at_s for begun_s in faults_s)


class Breakers(dict[BreakerName, Breaker]):
    """The breakers of one worker, only for channels and keys that failed lately."""

    def named(self, name: BreakerName) -> Breaker:
        """Return the breaker of a name, a new one if there is none."""
        breaker = self.get(name)
        if breaker is None:
            if len(self) >= MAX_BREAKERS:
                self._evict()
            breaker = self[name] = Breaker()
        return breaker

    def _evict(self) -> None:
        """Forget the closed breakers and, if all are open, the oldest."""
        for name in [name for name, breaker in self.items() if not breaker.open]:
            del self[name]
        while len(self) >= MAX_BREAKERS:
            del self[next(iter(self))]


def secret_of(channel: Channel, key: int) -> str:
    """Return the upstream key itself, "" for a channel without keys. A replacement is another key,
    so its circuit is closed."""
    return channel.keys[key] if channel.keys else ""


def key_name(channel: Channel, key: int) -> BreakerName:
    """Return the name of an upstream key's breaker for all models."""
    return (channel.id, secret_of(channel, key))


def model_name(channel: Channel, model: str, key: int) -> BreakerName:
    """Return the name of an upstream key's breaker for a model."""
    return (channel.id, model, secret_of(channel, key))


def names_of(channel: Channel, model: str, key: int) -> Iterable[BreakerName]:
    """Return the names of the two breakers that a call passes through."""
    return key_name(channel, key), model_name(channel, model, key)


class OpenBreakers:
    """A worker's open circuits as the store holds them, without secrets. Times are of the monotonic
    clock; the writer converts them to the database's. Updated once a second on the loop. The
    writer's thread takes the newest state."""

    def __init__(self, breakers: Breakers) -> None:
        self.rows: Mapping[Name, Open] = {}
        """The newest state; replaced, never changed."""
        self._breakers = breakers
        self._since_ms: dict[BreakerName, int] = {}

    def update(self, snapshot: Snapshot) -> None:
        if not (self._breakers or self.rows):
            return
        channels = {channel.id: channel for channel in snapshot.channels}
        rows: dict[Name, Open] = {}
        since_ms: dict[BreakerName, int] = {}
        for name, breaker in self._breakers.items():
            channel = channels.get(name[0])
            if not breaker.open or channel is None or len(rows) >= STORED_MAX:
                continue
            fingerprint = _fingerprint(channel, name[-1])
            if fingerprint is None:
                continue
            # A failed probe opens it again; the time of the first opening is shown.
            since_ms[name] = self._since_ms.get(name) or _ms(breaker.since_s)
            model = name[1] if len(name) == 3 else ""
            until_ms = _ms(breaker.until_s)
            rows[channel.id, model, fingerprint] = (breaker.reason, since_ms[name], until_ms)
        self.rows, self._since_ms = rows, since_ms


def _ms(at_s: float) -> int:
    return round(at_s * 1000)


def restore(
    breakers: Breakers, snapshot: Snapshot, stored: Iterable[StoredBreaker], now_s: float
) -> None:
    """Open, for display, the circuits that workers have stored as open. If several workers have one
    for the same key, the one that stays open longest counts. `now_s`: when the snapshot was
    read."""
    channels = {channel.id: channel for channel in snapshot.channels}
    for row in sorted(stored, key=lambda row: row.until_ms):
        channel = channels.get(row.channel_id)
        if channel is None or row.fingerprint not in (channel.fingerprints or ("",)):
            continue
        fingerprints = channel.fingerprints
        secret = channel.keys[fingerprints.index(row.fingerprint)] if fingerprints else ""
        name = (row.channel_id, row.model, secret) if row.model else (row.channel_id, secret)
        until_s = now_s + (row.until_ms - snapshot.read_ms) / 1000
        breaker = breakers.get(name)
        if breaker is None or breaker.until_s < until_s:
            breakers[name] = Breaker(
                open=True, reason=row.reason, until_s=until_s, since_s=-math.inf
            )


def _fingerprint(channel: Channel, secret: str) -> str | None:
    """Return the fingerprint of an upstream key; None if the channel no longer has the key."""
    if not secret:
        return ""
    if secret in channel.keys:
        return channel.fingerprints[channel.keys.index(secret)]
    return None
