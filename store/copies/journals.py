"""Journals of running processes, read so that they fit a copy of the store.

The store says how far it has applied each journal. A copy of it that was begun before the journals
are read needs from them what lies behind those offsets, also when it has been applied, and its file
deleted, since. So the files are opened before the copy is begun and as they appear, and read last:
what is applied twice by that is booked once, since the copy has the offset of its own moment (ADR
0022).
"""

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from store.calls.journal_files import SEGMENT_BYTES, lock_path, segment_path

LOOK_S = 0.1
"""A segment is made a whole segment ahead of its first line, so none comes and goes unseen."""

_SEGMENT = re.compile(r"([0-9A-Z]{26})-([0-9]{16})\.log")
_LOCK = re.compile(r"([0-9A-Z]{26})\.lock")


class HeldJournals:
    """The journals of some folders, open from the beginning to the end of the `with` block.
    OSError: too many files are open, or one may not be read."""

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
        """Yield name and contents of each file that makes up what is written by now: locks, and
        segments without the NUL bytes at their end. No line is torn, and none lacks those before
        it."""
        self._over.set()
        self._thread.join()
        self._look()
        if self._error is not None:
            raise self._error
        # All ends first: what lies before an end that was seen is written, wherever it lies.
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
                pass  # applied between the listing and now


def _end(segments: dict[int, int]) -> tuple[int, int]:
    """Return the start of the last segment with anything in it, and how many bytes that is."""
    for start in sorted(segments, reverse=True):
        data = os.pread(segments[start], SEGMENT_BYTES, 0).rstrip(b"\0")
        if data:
            return start, len(data)
    return -1, 0
