"""The structure of large JSON texts, read slice by slice, since a decoder cannot be interrupted.

For requests: the number of values, so that a decoder gets only what it can finish soon. For
answers: the places of the top-level fields. Only strings and brackets are followed; whether the
text is valid JSON is checked by the decoders of ``jsonio``, if at all. The functions are steps:
generators that work for some ms between two yields. Standard library only.
"""

import re
from array import array
from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import NamedTuple, TypeVar

T = TypeVar("T")

# Steps of a long work, with its result at their end. Others may have their turn at each yield;
# where it yields True they must, for the next step is long and cannot be cut.
Steps = Generator[bool, None, T]

VALUES_AT_ONCE = 128  # that are made or written between two yields, some µs each
SLICE_BYTES = 32_768  # about 5 ms of the slowest text
MAX_FIELDS = 1000  # at the top; each may cost a slow look at its slice

_COUNTED_AT_ONCE_BYTES = 1 << 20
_SEPARATORS = (b",", b"[", b"{")  # there are at most so many values, and one
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
    """Return true when a JSON text has more values than ``limit``, those in its objects and arrays
    included. Of a text that is not JSON it is a guess."""
    most = 0  # those in strings are no separators
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
    """Return the fields of a JSON object, in their order; None when it is no object, is cut off, or
    has more than MAX_FIELDS. What is inside of their values is not judged."""
    reader = _FieldReader()
    for start, end in _outside_strings(text):
        if not reader.read(text, start, end):
            return None
        yield False
    return reader.fields if reader.done else None


def end_of_piece(text: bytes, at: int) -> int:
    """Return the next offset from ``at`` on that is not in the middle of a character of UTF-8,
    which has four bytes at most."""
    end = min(at, len(text))
    while end < min(at + 3, len(text)) and text[end] & 0xC0 == 0x80:
        end += 1
    return end


def _outside_strings(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield slices of the text that neither begin nor end inside a string; of a string longer than
    a slice its quotes alone are in none. (at, at) for each slice of such a string."""
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
            # A string that ends behind the slice comes with the next one, if it is no longer.
            in_string = end == at
            yield at, end
            at = end + in_string
    if in_string:
        yield size, size


class _FieldReader:
    """Reader of top-level fields by the depth of brackets; token by token at their depth."""

    def __init__(self) -> None:
        self.fields: list[TopLevelField] = []
        self.done = False  # the object is closed
        self._depth = 0
        self._name: bytes | None = None
        self._start: int | None = None  # of the value, once its colon was seen

    def read(self, text: bytes, start: int, end: int) -> bool:
        """Read the next slice; return False when this is no object that can be read."""
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
            self._name = self._name or text[start:end]  # else it is the value
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
