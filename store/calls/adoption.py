"""Journals whose process is dead: finding them, closing their calls, removing them.

A process that gets the lock of a journal may adopt it. Calls that were opened and not closed get a
close line, `gateway_lost`. Applying the journal to the store is then the writer's usual work. An
adoption may itself be killed at any time; the next adopter repeats it and finds the calls that were
already closed.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from store.calls import journal_files, journal_lines
from store.calls.journal_files import SEGMENT_BYTES, segment_path
from store.calls.journal_lines import CLOSE, HANDED, MARK, OPEN, HandedLine, MarkLine, OpenLine
from store.calls.journal_reader import Damage, JournalReader
from store.db.migrations import BRIDGE_VERSION
from store.values.errors import StoreError
from store.values.ids import ULID_CHARS
from store.values.usage_record import UsageRecord

log = logging.getLogger(__name__)

WIPE_BYTES = 256 * 1024

_decode_open = msgspec.json.Decoder(OpenLine).decode
_decode_mark = msgspec.json.Decoder(MarkLine | HandedLine).decode
_encode = msgspec.json.Encoder().encode


class JournalTooOld(StoreError):
    """A journal written by a version that this one cannot read."""


def find_orphans(directory: Path, known: Iterable[str]) -> "Iterator[Orphan]":
    """Lock and yield the journals of dead processes, except those whose ids are `known`."""
    skip = set(known)
    for path in sorted(directory.glob("*.lock")):
        if len(path.stem) == ULID_CHARS and path.stem not in skip:
            orphan = Orphan.take(directory, path.stem)
            if orphan is not None:
                yield orphan


class Orphan:
    """A dead process's journal, locked by this process until `release` or `remove`."""

    def __init__(self, directory: Path, journal_id: str, lock_fd: int) -> None:
        self.directory = directory
        self.id = journal_id
        self.reader = JournalReader(directory, journal_id)
        self.damaged: list[Damage] = []
        """Damage before `applied_offset` that close_open_calls found. Nothing reads that part
        again."""
        self.lost: list[UsageRecord] = []
        """The records that close_open_calls wrote."""
        self._lock_fd = lock_fd

    @classmethod
    def take(cls, directory: Path, journal_id: str) -> "Orphan | None":
        """Return the journal, if its process is dead and nobody else has adopted it."""
        path = journal_files.lock_path(directory, journal_id)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if journal_files.try_lock(descriptor) and journal_files.still_named(descriptor, path):
            return cls(directory, journal_id, descriptor)
        os.close(descriptor)
        return None

    def close_open_calls(self, applied_offset: int, node: str) -> int:
        """Write the close lines of the calls that were lost. Return the end of the journal after
        them.

        `applied_offset`: the offset up to which the store has applied the journal. Idempotent.
        Raises OSError if it failed, and JournalTooOld, having changed nothing.
        """
        starts = journal_files.segment_starts(self.directory, self.id)
        if not starts:
            return applied_offset
        if self.reader.is_too_old():
            raise JournalTooOld(
                f"journal {self.id} is too old for this version and left as it is: let a gateway of"
                f" {BRIDGE_VERSION} with this journal.dir book it"
            )
        end, lost = self._lost_calls(starts, applied_offset, node)
        self.lost = lost
        # The applied offset is past the journal's own end only after a power loss on a disk that
        # does not honour syncs.
        position = max(end, applied_offset)
        self._wipe(position, starts)
        return self._append(position, lost) if lost else position

    def release(self) -> None:
        """Leave the journal to the next adopter. Idempotent."""
        self.reader.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd = -1

    def remove(self) -> None:
        """Delete the journal's files, after everything in them was applied."""
        journal_files.remove_journal(self.directory, self.id)
        self.release()

    def _lost_calls(
        self, starts: list[int], applied_offset: int, node: str
    ) -> tuple[int, list[UsageRecord]]:
        opened: dict[bytes, bytes] = {}
        marked: dict[bytes, bytes] = {}
        end = starts[0]
        self.damaged.clear()
        for line_end, line, damage in self.reader.pieces(starts[0], starts[-1] + SEGMENT_BYTES):
            if damage is not None and damage.end <= applied_offset:
                self.damaged.append(damage)
            # A torn line with nothing behind it is what the process was writing when it died.
            if line or (damage is not None and damage.whole):
                end = line_end
            call_id, kind = journal_lines.line_call_id(line), journal_lines.line_kind(line)
            if kind == OPEN:
                opened[call_id] = line
            elif kind in (MARK, HANDED) and call_id in opened:
                marked[call_id] = line
            elif kind == CLOSE:
                opened.pop(call_id, None)
                marked.pop(call_id, None)
        records = []
        for call_id, line in opened.items():
            mark = marked.get(call_id)
            try:
                last = None if mark is None else _decode_mark(mark)
                records.append(journal_lines.lost_record(_decode_open(line), last, node))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.error(
                    "journal %s: open line of call %r is unreadable: %s", self.id, line, error
                )
        return end, records

    def _wipe(self, position: int, starts: list[int]) -> None:
        """Clear everything behind the end, so that fragments of lines left by a power loss do not
        become part of the lines written there."""
        for start in starts:
            if start + SEGMENT_BYTES > position:
                with _opened(segment_path(self.directory, self.id, start)) as descriptor:
                    _clear(descriptor, max(0, position - start))

    def _append(self, position: int, records: list[UsageRecord]) -> int:
        parts: dict[int, bytearray] = {}
        begin = position
        for record in records:
            data = journal_lines.with_check(_encode(record))
            start = position - position % SEGMENT_BYTES
            if position - start + len(data) > SEGMENT_BYTES:
                position = start = start + SEGMENT_BYTES
            parts.setdefault(start, bytearray()).extend(data)
            position += len(data)
        for start, lines in parts.items():
            with _opened(segment_path(self.directory, self.id, start)) as descriptor:
                if os.fstat(descriptor).st_size < SEGMENT_BYTES:
                    os.posix_fallocate(descriptor, 0, SEGMENT_BYTES)
                place, done = max(0, begin - start), 0
                while done < len(lines):
                    done += os.pwrite(descriptor, lines[done:], place + done)
                os.fdatasync(descriptor)
        return position


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _clear(descriptor: int, position: int) -> None:
    while data := os.pread(descriptor, WIPE_BYTES, position):
        if data.strip(b"\0"):
            os.pwrite(descriptor, bytes(len(data)), position)
        position += len(data)
    os.fdatasync(descriptor)
