"""The stream of an answer for a client, as events or as elements of one JSON array.

Calls are whole here and wait for the end of their slot. Imported by this folder's ``__init__``.
"""

from typing import Any

from adapters.family.codec import Asked, StreamEncoder
from adapters.faults import Fault
from adapters.generate_content.codec.encode_answer import (
    base_fields,
    content,
    finish_fields,
    grounding_fields,
    keeps_broken_calls,
    logprobs_fields,
    usage_fields,
)
from adapters.generate_content.codec.wire.parts import call_part, is_whole, signature
from adapters.generate_content.fault import encode_stream_fault
from adapters.ir.answer import Cited, Closed, Delta, Event, Finished, Opened, Sealed
from adapters.ir.parts import Citation, ToolCall
from adapters.ir.usage import Usage
from adapters.json.jsonio import dumps, dumps_text


class _Slot:
    """A slot that is open; of a call the arguments so far, of a text where it begins."""

    __slots__ = ("ascii", "base_bytes", "opened", "pieces")

    def __init__(self, opened: Opened, base_bytes: int) -> None:
        self.opened = opened
        self.pieces: list[str] = []
        self.base_bytes = base_bytes  # of the candidate's text before
        self.ascii = True  # so far: characters are bytes


class _Candidate:
    """What is held of a choice until its last chunk, or the next part that takes it."""

    __slots__ = ("broken", "finish", "pending", "sources", "text_bytes")

    def __init__(self) -> None:
        self.pending = ""  # opaque state that waits for its part
        self.broken: list[dict[str, Any]] = []  # calls whose arguments are no JSON
        self.sources: list[tuple[Citation, int | None, int | None]] = []
        self.text_bytes = 0
        self.finish: Finished | None = None


class ChunkEncoder(StreamEncoder):
    """Writes one stream (see ``StreamEncoder``)."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self._array = asked.framing == "json_array"
        self._sent = False
        self._ended = False
        self._slots: dict[int, _Slot] = {}
        self._candidates: dict[int, _Candidate] = {}
        self._behind = b',"index":%%d}],%b' % dumps(base_fields(asked))[1:].replace(b"%", b"%%")
        self._around = b"", b""  # what stands before and behind the text of the last Delta
        self._last = _Candidate()  # of the last Delta

    def begin(self) -> bytes:
        """Nothing: a stream of this family begins with its first part."""
        self.started = True
        return b""

    def write(self, event: Event) -> bytes:
        """See ``StreamEncoder``."""
        if isinstance(event, Delta):
            return self._delta(event)
        if isinstance(event, Opened):
            return self._open(event)
        if isinstance(event, Closed):
            return self._close(self._slots.pop(event.slot))
        if isinstance(event, Sealed):
            return self._seal(self._slots[event.slot], event.opaque)
        if isinstance(event, Cited):
            self._cite(self._slots[event.slot], event.citation)
        else:
            self._candidate(event.choice).finish = event
        return b""

    def repeat(self, text: bytes) -> bytes:
        """See ``StreamEncoder``."""
        before, behind = self._around
        self._last.text_bytes += len(text)
        return before + text + behind

    def end(self, usage: Usage | None) -> bytes:
        """The last chunk has the finish of each candidate, and the usage."""
        chunk: dict[str, Any] = {
            "candidates": [
                self._last_of(index, candidate)
                for index, candidate in sorted(self._candidates.items())
                if candidate.finish is not None
            ]
        }
        if usage is not None:
            chunk["usageMetadata"] = usage_fields(usage)
        self._ended = True
        last = self._frame(dumps(chunk | base_fields(self.asked)))
        return last + b"]" if self._array else last

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """The chunk of an error; of events the same object bare behind it, as this family's own
        streams have it: some clients see a failure in the one alone, some in the other."""
        if self._ended:
            return b""
        error = encode_stream_fault(fault)
        if self._array:
            return self._frame(error) + b"]"
        return self._frame(error) + error + b"\n"

    def _candidate(self, choice: int) -> _Candidate:
        found = self._candidates.get(choice)
        if found is None:
            found = self._candidates[choice] = _Candidate()
        return found

    def _open(self, event: Opened) -> bytes:
        candidate = self._candidate(event.choice)
        self._slots[event.slot] = _Slot(event, candidate.text_bytes)
        # What is pending belongs to what came before this thought.
        return self._flush(event.choice) if event.kind == "reasoning" else b""

    def _delta(self, event: Delta) -> bytes:
        slot = self._slots[event.slot]
        kind, choice = slot.opened.kind, slot.opened.choice
        if kind == "call":
            slot.pieces.append(event.text)
            return b""
        if not event.text and not event.logprobs:
            return b""
        text = dumps_text(event.text)
        thought = kind == "reasoning"
        self._last = candidate = self._candidate(choice)
        if not thought:
            slot.ascii = slot.ascii and event.text.isascii()
            candidate.text_bytes += len(event.text.encode(errors="replace"))
        else:
            self._last = _Candidate()  # a thought is no text: what repeats it counts nowhere
        if event.logprobs:
            part = {"text": event.text}
            return self._chunk(choice, [part], logprobs_fields(event.logprobs))
        before = self._lead() + b'{"candidates":[{"content":{"parts":[{"text":"'
        behind = b'","thought":true}' if thought else b'"}'
        behind += b'],"role":"model"}' + self._behind % choice
        behind += b"" if self._array else b"\r\n\r\n"
        first, self._sent = not self._sent, True
        self._around = (b",\r\n" + before[1:] if self._array and first else before), behind
        return before + text[1:-1] + behind

    def _close(self, slot: _Slot) -> bytes:
        opened = slot.opened
        if opened.kind != "call":
            return b""
        candidate = self._candidate(opened.choice)
        arguments = "".join(slot.pieces)
        call = ToolCall(opened.id, opened.name, arguments, opened.custom)
        part = call_part(call, opened.name)
        if not call.custom and not is_whole(arguments):
            candidate.broken.append(part)  # whether it was cut is known at the end
            return b""
        if candidate.pending:
            part["thoughtSignature"] = signature(candidate.pending)
            candidate.pending = ""
        return self._chunk(opened.choice, [part], {})

    def _seal(self, slot: _Slot, opaque: str) -> bytes:
        choice = slot.opened.choice
        flushed = self._flush(choice)
        self._candidate(choice).pending = opaque
        return flushed

    def _flush(self, choice: int) -> bytes:
        """Pending state, on a text of its own."""
        candidate = self._candidate(choice)
        if not candidate.pending:
            return b""
        part = {"text": "", "thoughtSignature": signature(candidate.pending)}
        candidate.pending = ""
        return self._chunk(choice, [part], {})

    def _cite(self, slot: _Slot, citation: Citation) -> None:
        start, end = citation.start, citation.end
        known = slot.ascii and start is not None and end is not None
        self._candidate(slot.opened.choice).sources.append((
            citation,
            slot.base_bytes + start if known and start is not None else None,
            slot.base_bytes + end if known and end is not None else None,
        ))  # fmt: skip

    def _last_of(self, index: int, candidate: _Candidate) -> dict[str, Any]:
        finish = candidate.finish
        assert finish is not None
        parts = candidate.broken if keeps_broken_calls(finish.finish) else []
        if candidate.pending:
            parts = [*parts, {"text": "", "thoughtSignature": signature(candidate.pending)}]
        return {
            "content": content(parts),
            **finish_fields(finish.finish, finish.detail),
            "index": index,
            **grounding_fields(candidate.sources),
        }

    def _chunk(self, choice: int, parts: list[dict[str, Any]], more: dict[str, Any]) -> bytes:
        candidate = {"content": content(parts), "index": choice, **more}
        return self._frame(dumps({"candidates": [candidate], **base_fields(self.asked)}))

    def _frame(self, data: bytes) -> bytes:
        lead = self._lead()
        self._sent = True
        return lead + data if self._array else lead + data + b"\r\n\r\n"

    def _lead(self) -> bytes:
        if not self._array:
            return b"data: "
        return b",\r\n" if self._sent else b"["
