"""Ids for tool calls that some servers of this family send without one.

Clients answer a call by its id, so each such call gets a unique id; calls with an id stay
unchanged. Imported by the readers of whole answers and of streams of this family.
"""

import secrets
from collections.abc import Iterator
from typing import Any

from adapters.family.reply import dicts, loads_answer
from adapters.faults import Fault
from adapters.json.jsonio import Struct, dumps, locate, replace

MAX_CALLS = 1024  # limit of distinct calls in one stream


class _Call(Struct, gc=False):
    id: Any = None


class _Message(Struct, gc=False):
    tool_calls: list[_Call] | None = None


class AnsweredChoice(Struct, gc=False):
    """The calls of a choice of a whole answer."""

    message: _Message | None = None


def lacks_call_id(choice: AnsweredChoice) -> bool:
    """Return true if a call of the choice has no id."""
    message = choice.message
    if message is None or not message.tool_calls:
        return False
    return not all(call.id for call in message.tool_calls)


def with_call_ids(body: bytes) -> bytes:
    """Return a whole answer, its choices written anew, with an id for each call that has none.
    Return the same object if no id is missing or the answer cannot be written."""
    choices = loads_answer(body).get("choices")
    calls = [call for call in _calls(choices, "message") if not call.get("id")]
    if not calls:
        return body
    for call in calls:
        call["id"] = _new_id()
    try:
        place = locate(body, "choices")
        return body if place is None else replace(body, {place: dumps(choices)})
    except (Fault, OverflowError):  # not strictly readable, or not writable
        return body


class StreamedCallIds:
    """The calls of one stream that started without an id, by choice, index and name."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: set[tuple[object, object, object]] = set()

    def complete(self, chunk: dict[str, Any]) -> bytes | None:
        """Return the event of a decoded chunk, with an id for each call that starts in it without
        one. None if there is no such call."""
        missing = False
        for choice in dicts(chunk.get("choices")):
            for call in _calls([choice], "delta"):
                missing = self._complete(choice.get("index"), call) or missing
        try:
            return b"data: %b\n\n" % dumps(chunk) if missing else None
        except OverflowError:  # a nesting depth or a number that cannot be written
            return None

    def _complete(self, choice: object, call: dict[str, Any]) -> bool:
        if call.get("id"):
            return False
        tool = call.get("custom") or call.get("function")
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            return False
        # Some servers repeat the name in each chunk of a call.
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
