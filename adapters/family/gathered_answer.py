"""A whole answer gathered from the events of a stream.

Imported by families that decode whole answers like a chunk, and by ``adapters.reframe``.
"""

from dataclasses import dataclass, field

from adapters.ir.answer import (
    Choice,
    Cited,
    Delta,
    Event,
    Finished,
    Logprob,
    Opened,
    Pictured,
    Sealed,
)
from adapters.ir.parts import Citation, Media, Part, Reasoning, Refusal, Text, ToolCall


@dataclass(slots=True)
class _Slot:
    opened: Opened
    pieces: list[str] = field(default_factory=list)
    opaque: str = ""
    citations: list[Citation] = field(default_factory=list)

    def part(self) -> Part:
        text = "".join(self.pieces)
        opened = self.opened
        if opened.kind == "call":
            return ToolCall(opened.id, opened.name, text, opened.custom, opened.namespace)
        if opened.kind == "reasoning":
            return Reasoning(text, summary=opened.summary, opaque=self.opaque)
        if opened.kind == "refusal":
            return Refusal(text)
        return Text(text, citations=tuple(self.citations))


class GatheredAnswer:
    """The choices of an answer. Parts are in the order in which their slots close."""

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._parts: dict[int, list[Part]] = {}
        self._finished: dict[int, Finished] = {}
        self._logprobs: dict[int, list[Logprob]] = {}

    def take(self, event: Event) -> None:
        """Add the next event of the stream."""
        if isinstance(event, Opened):
            self._slots[event.slot] = _Slot(event)
            self._parts.setdefault(event.choice, [])
        elif isinstance(event, Finished):
            self._finished[event.choice] = event
        elif isinstance(event, Pictured):
            picture = Media("image", event.mime, event.data)
            self._parts.setdefault(event.choice, []).append(picture)
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

    def choices(self) -> tuple[Choice, ...]:
        """Return the choices in order; at least one."""
        indexes: list[int] = sorted({*self._parts, *self._finished}) or [0]
        return tuple(map(self._choice, indexes))

    def _choice(self, index: int) -> Choice:
        finished = self._finished.get(index) or Finished("stop")
        return Choice(
            tuple(self._parts.get(index, ())),
            finished.finish,
            finished.stop_sequence,
            finished.detail,
            tuple(self._logprobs.get(index, ())),
        )
