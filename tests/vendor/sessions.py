"""Scripted agent sessions: a prompt contains the whole plan of the vendor's answers, round by
round.

A coding client sends its whole history with each call, so the vendor needs no memory. It looks for
the plan (`[[session …]]`, JSON in URL-safe base64, which no shell, prompt template or JSON text
changes), counts the tool calls after it, and plays the step that is due. What a step expects must
be in the history after the last call, if there was one. Otherwise the vendor refuses: a tool
result that was lost or garbled on its way ends the session with a reason. Pure; knows the shape of
tool calls in each family, and nothing else of them. Imported by server.
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
# `type` of a tool call: in messages, then in responses.
CALL_TYPES = ("tool_use", "function_call", "custom_tool_call")
CALL_FIELDS = ("functionCall", "function_call")  # in a part of generate-content


@dataclass(frozen=True, slots=True)
class Turn:
    """The due part of a session: tool calls to make, or the text that ends it."""

    calls: tuple[ToolCall, ...] = ()
    say: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """Tool calls to make, or text to say; `expect` is what the preceding results must contain."""

    calls: tuple[tuple[str, Any], ...] = ()
    say: str = ""
    expect: tuple[str, ...] = ()


def marker(steps: list[dict[str, Any]]) -> str:
    """Return the text for a prompt; steps have `call` ([[name, arguments], …]) or `say`."""
    text = json.dumps(steps, separators=(",", ":")).encode()
    return f"[[session {base64.urlsafe_b64encode(text).decode()}]]"


def turn(body: dict[str, Any], ask: ModelRequest) -> Turn | None:
    """Return the due part of the plan in `body`; None if there is no plan or the call is not its.

    Clients also make calls without tools, for titles and the like; these get None.
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
    """The last plan of a history, and what follows its first occurrence."""

    def __init__(self) -> None:
        self.plan = ""
        self.calls = 0
        self.after: list[str] = []

    def read(self, word: str | None) -> None:
        """Read a string of the history, or None for a tool call."""
        if word is None:
            self.calls += 1
            self.after = []
            return
        for plan in MARK.findall(word):
            if plan != self.plan:
                self.plan, self.calls = plan, 0
        self.after.append(word)


def _words(value: Any) -> Iterator[str | None]:
    """Yield all strings in the order of the document, and None where a tool call ends."""
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
        # Free text, for a tool that became a function on the way here.
        arguments = {next(iter(tool.schema.get("properties", ())), "input"): arguments}
    return ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False))
