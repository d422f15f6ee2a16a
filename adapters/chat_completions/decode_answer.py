"""Decoding of upstream answers of the chat completions family, both whole and streamed.

Vendors differ a lot: anything unreadable is skipped and is no error. In a stream, a delta opens the
slot of its kind and closes a slot of another kind. Calls are told apart by index and id, as far as
the vendor sends them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from adapters.chat_completions.reasoning_details import (
    Details,
    add_details,
    is_late,
    read_details,
    seal_details,
)
from adapters.family.codec import StreamDecoder, bounded
from adapters.family.reply import loads_answer
from adapters.faults import Condition, Fault
from adapters.ir.answer import (
    MAX_CITATIONS,
    MAX_LOGPROBS,
    Choice,
    Cited,
    Delta,
    Event,
    Finish,
    Finished,
    Logprob,
    Sealed,
    SlotKind,
)
from adapters.ir.parts import Citation, Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import compact
from adapters.json.structure import VALUES_AT_ONCE, Steps

MAX_CHOICES = 128  # the family's limit; higher indexes are ignored
_MAX_TOP_LOGPROBS = 20
_UNLIKELY = -9999.0  # the family's value for a vanishing probability

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "filter",
    "error": "error",
}


def decode_answer(body: bytes) -> Steps[tuple[Choice, ...]]:
    """Decode the choices in order, in steps (see ``family.codec.UpstreamCodec``)."""
    answer = loads_answer(body)
    choices = answer.get("choices") if isinstance(answer, dict) else None
    listed = choices[:MAX_CHOICES] if isinstance(choices, list) else []
    entries = [choice for choice in listed if isinstance(choice, dict)]
    if not entries:
        raise Fault(Condition.UPSTREAM_INVALID)
    entries.sort(key=read_index)
    decoded: list[Choice] = []
    for choice in entries:
        decoded.append((yield from _decode_choice(choice)))
    return tuple(decoded)


def read_index(choice: dict[str, Any]) -> int:
    """Return the index of a choice; 0 if it has no valid one."""
    index = choice.get("index")
    return index if type(index) is int and 0 <= index < MAX_CHOICES else 0


def read_finish(reason: object) -> Finish:
    """Decode the reason why a choice ended; an unknown reason counts as ``stop``."""
    return _FINISHES.get(reason, "stop") if isinstance(reason, str) else "stop"


def read_text(value: object) -> str:
    """Return the text of a string or of a list of parts; empty for anything else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    texts = (part.get("text") if isinstance(part, dict) else part for part in value)
    return "".join(text for text in texts if isinstance(text, str))


def read_reasoning(message: dict[str, Any]) -> str:
    """Return the reasoning text of a message or delta. Some vendors send it under both names,
    Mistral as parts of the content."""
    for name in ("reasoning_content", "reasoning"):
        text = message.get(name)
        if isinstance(text, str) and text:
            return text
    content = message.get("content")
    if not isinstance(content, list):
        return ""
    thoughts = (part.get("thinking") for part in content if isinstance(part, dict))
    return "".join(map(read_text, thoughts))


def read_arguments(value: object) -> str:
    """Return arguments as JSON text, even if a vendor sends an object."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | list):
        return ""
    try:
        return compact(value)
    except OverflowError:  # an infinity, or nested too deeply to be written
        return ""


def read_signature(call: dict[str, Any]) -> str:
    """Return the signature that Google's endpoint of this family adds to a call, or an empty
    text."""
    extra = call.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) else ""


def read_citations(message: dict[str, Any]) -> tuple[Citation, ...]:
    """Decode the web pages that a message or delta cites."""
    annotations = message.get("annotations")
    citations = []
    for annotation in annotations[:MAX_CITATIONS] if isinstance(annotations, list) else ():
        source = annotation.get("url_citation") if isinstance(annotation, dict) else None
        if isinstance(source, dict) and isinstance(source.get("url"), str):
            title = source.get("title")
            citations.append(
                Citation(
                    source["url"],
                    title if isinstance(title, str) else "",
                    _offset(source.get("start_index")),
                    _offset(source.get("end_index")),
                )
            )
    return tuple(citations)


def read_logprobs(choice: dict[str, Any]) -> tuple[Logprob, ...]:
    """Decode the log probabilities of the tokens of a choice, or of its delta."""
    logprobs = choice.get("logprobs")
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    tokens = []
    for entry in entries[:MAX_LOGPROBS] if isinstance(entries, list) else ():
        top_entries = entry.get("top_logprobs") if isinstance(entry, dict) else None
        tops = top_entries[:_MAX_TOP_LOGPROBS] if isinstance(top_entries, list) else []
        top = tuple(filter(None, map(_logprob, tops)))
        if (token := _logprob(entry, top)) is not None:
            tokens.append(token)
    return tuple(tokens)


def _decode_choice(choice: dict[str, Any]) -> Steps[Choice]:
    message = choice.get("message")
    parts: list[Part] = []
    for part in _parts(message) if isinstance(message, dict) else ():
        if not len(parts) % VALUES_AT_ONCE:
            yield False
        parts.append(part)
    finish = read_finish(choice.get("finish_reason"))
    return Choice(tuple(parts), finish, logprobs=read_logprobs(choice))


def _parts(message: dict[str, Any]) -> Iterator[Part]:
    thought, details = read_reasoning(message), read_details(message)
    opaque = seal_details(details) if details else ""
    if thought or opaque:
        yield Reasoning(thought, opaque=opaque)
    if text := read_text(message.get("content")):
        yield Text(text, citations=read_citations(message))
    if refusal := read_text(message.get("refusal")):
        yield Refusal(refusal)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            yield from _call(call)
    function = message.get("function_call")
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        yield ToolCall("", function["name"], read_arguments(function.get("arguments")))


def _call(call: dict[str, Any]) -> Iterator[Part]:
    custom, function = call.get("custom"), call.get("function")
    tool = custom if isinstance(custom, dict) else function
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
        return
    if signature := read_signature(call):
        yield Reasoning("", opaque=signature)
    call_id = call.get("id")
    call_id = call_id if isinstance(call_id, str) else ""
    if isinstance(custom, dict):
        yield ToolCall(call_id, tool["name"], read_text(tool.get("input")), custom=True)
    else:
        yield ToolCall(call_id, tool["name"], read_arguments(tool.get("arguments")))


def _logprob(entry: object, top: tuple[Logprob, ...] = ()) -> Logprob | None:
    if not isinstance(entry, dict):
        return None
    token, value = entry.get("token"), entry.get("logprob")
    if not isinstance(token, str) or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Infinities and NaN cannot be written; the family uses -9999 for them.
    return Logprob(token, float(value) if abs(value) < -_UNLIKELY else _UNLIKELY, top)


def _offset(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None


_MARKS = re.compile(r'["\\{}\[\]]')
_MAX_CALLS = 1024  # of one choice; no request has that many


@dataclass(slots=True)
class _StreamedCall:
    """A call of a choice. It is opened once its name is known."""

    id: str
    custom: bool
    slot: int | None = None
    done: bool = False  # it was opened and closed
    held: str = ""  # arguments that arrived before the name
    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False
    _seen: bool = False

    @property
    def whole(self) -> bool:
        """True if its arguments are one complete object."""
        return self._seen and self._depth == 0 and not self._in_string

    def follow(self, text: str) -> None:
        """Count the brackets outside strings in more of the arguments."""
        at = 0
        if self._escaped and text:
            self._escaped, at = False, 1
        skip = -1
        for match in _MARKS.finditer(text, at):
            mark = match[0]
            if match.start() == skip:
                continue
            if mark == "\\":
                skip = match.end()
                self._escaped = self._in_string and skip == len(text)
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                self._seen = True


@dataclass(slots=True)
class _StreamedChoice:
    index: int
    kind: SlotKind | None = None  # of the slot that gets text
    slot: int = 0
    calls: dict[int, _StreamedCall] = field(default_factory=dict)  # by the upstream's index
    last: int = -1  # index of the last call
    finished: bool = False
    details: Details = field(default_factory=list)  # not sealed yet
    late: bool = False  # details follow the calls, whose events wait for them
    waiting: list[Event] = field(default_factory=list)

    def of_calls(self, events: list[Event]) -> list[Event]:
        """Return the list that the events of calls go to."""
        return self.waiting if self.late else events


class ChatDecoder(StreamDecoder):
    """Decoder of one stream (see ``family.codec.StreamDecoder``)."""

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, _StreamedChoice] = {}
        self._detailed = False  # thoughts have details

    def may_skip(self, event: Delta) -> bool:
        """Return false for thoughts with details, because details are gathered."""
        return not (self._detailed and self._slots.get(event.slot) == "reasoning")

    def read(self, name: str | None, data: dict[str, Any]) -> list[Event]:
        choices = data.get("choices")
        plain = self._plain(choices)
        if plain is not None:
            return [plain]
        events: list[Event] = []
        for entry in bounded(choices) if isinstance(choices, list) else ():
            if isinstance(entry, dict):
                index = read_index(entry)
                choice = self._choices.get(index)
                if choice is None:
                    choice = self._choices[index] = _StreamedChoice(index)
                if not choice.finished:
                    self._read_choice(choice, entry, events)
        return events

    def end(self) -> list[Event]:
        """See ``StreamDecoder``. Choices without a finish get one."""
        events: list[Event] = []
        for choice in self._choices.values():
            if not choice.finished:
                self._finish(choice, "stop", events)
        return events

    def _plain(self, choices: object) -> Delta | None:
        """Decode a chunk that has only more text of the open slot, as most do."""
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            return None
        entry = choices[0]
        delta = entry.get("delta")
        if type(delta) is not dict or len(delta) != 1:
            return None
        text = delta.get("content")
        index = entry.get("index")
        choice = self._choices.get(index) if type(index) is int else None
        if choice is None or choice.kind != "text" or choice.finished or type(text) is not str:
            return None
        if not text or entry.get("finish_reason") is not None or entry.get("logprobs") is not None:
            return None
        return Delta(choice.slot, text)

    def _read_choice(
        self, choice: _StreamedChoice, entry: dict[str, Any], events: list[Event]
    ) -> None:
        delta = entry.get("delta")
        if not isinstance(delta, dict):
            delta = entry.get("message")  # some vendors send everything at once
        if isinstance(delta, dict):
            self._read_delta(choice, delta, entry, events)
        reason = entry.get("finish_reason")
        if reason and isinstance(reason, str):
            self._finish(choice, read_finish(reason), events)

    def _finish(self, choice: _StreamedChoice, finish: Finish, events: list[Event]) -> None:
        choice.finished = True
        self._close_text(choice, events)
        self._seal_rest(choice, events)
        events += choice.waiting
        choice.waiting = []
        for call in choice.calls.values():
            self._close_call(call, events)
        events.append(Finished(finish, choice.index))

    def _read_delta(
        self,
        choice: _StreamedChoice,
        delta: dict[str, Any],
        entry: dict[str, Any],
        events: list[Event],
    ) -> None:
        if thought := read_reasoning(delta):
            self._add(choice, "reasoning", thought, events)
        if details := read_details(delta):
            self._detailed = True
            add_details(choice.details, details)
            choice.late = choice.late or (not choice.calls and is_late(details))
        if text := read_text(delta.get("content")):
            self._add(choice, "text", text, events)
            if entry.get("logprobs") is not None:
                events[-1] = Delta(choice.slot, text, read_logprobs(entry))
        if refusal := read_text(delta.get("refusal")):
            self._add(choice, "refusal", refusal, events)
        if delta.get("annotations"):
            self._cite(choice, delta, events)
        calls = delta.get("tool_calls")
        for call in bounded(calls) if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._read_call(choice, call, events)
        function = delta.get("function_call")
        if isinstance(function, dict):
            self._read_call(choice, {"index": 0, "function": function}, events)

    def _add(self, choice: _StreamedChoice, kind: SlotKind, text: str, events: list[Event]) -> None:
        if choice.kind != kind:
            self._close_text(choice, events)
            self._close_whole_calls(choice, choice.of_calls(events))
            opened = self._open(kind, choice=choice.index)
            choice.kind, choice.slot = kind, opened.slot
            events.append(opened)
        events.append(Delta(choice.slot, text))

    def _cite(self, choice: _StreamedChoice, delta: dict[str, Any], events: list[Event]) -> None:
        if choice.kind == "text":
            events += [Cited(choice.slot, citation) for citation in read_citations(delta)]

    def _close_text(self, choice: _StreamedChoice, events: list[Event]) -> None:
        if choice.kind is not None:
            if choice.kind == "reasoning" and choice.details:
                events.append(Sealed(choice.slot, self._seal(choice)))
            choice.kind = None
            events.append(self._close(choice.slot))

    def _seal(self, choice: _StreamedChoice) -> str:
        details, choice.details = choice.details, []
        return seal_details(details)

    def _seal_rest(self, choice: _StreamedChoice, events: list[Event]) -> None:
        """Add details that came without a thought as a thought without text."""
        if choice.details:
            thought = self._open("reasoning", choice=choice.index)
            seal = Sealed(thought.slot, self._seal(choice))
            events += [thought, seal, self._close(thought.slot)]

    def _close_call(self, call: _StreamedCall, events: list[Event]) -> None:
        if call.slot is not None:
            events.append(self._close(call.slot))
            call.slot = None
            call.done = True

    def _close_whole_calls(self, choice: _StreamedChoice, events: list[Event]) -> None:
        for call in choice.calls.values():
            if call.whole:
                self._close_call(call, events)

    def _read_call(
        self, choice: _StreamedChoice, entry: dict[str, Any], events: list[Event]
    ) -> None:
        custom = entry.get("custom")
        inner = custom if isinstance(custom, dict) else entry.get("function")
        inner = inner if isinstance(inner, dict) else {}
        out = choice.of_calls(events)
        call = self._call_of(choice, entry, inner, out)
        if call is None or call.done:
            return
        text = read_arguments(inner.get("input" if call.custom else "arguments"))
        call.follow(text)
        if call.slot is not None:
            if text:
                out.append(Delta(call.slot, text))
            return
        call.held += text
        name = inner.get("name")
        if not isinstance(name, str) or not name:
            return
        self._close_text(choice, events)
        if not choice.late:
            self._seal_rest(choice, events)
        if signature := read_signature(entry):
            thought = self._open("reasoning", choice=choice.index)
            out += [thought, Sealed(thought.slot, signature), self._close(thought.slot)]
        opened = self._open("call", choice=choice.index, id=call.id, name=name, custom=call.custom)
        call.slot = opened.slot
        out.append(opened)
        if call.held:
            out.append(Delta(opened.slot, call.held))
            call.held = ""

    def _call_of(
        self,
        choice: _StreamedChoice,
        entry: dict[str, Any],
        inner: dict[str, Any],
        events: list[Event],
    ) -> _StreamedCall | None:
        """Return the call that a delta belongs to, or a new one if the delta starts one. None
        beyond the limit."""
        index, call_id = entry.get("index"), entry.get("id")
        call_id = call_id if isinstance(call_id, str) else ""
        if type(index) is not int:
            # Without an index, a new id or a name starts a call.
            begins = call_id or inner.get("name") or choice.last < 0
            index = choice.last + 1 if begins else choice.last
        call = choice.calls.get(index)
        # Some servers give all calls of an answer the same index, each with its own id.
        if call is not None and call_id and call.id and call_id != call.id and inner.get("name"):
            self._close_call(call, events)
            call = None
        if call is None:
            if len(choice.calls) >= _MAX_CALLS:
                return None
            self._close_whole_calls(choice, events)
            call = choice.calls[index] = _StreamedCall(
                call_id, isinstance(entry.get("custom"), dict)
            )
        call.id = call.id or call_id
        choice.last = index
        return call
