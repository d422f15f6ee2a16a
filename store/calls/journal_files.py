"""The files of a journal: its segments, and the lock that shows that its process is alive.

A journal is one file in parts: segments of SEGMENT_BYTES, each named by the journal's id and the
offset at which it starts. They are allocated at full size in advance, so they end in NUL bytes. No
line crosses into the next segment.
"""

import fcntl
import os
import re
import threading
from collections import deque
from pathlib import Path

from store.values.errors import StoreError
from store.values.ids import new_ulid

SEGMENT_BYTES = 4 * 1024 * 1024


class JournalFull(StoreError):
    """A journal without room for another call, or on a failing disk: new calls are refused for
    now."""


def lock_path(directory: Path, journal_id: str) -> Path:
    """Return the file whose lock shows that a journal's process is alive."""
    return directory / f"{journal_id}.lock"


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file without waiting. Return False if another process has
    it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def still_named(descriptor: int, path: Path) -> bool:
    """Return whether a path still names the open file. Adoption may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def segment_path(directory: Path, journal_id: str, start: int) -> Path:
    """Return the path of the segment that starts at an offset."""
    return directory / f"{journal_id}-{start:016d}.log"


def segment_starts(directory: Path, journal_id: str) -> list[int]:
    """Return the offsets at which the existing segments start, ascending."""
    name = re.compile(rf"{re.escape(journal_id)}-([0-9]{{16}})\.log")
    matches = map(name.fullmatch, os.listdir(directory))
    return sorted(int(match[1]) for match in matches if match)


def claim(directory: Path) -> tuple[str, int]:
    """Return a new journal id and the descriptor of its lock."""
    while True:
        journal_id = new_ulid()
        path = lock_path(directory, journal_id)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # An adopter may get the lock in between and take this for a dead process's journal.
        if try_lock(descriptor) and still_named(descriptor, path):
            return journal_id, descriptor
        os.close(descriptor)


def remove_journal(directory: Path, journal_id: str) -> None:
    """Delete the files of a journal whose lock the caller holds; the lock file last."""
    for start in segment_starts(directory, journal_id):
        segment_path(directory, journal_id, start).unlink(missing_ok=True)
    lock_path(directory, journal_id).unlink(missing_ok=True)


class Segments:
    """The segments of a journal, allocated in order, from the loop or from the thread."""

    def __init__(self, directory: Path, journal_id: str) -> None:
        self.end = 0
        self._directory = directory
        self._journal_id = journal_id
        self._ready: deque[int] = deque()
        self._lock = threading.Lock()
        self._named_to = 0

    def allocate(self) -> None:
        """Allocate one more segment. Raises OSError if the disk has no room for it."""
        with self._lock:
            path = segment_path(self._directory, self._journal_id, self.end)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, SEGMENT_BYTES)
            except OSError:
                os.close(descriptor)
                path.unlink()
                raise
            self._ready.append(descriptor)
            self.end += SEGMENT_BYTES

    def take(self) -> int:
        """Return the descriptor of the next segment. Raises JournalFull if none is ready."""
        try:
            return self._ready.popleft()
        except IndexError:
            raise JournalFull("the journal has no segment ready") from None

    def sync_names(self) -> None:
        """Sync the directory, so that new files exist after a power loss. For the thread, since it
        may take long."""
        end = self.end
        if self._named_to == end:
            return
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._named_to = end

    def close(self) -> None:
        """Close the descriptors that were not taken."""
        while self._ready:
            os.close(self._ready.popleft())
