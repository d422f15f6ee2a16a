"""Reading journals, of the own process and of dead ones.

A line whose checksum does not match is damaged. It is reported to the caller, and reading continues
behind it. A line without a line end at the end of the journal was torn by a power loss; adoption
decides about it.
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
    """Bytes of a journal that are not a line (at most DAMAGE_SHOWN_BYTES of them), and where they
    end. `whole` is true if they end as a line does and none of them are missing, so that no power
    loss tore them."""

    data: bytes
    end: int
    whole: bool


@dataclass(slots=True)
class Closed:
    """Records read from a journal. `offset` is the end of the last line that was read.

    `unreadable` are intact lines that this program cannot decode. `handed` are lines of calls that
    may still be running.
    """

    offset: int
    records: list[UsageRecord] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    handed: list[HandedLine] = field(default_factory=list)

    @property
    def lines(self) -> int:
        """Return the number of lines that need work."""
        return len(self.records) + len(self.unreadable) + len(self.damaged)


class JournalReader:
    """A reader of the lines of one journal by offset, for one thread, with one open file."""

    def __init__(self, directory: Path, journal_id: str) -> None:
        self.directory = directory
        self.journal_id = journal_id
        self._fd = -1
        self._start = -1

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._start = -1

    def read_closed(self, offset: int, limit: int, max_records: int) -> Closed:
        """Return up to `max_records` records of close lines between two offsets. `limit` is the end
        of a line. Raises OSError if the file cannot be read."""
        closed = Closed(offset)
        records, decode, check, cut = closed.records, _decode_close, CHECK, -CHECK_BYTES
        for end, lines in self._blocks(offset, limit):
            for line in lines:  # runs for each call, twice: keep it fast
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
        """Return whether the journal was written by a version whose lines have other fields."""
        for start in segment_starts(self.directory, self.journal_id)[:1]:
            for _, lines in self._blocks(start, start + SEGMENT_BYTES):
                return _OLD_BEGIN.match(lines[0]) is not None
        return False

    def pieces(self, offset: int, limit: int) -> Iterator[tuple[int, bytes, Damage | None]]:
        """Yield everything from an offset on that ends at or before `limit`: its end, the JSON text
        of the line (empty if there is none), and the damage. Skips segments that were applied and
        deleted."""
        for end, lines in self._blocks(offset, limit):
            for line in lines:
                end += len(line)
                yield end, *_examined(line, end)

    def _blocks(self, offset: int, limit: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield lists of lines with their line ends, and the offset where the first starts. Bytes
        that are not a line come as one, up to the next line end or the end of what is written."""
        while offset < limit:
            start = offset - offset % SEGMENT_BYTES
            chunk = self._chunk(start, offset, min(limit, offset + READ_BYTES))
            length = chunk.rfind(b"\n", 0, _length_before_nul(chunk)) + 1
            if length:
                # Several times faster than splitting, which looks at each byte.
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
    """Return the JSON text of the line that ends at an offset (empty if there is none), and the
    damage. If a line end was damaged, or lines were lost between two others, the last part may be
    an intact line."""
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
