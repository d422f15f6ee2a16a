"""Reading journals, their own process's and those of dead ones.

A line whose checksum does not fit is damaged: it is shown to the caller, and what lies behind it is
read. A line without its line end at the end of the journal was torn by a power loss (adoption
judges that).
"""

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import msgspec

from store.calls.journal_files import SEGMENT_BYTES, segment_path, segment_starts
from store.calls.journal_lines import (
    CHECK,
    CHECK_BYTES,
    CLOSE,
    HANDED,
    LINE_MAX_BYTES,
    MARK,
    OPEN,
    HandedLine,
)
from store.values.usage_record import UsageRecord

READ_BYTES = 64 * 1024
DAMAGE_SHOWN_BYTES = 64 * 1024
_ANY_BEGIN = re.compile(rb'\["[%b%b%b%b]","' % (OPEN, MARK, HANDED, CLOSE))
_OLD_BEGIN = re.compile(rb'\["[omsc]","')

_decode_close = msgspec.json.Decoder(UsageRecord).decode
_decode_handed = msgspec.json.Decoder(HandedLine).decode


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a journal that are no line (at most DAMAGE_SHOWN_BYTES of them), and their end.
    `whole`: they end as a line does and nothing of them is missing, so no power loss tore them."""

    data: bytes
    end: int
    whole: bool


@dataclass(slots=True)
class Closed:
    """Records read from a journal: `offset` is behind the last line that was looked at.

    `unreadable`: lines that are whole and mean nothing to this program; `handed`: what calls that
    may still run have handed out.
    """

    offset: int
    records: list[UsageRecord] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    handed: list[HandedLine] = field(default_factory=list)

    @property
    def lines(self) -> int:
        """Count the lines that need work."""
        return len(self.records) + len(self.unreadable) + len(self.damaged)


class JournalReader:
    """Reads the lines of one journal by offset; one thread, one open file."""

    def __init__(self, directory: Path, journal_id: str) -> None:
        self.directory = directory
        self.journal_id = journal_id
        self._fd = -1
        self._start = -1

    def close(self) -> None:
        """Give the file back; reading again opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._start = -1

    def read_closed(self, offset: int, limit: int, max_records: int) -> Closed:
        """Up to `max_records` records of close lines between two offsets, the second one the end of
        a line; OSError when unread."""
        closed = Closed(offset)
        records, decode, check, cut = closed.records, _decode_close, CHECK, -CHECK_BYTES
        for end, lines in self._blocks(offset, limit):
            for line in lines:  # runs for each call, twice: lean
                end += len(line)
                body = line[:cut]
                if line[cut:] != check % crc32(body):
                    body, damage = _examined(line, end)
                    if damage is not None:
                        closed.damaged.append(damage)
                if (kind := body[2:3]) == CLOSE:
                    try:
                        records.append(decode(body))
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        closed.unreadable.append(body)
                    if len(records) >= max_records:
                        closed.offset = end
                        return closed
                elif kind == HANDED:
                    try:
                        closed.handed.append(_decode_handed(body))
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        closed.unreadable.append(body)
            closed.offset = end
            if closed.lines >= max_records:
                return closed
        return closed

    def is_too_old(self) -> bool:
        """Return whether a version has written the journal whose lines have other fields."""
        for start in segment_starts(self.directory, self.journal_id)[:1]:
            for _, lines in self._blocks(start, start + SEGMENT_BYTES):
                return _OLD_BEGIN.match(lines[0]) is not None
        return False

    def pieces(self, offset: int, limit: int) -> Iterator[tuple[int, bytes, Damage | None]]:
        """Everything from an offset on that ends at or before `limit`: where it ends, the JSON text
        of a line (empty: there is none), and what is damaged. Segments that are gone (applied and
        deleted) are passed over."""
        for end, lines in self._blocks(offset, limit):
            for line in lines:
                end += len(line)
                yield end, *_examined(line, end)

    def _blocks(self, offset: int, limit: int) -> Iterator[tuple[int, list[bytes]]]:
        """Return lines with their ends, many at a time, and the offset where the first begins.
        Bytes that are no line come as one, up to the next line end or the end of what is
        written."""
        while offset < limit:
            start = offset - offset % SEGMENT_BYTES
            chunk = self._chunk(start, offset, min(limit, offset + READ_BYTES))
            length = chunk.rfind(b"\n", 0, _length_before_nul(chunk)) + 1
            if length:
                # Several times faster than to split it: that looks at each byte.
                yield offset, io.BytesIO(chunk).readlines(length)
                offset += length
                continue
            if b"\n" not in chunk:
                chunk = self._chunk(start, offset, limit)
            length = chunk.find(b"\n") + 1
            if odd := chunk[:length] if length else chunk.rstrip(b"\0"):
                yield offset, [odd]
            offset = offset + length if length else start + SEGMENT_BYTES

    def _chunk(self, start: int, offset: int, limit: int) -> bytes:
        if start != self._start:
            self.close()
            path = segment_path(self.directory, self.journal_id, start)
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
            self._start = start
        length = min(limit - offset, start + SEGMENT_BYTES - offset)
        return os.pread(self._fd, length, offset - start)


def _examined(line: bytes, end: int) -> tuple[bytes, Damage | None]:
    """Return the JSON text of a line that ends at an offset (empty: it has none), and what is
    damaged. Where a line end was damaged, or lines were lost between two, a sound line may be the
    last part."""
    if _is_sound(line):
        return line[:-CHECK_BYTES], None
    begins = _ANY_BEGIN.finditer(line, max(1, len(line) - LINE_MAX_BYTES))
    sound = next((at.start() for at in begins if _is_sound(line[at.start() :])), len(line))
    odd = line[:sound]
    whole = line.endswith(b"\n") and 0 not in odd
    damage = Damage(odd[:DAMAGE_SHOWN_BYTES], end - len(line) + sound, whole)
    return line[sound:-CHECK_BYTES], damage


def _is_sound(line: bytes) -> bool:
    return line[-CHECK_BYTES:] == CHECK % crc32(line[:-CHECK_BYTES])


def _length_before_nul(chunk: bytes) -> int:
    nul = chunk.find(0)
    return len(chunk) if nul < 0 else nul
