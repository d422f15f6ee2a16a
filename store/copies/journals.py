"""Journals of running processes, read so that they match a copy of the store.

The store has the offset up to which each journal is applied. A copy started before the journals are
read needs everything behind those offsets from them, even if it has been applied since and its file
deleted. So the files are opened before the copy starts and whenever new ones appear, and they are
read last. Lines that are applied twice because of this are booked once, since the copy has the
offset of its own time (ADR 0022).
"""

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from store.calls.journal_files import SEGMENT_BYTES, lock_path, segment_path

LOOK_S = 0.1
"""A segment is created a whole segment before its first line, so none can appear and disappear
unseen."""

_SEGMENT = re.compile(r"([0-9A-Z]{26})-([0-9]{16})\.log")
_LOCK = re.compile(r"([0-9A-Z]{26})\.lock")


class HeldJournals:
    """The journals of some folders, kept open during the `with` block. Raises OSError if too many
    files are open, or one may not be read."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self._segments: dict[str, dict[int, int]] = {}
        self._over = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._watch, name="journals", daemon=True)

    def __enter__(self) -> "HeldJournals":
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for segments in self._segments.values():
            for descriptor in segments.values():
                os.close(descriptor)

    @property
    def ids(self) -> set[str]:
        """Return the journals seen so far."""
        return set(self._segments)

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and contents of each file of what is written by now: locks, and segments
        without the NUL bytes at their end. No line is torn, and for each line all earlier ones are
        included."""
        self._over.set()
        self._thread.join()
        self._look()
        if self._error is not None:
            raise self._error
        # All ends first: everything before an end that was read is already written, in any segment.
        ends = {journal_id: _end(segments) for journal_id, segments in self._segments.items()}
        for journal_id, (last, length) in sorted(ends.items()):
            yield lock_path(Path(), journal_id).name, b""
            for start, descriptor in sorted(self._segments[journal_id].items()):
                if start > last:
                    break
                data = os.pread(descriptor, SEGMENT_BYTES, 0)
                if start == last:
                    data = data[:length]
                data = data[: data.rfind(b"\n") + 1]
                yield segment_path(Path(), journal_id, start).name, data

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self._look()
            except OSError as error:
                self._error = error
                return

    def _look(self) -> None:
        for folder in self._folders:
            for name in os.listdir(folder):
                if lock := _LOCK.fullmatch(name):
                    self._segments.setdefault(lock[1], {})
                elif segment := _SEGMENT.fullmatch(name):
                    self._open(folder / name, segment[1], int(segment[2]))

    def _open(self, path: Path, journal_id: str, start: int) -> None:
        held = self._segments.setdefault(journal_id, {})
        if start not in held:
            try:
                held[start] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                pass  # applied and deleted after the listing


def _end(segments: dict[int, int]) -> tuple[int, int]:
    """Return the start of the last non-empty segment, and the length of its contents in bytes."""
    for start in sorted(segments, reverse=True):
        data = os.pread(segments[start], SEGMENT_BYTES, 0).rstrip(b"\0")
        if data:
            return start, len(data)
    return -1, 0
