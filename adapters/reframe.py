"""Answers in the other form than the requested one: events instead of one object, or the reverse.

Both are decoded into ``adapters.ir`` and written anew. Here are a stream encoder that gathers a
whole answer, and the events of a whole answer. Sans-io. Imported by ``translate``.
"""

from collections.abc import Iterator

from adapters.family.codec import AnswerContext, StreamEncoder
from adapters.family.gathered_answer import GatheredAnswer
from adapters.faults import Fault
from adapters.ir.answer import (
    Choice,
    Cited,
    Closed,
    Delta,
    Event,
    Finished,
    Logprob,
    Opened,
    Pictured,
    Sealed,
)
from adapters.ir.parts import Media, Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import VALUES_AT_ONCE, Steps
from store.values.usage import Usage


class GatheringEncoder(StreamEncoder):
    """An encoder that writes nothing and gathers the answer. ``end`` sets ``usage``."""

    def __init__(self, context: AnswerContext) -> None:
        super().__init__(context)
        self.usage: Usage | None = None
        self._answer = GatheredAnswer()

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The choices so far."""
        return self._answer.choices()

    def begin(self) -> bytes:
        self.started = True
        return b""

    def write(self, event: Event) -> bytes:
        self._answer.take(event)
        return b""

    def repeat(self, text: bytes) -> bytes:
        raise AssertionError("a gathered stream is fed whole events")  # pragma: no cover

    def end(self, usage: Usage | None) -> bytes:
        self.usage = usage
        return b""

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        return b""


def replay(choices: tuple[Choice, ...], encoder: StreamEncoder, usage: Usage) -> Steps[bytes]:
    """Return the stream frames of a whole answer, in steps."""
    frames = [encoder.begin()]
    slot = 0
    for index, choice in enumerate(choices):
        logprobs = choice.logprobs
        for part in choice.parts:
            if not slot % VALUES_AT_ONCE:
                yield False
            frames += map(encoder.write, _events(part, slot, index, logprobs))
            logprobs = () if isinstance(part, Text) else logprobs
            slot += 1
    for index, choice in enumerate(choices):
        end = Finished(choice.finish, index, choice.stop_sequence, choice.detail)
        frames.append(encoder.write(end))
    frames.append(encoder.end(usage))
    return b"".join(frames)


def _events(part: Part, slot: int, index: int, logprobs: tuple[Logprob, ...]) -> Iterator[Event]:
    """Yield the events for one part of an answer."""
    if isinstance(part, ToolCall):
        yield Opened(
            *(slot, "call", index, part.id, part.name, part.custom), namespace=part.namespace
        )
        yield Delta(slot, part.arguments)
    elif isinstance(part, Reasoning):
        yield Opened(slot, "reasoning", index, summary=part.summary)
        if part.text:
            yield Delta(slot, part.text)
        if part.opaque:
            yield Sealed(slot, part.opaque)
    elif isinstance(part, Text):
        yield Opened(slot, "text", index)
        yield Delta(slot, part.text, logprobs)
        for citation in part.citations:
            yield Cited(slot, citation)
    elif isinstance(part, Refusal):
        yield Opened(slot, "refusal", index)
        yield Delta(slot, part.text)
    else:
        if isinstance(part, Media):
            yield Pictured(part.mime, part.data, index)
        return
    yield Closed(slot)
