"""The journal of one process, append side. It makes a call's record survive SIGKILL.

The loop calls `open_call` before an upstream is contacted, `mark` while a stream grows and
`close_call` when the call has ended. Each is one pwrite into a preallocated file. A separate thread
syncs in groups, allocates segments ahead and deletes applied ones. The writer applies closed calls
to the store by reading the files; nothing is queued in memory. For the lines see journal_lines, for
journals of dead processes adoption.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec
from msgspec.structs import replace

from store.calls import journal_files
from store.calls.journal_files import SEGMENT_BYTES, JournalFull, Segments
from store.calls.journal_lines import (
    CHECK,
    LINE_MAX_BYTES,
    HandedLine,
    MarkLine,
    OpenLine,
    Sent,
    with_check,
)
from store.values.ids import now_ms
from store.values.usage_record import CallFacts, Charge, UsageRecord, clipped, sound_text

log = logging.getLogger(__name__)

CARRY_BYTES = 16 * SEGMENT_BYTES
"""If the open line of a running call lies further back than this, it is written again, so that old
segments can be deleted."""

IDLE_TICK_S = 1.0
DISK_RETRY_S = 1.0
REFUSED_KEYS_MAX = 10_000
OPEN_TEXT_CHARS = 128
MINIMAL_TEXT_CHARS = 64
_MINUTE_MS = 60_000
_NOTHING_SENT = Sent()

Line = TypeVar("Line", OpenLine, UsageRecord)


class Journal:
    """The journal of this process. Its methods are for the loop's thread. The constructor raises
    JournalFull if the disk has no room for its first segment.

    `applied_offset` is set by the writer. Lines up to `synced_offset` may be applied. `records`
    counts the closed calls.
    """

    def __init__(
        self,
        directory: Path,
        *,
        sync_ms: int = 20,
        refused_per_minute: int = 600,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.applied_offset = 0
        self.synced_offset = 0
        self._clock_ms = clock_ms
        self._sync_s = sync_ms / 1000
        self.id, self._lock_fd = journal_files.claim(directory)
        self._segments = Segments(directory, self.id)
        try:
            self._segments.allocate()
        except OSError as error:
            journal_files.remove_journal(directory, self.id)
            os.close(self._lock_fd)
            raise JournalFull(f"cannot start a journal in {directory}: {error}") from error
        encoder = msgspec.json.Encoder()
        self._encode, self._encode_into = encoder.encode, encoder.encode_into
        self._line = bytearray()
        # Offset of the open line of each running call, oldest first.
        self._open: dict[str, int] = {}
        self._refusals = _Refusals(refused_per_minute)
        self._fd = self._segments.take()
        self._start = 0
        self._written = 0
        self.records = 0
        self._current = (self._fd, 0)
        self._rolled: deque[int] = deque()
        self._deleted_to = 0
        self._dirty = False
        self._retry_at = 0.0
        self._disk_full = False
        self._failed = False
        self._ending = False
        self._wake = threading.Event()
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._thread.start()

    @property
    def written_offset(self) -> int:
        """Return the end of the last line."""
        return self._written

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes written but not yet applied to the store."""
        return max(0, self._written - self.applied_offset)

    @property
    def open_calls(self) -> int:
        """Count the open calls."""
        return len(self._open)

    @property
    def accepting(self) -> bool:
        """Return whether a new call can be opened: there is room and the disk accepts writes."""
        return not self._failed and (not self._disk_full or self._has_room(2))

    def open_call(self, line: OpenLine) -> None:
        """Write the open line of a call. Raises JournalFull if there is no room: the call must not
        start."""
        data = self._line_of(line, _sound_open)
        # Room for this line and for the close lines of all calls, this one included.
        if self._failed or not (self._has_room(2) or self._make_room(2)):
            raise JournalFull("the journal has no room for another call: is the disk full?")
        self._append(data)
        self._open[line.id] = self._written - len(data)

    def mark(
        self,
        call_id: str,
        output_tokens: int,
        relayed: bool,
        sent: Sent = _NOTHING_SENT,
        holds: tuple[Charge, ...] = (),
    ) -> None:
        """Record the progress of an open call. Only the last mark of a call counts.

        `holds`: what each payer has reserved, if that is more than at the start. Skipped if the
        call is not open or room is short: a mark only makes the charge exact if the process dies.
        """
        self._mark(MarkLine(call_id, self._clock_ms(), output_tokens, relayed, sent, holds))

    def hand_out(
        self, call_id: str, user_id: str, output_tokens: int, sent: Sent, *, relayed: bool = True
    ) -> None:
        """Write a mark whose `sent.stored` the user is about to learn, so that the writer stores it
        now and not when the call has ended. Skipped as `mark` is."""
        self._mark(HandedLine(call_id, self._clock_ms(), output_tokens, relayed, sent, user_id))

    def _mark(self, line: MarkLine | HandedLine) -> None:
        offset = self._open.get(line.id)
        if offset is None or not self._has_room(2):
            return
        try:
            data = with_check(self._encode(line))
            if len(data) > LINE_MAX_BYTES:
                return
            if self._written - offset > CARRY_BYTES:
                self._carry(line.id, offset)
            self._append(data)
        except (OSError, UnicodeEncodeError, JournalFull) as error:
            log.warning("journal mark of call %s skipped: %s", line.id, error)

    def close_call(self, record: UsageRecord) -> None:
        """Write the record of a call, which is safe from then on.

        There is always room for a call that was opened. Raises JournalFull if the call was not
        opened and there is no room, or if the disk fails; an open call is then closed by adoption.
        """
        if record.id not in self._open and not (self._has_room(1) or self._make_room(1)):
            raise JournalFull("the journal has no room for a record: is the disk full?")
        self._append(self._line_of(record, clipped, _without_details, _minimal))
        self.records += 1
        self._open.pop(record.id, None)

    def refused(self, record: UsageRecord) -> bool:
        """Write a record of a call that was refused before it was opened. Return whether it got a
        record of its own.

        Beyond `refused_per_minute` of one key, or without room, the call is only counted, and one
        record a minute represents all of them. Never raises.
        """
        if not self._refusals.passes(record, self._clock_ms()):
            self._refusals.hold(1, record)
            return False
        self._close_refused([(1, record)])
        return True

    def sweep(self) -> list[tuple[int, UsageRecord]]:
        """Write the records that represent the refusals of past minutes. Return each with the
        number of calls it represents. Call once a second."""
        held = self._refusals.take(self._clock_ms())
        self._close_refused(held)
        return held

    def finish(self) -> None:
        """Stop writing: write counted refusals as records and sync everything. Idempotent."""
        if self._ending:
            return
        self._close_refused(self._refusals.take())
        self._ending = True
        self._wake.set()
        self._pause.set()
        self._thread.join()

    def close(self, *, remove: bool = False) -> None:
        """Close the files and the lock. `remove`: delete the files, because everything was
        applied."""
        self.finish()
        self._segments.close()
        os.close(self._fd)
        if remove:
            journal_files.remove_journal(self.directory, self.id)
        os.close(self._lock_fd)

    def _close_refused(self, refusals: list[tuple[int, UsageRecord]]) -> None:
        for count, record in refusals:
            try:
                self.close_call(_standing_for(count, record))
            except JournalFull:
                self._refusals.hold(count, record)

    def _line_of(self, line: Line, *shorter: Callable[[Line], Line]) -> bytearray:
        """Return the bytes of a line, or of its first shorter form that fits. They are valid until
        the next call."""
        try:
            # with_check, but without a copy: this runs twice a call
            data = self._line
            self._encode_into(line, data)
            data += CHECK % crc32(data)
            if len(data) <= LINE_MAX_BYTES:
                return data
        except UnicodeEncodeError:
            pass
        if not shorter:
            raise JournalFull("a journal line is too long even without its texts")
        return self._line_of(shorter[0](line), *shorter[1:])

    def _has_room(self, lines: int) -> bool:
        """Return whether this many lines fit, besides the close lines of all open calls. Whole
        lines can be counted in bytes: a segment takes at least its size / LINE_MAX_BYTES lines,
        whatever their lengths, since it is left only when the next line does not fit."""
        room = self._segments.end - self._written
        return room >= (len(self._open) + lines) * LINE_MAX_BYTES

    def _make_room(self, lines: int) -> bool:
        """Allocate segments now instead of waiting for the thread. Return whether there is room:
        False if the disk is full."""
        while not self._disk_full and not self._has_room(lines):
            self._allocate()
        return self._has_room(lines)

    def _allocate(self) -> None:
        try:
            self._segments.allocate()
        except OSError as error:
            if not self._disk_full:
                log.error("journal: no room for another segment: %s", error)
            self._disk_full = True

    def _append(self, data: bytes | bytearray) -> None:
        position, size_bytes = self._written - self._start, len(data)
        if position + size_bytes > SEGMENT_BYTES:
            self._roll()
            position = 0
        try:
            done = os.pwrite(self._fd, data, position)
            while done < size_bytes:
                done += os.pwrite(self._fd, data[done:], position + done)
        except OSError as error:
            # The partial line has no line end; the next line overwrites it.
            self._failed = True
            raise JournalFull(f"the journal cannot be written: {error}") from error
        self._written += size_bytes
        if not self._dirty:
            self._dirty = True
            self._wake.set()

    def _roll(self) -> None:
        following = self._segments.take()
        # In this order, so that the thread never treats the new segment as synced while the old one
        # is not: see _sync.
        self._rolled.append(self._fd)
        self._fd = following
        self._start += SEGMENT_BYTES
        self._written = self._start
        self._current = (following, self._start)

    def _carry(self, call_id: str, offset: int) -> None:
        start = offset - offset % SEGMENT_BYTES
        descriptor = os.open(
            journal_files.segment_path(self.directory, self.id, start), os.O_RDONLY
        )
        try:
            line, end, _ = os.pread(descriptor, LINE_MAX_BYTES, offset - start).partition(b"\n")
        finally:
            os.close(descriptor)
        if not end:
            raise JournalFull("its open line is damaged")
        self._append(line + end)
        del self._open[call_id]
        self._open[call_id] = self._written - len(line + end)

    # The methods below are for the thread.

    def _run(self) -> None:
        while not self._ending:
            self._wake.wait(IDLE_TICK_S)
            self._wake.clear()
            self._tick()
            # Lines written during the pause share the next sync.
            self._pause.wait(self._sync_s)
        self._tick()
        self._close_rolled()

    def _tick(self) -> None:
        try:
            self._sync()
            self._keep_ahead()
            self._delete_applied()
        except Exception:
            log.exception("journal thread")

    def _sync(self) -> None:
        self._dirty = False
        descriptor, start = self._current
        target = min(self._written, start + SEGMENT_BYTES)
        # A segment rolled over between these lines is in _rolled by now or is `descriptor`.
        try:
            self._segments.sync_names()
            for rolled in list(self._rolled):
                os.fdatasync(rolled)
            if target > self.synced_offset:
                os.fdatasync(descriptor)
            self._failed = False
        except OSError as error:
            # The pages may be lost. The store is the safest place for them now, so they are
            # applied.
            self._failed = True
            log.error("journal: sync failed: %s", error)
        self._close_rolled(keep=descriptor)
        self.synced_offset = max(self.synced_offset, target)

    def _close_rolled(self, keep: int = -1) -> None:
        while self._rolled and self._rolled[0] != keep:
            os.close(self._rolled.popleft())

    def _keep_ahead(self) -> None:
        if self._disk_full and time.monotonic() < self._retry_at:
            return
        needed = len(self._open) * LINE_MAX_BYTES + SEGMENT_BYTES
        while self._segments.end - self._written < needed:
            self._allocate()
            if self._disk_full:
                self._retry_at = time.monotonic() + DISK_RETRY_S
                return
        self._disk_full = False

    def _delete_applied(self) -> None:
        try:
            oldest_open = next(iter(self._open.values()), self._written)
        except RuntimeError:
            return  # The loop changed the table meanwhile: retry at the next tick.
        keep_from = min(self.applied_offset, oldest_open)
        while self._deleted_to + SEGMENT_BYTES <= keep_from:
            journal_files.segment_path(self.directory, self.id, self._deleted_to).unlink(
                missing_ok=True
            )
            self._deleted_to += SEGMENT_BYTES


class _Refusals:
    """Counts of the refused calls of each key in a minute, in tables of bounded size."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._minute = 0
        self._seen: dict[str, int] = {}
        # The last refusal that was not written, and the number of refusals it represents.
        self._held: dict[str, tuple[int, UsageRecord]] = {}

    def passes(self, record: UsageRecord, at_ms: int) -> bool:
        """Return whether a refusal gets a record of its own."""
        self._turn(at_ms)
        seen = self._seen.get(record.call.key_id, 0)
        if seen >= self._per_minute:
            return False
        # A key that does not fit in the table is not counted in this minute.
        if seen or len(self._seen) < REFUSED_KEYS_MAX:
            self._seen[record.call.key_id] = seen + 1
        return True

    def hold(self, count: int, record: UsageRecord) -> None:
        """Count refusals that get no record of their own."""
        held, _ = self._held.get(record.call.key_id, (0, record))
        if held or len(self._held) < REFUSED_KEYS_MAX:
            self._held[record.call.key_id] = (held + count, record)

    def take(self, at_ms: int | None = None) -> list[tuple[int, UsageRecord]]:
        """Return and clear the refusals counted in past minutes; without a time, all of them."""
        if at_ms is not None and not self._turn(at_ms):
            return []
        held, self._held = list(self._held.values()), {}
        return held

    def _turn(self, at_ms: int) -> bool:
        minute = at_ms // _MINUTE_MS
        if minute == self._minute:
            return False
        self._minute = minute
        self._seen.clear()
        return True


def _standing_for(count: int, record: UsageRecord) -> UsageRecord:
    if count == 1:
        return record
    message = f"{record.error_message} (This record stands for {count} refused calls of the key.)"
    return replace(record, error_message=message)


def _sound_open(line: OpenLine) -> OpenLine:
    call = line.call
    texts = {
        name: sound_text(text, OPEN_TEXT_CHARS)
        for name in call.__struct_fields__
        if isinstance(text := getattr(call, name), str) and name != "prices"
    }
    return replace(line, call=replace(call, **texts))


def _without_details(record: UsageRecord) -> UsageRecord:
    """Return the clipped record without the upstreams' messages of failed attempts."""
    record = clipped(record)
    attempts = (replace(attempt, detail=None) for attempt in record.attempts)
    return replace(record, attempts=tuple(attempts))


def _minimal(record: UsageRecord) -> UsageRecord:
    """Return the record without its longest texts: identity, counts and money only."""
    record = clipped(record)
    call = replace(record.call, **_shortened(record.call))
    shortened = _shortened(record)
    return replace(record, call=call, **shortened, reported_usage=None, attempts=())


def _shortened(part: CallFacts | UsageRecord) -> dict[str, str]:
    return {
        name: text[:MINIMAL_TEXT_CHARS]
        for name in part.__struct_fields__
        if name in _FREE_TEXTS and (text := getattr(part, name)) is not None
    }


_FREE_TEXTS = frozenset(
    (
        *("endpoint", "model", "upstream_model", "error_message", "user_agent"),
        *("client_request_id", "upstream_request_id"),
    )
)
