"""Opaque reasoning carried through clients of the chat completions family, whose wire format has no
field for it.

Each piece is ``OPAQUE/START:END``, and blanks separate pieces, so that deltas can be joined. START
and END are the piece's characters in ``reasoning_content``. A trailing "s" marks a summary, and "t"
a piece that follows text of the answer. Clients send back only some fields of a message, but with
tool calls at least the calls. So pieces are in the ``extra_content`` of the call that follows them:
Google's pieces in the field that Google's endpoint of this family uses for its own signatures, all
others under ``gw``. Without calls they are in ``reasoning_opaque`` of the message.
"""

import re
from collections.abc import Iterable
from typing import Any

from adapters.family.opaque import PREFIX
from adapters.ir.parts import Reasoning
from adapters.json.jsonio import Spans, decode_element, dumps, replace

FIELD = "reasoning_opaque"
BETWEEN = "\n\n"  # between two reasoning parts in reasoning_content

_GOOGLES = f"{PREFIX}generate_content."
_OF_MESSAGES = f"{PREFIX}messages."
_PLACE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})(s?)(t?)")


def piece(opaque: str, place: tuple[int, int], *, summary: bool, late: bool) -> str:
    """Return a piece of opaque state. ``place``: its text's slice of ``reasoning_content``;
    ``late``: it follows text of the answer."""
    flags = ("s" if summary else "") + ("t" if late else "")
    return f"{opaque}/{place[0]}:{place[1]}{flags}"


def extra_content(pieces: list[str]) -> dict[str, Any]:
    """Return the ``extra_content`` of the tool call after these pieces, of which there is at least
    one."""
    joined = " ".join(pieces)
    if joined.startswith(_GOOGLES):
        return {"google": {"thought_signature": joined}}
    return {"gw": joined}


def pieces_of_call(call: dict[str, Any]) -> str:
    """Return the pieces in the ``extra_content``, of any shape, of a client's call."""
    extra = call.get("extra_content")
    if not isinstance(extra, dict):
        return ""
    google = extra.get("google")
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return " ".join(text for text in (extra.get("gw"), signature) if isinstance(text, str))


class ReasoningPieces:
    """The reasoning of one message in a client's history, each part once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left_chars = len(text)  # bounds overlapping slices, which the gateway never writes
        self._seen: set[str] = set()

    def read(self, carried: object, *, late: bool | None = None) -> list[Reasoning]:
        """Return the parts of these pieces that were not read before. ``late``: only those with
        this flag, or all if None."""
        parts: list[Reasoning] = []
        for word in carried.split() if isinstance(carried, str) else ():
            opaque, _, tail = word.rpartition("/")
            match = _PLACE.fullmatch(tail)
            if match is None:
                opaque, begin, end, summary, behind = word, 0, 0, False, False
            else:
                begin, end = int(match[1]), min(int(match[2]), len(self._text))
                summary, behind = bool(match[3]), bool(match[4])
            if opaque not in self._seen and late in (None, behind):
                self._seen.add(opaque)
                text = self._slice(begin, end)
                parts.append(Reasoning(text, summary=summary, opaque=opaque))
        return parts

    def _slice(self, begin: int, end: int) -> str:
        chars = max(0, end - begin)
        if chars > self._left_chars:
            return ""
        self._left_chars -= chars
        return self._text[begin:end]


def join_texts(parts: Iterable[Reasoning]) -> tuple[str, list[tuple[int, int]]]:
    """Return the ``reasoning_content`` of reasoning parts, and each part's place in it."""
    text, places = "", []
    for part in parts:
        if text and part.text:
            text += BETWEEN
        places.append((len(text), len(text) + len(part.text)))
        text += part.text
    return text, places


def without_foreign(spans: Spans, upstream_model: str) -> bytes:
    """Return a client's body without the state that translated answers left in its messages. Other
    messages keep their bytes (see ``family.codec.ClientCodec``)."""
    span = spans.get("messages")
    if span is None:
        return spans.body
    array = spans.body[span.start : span.end].decode()
    messages: list[str] = []
    at = 1
    while (decoded := decode_element(array, at)) is not None:
        message, end = decoded
        cleaned = isinstance(message, dict) and _clean(message)
        messages.append(dumps(message).decode() if cleaned else array[at:end].lstrip(" \t\r\n,"))
        at = end
    return replace(spans.body, {span: f"[{','.join(messages)}]".encode()})


def _clean(message: dict[str, Any]) -> bool:
    """Remove the gateway's state from a message. Return true if there was any."""
    state = message.pop(FIELD, None)
    removed = [state] if state is not None else []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            removed += _clean_call(call)
    # Strict vendors also refuse the field, but vendors that also speak messages require it.
    if any(not str(state).startswith(_OF_MESSAGES) for state in removed):
        message.pop("reasoning_content", None)
    return bool(removed)


def _clean_call(call: dict[str, Any]) -> list[Any]:
    """Remove the gateway's state from a call and return it."""
    extra = call.get("extra_content")
    if not isinstance(extra, dict):
        return []
    removed = [extra.pop("gw")] if extra.get("gw") is not None else []
    google = extra.get("google")
    if isinstance(google, dict) and _is_ours(google.get("thought_signature")):
        removed.append(google.pop("thought_signature"))
        if not google:
            del extra["google"]
    if removed and not extra:
        del call["extra_content"]
    return removed


def _is_ours(value: object) -> bool:
    return isinstance(value, str) and value.startswith(PREFIX)
