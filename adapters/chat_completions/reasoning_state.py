"""Opaque reasoning on its way through clients of the chat completions family, whose wire has no
place for it.

Each piece is ``OPAQUE/START:END``; blanks divide pieces, so that deltas may be joined. The numbers
are the characters of ``reasoning_content`` that belong to it; an "s" behind them marks a summary, a
"t" that text of the answer came before. Programs send back parts of a message: with tool calls they
copy at least these, so the pieces stand in the ``extra_content`` of the call that follows, in the
place that Google's endpoint of this family has for its own signatures where they are Google's, else
under ``gw``; without calls in ``reasoning_opaque`` of the message.
"""

import re
from collections.abc import Iterable
from typing import Any

from adapters.family.opaque import PREFIX
from adapters.ir.parts import Reasoning
from adapters.json.jsonio import Spans, decode_element, dumps, replace

FIELD = "reasoning_opaque"
BETWEEN = "\n\n"  # two reasoning parts in reasoning_content

_GOOGLES = f"{PREFIX}generate_content."
_OF_MESSAGES = f"{PREFIX}messages."
_PLACE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})(s?)(t?)")


def piece(opaque: str, place: tuple[int, int], *, summary: bool, late: bool) -> str:
    """Return a piece of opaque state whose text is that slice of ``reasoning_content``; ``late``:
    text of the answer came before it."""
    flags = ("s" if summary else "") + ("t" if late else "")
    return f"{opaque}/{place[0]}:{place[1]}{flags}"


def extra_content(pieces: list[str]) -> dict[str, Any]:
    """Return the ``extra_content`` of the tool call behind these pieces; there is at least one."""
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
    """The reasoning of one message of a client's history, none of it twice."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left_chars = len(text)  # the gateway writes no overlapping places
        self._seen: set[str] = set()

    def read(self, carried: object, *, late: bool | None = None) -> list[Reasoning]:
        """Return the parts of these pieces that were not read before; only those that are ``late``,
        or are not, unless it is None."""
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
    """Return the ``reasoning_content`` of reasoning parts, and the place of each part in it."""
    text, places = "", []
    for part in parts:
        if text and part.text:
            text += BETWEEN
        places.append((len(text), len(text) + len(part.text)))
        text += part.text
    return text, places


def without_foreign(spans: Spans, upstream_model: str) -> bytes:
    """Return a client's body without the state that translated answers left in its messages; other
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
    """Remove the gateway's state from a message; return true if there was any."""
    state = message.pop(FIELD, None)
    removed = [state] if state is not None else []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            removed += _clean_call(call)
    # Strict vendors refuse the field, too. Vendors that also speak messages require it.
    if any(not str(state).startswith(_OF_MESSAGES) for state in removed):
        message.pop("reasoning_content", None)
    return bool(removed)


def _clean_call(call: dict[str, Any]) -> list[Any]:
    """Remove the gateway's state from a call, and return it."""
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
