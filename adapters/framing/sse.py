"""Framing of server-sent events: the ends of events, and the fields of their lines.

A sans-io splitter that accepts any cut and keeps every byte; it knows no family. Lines end with LF,
CR LF or CR, also mixed, as the standard says. Imported by the bridge and by the families' streams.
"""

import re

BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10
_IDLE_BEGINS = b"\r\n:"
_NO_EVENT = frozenset((b"", b"\r", b"\n", b":"))  # starts of blank lines and comments

# Atomic groups: CR LF is one line end and must not be split into a blank line.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
# Blank lines, and comments outside events.
_IDLE = re.compile(rb"(?:[\r\n]++|(?::[^\r\n]*+(?>\r\n|\n|\r))++(?>\r\n|\n|\r))++")
# A line that is read, after the end of the previous one: name, colon, value. An event may have
# thousands of other lines, which the pattern skips at the speed of C.
_READ = rb"(data|event)(?:(:) ?([^\r\n]*+))?(?=[\r\n]|\Z)"
_FIRST_LINE = re.compile(rb"(?:\xef\xbb\xbf)?" + _READ)
_NEXT_LINE = re.compile(rb"[\r\n]" + _READ)
MAX_EVENT_ITEMS = 65_536  # limit of lines, or objects, of an event: a microsecond for each
BEGIN_BYTES = 256  # of a body, enough to recognize a stream of events
_BEGINS = (b":", b"data:", b"event:", b"id:", b"retry:")
_AT_ONCE_BYTES = 131_072  # limit of data that is cut without looking at each event
_CONTEXT_BYTES = 3  # bytes of the past in which an unfinished blank line may start


def begins_events(body: bytes) -> bool | None:
    """Return true if a body, or the start of one, is a stream of events, false if it is anything
    else; None while fewer than BEGIN_BYTES leave it open."""
    start = body[:BEGIN_BYTES].removeprefix(BOM).lstrip(b" \t\r\n")
    if start.startswith(_BEGINS):
        return True
    unsure = len(body) < BEGIN_BYTES and any(begin.startswith(start) for begin in _BEGINS)
    return None if unsure else False


class RawPiece(bytes):
    """A piece of an event over the size limit, or an event with more than MAX_EVENT_ITEMS. It is
    passed on unread."""

    __slots__ = ()


def read_or_raw(event: bytes, max_event_bytes: int) -> bytes:
    """Return a whole event, as a ``RawPiece`` if it is too large to be read."""
    size = len(event)
    if size <= min(MAX_EVENT_ITEMS, max_event_bytes):
        return event
    counts = event.count(b"\n") + event.count(b"\r"), event.count(b"{")
    return RawPiece(event) if size > max_event_bytes or max(counts) > MAX_EVENT_ITEMS else event


class IdlePiece(bytes):
    """Blank lines and comments outside events, which contain nothing to read."""

    __slots__ = ()


class Splitter:
    """The base of splitters: the incomplete piece, and its limit."""

    __slots__ = ("_max_event_bytes", "_tail", "oversized")

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._tail = bytearray()
        self.oversized = False

    @property
    def rest(self) -> bytes:
        """The start of a piece that has not ended yet."""
        return bytes(self._tail)

    @property
    def empty(self) -> bool:
        """True if the next byte starts a piece."""
        return not self._tail and not self.oversized


class EventSplitter(Splitter):
    """Splitter of a stream of bytes into events, each with the blank line that ends it.

    The pieces that ``feed`` returned, joined, plus ``rest`` equal the bytes fed. An event of more
    than ``max_event_bytes`` comes as several ``RawPiece`` as it arrives; ``oversized`` is true
    until it ends. Bytes between two events, as far as they have arrived, are one ``IdlePiece``.
    """

    __slots__ = ("_edge",)

    def __init__(self, max_event_bytes: int) -> None:
        super().__init__(max_event_bytes)
        self._edge = b""  # last bytes of an oversized event that were passed on

    def feed(self, chunk: bytes) -> list[bytes]:
        """Read any chunk of the stream. Return the events that are now complete, byte for byte."""
        pieces: list[bytes] = []
        if self.oversized:
            chunk = self._feed_oversized(chunk, pieces)
            if self.oversized:
                return pieces
        tail = self._tail
        scan_from = 0
        if tail:
            scan_from = max(0, len(tail) - _CONTEXT_BYTES)
            tail += chunk
            if _end_of_event(tail, scan_from) >= 0:
                chunk = bytes(tail)
                tail.clear()
        if not tail:
            tail += self._cut(chunk, scan_from, pieces)
        if len(tail) > self._max_event_bytes:
            self.oversized = True
            self._edge = bytes(tail[-_CONTEXT_BYTES:])
            pieces.append(RawPiece(tail))
            tail.clear()
        return pieces

    def _cut(self, data: bytes, scan_from: int, pieces: list[bytes]) -> bytes:
        """Cut the complete events from ``data``, which starts with one. Return the rest."""
        start, size = 0, len(data)
        at_once = size <= min(self._max_event_bytes, _AT_ONCE_BYTES)
        blank = _plain_blank_line(data) if at_once else b""
        if blank:
            # The form of nearly all vendors, ten times faster than the loop below.
            *events, rest = data.split(blank)
            for event in events:
                if event[:1] in _NO_EVENT:
                    break
            else:
                if not rest or rest[:1] not in _NO_EVENT:
                    pieces += [event + blank for event in events]
                    return rest
        while start < size:
            idle = _IDLE.match(data, start) if data[start] in _IDLE_BEGINS else None
            if idle is not None:
                end = idle.end()
                pieces.append(IdlePiece(data[start:end]))
            else:
                end = _end_of_event(data, max(start, scan_from))
                if end < 0:
                    break
                pieces.append(read_or_raw(data[start:end], self._max_event_bytes))
            start = end
        return data[start:]

    def _feed_oversized(self, chunk: bytes, pieces: list[bytes]) -> bytes:
        """Pass on the rest of the oversized event. Return the bytes after it."""
        edge = self._edge
        seen = edge + chunk
        end = _end_of_event(seen, 0)
        if end < 0:
            self._edge = seen[-_CONTEXT_BYTES:]
            after = b""
        else:
            self.oversized = False
            after = seen[end:]
        piece = chunk[: len(chunk) - len(after)]
        if piece:
            pieces.append(RawPiece(piece))
        return after


def _plain_blank_line(data: bytes) -> bytes:
    """Return the blank line that ends each event; empty if line ends are mixed."""
    line_end = b"\r\n" if _CR in data else b"\n"
    if line_end == b"\r\n" and not (data.count(b"\r") == data.count(b"\n") == data.count(line_end)):
        return b""
    return line_end + line_end


def _end_of_event(data: bytes | bytearray, scan_from: int) -> int:
    """Return the offset after the first blank line, -1 if there is none yet."""
    match = _BLANK_LINE.search(data, scan_from)
    if match is None:
        return -1
    end = match.end()
    # A lone CR at the very end, after a line that ended with LF, is half of a CR LF whose LF
    # belongs to this event. A stream with only CRs does not wait.
    if end == len(data) and data[end - 1] == _CR and data[end - 2] == _LF:
        return -1
    return end


def data_lines(event: bytes) -> list[tuple[int, bytes]]:
    """Return the values of the ``data`` lines of one event, each with its offset in the event."""
    lines = [_FIRST_LINE.match(event), *_NEXT_LINE.finditer(event)]
    return [
        (line.start(3) if line[2] else line.end(), line[3] or b"")
        for line in lines
        if line is not None and line[1] == b"data"
    ]


def is_idle(event: bytes) -> bool:
    """Return true if an event consists of blank lines and comments only."""
    return _IDLE.fullmatch(event.removeprefix(BOM)) is not None


def event_fields(event: bytes) -> tuple[str | None, bytes | None]:
    """Return the name and the data of one event; None for each that is missing.

    Several data lines are joined by LF; comments and unknown fields are skipped.
    """
    one_line = event.startswith(b"data: ") and event.endswith(b"\n\n") and _CR not in event
    if one_line and event.find(b"\n") == len(event) - 2:
        return None, event[6:-2]
    name: str | None = None
    data: list[bytes] = []
    first = _FIRST_LINE.match(event)
    lines = [] if first is None else [first.groups(b"")]
    for field, colon, value in lines + _NEXT_LINE.findall(event):
        if field == b"data":
            data.append(value)
        elif colon:
            name = value.decode(errors="replace")
    return name, b"\n".join(data) if data else None


def place_in_event(event: bytes, offset: int) -> int:
    """Return the offset in ``event`` of the byte at ``offset`` in its joined data."""
    for start, line in data_lines(event):
        if offset <= len(line):
            return start + offset
        offset -= len(line) + 1
    raise ValueError("offset behind the end of the data")
