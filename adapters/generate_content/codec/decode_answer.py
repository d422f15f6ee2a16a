"""A whole answer of an upstream in the hub's words. Imported by this folder's ``__init__``."""

from typing import Any

from adapters.faults import Condition, Fault
from adapters.generate_content.codec.decode_stream import ChunkDecoder
from adapters.ir.answer import (
    Choice,
    Cited,
    Delta,
    Event,
    Finished,
    Logprob,
    Opened,
    Sealed,
)
from adapters.ir.parts import Citation, Part, Reasoning, Text, ToolCall
from adapters.ir.usage import token_count
from adapters.json.jsonio import loads_or_none
from adapters.json.structure import VALUES_AT_ONCE, Steps


def decode_answer(body: bytes) -> Steps[tuple[Choice, ...]]:
    """The candidates, in steps (see ``UpstreamCodec``); of a prompt that was blocked one without
    parts."""
    said = loads_or_none(body)
    if not isinstance(said, dict):
        raise Fault(Condition.UPSTREAM_INVALID)
    decoder = ChunkDecoder(whole=True)
    choices = _Choices()
    for place, event in enumerate(decoder.events(said)):
        if not place % VALUES_AT_ONCE:
            yield False
        choices.take(event)
    for event in decoder.end():
        choices.take(event)
    return choices.all()


def decode_count(body: bytes) -> int:
    """The tokens that the upstream has counted."""
    said = loads_or_none(body)
    tokens = token_count(said.get("totalTokens")) if isinstance(said, dict) else None
    if tokens is None:
        raise Fault(Condition.UPSTREAM_INVALID)
    return tokens


class _Slot:
    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.pieces: list[str] = []
        self.opaque = ""
        self.citations: list[Citation] = []

    def part(self) -> Part:
        text = "".join(self.pieces)
        opened = self.opened
        if opened.kind == "call":
            return ToolCall(opened.id, opened.name, text)
        if opened.kind == "reasoning":
            return Reasoning(text, summary=True, opaque=self.opaque)
        return Text(text, citations=tuple(self.citations))


class _Choices:
    """Gathers the events of an answer."""

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._parts: dict[int, list[Part]] = {}
        self._finished: dict[int, Finished] = {}
        self._logprobs: dict[int, list[Logprob]] = {}

    def take(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._slots[event.slot] = _Slot(event)
            self._parts.setdefault(event.choice, [])
        elif isinstance(event, Finished):
            self._finished[event.choice] = event
        else:
            slot = self._slots[event.slot]
            if isinstance(event, Delta):
                slot.pieces.append(event.text)
                self._logprobs.setdefault(slot.opened.choice, []).extend(event.logprobs)
            elif isinstance(event, Sealed):
                slot.opaque = event.opaque
            elif isinstance(event, Cited):
                slot.citations.append(event.citation)
            else:
                self._parts[slot.opened.choice].append(slot.part())

    def all(self) -> tuple[Choice, ...]:
        """The choices in their order; at least one."""
        indexes: list[int] = sorted({*self._parts, *self._finished}) or [0]
        return tuple(map(self._choice, indexes))

    def _choice(self, index: int) -> Choice:
        finished: Any = self._finished.get(index) or Finished("stop")
        return Choice(
            tuple(self._parts.get(index, ())),
            finished.finish,
            detail=finished.detail,
            logprobs=tuple(self._logprobs.get(index, ())),
        )
