"""Token buckets and concurrency slots that all workers of a node share.

Every worker maps one memory file of the supervisor. A subject (a key, a channel) has a row with two
GCRA cells, for requests and for tokens, and the number of its calls in flight in each worker's
column. A cell is the time in nanoseconds at which its bucket is full again. A byte-range lock of
the file protects reads and writes; the kernel frees it when its holder is killed. Only the worker
itself writes to its column. A second byte-range lock, held for the life of the process, shows that
the worker is alive: `sweep` empties the columns of dead workers. Belongs to one event loop; does
not know calls.

Memory rather than a file in the journal's folder: a full disk would kill any process that writes to
the map.
"""

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

ROWS = 65536  # roughly the number of subjects with limits that can be busy in the same minute
COLUMNS = 512  # workers, including those that drain after a reload
WINDOW_ROWS = 16  # rows that are searched for a subject, starting at its hash
MINUTE_NS = 60_000_000_000
MAX_DEBT_NS = 60 * MINUTE_NS  # for tokens beyond the limit, so that no report locks a key for days
LOCK_WAIT_S = 0.1  # a holder needs microseconds; one that takes this long was stopped
LOCK_SPINS = 50
LOCK_PAUSE_S = 0.0002

_MAGIC = int.from_bytes(b"slimits2")
_HEADER_BYTES = 8192
_MAGIC_AT, _ROWS_AT, _WIDTH_AT, _USED_AT, _OWNED_AT = 0, 1, 2, 3, 16  # words of the header
_SAVED = struct.Struct("<qqq")  # header of a file: magic, rows, wall clock - monotonic clock in ns
_ROW_WORDS = 3  # tag, requests, tokens
_COUNT_BYTES = 4
_TABLE_LOCK, _COLUMN_LOCKS = 0, 1  # bytes of the file that are locked, one for each column


class IncompatibleMemory(Exception):
    """An error for memory that cannot be shared: another version, or more workers than columns."""


class Claim(Struct, eq=False, gc=False):
    """A subject and its limits, and this node's share of them, rounded up. 0 means no limit. Reuse
    a claim with one `SharedCells`, since it remembers its row. `each_ns`: the time that one request
    takes from the bucket. `tag` and `row`: the last known row."""

    subject: str
    rpm: int
    tpm: int
    concurrency: int
    nodes: int = 1
    share_rpm: int = 0
    share_tpm: int = 0
    share_concurrency: int = 0
    each_ns: int = 0
    tag: int = 0
    row: int = -1

    def __post_init__(self) -> None:
        self.share_rpm = -(-self.rpm // self.nodes)
        self.share_tpm = -(-self.tpm // self.nodes)
        self.share_concurrency = -(-self.concurrency // self.nodes)
        # Rounded up, so that fewer requests pass.
        self.each_ns = -(-MINUTE_NS // self.share_rpm) if self.rpm else 0


class Reservation(Struct, gc=False):
    """A call's part of one row, and the state of its buckets afterwards. `row` -1: this node has no
    row. `requests_ns` and `tokens_ns`: the time until the buckets are full again."""

    claim: Claim
    row: int
    reserved_ns: int
    requests_ns: int
    tokens_ns: int


class Slots(Struct):
    """A call's parts of all its rows, until it leaves. `everywhere`: the counts of all nodes, if
    the call is counted there."""

    reservations: list[Reservation]
    of_tokens: bool = False  # the tokens used must be settled
    left: bool = False
    everywhere: "Everywhere | None" = None


class Everywhere(Protocol):
    """Counts of all nodes, to which slots are returned in addition to this node's counts."""

    def leave(self, slots: Slots, used_tokens: int | None) -> None: ...


LimitKind = Literal["requests", "tokens", "calls"]


class LimitRefusal(Struct, frozen=True):
    """The limit that stops a call. `wait_ns` None: until another call ends. The buckets are as in
    Reservation."""

    claim: Claim
    kind: LimitKind
    wait_ns: int | None
    requests_ns: int
    tokens_ns: int


class SharedCells:
    """Cells in a memory file, given by its descriptor. Raises IncompatibleMemory, OSError. Nothing
    else in the process may open and close the file, which would free its locks. `saved`: the file
    that keeps the buckets while no worker runs, so that a restart does not refill them."""

    def __init__(self, descriptor: int, rows: int = ROWS, saved: Path | None = None) -> None:
        self._file = descriptor
        self._saved = saved
        self._rows = rows
        self._uncounted = 0
        self._unlocked = 0
        size = _HEADER_BYTES + 8 * _ROW_WORDS * rows + _COUNT_BYTES * COLUMNS * rows
        self._lock()
        try:
            fresh = os.fstat(descriptor).st_size == 0
            if fresh:
                os.ftruncate(descriptor, size)
            elif os.fstat(descriptor).st_size != size:
                raise IncompatibleMemory("the limits' memory has another size")
            self._map_memory(size)
            if fresh:
                self._header[_MAGIC_AT], self._header[_ROWS_AT] = _MAGIC, rows
                self._load()
            elif (self._header[_MAGIC_AT], self._header[_ROWS_AT]) != (_MAGIC, rows):
                raise IncompatibleMemory("the limits' memory is of another version")
            self._column = self._take_column()
        finally:
            self._unlock()

    def _map_memory(self, size: int) -> None:
        view = memoryview(mmap.mmap(self._file, size))
        counts_at = _HEADER_BYTES + 8 * _ROW_WORDS * self._rows
        self._header = view[:_HEADER_BYTES].cast("q")
        self._cells = view[_HEADER_BYTES:counts_at].cast("q")
        self._counts = view[counts_at:].cast("I")

    def _take_column(self) -> int:
        for column in range(COLUMNS):
            if self._lock_column(column):
                self._empty(column)
                self._header[_OWNED_AT + column] = os.getpid()
                self._header[_WIDTH_AT] = max(self._header[_WIDTH_AT], column + 1)
                return column
        raise IncompatibleMemory(f"more than {COLUMNS} workers share the limits' memory")

    def _lock_column(self, column: int) -> bool:
        """Take a column. Return False if it belongs to a living worker."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _COLUMN_LOCKS + column)
        except BlockingIOError:
            return False
        return True

    def _empty(self, column: int) -> None:
        begin = column * self._rows
        self._counts[begin : begin + self._rows] = memoryview(
            bytes(_COUNT_BYTES * self._rows)
        ).cast("I")

    def _lock(self) -> None:
        """Take the lock, or continue without it if its holder was stopped. A limit that is wrong by
        one call is better than a blocked loop."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _TABLE_LOCK)
        except BlockingIOError:
            self._wait_for_lock()

    def _wait_for_lock(self) -> None:
        deadline, spins = time.monotonic() + LOCK_WAIT_S, 0
        while time.monotonic() < deadline:
            spins += 1
            if spins < LOCK_SPINS:
                os.sched_yield()
            else:
                time.sleep(LOCK_PAUSE_S)
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _TABLE_LOCK)
            except BlockingIOError:
                continue
            return
        self._unlocked += 1

    def _unlock(self) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _TABLE_LOCK)

    def enter(
        self, claims: Sequence[Claim], tokens: int = 0, least: int = 0
    ) -> Slots | LimitRefusal:
        """Take a call's part of all claims, or nothing. A refusal names the limit with the longest
        wait. If a limit has fewer than `tokens` left, the remainder is reserved, unless it is less
        than `least`. Both are capped by the limit. A `least` beyond the node's share waits until
        the whole share is free."""
        self._lock()
        try:
            now_ns = time.monotonic_ns()
            reservations: list[Reservation] = []
            worst: LimitRefusal | None = None
            for claim in claims:
                row_known = claim.row >= 0 and self._cells[claim.row * _ROW_WORDS] == claim.tag
                if not (row_known or self._find(claim, now_ns, reservations)):
                    self._uncounted += 1
                    continue
                judged = self._judge(claim, tokens, least, now_ns)
                if isinstance(judged, Reservation):
                    reservations.append(judged)
                elif worst is None or (judged.wait_ns or 0) > (worst.wait_ns or 0):
                    worst = judged
            if worst is not None:
                return worst
            of_tokens = False
            for reservation in reservations:
                self._commit(reservation, now_ns)
                of_tokens = of_tokens or reservation.claim.tpm > 0
        finally:
            self._unlock()
        return Slots(reservations, of_tokens)

    def _judge(
        self, claim: Claim, tokens: int, least: int, now_ns: int
    ) -> Reservation | LimitRefusal:
        """Return a call's part of a claim's row, or the limit that stops it. Changes nothing."""
        cells, row, each_ns = self._cells, claim.row, claim.each_ns
        at = row * _ROW_WORDS
        # Comparisons instead of max and min: this runs for every call.
        requests_ns, tokens_ns = cells[at + 1] - now_ns, cells[at + 2] - now_ns
        requests_ns = requests_ns if requests_ns > 0 else 0
        tokens_ns = tokens_ns if tokens_ns > 0 else 0
        reserved_ns = wait_ns = 0
        kind: LimitKind | None = None
        if claim.concurrency and self._running(row) >= claim.share_concurrency:
            kind = "calls"
        if each_ns and (over_ns := requests_ns + each_ns - each_ns * claim.share_rpm) > 0:
            kind, wait_ns = "requests", over_ns
        if tokens and claim.tpm:
            reserved_ns, room_ns = tokens * MINUTE_NS // claim.share_tpm, MINUTE_NS - tokens_ns
            if reserved_ns > room_ns:
                least_ns = min(least * MINUTE_NS // claim.share_tpm, reserved_ns)
                over_ns = min(least_ns, MINUTE_NS) - room_ns
                if over_ns > wait_ns:
                    kind, wait_ns = "tokens", over_ns
                # More than a full share, but within the limit: the share goes into debt.
                reserved_ns = max(room_ns, min(least_ns, MINUTE_NS * claim.nodes))
        if kind is not None:
            return LimitRefusal(claim, kind, wait_ns or None, requests_ns, tokens_ns)
        return Reservation(claim, row, reserved_ns, requests_ns + each_ns, tokens_ns + reserved_ns)

    def _commit(self, reservation: Reservation, now_ns: int) -> None:
        cells, at = self._cells, reservation.row * _ROW_WORDS
        # The count comes first: a row with a count is not given to another subject.
        self._counts[self._column * self._rows + reservation.row] += 1
        if reservation.claim.rpm:
            cells[at + 1] = now_ns + reservation.requests_ns
        if reservation.reserved_ns:
            cells[at + 2] = now_ns + reservation.tokens_ns

    def follow(self, reservations: Sequence[Reservation]) -> None:
        """Count on this node, too, what the cells of all nodes let through, so that this node can
        continue from there while they are unavailable. Sets each reservation's row, if there is
        one."""
        self._lock()
        try:
            now_ns, cells = time.monotonic_ns(), self._cells
            for number, reservation in enumerate(reservations):
                claim = reservation.claim
                at = claim.row * _ROW_WORDS
                if not (at >= 0 and cells[at] == claim.tag):
                    if not self._find(claim, now_ns, reservations[:number]):
                        continue
                    at = claim.row * _ROW_WORDS
                reservation.row = claim.row
                self._counts[self._column * self._rows + claim.row] += 1
                cells[at + 1] = _beside(
                    cells[at + 1] + claim.each_ns, now_ns + reservation.requests_ns
                )
                cells[at + 2] = _beside(
                    cells[at + 2] + reservation.reserved_ns, now_ns + reservation.tokens_ns
                )
        finally:
            self._unlock()

    def state(self, claim: Claim) -> tuple[int, int, int]:
        """Return the nanoseconds until a claim's buckets of requests and of tokens are full again,
        and its calls in flight."""
        self._lock()
        try:
            now_ns = time.monotonic_ns()
            if not self._find(claim, now_ns, ()):
                return 0, 0, 0
            at = claim.row * _ROW_WORDS
            requests_ns, tokens_ns = (max(0, self._cells[at + n] - now_ns) for n in (1, 2))
            return requests_ns, tokens_ns, self._running(claim.row)
        finally:
            self._unlock()

    def leave(self, slots: Slots, used_tokens: int | None) -> None:
        """Return slots and settle the tokens used. None: undo, as if there had been no call.
        Idempotent."""
        if slots.left:
            return
        slots.left = True
        if used_tokens is None or slots.of_tokens:
            self._lock()
            try:
                now_ns = time.monotonic_ns()
                for reservation in slots.reservations:
                    if reservation.row >= 0:
                        self._settle(reservation, used_tokens, now_ns)
            finally:
                self._unlock()
        counts, begin = self._counts, self._column * self._rows
        for reservation in slots.reservations:
            if reservation.row >= 0:
                # Only this worker writes here, so no lock is needed.
                counts[begin + reservation.row] -= 1

    def _settle(self, reservation: Reservation, used_tokens: int | None, now_ns: int) -> None:
        cells, at, claim = self._cells, reservation.row * _ROW_WORDS, reservation.claim
        if used_tokens is None and claim.rpm:
            cells[at + 1] -= claim.each_ns
        if claim.tpm:
            more_ns = (used_tokens or 0) * MINUTE_NS // claim.share_tpm - reservation.reserved_ns
            if more_ns > 0:
                # A bucket that has been full for long counts as full since now.
                full_ns = max(cells[at + 2], now_ns) + more_ns
                cells[at + 2] = min(full_ns, now_ns + MAX_DEBT_NS)
            else:
                cells[at + 2] += more_ns

    def _find(self, claim: Claim, now_ns: int, reservations: Sequence[Reservation]) -> bool:
        """Find a claim's row, or else an unused one. Return False if all are used."""
        cells, rows = self._cells, self._rows
        if not claim.tag:
            subject = blake2b(claim.subject.encode(), digest_size=8).digest()
            claim.tag = int.from_bytes(subject, signed=True) or 1
        window = [(claim.tag + step) % rows for step in range(min(WINDOW_ROWS, rows))]
        row = next((at for at in window if cells[at * _ROW_WORDS] == claim.tag), -1)
        if row < 0:
            reserved = [reservation.row for reservation in reservations]
            unused = (at for at in window if at not in reserved and self._unused(at, now_ns))
            row = next(unused, -1)
            if row < 0:
                return False
            at = row * _ROW_WORDS
            cells[at], cells[at + 1], cells[at + 2] = claim.tag, 0, 0
            self._header[_USED_AT] = 1
        claim.row = row
        return True

    def _unused(self, row: int, now_ns: int) -> bool:
        """Return whether a row may be given to another subject."""
        at = row * _ROW_WORDS
        full = max(self._cells[at + 1], self._cells[at + 2]) <= now_ns
        return full and self._running(row) == 0

    def _running(self, row: int) -> int:
        """Return the calls in flight of a row in all workers."""
        width = self._header[_WIDTH_AT]
        return sum(self._counts[row : row + width * self._rows : self._rows])

    @property
    def saves(self) -> bool:
        """True if this worker saves the buckets: the node's first worker, once a row is used."""
        owners = self._header[_OWNED_AT : _OWNED_AT + self._column]
        return self._saved is not None and bool(self._header[_USED_AT]) and not any(owners)

    def save(self) -> None:
        """Write the buckets to their file. Must not run on the loop. Raises OSError."""
        if self._saved is not None and self._header[_USED_AT]:
            clock_ns = time.time_ns() - time.monotonic_ns()
            new = self._saved.with_suffix(".new")
            new.write_bytes(_SAVED.pack(_MAGIC, self._rows, clock_ns) + bytes(self._cells))
            new.replace(self._saved)

    def _load(self) -> None:
        """Read the saved buckets, if any, and convert them from the clock of the last save."""
        try:
            data = self._saved.read_bytes() if self._saved is not None else b""
        except OSError:
            return
        if len(data) != _SAVED.size + 8 * _ROW_WORDS * self._rows:
            return
        magic, rows, clock_ns = _SAVED.unpack_from(data)
        if (magic, rows) != (_MAGIC, self._rows):
            return
        now_ns = time.monotonic_ns()
        # Even if the clock was set in between, a bucket stays within its bounds.
        later_ns = clock_ns - (time.time_ns() - now_ns)
        cells, saved = self._cells, memoryview(data)[_SAVED.size :].cast("q")
        for at in range(0, _ROW_WORDS * self._rows, _ROW_WORDS):
            if saved[at]:
                cells[at] = saved[at]
                for n in (at + 1, at + 2):
                    cells[n] = min(saved[n] + later_ns, now_ns + MAX_DEBT_NS)
        self._header[_USED_AT] = 1

    def sweep(self) -> list[str]:
        """Empty the columns of dead workers. Return warnings for the log. Called once a second."""
        for column in range(self._header[_WIDTH_AT]):
            owned = self._header[_OWNED_AT + column] != 0
            if owned and column != self._column and self._lock_column(column):
                self._empty(column)
                self._header[_OWNED_AT + column] = 0
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _COLUMN_LOCKS + column)
        warnings = []
        if self._uncounted:
            warnings.append(f"limits: table full, {self._uncounted} limits not applied")
        if self._unlocked:
            warnings.append(f"limits: lock timed out {self._unlocked} times, went on without it")
        self._uncounted = self._unlocked = 0
        return warnings


def _beside(full_ns: int, told_ns: int) -> int:
    """Return the time at which a bucket of this node is full, from its own count and that of all
    nodes: at most a minute after theirs, since this node alone lets through no more than that."""
    return min(max(full_ns, told_ns), told_ns + MINUTE_NS)


def private_cells() -> SharedCells:
    """Make cells for this process alone."""
    return SharedCells(os.memfd_create("sluice-limits", os.MFD_CLOEXEC))
