"""The accounts that a node's workers lease, which they tell each other through a memory file.

A caller may reach any worker of a node, but behind a proxy that keeps connections it can stay with
one of them for minutes. So that an outage of the store finds a lease in each, the workers order
leases on the accounts that any of them uses (ADR 0048).

The file is a ring of ENTRIES: a count of all entries written so far, then the entries. It is read
and written under a lock, by the writers' threads only, and belongs to the supervisor.
"""

import fcntl
import os
import struct
import time
from collections import deque

import msgspec

from store.money.accounts import Account

ENTRIES = 4096  # of more, the oldest are lost
READ_MAX = 256  # entries that a worker reads at a time, since each may become an order
VALID_S = 600.0  # older entries are of no use to a worker that has just started

_COUNT = struct.Struct("<Q")
_ENTRY_BYTES = 1024


class _Entry(msgspec.Struct, array_like=True):
    """A published account: who leases it, when (monotonic), and the lease that it aims for."""

    journal_id: str
    at_s: float
    account: Account
    amount: int


class NodeLeases:
    """One worker's view of the accounts that its node's workers lease. `note` is for the loop's
    thread, `exchange` for the writer's."""

    def __init__(self, descriptor: int, journal_id: str) -> None:
        self._file = descriptor
        self._journal_id = journal_id
        self._noted: deque[tuple[Account, int]] = deque(maxlen=ENTRIES)
        self._read = 0  # entries that this worker has read, or that were overwritten before

    def note(self, account: Account, amount: int) -> None:
        """Note an account of this worker, and the lease that it aims for, to be published."""
        self._noted.append((account, amount))

    def exchange(self) -> dict[Account, int]:
        """Publish what was noted. Return what other workers have published since the last call: a
        lease for each account, the latest. A new worker starts with the oldest entry.

        If another worker holds the lock, nothing happens until the next call.
        """
        now = time.monotonic()
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return {}
        try:
            count = self._count()
            while self._noted:
                entry = _Entry(self._journal_id, now, *self._noted.popleft())
                os.pwrite(self._file, _padded(entry), _offset(count))
                count += 1
            os.pwrite(self._file, _COUNT.pack(count), 0)
            self._read = max(self._read, count - ENTRIES)
            numbers = range(self._read, min(count, self._read + READ_MAX))
            read = [os.pread(self._file, _ENTRY_BYTES, _offset(number)) for number in numbers]
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._read += len(read)
        entries = [msgspec.json.decode(data, type=_Entry) for data in read]
        return {
            entry.account: entry.amount
            for entry in entries
            if entry.journal_id != self._journal_id and entry.at_s > now - VALID_S
        }

    def _count(self) -> int:
        data = os.pread(self._file, _COUNT.size, 0)
        return int(_COUNT.unpack(data)[0]) if data else 0  # empty before the first exchange


def _offset(number: int) -> int:
    return _COUNT.size + number % ENTRIES * _ENTRY_BYTES


def _padded(entry: _Entry) -> bytes:
    data = msgspec.json.encode(entry)
    if len(data) > _ENTRY_BYTES:
        raise RuntimeError(f"{len(data)} bytes of an account do not fit: {entry.account.id}")
    return data.ljust(_ENTRY_BYTES)
