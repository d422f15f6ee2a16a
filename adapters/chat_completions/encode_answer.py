"""Encoding of answers for clients of the chat completions family, both whole and streamed.

A message has one text, one reasoning text and a list of calls, so parts are merged by kind. Most
frames differ from the last one only in one string, so the bytes around it are made once per slot.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.chat_completions.client import encode_stream_fault
from adapters.chat_completions.reasoning_state import (
    BETWEEN,
    FIELD,
    extra_content,
    join_texts,
    piece,
)
from adapters.family.codec import AnswerContext, StreamEncoder
from adapters.faults import Condition, Fault
from adapters.ir.answer import (
    Choice,
    Cited,
    Closed,
    Delta,
    Event,
    Finish,
    Finished,
    Logprob,
    Opened,
    Pictured,
    Sealed,
    SlotKind,
)
from adapters.ir.parts import Citation, Media, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import dumps, dumps_text
from adapters.json.structure import VALUES_AT_ONCE, Steps
from store.values.usage import Served, Usage

ID_PREFIX = "chatcmpl-"

_FINISH_REASONS: dict[Finish, str] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tools": "tool_calls",
    "filter": "content_filter",
    "refusal": "stop",
    "pause": "stop",
    "context_full": "length",
    "error": "stop",  # of an answer with parts; an empty answer is a fault
}


def encode_answer(
    choices: tuple[Choice, ...], usage: Usage, context: AnswerContext
) -> Steps[bytes]:
    """Encode the whole answer, in steps (see ``family.codec.ClientCodec``). Raises Fault
    UPSTREAM_FAILED if the model failed before it produced anything."""
    encoded: list[dict[str, Any]] = []
    for index, choice in enumerate(choices):
        encoded.append((yield from _encode_choice(choice, index, context)))
    return dumps(
        {
            "id": ID_PREFIX + context.id,
            "object": "chat.completion",
            "created": context.created_s,
            "model": context.model,
            "choices": encoded,
            "usage": encode_usage(usage),
            **_tier(context),
        }
    )


def _tier(context: AnswerContext) -> dict[str, str]:
    return {"service_tier": context.tier} if context.tier else {}


def encode_count(tokens: int) -> bytes:
    """Raise Fault INTERNAL, because this family has no endpoint that counts tokens."""
    raise Fault(Condition.INTERNAL)


def model_failed() -> Fault:
    """Return the fault for an answer whose model failed before it produced anything."""
    return Fault(Condition.UPSTREAM_FAILED, "The upstream model failed before it answered.")


def encode_usage(usage: Usage) -> dict[str, Any]:
    """Encode the usage object. Prompt and completion include cached and reasoning tokens."""
    more = dict(usage.more)
    cached_audio = more.get("cache_read_audio", 0)
    prompt = {
        "cached_tokens": usage.cache_read_tokens + cached_audio,
        "cache_write_tokens": usage.written,
        "audio_tokens": more.get("input_audio", 0) + cached_audio,
    }
    completion = {
        "reasoning_tokens": usage.reasoning_tokens,
        "audio_tokens": more.get("output_audio", 0),
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }
    if "input_image" in more:
        prompt["image_tokens"] = more["input_image"]
    if "output_image" in more:
        completion["image_tokens"] = more["output_image"]
    return {
        "prompt_tokens": usage.inputs,
        "completion_tokens": usage.outputs,
        "total_tokens": usage.inputs + usage.outputs,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": completion,
    }


def encode_logprobs(logprobs: Iterable[Logprob]) -> dict[str, Any]:
    """Encode the ``logprobs`` of a choice."""
    return {
        "content": [
            {**_logprob(logprob), "top_logprobs": [_logprob(other) for other in logprob.top]}
            for logprob in logprobs
        ],
        "refusal": None,
    }


def encode_picture(picture: Pictured, index: int) -> dict[str, Any]:
    """Encode a picture of an answer, in the form that OpenRouter added to the family."""
    return {"type": "image_url", "index": index, "image_url": {"url": picture.url}}


def encode_annotation(citation: Citation, start: int, end: int) -> dict[str, Any]:
    """Encode a citation. ``start`` and ``end``: the place of its text in the message, used if the
    citation has no characters of its own."""
    placed = citation.start is not None and citation.end is not None
    return {
        "type": "url_citation",
        "url_citation": {
            "start_index": start + (citation.start or 0) if placed else start,
            "end_index": start + (citation.end or 0) if placed else end,
            "url": citation.url,
            "title": citation.title,
        },
    }


def finish_reason(finish: Finish, context: AnswerContext) -> str:
    """Encode why a choice ended; clients of the old form know functions in place of tools."""
    if finish == "tools" and context.function_call:
        return "function_call"
    return _FINISH_REASONS[finish]


def _encode_choice(choice: Choice, index: int, context: AnswerContext) -> Steps[dict[str, Any]]:
    if choice.finish == "error" and not choice.parts:
        raise model_failed()
    thoughts = [part for part in choice.parts if isinstance(part, Reasoning)]
    reasoning, places = join_texts(thoughts)
    yield False
    texts = [part for part in choice.parts if isinstance(part, Text)]
    refusal = "".join(part.text for part in choice.parts if isinstance(part, Refusal))
    places_by_part = {id(part): place for part, place in zip(thoughts, places, strict=True)}
    calls, left = yield from _calls(choice, places_by_part, context)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(text.text for text in texts),
        "refusal": refusal or None,
    }
    if not message["content"] and (calls or refusal):
        message["content"] = None
    if reasoning:
        message["reasoning_content"] = reasoning
    if left:
        message[FIELD] = " ".join(left)
    pictures = [part for part in choice.parts if isinstance(part, Media)]
    if pictures:
        message["images"] = [
            encode_picture(Pictured(picture.mime, picture.data), index)
            for index, picture in enumerate(pictures)
        ]
    if annotations := _annotations(texts):
        message["annotations"] = annotations
    if calls and context.function_call:
        message["function_call"] = calls[0]["function"]
    elif calls:
        message["tool_calls"] = calls
    return {
        "index": index,
        "message": message,
        "logprobs": encode_logprobs(choice.logprobs) if choice.logprobs else None,
        "finish_reason": finish_reason(choice.finish, context),
    }


def _calls(
    choice: Choice, places_by_part: dict[int, tuple[int, int]], context: AnswerContext
) -> Steps[tuple[list[dict[str, Any]], list[str]]]:
    """Encode the calls, each with the opaque pieces before it. Also return the pieces left over."""
    calls: list[dict[str, Any]] = []
    waiting: list[str] = []
    spoken = False
    for place, part in enumerate(choice.parts):
        if not place % VALUES_AT_ONCE:
            yield False
        spoken = spoken or isinstance(part, Text)
        if isinstance(part, Reasoning) and part.opaque:
            waiting.append(
                piece(part.opaque, places_by_part[id(part)], summary=part.summary, late=spoken)
            )
        elif isinstance(part, ToolCall):
            call: dict[str, Any] = {"id": part.id}
            if part.custom:
                call["type"] = "custom"
                call["custom"] = {"name": part.name, "input": part.arguments}
            else:
                call["type"] = "function"
                call["function"] = {"name": part.name, "arguments": part.arguments or "{}"}
            if waiting:
                call["extra_content"] = extra_content(waiting)
                waiting = []
            calls.append(call)
    return calls, waiting


def _annotations(texts: Sequence[Text]) -> list[dict[str, Any]]:
    annotations, start = [], 0
    for text in texts:
        end = start + len(text.text)
        annotations += [encode_annotation(citation, start, end) for citation in text.citations]
        start = end
    return annotations


def _logprob(logprob: Logprob) -> dict[str, Any]:
    data = logprob.token.encode(errors="replace")
    return {"token": logprob.token, "logprob": logprob.logprob, "bytes": list(data)}


_FIELDS: dict[SlotKind, bytes] = {
    "text": b'"content":',
    "reasoning": b'"reasoning_content":',
    "refusal": b'"refusal":',
}


@dataclass(slots=True)
class _StreamedChoice:
    """The state of one choice of a stream."""

    spoken: bool = False  # a slot was opened
    calls: int = 0
    pictures: int = 0
    text_chars: int = 0
    thought_chars: int = 0
    pieces: list[str] = field(default_factory=list)  # opaque reasoning since the last call
    annotations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Slot:
    """An open slot, with the bytes before and after its text in a frame."""

    kind: SlotKind
    choice: _StreamedChoice
    before: bytes
    behind: bytes
    chars: int = 0
    start: int = 0
    opaque: str = ""
    summary: bool = False
    cited: list[Citation] = field(default_factory=list)


def _head_of(context: AnswerContext) -> bytes:
    """Return the start of a frame, up to its choices."""
    head = {
        "id": ID_PREFIX + context.id,
        "object": "chat.completion.chunk",
        "created": context.created_s,
        "model": context.model,
        **_tier(context),
    }
    return b"data: " + dumps(head)[:-1] + b',"choices":['


class ChatEncoder(StreamEncoder):
    """Encoder of one stream: the role, deltas, a finish for each choice, usage, [DONE]."""

    def __init__(self, context: AnswerContext) -> None:
        super().__init__(context)
        self._head = _head_of(context)
        self._tail = b'],"usage":null}\n\n' if context.include_usage else b"]}\n\n"
        self._rest = b'},"logprobs":null,"finish_reason":null}' + self._tail
        self._choices: list[_StreamedChoice] = []
        self._slots: dict[int, _Slot] = {}
        self._last: _Slot | None = None  # slot of the text in the last frame

    def note_served(self, served: Served) -> None:
        super().note_served(served)
        self._head = _head_of(self.context)

    def begin(self) -> bytes:
        """See ``StreamEncoder``. Sends the role of the first choice."""
        self.started = True
        return self._roles_up_to(0)

    def write(self, event: Event) -> bytes:
        """See ``StreamEncoder``. Raises Fault UPSTREAM_FAILED if the model failed in a choice
        before it produced anything."""
        if isinstance(event, Opened):
            return self._open(event)
        if isinstance(event, Finished):
            return self._finish(event)
        slot = self._slots.get(event.slot)
        if slot is None:
            return self._picture(event) if isinstance(event, Pictured) else b""
        if isinstance(event, Delta):
            return self._delta(slot, event)
        if isinstance(event, Closed):
            return self._close(event.slot, slot)
        if isinstance(event, Sealed):
            slot.opaque = event.opaque
        elif isinstance(event, Cited):
            slot.cited.append(event.citation)
        return b""

    def repeat(self, text: bytes) -> bytes:
        slot = self._last
        if slot is None or not text:
            return b""
        slot.chars += len(text)
        return b'%b"%b"%b' % (slot.before, text, slot.behind)

    def end(self, usage: Usage | None) -> bytes:
        if usage is None or not self.context.include_usage:
            return b"data: [DONE]\n\n"
        return b'%b],"usage":%b}\n\ndata: [DONE]\n\n' % (self._head, dumps(encode_usage(usage)))

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        return encode_stream_fault(fault)

    def _roles_up_to(self, index: int) -> bytes:
        """Start the choices up to an index: clients expect them in order, the role first."""
        frames = []
        while len(self._choices) <= index:
            role = b'"role":"assistant","content":"","refusal":null'
            frames.append(self._frame(len(self._choices), role))
            self._choices.append(_StreamedChoice())
        return b"".join(frames)

    def _frame(self, choice: int, delta: bytes) -> bytes:
        return b"%b%b%b" % (self._before(choice), delta, self._rest)

    def _before(self, choice: int) -> bytes:
        return b'%b{"index":%d,"delta":{' % (self._head, choice)

    def _open(self, event: Opened) -> bytes:
        frames = self._roles_up_to(event.choice)
        choice = self._choices[event.choice]
        choice.spoken = True
        before = self._before(event.choice)
        if event.kind == "call":
            return frames + self._open_call(event, choice, before)
        slot = _Slot(event.kind, choice, before + _FIELDS[event.kind], self._rest)
        self._slots[event.slot] = slot
        if event.kind == "text":
            slot.start = choice.text_chars
        elif event.kind == "reasoning":
            slot.start, slot.summary = choice.thought_chars, event.summary
        return frames

    def _open_call(self, event: Opened, choice: _StreamedChoice, before: bytes) -> bytes:
        index, choice.calls = choice.calls, choice.calls + 1
        if self.context.function_call:
            return self._open_function(event, choice, before)
        kind, text = ("custom", "input") if event.custom else ("function", "arguments")
        call: dict[str, Any] = {
            "index": index,
            "id": event.id,
            "type": kind,
            kind: {"name": event.name, text: ""},
        }
        if choice.pieces:
            call["extra_content"] = extra_content(choice.pieces)
            choice.pieces = []
        before += b'"tool_calls":['
        more = b'{"index":%d,"%b":{"%b":' % (index, kind.encode(), text.encode())
        slot = _Slot("call", choice, before + more, b"}}]" + self._rest)
        # A custom tool's text may be empty; a function's arguments are an object.
        slot.summary = event.custom
        self._slots[event.slot] = slot
        return before + dumps(call) + b"]" + self._rest

    def _open_function(self, event: Opened, choice: _StreamedChoice, before: bytes) -> bytes:
        """Start the one call of a client that uses the old form, which has no field for another
        call."""
        if choice.calls > 1:
            return b""
        self._slots[event.slot] = _Slot(
            "call", choice, before + b'"function_call":{"arguments":', b"}" + self._rest
        )
        function = {"name": event.name, "arguments": ""}
        return before + b'"function_call":' + dumps(function) + self._rest

    def _picture(self, event: Pictured) -> bytes:
        frames = self._roles_up_to(event.choice)
        choice = self._choices[event.choice]
        choice.spoken, picture = True, encode_picture(event, choice.pictures)
        choice.pictures += 1
        return frames + self._frame(event.choice, b'"images":[%b]' % dumps(picture))

    def _delta(self, slot: _Slot, event: Delta) -> bytes:
        text = event.text
        if not text:
            return b""
        if not slot.chars and slot.kind == "reasoning" and slot.start:
            slot.start += len(BETWEEN)
            text = BETWEEN + text
            slot.chars -= len(BETWEEN)
        slot.chars += len(text)
        self._last = slot
        if event.logprobs:
            return self._with_logprobs(slot, text, event)
        return slot.before + dumps_text(text) + slot.behind

    def _with_logprobs(self, slot: _Slot, text: str, event: Delta) -> bytes:
        behind = slot.behind.replace(
            b'"logprobs":null', b'"logprobs":' + dumps(encode_logprobs(event.logprobs)), 1
        )
        return slot.before + dumps(text) + behind

    def _close(self, number: int, slot: _Slot) -> bytes:
        del self._slots[number]
        choice = slot.choice
        if slot.kind == "call":
            whole = slot.chars or slot.summary
            return b"" if whole else slot.before + b'"{}"' + slot.behind
        if slot.kind == "text":
            choice.text_chars = end = slot.start + slot.chars
            choice.annotations += [
                encode_annotation(citation, slot.start, end) for citation in slot.cited
            ]
        elif slot.kind == "reasoning":
            if slot.chars:
                choice.thought_chars = slot.start + slot.chars
            if slot.opaque:
                end = slot.start + slot.chars
                choice.pieces.append(
                    piece(
                        slot.opaque,
                        (slot.start, end),
                        summary=slot.summary,
                        late=choice.text_chars > 0,
                    )
                )
        return b""

    def _finish(self, event: Finished) -> bytes:
        frames = self._roles_up_to(event.choice)
        choice = self._choices[event.choice]
        if event.finish == "error" and not choice.spoken:
            raise model_failed()
        if choice.annotations:
            field = b'"annotations":' + dumps(choice.annotations)
            frames += self._frame(event.choice, field)
        if choice.pieces:
            field = b'"%b":%b' % (FIELD.encode(), dumps(" ".join(choice.pieces)))
            frames += self._frame(event.choice, field)
        reason = finish_reason(event.finish, self.context).encode()
        rest = b'},"logprobs":null,"finish_reason":"%b"}%b' % (reason, self._tail)
        return frames + self._before(event.choice) + rest
