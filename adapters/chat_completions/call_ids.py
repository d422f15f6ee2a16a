"""Ids for the calls of tools that some servers of this family send without one.

Clients answer a call by its id, so each gets one that no other has; calls with an id stay as they
are. Imported by the readers of whole answers and of streams of this family.
"""

import secrets
from collections.abc import Iterator
from typing import Any

from adapters.family.reply import dicts, loads_answer
from adapters.faults import Fault
from adapters.json.jsonio import Struct, dumps, locate, replace

MAX_CALLS = 1024  # of a stream, that are told apart


class _Call(Struct, gc=False):
    id: Any = None


class _Message(Struct, gc=False):
    tool_calls: list[_Call] | None = None


class AnsweredChoice(Struct, gc=False):
    """The calls of a choice of a whole answer."""

    message: _Message | None = None


def lacks_call_id(choice: AnsweredChoice) -> bool:
    """Return true when a call of the choice has no id."""
    message = choice.message
    if message is None or not message.tool_calls:
        return False
    return not all(call.id for call in message.tool_calls)


def with_call_ids(body: bytes) -> bytes:
    """Return a whole answer with an id for each call that has none, its choices written anew; the
    same object when nothing is missing, or it cannot be written."""
    choices = loads_answer(body).get("choices")
    calls = [call for call in _calls(choices, "message") if not call.get("id")]
    if not calls:
        return body
    for call in calls:
        call["id"] = _new_id()
    try:
        place = locate(body, "choices")
        return body if place is None else replace(body, {place: dumps(choices)})
    except (Fault, OverflowError):  # what cannot be read strictly, or written
        return body


class StreamedCallIds:
    """The calls of one stream that have begun without an id, by choice, index and name."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: set[tuple[object, object, object]] = set()

    def complete(self, chunk: dict[str, Any]) -> bytes | None:
        """Return the event of a decoded chunk with an id for each call that begins in it without
        one; None when there is none."""
        missing = False
        for choice in dicts(chunk.get("choices")):
            for call in _calls([choice], "delta"):
                missing = self._complete(choice.get("index"), call) or missing
        try:
            return b"data: %b\n\n" % dumps(chunk) if missing else None
        except OverflowError:  # a depth or a number that cannot be written
            return None

    def _complete(self, choice: object, call: dict[str, Any]) -> bool:
        if call.get("id"):
            return False
        tool = call.get("custom") or call.get("function")
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            return False
        # Some servers repeat the name in each piece of a call.
        begun = str(choice), str(call.get("index")), name
        if begun in self._begun or len(self._begun) >= MAX_CALLS:
            return False
        self._begun.add(begun)
        call["id"] = _new_id()
        return True


def _calls(choices: object, holder: str) -> Iterator[dict[str, Any]]:
    for choice in dicts(choices):
        message = choice.get(holder)
        yield from dicts(message.get("tool_calls") if isinstance(message, dict) else None)


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
