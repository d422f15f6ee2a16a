"""Conversion of an upstream's answer back to the client's terms.

Tool names become the client's, structured output that was requested as a tool becomes text,
free-text tools get their text, opaque state is wrapped, and text ends at a stop sequence that the
upstream does not support. Works on whole answers and on events. Imported by ``translate``.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from adapters.family.codec import Encoded
from adapters.family.opaque import Origin, wrap
from adapters.ir.answer import (
    Choice,
    Closed,
    Delta,
    Event,
    Finish,
    Finished,
    Opened,
    Sealed,
    SlotKind,
)
from adapters.ir.parts import Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import loads_or_none
from adapters.json.structure import VALUES_AT_ONCE, Steps


class Restorer:
    """The changes to one answer of one attempt. ``answer_id``: the gateway's own id, [A-Za-z0-9]+,
    unique to this answer."""

    def __init__(self, encoded: Encoded, origin: Origin, answer_id: str) -> None:
        self._encoded = encoded
        self._origin = origin
        self._answer_id = answer_id
        self._call_ids: set[str] = set()
        self._texts: dict[int, _Cutter] = {}  # by slot
        self._unwrapped: dict[int, list[str]] = {}  # arguments of free-text tools, by slot
        self._kind_of: dict[int, SlotKind] = {}
        self._ignored: set[int] = set()  # slots after a stop sequence
        self._kinds: dict[int, set[str]] = {}  # of the slots of each choice
        self._stopped: dict[int, str] = {}  # choices ended by a stop sequence
        self._choices: dict[int, int] = {}  # choice of each slot

    def choice(self, choice: Choice) -> Steps[Choice]:
        """Restore one choice of a whole answer, in steps."""
        parts: list[Part] = []
        stopped = None
        for place, part in enumerate(map(self._part, choice.parts)):
            if not place % VALUES_AT_ONCE:
                yield False
            if isinstance(part, Text) and self._encoded.cut:
                cutter = _Cutter(self._encoded.cut)
                text = cutter.feed(part.text) + cutter.close()
                part, stopped = replace(part, text=text), cutter.stop
            parts.append(part)
            if stopped is not None:
                break
        if stopped is not None:
            return replace(
                choice, parts=tuple(parts), finish="stop_sequence", stop_sequence=stopped
            )
        kinds = {_KINDS.get(type(part), "") for part in parts}
        return replace(choice, parts=tuple(parts), finish=_finish(choice.finish, kinds))

    def events(self, events: Iterable[Event]) -> list[Event]:
        """Return the events for the client; some are delayed, some left out."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Opened):
                self._opened(event, out)
            elif isinstance(event, Finished):
                out.append(self._finished(event))
            elif event.slot in self._ignored:
                continue
            elif isinstance(event, Delta):
                self._delta(event, out)
            elif isinstance(event, Closed):
                self._closed(event, out)
            elif isinstance(event, Sealed):
                out.append(Sealed(event.slot, wrap(event.opaque, self._origin)))
            else:
                out.append(event)
        return out

    def repeats(self, event: Event) -> bool:
        """Return true if the same event with another text would pass unchanged."""
        if type(event) is not Delta or event.logprobs or event.slot in self._texts:
            return False
        return self._kind_of.get(event.slot) in ("text", "reasoning")

    def _part(self, part: Part) -> Part:
        if isinstance(part, Reasoning) and part.opaque:
            return replace(part, opaque=wrap(part.opaque, self._origin))
        if not isinstance(part, ToolCall):
            return part
        if part.name and part.name == self._encoded.output_tool:
            return Text(part.arguments)
        if (call_id := self._unique_id(part.id)) is not part.id:
            part = replace(part, id=call_id)
        tool = self._encoded.names.get(part.name)
        if tool is None:
            return part
        arguments, custom = part.arguments, tool.kind == "custom"
        if custom and not part.custom:
            arguments = free_text(arguments)
        return replace(
            part, name=tool.name, namespace=tool.namespace, custom=custom, arguments=arguments
        )

    def _unique_id(self, call_id: str) -> str:
        """Return an id unique within the answer: the upstream's own if it is unique."""
        if not call_id or call_id in self._call_ids:
            call_id = f"call_{self._answer_id}_{len(self._call_ids)}"
        self._call_ids.add(call_id)
        return call_id

    def _opened(self, event: Opened, out: list[Event]) -> None:
        slot, kind = event.slot, event.kind
        if event.choice in self._stopped:
            self._ignored.add(slot)
            return
        self._choices[slot] = event.choice
        if kind == "call":
            if event.name and event.name == self._encoded.output_tool:
                event = Opened(slot, "text", event.choice)
            else:
                if (call_id := self._unique_id(event.id)) is not event.id:
                    event = replace(event, id=call_id)
                if (tool := self._encoded.names.get(event.name)) is not None:
                    custom = tool.kind == "custom"
                    if custom and not event.custom:
                        self._unwrapped[slot] = []
                    event = replace(event, name=tool.name, namespace=tool.namespace, custom=custom)
        if event.kind == "text" and self._encoded.cut:
            self._texts[slot] = _Cutter(self._encoded.cut)
        self._kind_of[slot] = event.kind
        self._kinds.setdefault(event.choice, set()).add(event.kind)
        out.append(event)

    def _delta(self, event: Delta, out: list[Event]) -> None:
        slot = event.slot
        if (pieces := self._unwrapped.get(slot)) is not None:
            pieces.append(event.text)
        elif (cutter := self._texts.get(slot)) is not None:
            if text := cutter.feed(event.text):
                out.append(Delta(slot, text))
            if cutter.stop is not None:
                self._stopped[self._choices[slot]] = cutter.stop
                self._ignored.add(slot)
                out.append(Closed(slot))
        else:
            out.append(event)

    def _closed(self, event: Closed, out: list[Event]) -> None:
        slot = event.slot
        if (pieces := self._unwrapped.pop(slot, None)) is not None:
            out.append(Delta(slot, free_text("".join(pieces))))
        elif (cutter := self._texts.pop(slot, None)) is not None and (text := cutter.close()):
            out.append(Delta(slot, text))
        out.append(event)

    def _finished(self, event: Finished) -> Finished:
        stopped = self._stopped.get(event.choice)
        if stopped is not None:
            return Finished("stop_sequence", event.choice, stopped)
        return replace(event, finish=_finish(event.finish, self._kinds.get(event.choice, set())))


_KINDS: dict[type, str] = {ToolCall: "call", Refusal: "refusal"}


def _finish(finish: Finish, kinds: set[str]) -> Finish:
    """Return the finish, corrected by the parts: many vendors always report stop."""
    if finish not in ("stop", "tools"):
        return finish
    return "tools" if "call" in kinds else "refusal" if "refusal" in kinds else "stop"


def free_text(arguments: str) -> str:
    """Return the text for a free-text tool from its function's arguments."""
    decoded = loads_or_none(arguments.encode()) if arguments else None
    text = decoded.get("input") if isinstance(decoded, dict) else None
    return text if isinstance(text, str) else arguments


class _Cutter:
    """A cut of text at a stop sequence, which may arrive in chunks."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = [_Partial(stop) for stop in stops if stop]
        self._held = ""
        self.stop: str | None = None

    def feed(self, text: str) -> str:
        """Return the text, of all that is unsent, that may be sent now."""
        if self.stop is not None:
            return ""
        fresh, text = text, self._held + text
        places = [(text.find(stop.text), stop.text) for stop in self._stops]
        # The sequence that is complete first wins, as for a model that writes; then the longer.
        matches = [(start + len(stop), start, stop) for start, stop in places if start >= 0]
        if matches:
            _, start, self.stop = min(matches)
            return text[:start]
        held_chars = max((stop.feed(fresh) for stop in self._stops), default=0)
        self._held = text[len(text) - held_chars :]
        return text[: len(text) - held_chars]

    def close(self) -> str:
        """Return the rest, which contains no stop sequence."""
        return "" if self.stop is not None else self._held


class _Partial:
    """The number of last characters that begin a stop sequence (Knuth-Morris-Pratt). Each character
    is read a bounded number of times, however text and sequence repeat."""

    __slots__ = ("_matched", "_shorter", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._matched = 0
        self._shorter = [0]  # for each prefix, the longest proper prefix that it also ends with
        for char in text[1:]:
            self._shorter.append(self._longer(self._shorter[-1], char))

    def feed(self, text: str) -> int:
        """Return the number after this text, which does not complete the sequence."""
        most = len(self.text) - 1
        if len(text) >= most:
            self._matched, text = 0, text[len(text) - most :]
        for char in text:
            self._matched = self._longer(self._matched, char)
        return self._matched

    def _longer(self, matched: int, char: str) -> int:
        while matched and self.text[matched] != char:
            matched = self._shorter[matched - 1]
        return matched + 1 if self.text[matched] == char else 0
