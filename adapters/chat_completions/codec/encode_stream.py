"""Streams for clients of the chat completions family.

Most frames differ from the last one in one string alone: what stands around it is made when a slot
opens. Imported by this folder's ``__init__``.
"""

from typing import Any

from adapters.chat_completions.codec.encode_answer import (
    ID_PREFIX,
    annotation_of,
    call_ids,
    finish_reason,
    logprobs_of,
    model_failed,
    usage_of,
)
from adapters.chat_completions.codec.reasoning_state import BETWEEN, FIELD, extra_content, piece
from adapters.chat_completions.fault import encode_stream_fault
from adapters.family.codec import Asked, StreamEncoder
from adapters.faults import Fault
from adapters.ir.answer import Closed, Delta, Event, Finished, Opened, Sealed, SlotKind
from adapters.ir.parts import Citation
from adapters.ir.usage import Usage
from adapters.json.jsonio import dumps, dumps_text

_FIELDS: dict[SlotKind, bytes] = {
    "text": b'"content":',
    "reasoning": b'"reasoning_content":',
    "refusal": b'"refusal":',
}


class _Choice:
    """What was said in one choice."""

    __slots__ = ("annotations", "calls", "ids", "pieces", "spoken", "text_chars", "thought_chars")

    def __init__(self) -> None:
        self.spoken = False  # a slot was opened
        self.calls = 0
        self.ids: set[str] = set()
        self.text_chars = 0
        self.thought_chars = 0
        self.pieces: list[str] = []  # of opaque reasoning that no call has yet
        self.annotations: list[dict[str, Any]] = []


class _Slot:
    """A slot that is open, with what stands before and behind its text in a frame."""

    __slots__ = (
        "before",
        "behind",
        "chars",
        "choice",
        "cited",
        "kind",
        "opaque",
        "start",
        "summary",
    )

    def __init__(self, kind: SlotKind, choice: _Choice, before: bytes, behind: bytes) -> None:
        self.kind = kind
        self.choice = choice
        self.before = before
        self.behind = behind
        self.chars = 0
        self.start = 0
        self.opaque = ""
        self.summary = False
        self.cited: list[Citation] = []


class ChatEncoder(StreamEncoder):
    """Writes one stream: the role, deltas, a finish for each choice, usage if asked, [DONE]."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        head = {
            "id": ID_PREFIX + asked.id,
            "object": "chat.completion.chunk",
            "created": asked.created_s,
            "model": asked.model,
        }
        self._head = b"data: " + dumps(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if asked.include_usage else b"]}\n\n"
        self._rest = b'},"logprobs":null,"finish_reason":null}' + self._tail
        self._choices: list[_Choice] = []
        self._slots: dict[int, _Slot] = {}
        self._last: _Slot | None = None  # whose text the last frame had

    def begin(self) -> bytes:
        """See ``StreamEncoder``: the role of the first choice."""
        self.started = True
        return self._roles_up_to(0)

    def write(self, event: Event) -> bytes:
        """See ``StreamEncoder``. Raises Fault UPSTREAM_FAILED for a choice in which the model
        failed before it said anything."""
        if isinstance(event, Opened):
            return self._open(event)
        if isinstance(event, Finished):
            return self._finish(event)
        slot = self._slots.get(event.slot)
        if slot is None:
            return b""
        if isinstance(event, Delta):
            return self._delta(slot, event)
        if isinstance(event, Closed):
            return self._close(event.slot, slot)
        if isinstance(event, Sealed):
            slot.opaque = event.opaque
        else:
            slot.cited.append(event.citation)
        return b""

    def repeat(self, text: bytes) -> bytes:
        """See ``StreamEncoder``."""
        slot = self._last
        if slot is None or not text:
            return b""
        slot.chars += len(text)
        return b'%b"%b"%b' % (slot.before, text, slot.behind)

    def end(self, usage: Usage | None) -> bytes:
        """See ``StreamEncoder``."""
        if usage is None or not self.asked.include_usage:
            return b"data: [DONE]\n\n"
        return b'%b],"usage":%b}\n\ndata: [DONE]\n\n' % (self._head, dumps(usage_of(usage)))

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """See ``StreamEncoder``."""
        return encode_stream_fault(fault)

    def _roles_up_to(self, index: int) -> bytes:
        """Clients want to see the choices in their order, each beginning with its role."""
        frames = []
        while len(self._choices) <= index:
            role = b'"role":"assistant","content":"","refusal":null'
            frames.append(self._frame(len(self._choices), role))
            self._choices.append(_Choice())
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

    def _open_call(self, event: Opened, choice: _Choice, before: bytes) -> bytes:
        index, choice.calls = choice.calls, choice.calls + 1
        if self.asked.function_call:
            return self._open_function(event, choice, before)
        kind, text = ("custom", "input") if event.custom else ("function", "arguments")
        call: dict[str, Any] = {
            "index": index,
            "id": call_ids(event.id, choice.ids, self.asked),
            "type": kind,
            kind: {"name": event.name, text: ""},
        }
        if choice.pieces:
            call["extra_content"] = extra_content(choice.pieces)
            choice.pieces = []
        before += b'"tool_calls":['
        more = b'{"index":%d,"%b":{"%b":' % (index, kind.encode(), text.encode())
        slot = _Slot("call", choice, before + more, b"}}]" + self._rest)
        # A custom tool's text may be empty, a function's arguments are an object.
        slot.summary = event.custom
        self._slots[event.slot] = slot
        return before + dumps(call) + b"]" + self._rest

    def _open_function(self, event: Opened, choice: _Choice, before: bytes) -> bytes:
        """The one call of a client that knows no tools; it has no place for another."""
        if choice.calls > 1:
            return b""
        self._slots[event.slot] = _Slot(
            "call", choice, before + b'"function_call":{"arguments":', b"}" + self._rest
        )
        function = {"name": event.name, "arguments": ""}
        return before + b'"function_call":' + dumps(function) + self._rest

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
            b'"logprobs":null', b'"logprobs":' + dumps(logprobs_of(event.logprobs)), 1
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
            choice.annotations += [annotation_of(one, slot.start, end) for one in slot.cited]
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
            said = b'"annotations":' + dumps(choice.annotations)
            frames += self._frame(event.choice, said)
        if choice.pieces:
            said = b'"%b":%b' % (FIELD.encode(), dumps(" ".join(choice.pieces)))
            frames += self._frame(event.choice, said)
        reason = finish_reason(event.finish, self.asked).encode()
        rest = b'},"logprobs":null,"finish_reason":"%b"}%b' % (reason, self._tail)
        return frames + self._before(event.choice) + rest
