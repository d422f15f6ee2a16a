"""Events that are like the last one but for a piece of plain text, told by their bytes alone.

Nearly all events of a stream differ in one string. What stands before and behind it is remembered
from an event that was read in full; while the next ones begin and end so, with plain text between,
they say the same and need not be decoded, which costs twice as much. Imported by the streams of
families.
"""

import re

_PLAIN = re.compile(rb"[ !#-\[\]-~]*")  # of a JSON string: ASCII without quotes and escapes
LEARNED_MAX = 16  # times a stream; a vendor whose events differ in more is not looked at again


class EventTemplate:
    """What an event of one stream had around its text."""

    __slots__ = ("_before", "_behind", "_learned")

    def __init__(self) -> None:
        self._before = b""
        self._behind = b""
        self._learned = 0

    def text_length(self, event: bytes) -> int:
        """The length of the text when ``event`` is like the last one but for it, else -1."""
        before, behind = self._before, self._behind
        if before and event.startswith(before) and event.endswith(behind):
            end = len(event) - len(behind)
            found = _PLAIN.match(event, len(before), max(end, 0))
            if found is not None and found.end() == end:
                return end - len(before)
        return -1

    def learn(self, event: bytes, text: str) -> None:
        """Remember what stands around ``text``, a string that a whole event was read to have."""
        if self._learned >= LEARNED_MAX or not text.isascii() or self.text_length(event) >= 0:
            return
        string = b'"%b"' % text.encode()
        start = event.find(string)
        # Where the same string stands twice it is not known which of them is the text; before a
        # colon it is the name of a field.
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
