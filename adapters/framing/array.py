"""Framing of a JSON array that arrives in chunks: the ends of its elements.

A sans-io splitter that accepts any cut and keeps every byte, with the interface of
``sse.EventSplitter``; it knows no family. It follows only strings and brackets: the reader of a
piece checks whether it is valid JSON. Imported by the bridge and by families that stream arrays.
"""

import re

from adapters.framing.sse import RawPiece, Splitter, read_or_raw

# The start of a piece whose first element is an object.
FIRST_OBJECT = re.compile(rb"\A[ \t\r\n\xef\xbb\xbf]*\[[ \t\r\n]*\{")

_BLANKS = re.compile(rb"[ \t\r\n\xef\xbb\xbf]*+")
# Possessive: every byte is read once, however the stream is cut.
_OUTSIDE = rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+'
_TO_BRACKET = re.compile(_OUTSIDE, re.DOTALL)
_BRACKET = re.compile(_OUTSIDE + rb"[\[\]{}]", re.DOTALL)
_STRING_REST = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_ARRAY, _BACKSLASH = 91, 92
_OPENING = frozenset(b"[{")


class JsonArraySplitter(Splitter):
    """Splitter of a byte stream into the elements of one JSON array, each with the bytes before it.

    The pieces that ``feed`` returned, joined, plus ``rest`` equal the bytes fed. The first piece
    starts with the opening bracket, later ones with a comma; the last one ends with the closing
    bracket. An element that is no object or array ends no piece: it precedes the next that does. A
    piece of more than ``max_event_bytes`` comes as several ``RawPiece`` as it arrives;
    ``oversized`` is true until it ends. Other input comes as pieces, too: a single object as one
    piece, anything else, and everything after the end, as it arrives.
    """

    __slots__ = ("_depth", "_escaped", "_floor", "_in_string", "_over")

    def __init__(self, max_event_bytes: int) -> None:
        super().__init__(max_event_bytes)
        self._depth = 0  # open brackets
        self._floor = 1  # open brackets between two elements
        self._in_string = False
        self._escaped = False  # in a string, after a backslash
        self._over = False  # the array has ended, or the input is no array

    def feed(self, chunk: bytes) -> list[bytes]:
        """Read any part of the stream. Return the pieces that are now complete, byte for byte."""
        pieces: list[bytes] = []
        start = 0
        for end in self._ends(chunk):
            pieces.append(self._piece(chunk[start:end]))
            start = end
        after = chunk[start:] if start else chunk
        if self.oversized:
            if after:
                pieces.append(RawPiece(after))
            return pieces
        tail = self._tail
        tail += after
        if len(tail) > self._max_event_bytes:
            self.oversized = True
            pieces.append(RawPiece(tail))
            tail.clear()
        return pieces

    def _piece(self, end: bytes) -> bytes:
        """Return the piece that ends with these bytes."""
        if self.oversized:
            self.oversized = False
            return RawPiece(end)
        if self._tail:
            end = bytes(self._tail) + end
            self._tail.clear()
        return read_or_raw(end, self._max_event_bytes)

    def _ends(self, chunk: bytes) -> list[int]:
        """Return the offsets in ``chunk`` where a piece ends."""
        if not chunk:
            return []
        at = 0
        if self._depth == 0 and not self._over:
            at = _end_of(_BLANKS, chunk, 0)
            if at == len(chunk):
                return []
            self._over = chunk[at] not in _OPENING
            self._floor = 1 if chunk[at] == _ARRAY else 0
        if self._over:
            return [len(chunk)]
        if self._in_string:
            at = self._leave_string(chunk, at)
        return self._ends_from(chunk, at)

    def _ends_from(self, chunk: bytes, at: int) -> list[int]:
        """Return the ends of pieces after ``at``, which is outside strings or at the end."""
        ends: list[int] = []
        depth = self._depth
        while match := _BRACKET.match(chunk, at):
            at = match.end()
            if chunk[at - 1] in _OPENING:
                depth += 1
                continue
            depth -= 1
            if depth <= self._floor:
                ends.append(at)
                if depth == 0:
                    break
        self._depth = depth
        if depth == 0:
            self._over = True
            return ends if at == len(chunk) else [*ends, len(chunk)]
        at = _end_of(_TO_BRACKET, chunk, at)
        if at < len(chunk):  # at the quote of a string that does not end in this chunk
            self._leave_string(chunk, at + 1)
        return ends

    def _leave_string(self, chunk: bytes, at: int) -> int:
        """Return the offset after the string that contains ``at``, or the size if it goes on."""
        self._in_string = True
        if self._escaped:
            at, self._escaped = at + 1, False
        at = _end_of(_STRING_REST, chunk, at)
        if at == len(chunk):
            return at
        if chunk[at] == _BACKSLASH:  # the last byte; the escaped one follows in the next chunk
            self._escaped = True
        else:
            self._in_string = False
        return at + 1


def _end_of(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """Return the end of a match of a pattern that also matches the empty string."""
    match = pattern.match(data, at)
    assert match is not None
    return match.end()
