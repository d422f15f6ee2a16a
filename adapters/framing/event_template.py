"""Templates of events: most events of a stream differ from the last one only in one string.

The bytes before and after that string are learned from a decoded event. An event that starts and
ends with them, with plain text between, has the same meaning and is not decoded, which would cost
three times as much. Imported by the streams of families.
"""

import re

_PLAIN = re.compile(rb"[ !#-\[\]-~]*")  # of a JSON string: ASCII without quotes and escapes
LEARNED_MAX = 16  # templates of one stream; learning stops after that many


class EventTemplate:
    """The bytes around the text of the last decoded event of a stream."""

    __slots__ = ("_before", "_behind", "_learned")

    def __init__(self) -> None:
        self._before = b""
        self._behind = b""
        self._learned = 0

    def text_length(self, event: bytes) -> int:
        """Return the length of the text in an event that fits the template, otherwise -1."""
        before, behind = self._before, self._behind
        if before and event.startswith(before) and event.endswith(behind):
            end = len(event) - len(behind)
            match = _PLAIN.match(event, len(before), max(end, 0))
            if match is not None and match.end() == end:
                return end - len(before)
        return -1

    def text(self, event: bytes) -> bytes | None:
        """Return the undecoded text of an event that fits the template, otherwise None."""
        chars = self.text_length(event)
        if chars < 0:
            return None
        start = len(self._before)
        return event[start : start + chars]

    def learn(self, event: bytes, text: str) -> None:
        """Learn the bytes around ``text``, a string in the decoded ``event``."""
        if self._learned >= LEARNED_MAX or not text.isascii() or self.text_length(event) >= 0:
            return
        string = b'"%b"' % text.encode()
        start = event.find(string)
        # A string that occurs twice is ambiguous; before a colon it is a field's name.
        if (
            start < 0
            or event.find(string, start + 1) >= 0
            or _PLAIN.fullmatch(string[1:-1]) is None
        ):
            return
        end = start + len(string)
        if event[end : end + 4].lstrip().startswith(b":"):
            return
        self._learned += 1
        self._before, self._behind = event[: start + 1], event[end - 1 :]
