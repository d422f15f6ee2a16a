"""The structure of large JSON texts, read slice by slice, since a decoder cannot be interrupted.

For requests: the number of values, so that a decoder gets only what it can finish soon. For
answers: the places of the top-level fields. Only strings and brackets are followed. Whether the
text is valid JSON is checked by the decoders of ``jsonio``, if at all. The functions are steps:
generators that work for a few ms between two yields. Standard library only.
"""

import re
from array import array
from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import NamedTuple, TypeVar

T = TypeVar("T")

# Steps of a long computation, with its result at the end. Other tasks may run at each yield. At a
# yield of True they must run, because the next step is long and cannot be split.
Steps = Generator[bool, None, T]

VALUES_AT_ONCE = 128  # created or written between two yields, some µs each
SLICE_BYTES = 32_768  # about 5 ms for the slowest text
MAX_FIELDS = 1000  # at the top level; each may need a slow scan of its slice

_COUNTED_AT_ONCE_BYTES = 1 << 20
_SEPARATORS = (b",", b"[", b"{")  # their number plus one is the most values possible
_WHOLE_TOKENS = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_IN_STRING = re.compile(rb"(?:[^\"\\]++|\\.)*+", re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]', re.DOTALL)
_NO_BRACKETS = bytes(i for i in range(256) if i not in b"[]{}")
_DEPTH_STEPS = bytes(1 if i in b"[{" else 255 for i in range(256))  # as signed bytes
_BLANKS = b" \t\r\n"
_BLANKS_BEFORE = re.compile(rb"[ \t\r\n]*+")


def at_once(steps: Steps[T]) -> T:
    """Return the result of ``steps``, for input that is not large."""
    try:
        while True:
            next(steps)
    except StopIteration as ended:
        result: T = ended.value
    return result


class TopLevelField(NamedTuple):
    """A top-level field: the text of its name, with quotes, and the place of its value."""

    name: bytes
    start: int
    end: int


def has_more_values(text: bytes, limit: int) -> Steps[bool]:
    """Return true if a JSON text has more values than ``limit``, including those in its objects and
    arrays. For a text that is not JSON it is a guess."""
    most = 0  # too high: separators in strings are counted, too
    for at in range(0, len(text), _COUNTED_AT_ONCE_BYTES):
        end = at + _COUNTED_AT_ONCE_BYTES
        most += sum(text.count(separator, at, end) for separator in _SEPARATORS)
        yield False
    if most < limit:
        return False
    count = 0
    for start, end in _outside_strings(text):
        bare = _STRING.sub(b"", text[start:end])
        count += sum(map(bare.count, _SEPARATORS))
        if count >= limit:
            return True
        yield False
    return False


def fields_of(text: bytes) -> Steps[list[TopLevelField] | None]:
    """Return the fields of a JSON object in order; None if it is no object, is truncated, or has
    more than MAX_FIELDS. The inside of the values is not checked."""
    reader = _FieldReader()
    for start, end in _outside_strings(text):
        if not reader.read(text, start, end):
            return None
        yield False
    return reader.fields if reader.done else None


def end_of_piece(text: bytes, at: int) -> int:
    """Return the next offset from ``at`` on that is not inside a UTF-8 character of at most four
    bytes."""
    end = min(at, len(text))
    while end < min(at + 3, len(text)) and text[end] & 0xC0 == 0x80:
        end += 1
    return end


def _outside_strings(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield slices of the text that neither start nor end inside a string. A string longer than a
    slice is left out: each slice of it yields (at, at)."""
    at, size, in_string = 0, len(text), False
    while at < size:
        stop = min(at + SLICE_BYTES, size)
        if in_string:
            match = _IN_STRING.match(text, at, stop)
            end = match.end() if match else at
            in_string = not text.startswith(b'"', end)
            if in_string and end == size - 1:
                return  # a backslash at the very end
            at = end if in_string else end + 1
            yield at, at
        else:
            match = _WHOLE_TOKENS.match(text, at, stop)
            end = match.end() if match else at
            # A string that ends after the slice is in the next one, unless it is too long.
            in_string = end == at
            yield at, end
            at = end + in_string
    if in_string:
        yield size, size


class _FieldReader:
    """Reader of top-level fields: by bracket depth inside values, by tokens outside."""

    def __init__(self) -> None:
        self.fields: list[TopLevelField] = []
        self.done = False  # the closing brace of the object was read
        self._depth = 0
        self._name: bytes | None = None
        self._start: int | None = None  # of the value, once its colon was seen

    def read(self, text: bytes, start: int, end: int) -> bool:
        """Read the next slice. Return False if this is no readable object."""
        if self._depth > 1:
            bare = _STRING.sub(b"", text[start:end])
            brackets = bare.translate(None, _NO_BRACKETS)
            steps = array("b", brackets.translate(_DEPTH_STEPS))
            if min(accumulate(steps, initial=self._depth)) > 1:
                self._depth += sum(steps)
                return True
        tokens = _TOKEN.finditer(text, start, end)
        return all(self._take(text, token.start(), token.end()) for token in tokens)

    def _take(self, text: bytes, start: int, end: int) -> bool:
        token = text[start]
        if token in b"[{":
            self._depth += 1
            return self._depth > 1 or (token == ord("{") and not self.done)
        if token in b"]}":
            self._depth -= 1
            self.done = self._depth == 0
            return self._end_field(text, start) if self.done else self._depth > 0
        if self._depth != 1:
            return self._depth > 1
        if token == ord('"'):
            self._name = self._name or text[start:end]  # otherwise it is the value
        elif token == ord(":"):
            self._start = end
        else:
            return self._end_field(text, start)
        return True

    def _end_field(self, text: bytes, end: int) -> bool:
        name, start = self._name, self._start
        self._name = self._start = None
        if name is None or start is None:
            return self.done and name is None and not self.fields  # {} has none
        before = _BLANKS_BEFORE.match(text, start, min(start + SLICE_BYTES, end))
        start = before.end() if before else start
        last = text[max(start, end - SLICE_BYTES) : end]
        end -= len(last) - len(last.rstrip(_BLANKS))
        if start == end or len(self.fields) == MAX_FIELDS:
            return False
        self.fields.append(TopLevelField(name, start, end))
        return True
