"""Sessions of agents: a prompt that holds the whole plan of what the vendor says, round by round.

A coding client sends its whole history with each call, so the vendor needs no memory: it looks for
the plan (`[[session …]]`, JSON in URL-safe base64, as no shell, prompt template or JSON text
changes it), counts the calls of tools that follow it, and plays the step that is due. What a step
expects must stand in the history after the last call, if there was one, else the vendor refuses: a
result that was lost or garbled on its way ends the session with a reason.
Pure; knows the shape that a call of a tool has in each family, and nothing else of them. Imported
by server.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from demo.family import ModelRequest, Tool, ToolCall
from tests.vendor.family import Refusal

OPENING = b"[[session "
MARK = re.compile(r"\[\[session ([A-Za-z0-9_=-]+)\]\]")
# `type` of a call: in messages, then in responses.
CALL_TYPES = ("tool_use", "function_call", "custom_tool_call")
CALL_FIELDS = ("functionCall", "function_call")  # of a part of generate-content


@dataclass(frozen=True, slots=True)
class Turn:
    """The due part of a session: calls to make, or the words that end it."""

    calls: tuple[ToolCall, ...] = ()
    say: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """Calls to make, or words to say; `expect` is what the results before it must hold."""

    calls: tuple[tuple[str, Any], ...] = ()
    say: str = ""
    expect: tuple[str, ...] = ()


def marker(steps: list[dict[str, Any]]) -> str:
    """Return the text for a prompt; steps have `call` ([[name, arguments], …]) or `say`."""
    text = json.dumps(steps, separators=(",", ":")).encode()
    return f"[[session {base64.urlsafe_b64encode(text).decode()}]]"


def turn(body: dict[str, Any], ask: ModelRequest) -> Turn | None:
    """The due part of the plan in `body`; None where there is no plan or it is not for this call.

    Clients ask for titles and the like beside their work: calls without tools.
    """
    reading = _Reading()
    for word in _words(body):
        reading.read(word)
    if not reading.plan:
        return None
    step = _due(_steps(reading.plan), reading.calls)
    rest = "\n".join(reading.after)
    for word in step.expect:
        if word not in rest:
            problem = f"what follows call {reading.calls} of the session lacks '{word}'"
            raise Refusal(problem, kind="plain")
    if not step.calls:
        return Turn(say=step.say)
    if not ask.tools:
        return None
    offered = {tool.name: tool for tool in ask.tools}
    calls = enumerate(step.calls, reading.calls)
    return Turn(
        tuple(_call(number, name, arguments, offered) for number, (name, arguments) in calls)
    )


class _Reading:
    """The last plan of a history, and what follows the place where it was first given."""

    def __init__(self) -> None:
        self.plan = ""
        self.calls = 0
        self.after: list[str] = []

    def read(self, word: str | None) -> None:
        """A string of the history, or None for a call of a tool."""
        if word is None:
            self.calls += 1
            self.after = []
            return
        for plan in MARK.findall(word):
            if plan != self.plan:
                self.plan, self.calls = plan, 0
        self.after.append(word)


def _words(value: Any) -> Iterator[str | None]:
    """All strings in the order of the document, and None where a call of a tool ends."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from _words(entry)
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from _words(entry)
            if name in CALL_FIELDS and isinstance(entry, dict):
                yield None
            elif name == "tool_calls" and isinstance(entry, list):
                yield from (None,) * len(entry)
        if value.get("type") in CALL_TYPES:
            yield None


def _steps(plan: str) -> list[Step]:
    try:
        decoded = json.loads(base64.urlsafe_b64decode(plan))
        if not isinstance(decoded, list):
            raise TypeError("not a list of steps")
        return [
            Step(
                tuple((str(name), arguments) for name, arguments in step.get("call", ())),
                str(step.get("say", "")),
                tuple(map(str, step.get("expect", ()))),
            )
            for step in decoded
        ]
    except (ValueError, TypeError, AttributeError) as error:
        raise Refusal(f"the session is no plan: {error}", kind="plain") from error


def _due(steps: list[Step], calls_made: int) -> Step:
    for step in steps:
        if calls_made <= 0:
            return step
        calls_made -= len(step.calls)
    raise Refusal("the session is over: there was a call after its last step", kind="plain")


def _call(number: int, name: str, arguments: Any, offered: dict[str, Tool]) -> ToolCall:
    tool = offered.get(name)
    if tool is None:
        names = ", ".join(offered)
        raise Refusal(f"the session wants the tool '{name}' of: {names}", kind="plain")
    call_id = f"{number:012x}"
    if tool.custom:
        return ToolCall(call_id, name, str(arguments), custom=True)
    if isinstance(arguments, str):
        # Free text, for a tool that became a function on its way here.
        arguments = {next(iter(tool.schema.get("properties", ())), "input"): arguments}
    return ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False))
