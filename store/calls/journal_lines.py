"""What the files of a journal hold, and how they are read.

A journal is one file in parts: segments of SEGMENT_BYTES, each named by the journal's id and the
offset at which it starts, allocated whole beforehand and so ending in NUL bytes. A line is one
JSON array, a blank, the CRC-32 of the array in 8 hexadecimal digits, and a line end: `["o",id,…]`
when a call begins, `["m",id,…]` while it relays, `["s",id,…]` in its place when the client learns
the id of a stored response, `["c",id,…]` when it has ended (the usage record). No line crosses into
the next segment.

A line whose checksum does not fit is damaged: it is shown to the caller, and what lies behind it is
read. Versions before the checksum wrote the array alone; such lines are taken as they are. A line
without its line end at the end of the journal was torn by a power loss (adoption judges that).
"""

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import msgspec

from store.money.accounts import split
from store.values.pricing import cost_nanos, prices_from_text
from store.values.usage_record import CLOSE_TAG, WALLET, Charge, StoredAt, UsageRecord

SEGMENT_BYTES = 4 * 1024 * 1024
LINE_MAX_BYTES = 8 * 1024
READ_BYTES = 64 * 1024

OPEN_TAG = "o"
MARK_TAG = "m"
HANDED_TAG = "s"
OPEN = OPEN_TAG.encode()
MARK = MARK_TAG.encode()
HANDED = HANDED_TAG.encode()
CLOSE = CLOSE_TAG.encode()
_ANY_BEGIN = re.compile(rb'\["[%b%b%b%b]","' % (OPEN, MARK, HANDED, CLOSE))
CHECK = b" %08x\n"
CHECK_BYTES = 10
DAMAGE_SHOWN_BYTES = 64 * 1024

LOST_OUTCOME = "gateway_lost"
LOST_MESSAGE = "The gateway process ended before this call did."


class OpenLine(msgspec.Struct, array_like=True, frozen=True, tag=OPEN_TAG, gc=False):
    """A call that begins: what its record needs if the process dies.

    `input_tokens` is the estimate that is charged then; `prices` is `Prices.json`; `holds`: what
    each payer has reserved for it, in the order in which they pay.
    """

    id: str
    started_ms: int
    user_id: str
    user: str
    key_id: str
    key_name: str
    group: str
    endpoint: str
    family: str
    model: str | None = None
    stream: bool | None = None
    prices: str | None = None
    multiplier_ppm: int | None = None
    input_tokens: int = 0
    client_request_id: str | None = None
    client_ip: str | None = None
    user_agent: str | None = None
    holds: tuple[Charge, ...] = ()
    limit_account: str | None = None


class Sent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the client has got so far and from where."""

    status: int | None = None
    upstream_family: str | None = None
    upstream_model: str | None = None
    channel: str | None = None
    upstream_request_id: str | None = None
    stored: StoredAt | None = None


class MarkLine(msgspec.Struct, array_like=True, frozen=True, tag=MARK_TAG, gc=False):
    """How far a running call has come; the last one of a call counts, alone.

    `holds`: as in OpenLine, when more was reserved since.
    """

    id: str
    at_ms: int
    output_tokens: int
    relayed: bool
    sent: Sent
    holds: tuple[Charge, ...] = ()


class HandedLine(msgspec.Struct, array_like=True, frozen=True, tag=HANDED_TAG, gc=False):
    """A mark whose `sent.stored` the client learns with what is relayed next: the store is to know
    it before the call has ended."""

    id: str
    at_ms: int
    output_tokens: int
    relayed: bool
    sent: Sent
    user_id: str


def with_check(body: bytes) -> bytes:
    """The line of a JSON text: with its checksum and line end."""
    return body + CHECK % crc32(body)


def line_kind(line: bytes) -> bytes:
    """OPEN, MARK, HANDED or CLOSE, by position: lines are written by this program only."""
    return line[2:3]


def line_call_id(line: bytes) -> bytes:
    """The id of the call a line is about."""
    return line[6:32]


def lost_record(opened: OpenLine, mark: MarkLine | HandedLine | None, node: str) -> UsageRecord:
    """The record of a call whose process died.

    Charged for its input and the output of the last mark when anything was relayed to the client,
    else not at all.
    """
    sent = Sent() if mark is None else mark.sent
    record = UsageRecord(
        **{name: getattr(opened, name) for name in _OPEN_FIELDS},
        upstream_family=sent.upstream_family,
        upstream_model=sent.upstream_model,
        channel=sent.channel,
        status=sent.status,
        outcome=LOST_OUTCOME,
        error_code=LOST_OUTCOME,
        error_message=LOST_MESSAGE,
        duration_ms=None if mark is None else max(0, mark.at_ms - opened.started_ms),
        upstream_request_id=sent.upstream_request_id,
        stored=sent.stored,
        node=node,
    )
    if mark is not None and mark.relayed:
        record.input_tokens = opened.input_tokens
        record.output_tokens = mark.output_tokens
        record.usage_source = "estimated"
        raised = mark.holds if isinstance(mark, MarkLine) else ()
        _charge(record, raised or opened.holds)
    return record


_OPEN_FIELDS = tuple(
    name for name in OpenLine.__struct_fields__ if name not in ("input_tokens", "holds")
)


def _charge(record: UsageRecord, holds: tuple[Charge, ...]) -> None:
    if record.prices is None or record.multiplier_ppm is None:
        return
    try:
        prices = prices_from_text(record.prices)
        cost = cost_nanos(record, prices, record.multiplier_ppm)
    except (OverflowError, ValueError) as error:
        # Nobody is asked for money that cannot be computed, and the other calls must go on.
        record.usage_source = "none"
        record.error_message = f"{LOST_MESSAGE} Not charged: {error}"
        return
    if cost:
        record.cost_nanos = cost
        record.charges = split(cost, holds or (Charge(WALLET, cost),))
        record.billed_to = record.charges[0].to


def segment_path(directory: Path, journal_id: str, start: int) -> Path:
    """Where the segment that starts at an offset lies."""
    return directory / f"{journal_id}-{start:016d}.log"


def segment_starts(directory: Path, journal_id: str) -> list[int]:
    """The offsets at which the segments there are start, ascending."""
    name = re.compile(rf"{re.escape(journal_id)}-([0-9]{{16}})\.log")
    matches = map(name.fullmatch, os.listdir(directory))
    return sorted(int(match[1]) for match in matches if match)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a journal that are no line (at most DAMAGE_SHOWN_BYTES of them), and their end.

    `whole`: they end as a line does and nothing of them is missing, so no power loss tore them.
    """

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
        """How many were found that need something done."""
        return len(self.records) + len(self.unreadable) + len(self.damaged)


class JournalReader:
    """Reads the lines of one journal by offset; one thread, one open file."""

    def __init__(self, directory: Path, journal_id: str) -> None:
        self.directory = directory
        self.journal_id = journal_id
        self._fd = -1
        self._start = -1
        self._decode = msgspec.json.Decoder(UsageRecord).decode
        self._decode_handed = msgspec.json.Decoder(HandedLine).decode

    def close(self) -> None:
        """Give the file back; reading again opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._start = -1

    def read_closed(self, offset: int, limit: int, max_records: int) -> Closed:
        """Up to `max_records` records of close lines between two offsets, the second one the end of
        a line; OSError when unread."""
        found = Closed(offset)
        records, decode, check, cut = found.records, self._decode, CHECK, -CHECK_BYTES
        for end, lines in self._blocks(offset, limit):
            for line in lines:  # runs for each call, twice: lean
                end += len(line)
                body = line[:cut]
                if line[cut:] != check % crc32(body):
                    body, damage = _examined(line, end)
                    if damage is not None:
                        found.damaged.append(damage)
                if (kind := body[2:3]) == CLOSE:
                    try:
                        records.append(decode(body))
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        found.unreadable.append(body)
                    if len(records) >= max_records:
                        found.offset = end
                        return found
                elif kind == HANDED:
                    try:
                        found.handed.append(self._decode_handed(body))
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        found.unreadable.append(body)
            found.offset = end
            if found.lines >= max_records:
                return found
        return found

    def pieces(self, offset: int, limit: int) -> Iterator[tuple[int, bytes, Damage | None]]:
        """Everything from an offset on that ends at or before `limit`: where it ends, the JSON text
        of a line (empty: there is none), and what is damaged.

        Segments that are gone (applied and deleted) are passed over.
        """
        for end, lines in self._blocks(offset, limit):
            for line in lines:
                end += len(line)
                yield end, *_examined(line, end)

    def _blocks(self, offset: int, limit: int) -> Iterator[tuple[int, list[bytes]]]:
        """Lines with their ends, many at a time, and the offset where the first begins.

        Bytes that are no line come as one, up to the next line end or the end of what is written.
        """
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
    """The JSON text of a line that ends at an offset (empty: it has none), and what is damaged.

    Where a line end was damaged, or lines were lost between two, a sound line may be the last part.
    """
    if _is_sound(line):
        return line[:-CHECK_BYTES], None
    if line.endswith(b"]\n") and _is_json(line):
        return line[:-1], None  # of a version without checksums
    begins = _ANY_BEGIN.finditer(line, max(1, len(line) - LINE_MAX_BYTES))
    sound = next((at.start() for at in begins if _is_sound(line[at.start() :])), len(line))
    odd = line[:sound]
    whole = line.endswith(b"\n") and 0 not in odd
    damage = Damage(odd[:DAMAGE_SHOWN_BYTES], end - len(line) + sound, whole)
    return line[sound:-CHECK_BYTES], damage


def _is_sound(line: bytes) -> bool:
    return line[-CHECK_BYTES:] == CHECK % crc32(line[:-CHECK_BYTES])


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _length_before_nul(chunk: bytes) -> int:
    nul = chunk.find(0)
    return len(chunk) if nul < 0 else nul
