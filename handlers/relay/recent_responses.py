"""Recent ids of stored responses: those that a node's workers handed out lately, with their users.

Every worker maps one memory file of the supervisor. An id is put there before its client can read
it, so that any worker of the node finds its owner and place at once, however far the store is
behind. Each worker's column holds the time up to which the store has all of the worker's journal:
an id that is neither in this memory nor in the store was not handed out before that time. A column
counts until its journal is finished, by its own process or by the one that adopts it.

Entries are written whole and read without a lock; a digest detects torn ones. If two workers write
to the same entry in the same microsecond, one write is lost and its id is looked up in the store.
No text of an id is kept.
"""

import fcntl
import logging
import mmap
import os
import struct
import time
from hashlib import blake2b

from handlers.relay.limits.cells import IncompatibleMemory
from store.values.ids import ULID_CHARS
from store.values.usage_record import StoredAt

log = logging.getLogger("sluice.relay")

ENTRIES = 32768  # 7 MB when all are used; a new one replaces the oldest of its window
WINDOW_ENTRIES = 8  # entries that may hold an id, starting at its hash
COLUMNS = 512  # workers, including draining ones and those whose journals wait for adoption

_MAGIC = int.from_bytes(b"sfresh01")
_HEADER_BYTES = 64
_MAGIC_AT, _ENTRIES_AT, _WIDTH_AT = 0, 1, 2  # words of the header
_COLUMN_BYTES = 64  # a journal's id, then at _REACHED_AT a word: nanoseconds
_REACHED_AT = 32
_CHECK_BYTES = 8
_PLACE_BYTES = 152
_ENTRY = struct.Struct(f"<q32s{_PLACE_BYTES}s")  # time of `put`, mark, owner and place
_WHOSE = struct.Struct(f"<{_CHECK_BYTES}sq32s")  # start of an entry: digest, time of `put`, mark
_ENTRY_BYTES = _CHECK_BYTES + _ENTRY.size
_SEPARATOR = "\n"

Owned = tuple[str, StoredAt]
"""A user's id and the place of the response."""


class RecentResponses:
    """The recent ids of a node, in a memory file given by its descriptor. Raises
    IncompatibleMemory, OSError."""

    def __init__(self, descriptor: int, entries: int = ENTRIES) -> None:
        self._file = descriptor
        self._entries = entries
        self._entries_at = _HEADER_BYTES + COLUMNS * _COLUMN_BYTES
        # The last windows continue after the last entry.
        size = self._entries_at + (entries + WINDOW_ENTRIES) * _ENTRY_BYTES
        fcntl.lockf(descriptor, fcntl.LOCK_EX, _HEADER_BYTES)
        try:
            is_new = os.fstat(descriptor).st_size == 0
            if is_new:
                os.ftruncate(descriptor, size)
            elif os.fstat(descriptor).st_size != size:
                raise IncompatibleMemory("the memory of recent responses has another size")
            self._memory = memoryview(mmap.mmap(descriptor, size))
            self._header = self._memory[:_HEADER_BYTES].cast("q")
            if is_new:
                self._header[_MAGIC_AT], self._header[_ENTRIES_AT] = _MAGIC, entries
            elif (self._header[_MAGIC_AT], self._header[_ENTRIES_AT]) != (_MAGIC, entries):
                raise IncompatibleMemory("the memory of recent responses is of another version")
        finally:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, _HEADER_BYTES)

    def put(self, user_id: str, stored: StoredAt) -> None:
        """Add the id of a response that a user is about to get. If it does not fit, only the store
        has it."""
        place = _SEPARATOR.join((user_id, stored.channel_id, stored.fingerprint)).encode()
        if len(place) > _PLACE_BYTES:
            return
        mark, now_ns = bytes.fromhex(stored.mark), time.monotonic_ns()
        window = self._window(mark)
        target, oldest = window[0], now_ns
        whose, memory = _WHOSE.unpack_from, self._memory
        for at in window:
            _, put_ns, other = whose(memory, at)
            if put_ns < oldest:
                target, oldest = at, put_ns
            if other == mark and (owned := self._read(at)) and owned[0] == user_id:
                target = at
                break
        fields = _ENTRY.pack(now_ns, mark, place)
        memory[target : target + _ENTRY_BYTES] = _check(fields) + fields

    def drop(self, user_id: str, mark: str) -> None:
        """Remove a response that its user deleted."""
        for at in self._places(mark):
            if (owned := self._read(at)) and owned[0] == user_id:
                self._memory[at : at + _ENTRY_BYTES] = bytes(_ENTRY_BYTES)

    def find(self, mark: str) -> list[Owned]:
        """Return the users who were given an id, with the place of the response. Nearly always one
        or none."""
        return [owned for at in self._places(mark) if (owned := self._read(at))]

    def _places(self, mark: str) -> list[int]:
        """Return the offsets of the entries that seem to hold a mark."""
        digest = bytes.fromhex(mark)
        whose, memory = _WHOSE.unpack_from, self._memory
        return [at for at in self._window(digest) if whose(memory, at)[2] == digest]

    def _window(self, mark: bytes) -> range:
        first = self._entries_at + int.from_bytes(mark[:8]) % self._entries * _ENTRY_BYTES
        return range(first, first + WINDOW_ENTRIES * _ENTRY_BYTES, _ENTRY_BYTES)

    def _read(self, at: int) -> Owned | None:
        """Return the entry at an offset; None if it is torn."""
        data = bytes(self._memory[at : at + _ENTRY_BYTES])
        fields = data[_CHECK_BYTES:]
        if data[:_CHECK_BYTES] != _check(fields):
            return None
        _, mark, place = _ENTRY.unpack(fields)
        user_id, channel_id, fingerprint = place.rstrip(b"\0").decode().split(_SEPARATOR)
        return user_id, StoredAt(mark.hex(), channel_id, fingerprint)

    def join(self, journal_id: str) -> None:
        """Claim a column for this worker's journal. Raises IncompatibleMemory if none is free."""
        name = journal_id.encode()
        fcntl.lockf(self._file, fcntl.LOCK_EX, _HEADER_BYTES)
        try:
            for column in range(COLUMNS):
                if not self._journal_of(column):
                    self._set_reached(column, 0)
                    at = self._column_at(column)
                    self._memory[at : at + ULID_CHARS] = name
                    self._header[_WIDTH_AT] = max(self._header[_WIDTH_AT], column + 1)
                    return
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, _HEADER_BYTES)
        raise IncompatibleMemory(
            f"more than {COLUMNS} journals share the memory of recent responses"
        )

    def reached(self, journal_id: str, at_ns: int) -> None:
        """Note that the store has everything written to a journal before `at_ns` (monotonic)."""
        column = self._column_of(journal_id)
        if column is not None:
            self._set_reached(column, at_ns)

    def finished(self, journal_id: str) -> None:
        """Free the column of a journal that is no longer written to and is in the store completely.
        Idempotent."""
        column = self._column_of(journal_id)
        if column is not None:
            at = self._column_at(column)
            self._memory[at : at + ULID_CHARS] = bytes(ULID_CHARS)

    def settled_ns(self) -> int:
        """Return the (monotonic) time up to which the store has all ids that the node handed
        out."""
        columns = [at for at in range(self._header[_WIDTH_AT]) if self._journal_of(at)]
        return min((self._reached(column) for column in columns), default=0)

    def _column_of(self, journal_id: str) -> int | None:
        name, columns = journal_id.encode(), range(self._header[_WIDTH_AT])
        return next((column for column in columns if self._journal_of(column) == name), None)

    def _column_at(self, column: int) -> int:
        return _HEADER_BYTES + column * _COLUMN_BYTES

    def _journal_of(self, column: int) -> bytes:
        at = self._column_at(column)
        return bytes(self._memory[at : at + ULID_CHARS]).rstrip(b"\0")

    def _reached(self, column: int) -> int:
        at = self._column_at(column) + _REACHED_AT
        return int(self._memory[at : at + 8].cast("q")[0])

    def _set_reached(self, column: int, at_ns: int) -> None:
        at = self._column_at(column) + _REACHED_AT
        self._memory[at : at + 8].cast("q")[0] = at_ns


def private_recent_responses() -> RecentResponses:
    """Make a memory for this process alone."""
    return RecentResponses(os.memfd_create("sluice-responses", os.MFD_CLOEXEC))


def shared_recent_responses(descriptor: int, journal_id: str) -> RecentResponses:
    """Join the node's memory, or make one for this worker alone if it cannot be shared. The latter
    has no columns and is never settled, since the other workers' ids are unknown."""
    try:
        recent = RecentResponses(descriptor)
        recent.join(journal_id)
    except (IncompatibleMemory, OSError, ValueError) as error:
        log.error("%s; each worker knows its own recent responses until the next restart", error)
        recent = private_recent_responses()
    return recent


def _check(fields: bytes) -> bytes:
    return blake2b(fields, digest_size=_CHECK_BYTES).digest()
