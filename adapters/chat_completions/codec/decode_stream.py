"""Streams of upstreams of the chat completions family, as events of the hub.

A delta opens the slot of its kind and closes that of another; calls are told apart by index and id,
which vendors treat in many ways. Imported by this folder's ``__init__``.
"""

import re
from typing import Any

from adapters.chat_completions.codec.decode_answer import (
    arguments_of,
    citations_of,
    finish_of,
    index_of,
    logprobs_of,
    signature_of,
    text_of,
    thought_of,
)
from adapters.family.codec import StreamDecoder, few
from adapters.ir.answer import Cited, Delta, Event, Finished, Sealed, SlotKind

_MARKS = re.compile(r'["\\{}\[\]]')
_MAX_CALLS = 1024  # of one choice, which no request has


class _Call:
    """A call of a choice. It is opened when its name is known."""

    __slots__ = (
        "_depth",
        "_escaped",
        "_in_string",
        "_seen",
        "custom",
        "done",
        "held",
        "id",
        "slot",
    )

    def __init__(self, call_id: str, custom: bool) -> None:
        self.id = call_id
        self.custom = custom
        self.slot: int | None = None
        self.done = False  # it was opened, and is closed
        self.held = ""  # arguments that came before the name
        self._depth = 0
        self._in_string = self._escaped = self._seen = False

    @property
    def whole(self) -> bool:
        """Whether its arguments are one complete object."""
        return self._seen and self._depth == 0 and not self._in_string

    def follow(self, text: str) -> None:
        """More of the arguments, of which only brackets outside of strings are looked at."""
        at = 0
        if self._escaped and text:
            self._escaped, at = False, 1
        skip = -1
        for found in _MARKS.finditer(text, at):
            mark = found[0]
            if found.start() == skip:
                continue
            if mark == "\\":
                skip = found.end()
                self._escaped = self._in_string and skip == len(text)
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                self._seen = True


class _Choice:
    __slots__ = ("calls", "finished", "index", "kind", "last", "slot")

    def __init__(self, index: int) -> None:
        self.index = index
        self.kind: SlotKind | None = None  # of the slot that takes text
        self.slot = 0
        self.calls: dict[int, _Call] = {}  # by the upstream's index; closed ones have no slot
        self.last = -1  # index of the last call
        self.finished = False


class ChatDecoder(StreamDecoder):
    """Reads one stream (see ``family.codec.StreamDecoder``)."""

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, _Choice] = {}

    def read(self, name: str | None, said: dict[str, Any]) -> list[Event]:
        """See ``StreamDecoder``."""
        choices = said.get("choices")
        plain = self._plain(choices)
        if plain is not None:
            return [plain]
        events: list[Event] = []
        for one in few(choices) if isinstance(choices, list) else ():
            if isinstance(one, dict):
                index = index_of(one)
                choice = self._choices.get(index)
                if choice is None:
                    choice = self._choices[index] = _Choice(index)
                if not choice.finished:
                    self._read_choice(choice, one, events)
        return events

    def end(self) -> list[Event]:
        """See ``StreamDecoder``; choices that were never said to be finished are, now."""
        events: list[Event] = [*super().end()]
        for choice in self._choices.values():
            if not choice.finished:
                choice.finished = True
                events.append(Finished("stop", choice.index))
        return events

    def _plain(self, choices: object) -> Delta | None:
        """The way of most chunks: nothing but more of the text that is being said."""
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            return None
        one = choices[0]
        delta = one.get("delta")
        if type(delta) is not dict or len(delta) != 1:
            return None
        text = delta.get("content")
        index = one.get("index")
        choice = self._choices.get(index) if type(index) is int else None
        if choice is None or choice.kind != "text" or choice.finished or type(text) is not str:
            return None
        if not text or one.get("finish_reason") is not None or one.get("logprobs") is not None:
            return None
        return Delta(choice.slot, text)

    def _read_choice(self, choice: _Choice, one: dict[str, Any], events: list[Event]) -> None:
        delta = one.get("delta")
        if not isinstance(delta, dict):
            delta = one.get("message")  # some send the whole at once
        if isinstance(delta, dict):
            self._read_delta(choice, delta, one, events)
        reason = one.get("finish_reason")
        if reason and isinstance(reason, str):
            choice.finished = True
            self._close_text(choice, events)
            for call in choice.calls.values():
                self._close_call(call, events)
            events.append(Finished(finish_of(reason), choice.index))

    def _read_delta(
        self, choice: _Choice, delta: dict[str, Any], one: dict[str, Any], events: list[Event]
    ) -> None:
        if thought := thought_of(delta):
            self._add(choice, "reasoning", thought, events)
        if text := text_of(delta.get("content")):
            self._add(choice, "text", text, events)
            if one.get("logprobs") is not None:
                events[-1] = Delta(choice.slot, text, logprobs_of(one))
        if refusal := text_of(delta.get("refusal")):
            self._add(choice, "refusal", refusal, events)
        if delta.get("annotations"):
            self._cite(choice, delta, events)
        calls = delta.get("tool_calls")
        for call in few(calls) if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._read_call(choice, call, events)
        function = delta.get("function_call")
        if isinstance(function, dict):
            self._read_call(choice, {"index": 0, "function": function}, events)

    def _add(self, choice: _Choice, kind: SlotKind, text: str, events: list[Event]) -> None:
        if choice.kind != kind:
            self._close_text(choice, events)
            self._close_whole_calls(choice, events)
            opened = self._open(kind, choice=choice.index)
            choice.kind, choice.slot = kind, opened.slot
            events.append(opened)
        events.append(Delta(choice.slot, text))

    def _cite(self, choice: _Choice, delta: dict[str, Any], events: list[Event]) -> None:
        if choice.kind == "text":
            events += [Cited(choice.slot, citation) for citation in citations_of(delta)]

    def _close_text(self, choice: _Choice, events: list[Event]) -> None:
        if choice.kind is not None:
            choice.kind = None
            events.append(self._close(choice.slot))

    def _close_call(self, call: _Call, events: list[Event]) -> None:
        if call.slot is not None:
            events.append(self._close(call.slot))
            call.slot = None
            call.done = True

    def _close_whole_calls(self, choice: _Choice, events: list[Event]) -> None:
        for call in choice.calls.values():
            if call.whole:
                self._close_call(call, events)

    def _read_call(self, choice: _Choice, said: dict[str, Any], events: list[Event]) -> None:
        custom = said.get("custom")
        inner = custom if isinstance(custom, dict) else said.get("function")
        inner = inner if isinstance(inner, dict) else {}
        call = self._call_of(choice, said, inner, events)
        if call is None or call.done:
            return
        text = arguments_of(inner.get("input" if call.custom else "arguments"))
        call.follow(text)
        if call.slot is not None:
            if text:
                events.append(Delta(call.slot, text))
            return
        call.held += text
        name = inner.get("name")
        if not isinstance(name, str) or not name:
            return
        self._close_text(choice, events)
        if signature := signature_of(said):
            thought = self._open("reasoning", choice=choice.index)
            events += [thought, Sealed(thought.slot, signature), self._close(thought.slot)]
        opened = self._open("call", choice=choice.index, id=call.id, name=name, custom=call.custom)
        call.slot = opened.slot
        events.append(opened)
        if call.held:
            events.append(Delta(opened.slot, call.held))
            call.held = ""

    def _call_of(
        self, choice: _Choice, said: dict[str, Any], inner: dict[str, Any], events: list[Event]
    ) -> _Call | None:
        """The call that a delta belongs to; a new one where it begins one."""
        index, call_id = said.get("index"), said.get("id")
        call_id = call_id if isinstance(call_id, str) else ""
        if type(index) is not int:
            # Without an index: a new id, or a name, begins a call.
            begins = call_id or inner.get("name") or choice.last < 0
            index = choice.last + 1 if begins else choice.last
        call = choice.calls.get(index)
        # Some servers give all calls of an answer the same index, each with an id of its own.
        if call is not None and call_id and call.id and call_id != call.id and inner.get("name"):
            self._close_call(call, events)
            call = None
        if call is None:
            if len(choice.calls) >= _MAX_CALLS:
                return None
            self._close_whole_calls(choice, events)
            call = choice.calls[index] = _Call(call_id, isinstance(said.get("custom"), dict))
        call.id = call.id or call_id
        choice.last = index
        return call
