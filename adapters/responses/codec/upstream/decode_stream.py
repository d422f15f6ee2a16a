"""Streams of upstreams, in the hub's words.

Vendors differ in what they leave out: deltas, the events that end something, or all but the whole
items, or even these until the last event. Each thing is taken where it is first said, and once.
Of text nothing is kept but whether some of it came. Imported by this folder's ``__init__``.
"""

from typing import Any

from adapters.family.codec import StreamDecoder, few
from adapters.ir.answer import Cited, Delta, Event, Finished, Sealed, SlotKind
from adapters.responses.annotations import read_citation
from adapters.responses.codec.upstream.read_items import (
    CALLS,
    citations_of,
    dicts,
    finish_of,
    read_call,
    read_logprobs,
    read_reasoning,
    text_field,
)

# Events with a piece of text: what it belongs to, the field that says which part of the item.
_DELTAS = {
    "response.output_text.delta": ("text", "content_index"),
    "response.refusal.delta": ("refusal", "content_index"),
    "response.reasoning_text.delta": ("full", "content_index"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index"),
    "response.function_call_arguments.delta": ("call", ""),
    "response.custom_tool_call_input.delta": ("call", ""),
}
# Events that say such a text as a whole -> the same with a piece of it, and the field of the text.
_WHOLE = {
    "response.output_text.done": ("response.output_text.delta", "text"),
    "response.refusal.done": ("response.refusal.delta", "refusal"),
    "response.reasoning_text.done": ("response.reasoning_text.delta", "text"),
    "response.reasoning_summary_text.done": ("response.reasoning_summary_text.delta", "text"),
    "response.function_call_arguments.done": (
        "response.function_call_arguments.delta",
        "arguments",
    ),
    "response.custom_tool_call_input.done": ("response.custom_tool_call_input.delta", "input"),
}
_PARTS = {
    "output_text": ("response.output_text.delta", "text"),
    "refusal": ("response.refusal.delta", "refusal"),
}
_ENDS = frozenset({"response.completed", "response.incomplete"})
_Place = tuple[str, int]


class _Item:
    """What came of one output item."""

    __slots__ = ("done", "form", "last", "name", "said", "slots")

    def __init__(self) -> None:
        self.name = ""  # its id
        self.slots: dict[_Place, int] = {}  # that are open
        self.said: set[_Place] = set()  # of which text came, or a source
        self.form = ""  # of a thought: which of its two forms is read
        self.last = 0  # of a thought: the part that came last
        self.done = False


class ResponsesDecoder(StreamDecoder):
    """Reads one stream (see ``family.codec.StreamDecoder``)."""

    def __init__(self) -> None:
        super().__init__()
        self._by_index: dict[int, _Item] = {}
        self._by_name: dict[str, _Item] = {}
        self._nameless = _Item()  # of a vendor that says neither index nor id

    def read(self, name: str | None, said: dict[str, Any]) -> list[Event]:
        """See ``StreamDecoder``."""
        kind = said.get("type")
        if not isinstance(kind, str):
            kind = name or ""
        if kind in _DELTAS:
            return self._delta(self._item(said), kind, said, said.get("delta"))
        if kind in _WHOLE:
            delta, field = _WHOLE[kind]
            return self._whole_text(self._item(said), delta, said, said.get(field))
        if kind == "response.output_item.added":
            return self._added(said)
        if kind == "response.output_text.annotation.added":
            return self._annotation(said)
        if kind == "response.content_part.done":
            part = said.get("part")
            if isinstance(part, dict):
                return self._part_done(self._item(said), part, said)
        elif kind == "response.output_item.done":
            item = said.get("item")
            if isinstance(item, dict):
                return self._item_done(self._item(said), item)
        elif kind in _ENDS:
            return self._ended(kind, said.get("response"))
        return []

    def _delta(self, item: _Item, kind: str, said: dict[str, Any], text: object) -> list[Event]:
        if not isinstance(text, str) or not text or item.done:
            return []
        what, field = _DELTAS[kind]
        number = _index(said, field)
        if what == "call":
            return self._arguments(item, text)
        if what in ("full", "summary"):
            return self._thought(item, what, number, text)
        slot_kind: SlotKind = "refusal" if what == "refusal" else "text"
        events, slot = self._slot(item, (what, number), slot_kind)
        item.said.add((what, number))
        logprobs = said.get("logprobs")
        return [*events, Delta(slot, text, read_logprobs(logprobs) if logprobs else ())]

    def _arguments(self, item: _Item, text: str) -> list[Event]:
        """Arguments of a call that is known: without its name they wait for the whole item."""
        slot = item.slots.get(("call", 0))
        if slot is None:
            return []
        item.said.add(("call", 0))
        return [Delta(slot, text)]

    def _thought(self, item: _Item, form: str, number: int, text: str) -> list[Event]:
        """A thought has two forms, a summary and the full text; the one that comes first is read.
        Its parts become paragraphs."""
        if item.form not in ("", form):
            return []
        item.form = form
        events, slot = self._slot(item, ("reasoning", 0), "reasoning", summary=form == "summary")
        if item.said and number != item.last:
            events.append(Delta(slot, "\n\n"))
        item.last = number
        item.said.add((form, number))
        return [*events, Delta(slot, text)]

    def _whole_text(
        self, item: _Item, kind: str, said: dict[str, Any], text: object
    ) -> list[Event]:
        """A text as a whole, of which nothing may have come yet."""
        what, field = _DELTAS[kind]
        if not isinstance(text, str) or (what, _index(said, field)) in item.said:
            return []
        return self._delta(item, kind, said, text)

    def _added(self, said: dict[str, Any]) -> list[Event]:
        """A call can begin as soon as it has a name."""
        shell, item = said.get("item"), self._item(said)
        if not isinstance(shell, dict) or text_field(shell, "type") not in CALLS or item.done:
            return []
        if not (text_field(shell, "call_id") and text_field(shell, "name")):
            return []
        return self._open_call(item, shell)[0]

    def _open_call(self, item: _Item, shell: dict[str, Any]) -> tuple[list[Event], int]:
        call = read_call(shell)
        return self._slot(
            item,
            ("call", 0),
            "call",
            id=call.id or f"call_{self._next_slot}",
            name=call.name,
            custom=call.custom,
            namespace=call.namespace,
        )

    def _annotation(self, said: dict[str, Any]) -> list[Event]:
        item, number = self._item(said), _index(said, "content_index")
        slot, citation = item.slots.get(("text", number)), read_citation(said.get("annotation"))
        if slot is None or citation is None:
            return []
        item.said.add(("cited", number))
        return [Cited(slot, citation)]

    def _part_done(self, item: _Item, part: dict[str, Any], said: dict[str, Any]) -> list[Event]:
        kind = text_field(part, "type")
        if item.done or kind not in _PARTS:
            return []
        delta, field = _PARTS[kind]
        place = (_DELTAS[delta][0], _index(said, "content_index"))
        said = {**said, "logprobs": part.get("logprobs")}
        events = self._whole_text(item, delta, said, part.get(field))
        slot = item.slots.get(place)
        if slot is not None:
            if ("cited", place[1]) not in item.said:
                events += [Cited(slot, citation) for citation in citations_of(part)]
            events.append(self._close(item.slots.pop(place)))
        return events

    def _item_done(self, item: _Item, whole: dict[str, Any]) -> list[Event]:
        """The item as a whole: what was not said before, and its end."""
        if item.done:
            return []
        events: list[Event] = []
        kind = text_field(whole, "type")
        if kind == "message":
            for number, part in enumerate(few(dicts(whole.get("content")))):
                events += self._part_done(item, part, {"content_index": number})
        elif kind in CALLS:
            opened, slot = self._open_call(item, whole)
            events += opened
            if not item.said and (arguments := read_call(whole).arguments):
                events.append(Delta(slot, arguments))
        elif kind == "reasoning":
            events += self._reasoning_done(item, whole)
        events += [self._close(slot) for slot in item.slots.values()]
        item.slots, item.said, item.done = {}, set(), True
        return events

    def _reasoning_done(self, item: _Item, whole: dict[str, Any]) -> list[Event]:
        thought = read_reasoning(whole)
        events: list[Event] = []
        text = "" if item.said else thought.text
        if text or thought.opaque:
            events, slot = self._slot(
                item, ("reasoning", 0), "reasoning", summary=thought.summary or not text
            )
            if text:
                events.append(Delta(slot, text))
            if thought.opaque:
                events.append(Sealed(slot, thought.opaque))
        return events

    def _ended(self, kind: str, response: object) -> list[Event]:
        if not isinstance(response, dict):
            response = {"status": kind.removeprefix("response.")}
        events: list[Event] = []
        for index, whole in enumerate(few(dicts(response.get("output")))):
            item = self._missing(index, text_field(whole, "id"))
            if item is not None:
                events += self._item_done(item, whole)
        events += [self._close(slot) for slot in list(self._slots)]
        if "status" not in response:
            response = {**response, "status": kind.removeprefix("response.")}
        finish, detail = finish_of(response)
        return [*events, Finished(finish, detail=detail)]

    def _missing(self, index: int, name: str) -> _Item | None:
        """The item of the last event, if it was not said before as a whole."""
        found = self._by_name.get(name) if name else None
        if found is None:
            found = self._by_index.get(index)
            if found is not None and found.name and name:
                return None  # another item stands at this place
        if found is None:
            # A vendor without indexes and ids: whatever came of it may be this item.
            if self._nameless.said or self._nameless.slots or self._nameless.done:
                return None
            if self._by_name and not self._by_index:
                return None
            return self._item({"output_index": index, "item_id": name})
        return None if found.done else found

    def _item(self, said: dict[str, Any]) -> _Item:
        """What an event is about: the item at its place, or with its id."""
        index, whole = said.get("output_index"), said.get("item")
        name = text_field(said, "item_id") or (
            text_field(whole, "id") if isinstance(whole, dict) else ""
        )
        if type(index) is int:
            item = self._by_index.get(index)
            if item is None:
                item = self._by_index[index] = _Item()
        elif name:
            item = self._by_name.get(name) or _Item()
        else:
            return self._nameless
        if name:
            item.name = item.name or name
            self._by_name.setdefault(name, item)
        return item

    def _slot(
        self, item: _Item, place: _Place, kind: SlotKind, **fields: Any
    ) -> tuple[list[Event], int]:
        """The slot of a place, and the event that opens it if it is not open."""
        slot = item.slots.get(place)
        if slot is not None:
            return [], slot
        opened = self._open(kind, **fields)
        item.slots[place] = opened.slot
        return [opened], opened.slot


def _index(said: dict[str, Any], field: str) -> int:
    value = said.get(field)
    return value if type(value) is int else 0
