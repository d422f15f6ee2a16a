"""Framing of a form (multipart/form-data) that arrives in chunks: the places of its parts.

A sans-io reader that accepts any cut. It keeps texts, but only the places of files. It raises
``FormError`` if the bytes are no form; it does not interpret the fields. Facts: RFC 7578, 2046.
"""

import re

_PREAMBLE, _HEAD, _CONTENT, _DONE = range(4)
_MAX_HEAD_BYTES = 8192
_MAX_TEXT_BYTES = 65_536
_MAX_PARTS = 1000
_DISPOSITION = re.compile(
    rb"(?:\A|\r\n)content-disposition:[ \t]*form-data([^\r\n]*)", re.IGNORECASE
)
_PARAMETER = re.compile(
    rb';[ \t]*(name|filename\*?)=(?:"((?:[^"\\]|\\.)*)"|([^;" \t]+))', re.IGNORECASE
)
_BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s;",]{1,70}))', re.IGNORECASE)


class FormError(ValueError):
    """An error for bytes that are no form. The message says what is wrong."""


class Part:
    """A part: its name and the place of its content in the body. ``text``: None for a file."""

    __slots__ = ("end", "name", "start", "text")

    def __init__(self, name: str, start: int, text: bytearray | None) -> None:
        self.name, self.start, self.end, self.text = name, start, start, text


def boundary_of(content_type: str) -> bytes | None:
    """Return the boundary in a content type; None if it is not that of a form."""
    kind, _, parameters = content_type.partition(";")
    match = _BOUNDARY.search(parameters)
    if kind.strip().lower() != "multipart/form-data" or match is None:
        return None
    return (match[1] or match[2]).encode("latin-1")


class FormReader:
    """Reader of one form: ``feed`` it chunks, then ``close`` it to get its parts."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._state = _PREAMBLE
        # As if a line had ended before the body, so that the first delimiter is like the others.
        self._rest = b"\r\n"
        self._at = -2  # the offset of the rest in the body
        self._parts: list[Part] = []

    def feed(self, piece: bytes) -> None:
        """Read the next bytes. Raises FormError."""
        if self._state == _DONE:
            return
        data = self._rest + piece
        used = 0
        while self._state != _DONE:
            end = self._step(data, used)
            if end is None:
                break
            used = end
        if self._state == _CONTENT:  # all except a possible start of a delimiter
            free = max(used, len(data) - len(self._delimiter) - 3)
            self._take(data[used:free])
            used = free
        self._rest, self._at = data[used:], self._at + used

    def close(self) -> list[Part]:
        """Return the parts of a completely fed form. Raises FormError."""
        if self._state != _DONE:
            raise FormError("the form has no end")
        return self._parts

    def _step(self, data: bytes, at: int) -> int | None:
        """Read a delimiter or a part's headers. Return the offset after it; None if incomplete."""
        if self._state == _HEAD:
            end = data.find(b"\r\n\r\n", at)
            if end < 0:
                if len(data) - at > _MAX_HEAD_BYTES:
                    raise FormError("the head of a part is too long")
                return None
            self._begin(data[at:end], self._at + end + 4)
            return end + 4
        mark, place, behind = b"", at - 1, 0
        while mark not in (b"--", b"\r\n"):  # otherwise it is content that starts like a delimiter
            place = data.find(self._delimiter, place + 1)
            behind = place + len(self._delimiter)
            mark = data[behind : behind + 2]
            if place < 0 or len(mark) < 2:
                return None
        if self._state == _CONTENT:
            self._take(data[at:place])
            self._parts[-1].end = self._at + place
        self._state = _DONE if mark == b"--" else _HEAD
        return behind + 2

    def _begin(self, head: bytes, start: int) -> None:
        disposition = _DISPOSITION.search(head)
        fields = {
            name.lower(): (quoted or bare)
            for name, quoted, bare in _PARAMETER.findall(disposition[1] if disposition else b"")
        }
        if b"name" not in fields:
            raise FormError("a part has no name")
        if len(self._parts) >= _MAX_PARTS:
            raise FormError(f"there are more than {_MAX_PARTS} parts")
        is_file = b"filename" in fields or b"filename*" in fields
        name = fields[b"name"].decode(errors="replace")
        self._parts.append(Part(name, start, None if is_file else bytearray()))
        self._state = _CONTENT

    def _take(self, content: bytes) -> None:
        text = self._parts[-1].text
        if text is not None:
            text += content
            if len(text) > _MAX_TEXT_BYTES:
                raise FormError(f"the part '{self._parts[-1].name[:64]}' is too long for a text")
