"""Decoding of upstream answers of the responses family, both whole and streamed.

Vendors leave out different parts of a stream: deltas, ending events, everything except whole items,
or even these until the last event. Each part is taken once, from the first event that has it. Of a
text, the decoder only remembers whether any of it came.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from adapters.family.codec import StreamDecoder, bounded
from adapters.family.reply import dicts, text_field
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
from adapters.json.jsonio import compact, loads_or_none
from adapters.json.structure import VALUES_AT_ONCE, Steps
from adapters.responses.reasoning_state import seal


def decode_answer(body: bytes) -> Steps[tuple[Choice, ...]]:
    """Decode the one choice of a response, in steps (see ``family.codec.UpstreamCodec``)."""
    response = loads_or_none(body)
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise Fault(Condition.UPSTREAM_INVALID)
    parts: list[Part] = []
    logprobs: list[Logprob] = []
    for item in dicts(response["output"]):
        yield False
        for part_of_item in parts_of(item):
            if not len(parts) % VALUES_AT_ONCE:
                yield False
            parts.append(part_of_item)
        if item.get("type") == "message":
            for part in dicts(item.get("content")):
                logprobs += read_logprobs(part.get("logprobs"))
    finish, detail = read_finish(response)
    if finish == "stop":
        finish = _by_parts(parts)
    return (Choice(tuple(parts), finish, detail=detail, logprobs=tuple(logprobs)),)


def _by_parts(parts: list[Part]) -> Finish:
    if any(isinstance(part, ToolCall) for part in parts):
        return "tools"
    return "refusal" if any(isinstance(part, Refusal) for part in parts) else "stop"


CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_REASONS: dict[str, Finish] = {"max_output_tokens": "length", "content_filter": "filter"}


def parts_of(item: dict[str, Any]) -> Iterable[Part]:
    """Decode the parts that an item contains; none for items that no other family has."""
    kind = text_field(item, "type")
    if kind == "message":
        return message_parts(item)
    if kind in CALLS:
        return [read_call(item)]
    if kind == "reasoning":
        thought = read_reasoning(item)
        return [thought] if thought.text or thought.opaque else []
    return []


def message_parts(item: dict[str, Any]) -> Iterator[Part]:
    """Decode the non-empty texts and refusals of a message."""
    for part in dicts(item.get("content")):
        refusal, text = part.get("refusal"), part.get("text")
        if part.get("type") == "refusal" and isinstance(refusal, str) and refusal:
            yield Refusal(refusal)
        elif isinstance(text, str) and text:
            yield Text(text, citations=read_citations(part))


def read_citations(part: dict[str, Any]) -> tuple[Citation, ...]:
    """Decode the sources of a text."""
    citations = map(read_citation, dicts(part.get("annotations"))[:MAX_CITATIONS])
    return tuple(citation for citation in citations if citation is not None)


def read_call(item: dict[str, Any]) -> ToolCall:
    """Decode a call. If its call id is missing, the item's own id replaces it."""
    kind = str(item.get("type"))
    value = item.get(CALLS[kind])
    arguments = value if isinstance(value, str) else "" if value is None else _as_text(value)
    return ToolCall(
        text_field(item, "call_id") or text_field(item, "id"),
        text_field(item, "name"),
        arguments,
        custom=kind == "custom_tool_call",
        namespace=text_field(item, "namespace"),
    )


def read_reasoning(item: dict[str, Any]) -> Reasoning:
    """Decode reasoning: its summary, or otherwise its full text."""
    summary = "\n\n".join(filter(None, read_texts(item.get("summary"))))
    text = summary or "\n\n".join(filter(None, read_texts(item.get("content"))))
    return Reasoning(text, summary=bool(summary), opaque=seal(item))


def read_logprobs(entries: object) -> tuple[Logprob, ...]:
    """Decode the readable tokens with their probabilities."""
    tokens = []
    for entry in dicts(entries)[:MAX_LOGPROBS]:
        token = _logprob(entry)
        if token is not None:
            top = filter(None, map(_logprob, dicts(entry.get("top_logprobs"))))
            tokens.append(Logprob(token.token, token.logprob, tuple(top)))
    return tuple(tokens)


def read_finish(response: dict[str, Any]) -> tuple[Finish, str]:
    """Decode the reason why a response ended. Also return the vendor's word for it."""
    if response.get("status") != "incomplete":
        return "stop", ""
    details = response.get("incomplete_details")
    reason = text_field(details, "reason") if isinstance(details, dict) else ""
    return _REASONS.get(reason, "length"), reason


def read_texts(parts: object) -> list[str]:
    """Return the texts of the parts of a reasoning item."""
    texts = [part.get("text") for part in dicts(parts)]
    return [text for text in texts if isinstance(text, str)]


def _logprob(entry: dict[str, Any]) -> Logprob | None:
    token, logprob = entry.get("token"), entry.get("logprob")
    if not isinstance(token, str) or isinstance(logprob, bool):
        return None
    # Some vendors send infinities and NaN, which cannot be written as JSON.
    if not isinstance(logprob, int | float) or not -1e9 < logprob <= 1e9:
        return None
    return Logprob(token, float(logprob))


def _as_text(value: object) -> str:
    try:
        return compact(value)
    except (OverflowError, ValueError, TypeError):
        return ""


def read_citation(annotation: object) -> Citation | None:
    """Decode the web source that an annotation names; None for any other annotation."""
    if not isinstance(annotation, dict) or annotation.get("type") != "url_citation":
        return None
    if not (url := text_field(annotation, "url")):
        return None
    start, end = annotation.get("start_index"), annotation.get("end_index")
    return Citation(
        url,
        text_field(annotation, "title"),
        start if type(start) is int else None,
        end if type(end) is int else None,
    )


# Texts in streams: the form, the field with the part's index, and the field with the whole text.
_TEXTS = {
    "output_text": ("text", "content_index", "text"),
    "refusal": ("refusal", "content_index", "refusal"),
    "reasoning_text": ("full", "content_index", "text"),
    "reasoning_summary_text": ("summary", "summary_index", "text"),
    "function_call_arguments": ("call", "", "arguments"),
    "custom_tool_call_input": ("call", "", "input"),
}
# Events with a chunk of such a text, and events with all of it.
_DELTAS = {f"response.{name}.delta": (form, part) for name, (form, part, _) in _TEXTS.items()}
_WHOLE = {
    f"response.{name}.done": (f"response.{name}.delta", field)
    for name, (_, _, field) in _TEXTS.items()
}
_PARTS = {
    "output_text": ("response.output_text.delta", "text"),
    "refusal": ("response.refusal.delta", "refusal"),
}
_ENDS = frozenset({"response.completed", "response.incomplete"})
_Place = tuple[str, int]


@dataclass(slots=True)
class _Item:
    """The state of one output item."""

    name: str = ""  # its id
    slots: dict[_Place, int] = field(default_factory=dict)  # open slots
    seen: set[_Place] = field(default_factory=set)  # places with text, or a source, so far
    form: str = ""  # of reasoning: which of its two forms is read
    last: int = 0  # of reasoning: index of the last part
    done: bool = False


class ResponsesDecoder(StreamDecoder):
    """Decoder of one stream (see ``family.codec.StreamDecoder``)."""

    def __init__(self) -> None:
        super().__init__()
        self._by_index: dict[int, _Item] = {}
        self._by_name: dict[str, _Item] = {}
        self._nameless = _Item()  # for a vendor that sends neither index nor id
        self._finished = False

    def read(self, name: str | None, data: dict[str, Any]) -> list[Event]:
        """See ``StreamDecoder``. Nothing is read after the last event, which the tap may miss."""
        if self._finished:
            return []
        kind = data.get("type")
        if not isinstance(kind, str):
            kind = name or ""
        if kind in _DELTAS:
            return self._delta(self._item(data), kind, data, data.get("delta"))
        if kind in _WHOLE:
            delta, field = _WHOLE[kind]
            return self._whole_text(self._item(data), delta, data, data.get(field))
        if kind == "response.output_item.added":
            return self._added(data)
        if kind == "response.output_text.annotation.added":
            return self._annotation(data)
        if kind == "response.content_part.done":
            part = data.get("part")
            if isinstance(part, dict):
                return self._part_done(self._item(data), part, data)
        elif kind == "response.output_item.done":
            item = data.get("item")
            if isinstance(item, dict):
                return self._item_done(self._item(data), item)
        elif kind in _ENDS:
            return self._ended(kind, data.get("response"))
        return []

    def _delta(self, item: _Item, kind: str, data: dict[str, Any], text: object) -> list[Event]:
        if not isinstance(text, str) or not text or item.done:
            return []
        form, field = _DELTAS[kind]
        number = _index(data, field)
        if form == "call":
            return self._arguments(item, text)
        if form in ("full", "summary"):
            return self._thought(item, form, number, text)
        slot_kind: SlotKind = "refusal" if form == "refusal" else "text"
        events, slot = self._slot(item, (form, number), slot_kind)
        item.seen.add((form, number))
        logprobs = data.get("logprobs")
        return [*events, Delta(slot, text, read_logprobs(logprobs) if logprobs else ())]

    def _arguments(self, item: _Item, text: str) -> list[Event]:
        """Decode arguments of a call. Before its name is known, they wait for the whole item."""
        slot = item.slots.get(("call", 0))
        if slot is None:
            return []
        item.seen.add(("call", 0))
        return [Delta(slot, text)]

    def _thought(self, item: _Item, form: str, number: int, text: str) -> list[Event]:
        """Decode reasoning, which has two forms, a summary and the full text. The form that comes
        first is read. Its parts become paragraphs."""
        if item.form not in ("", form):
            return []
        item.form = form
        events, slot = self._slot(item, ("reasoning", 0), "reasoning", summary=form == "summary")
        if item.seen and number != item.last:
            events.append(Delta(slot, "\n\n"))
        item.last = number
        item.seen.add((form, number))
        return [*events, Delta(slot, text)]

    def _whole_text(
        self, item: _Item, kind: str, data: dict[str, Any], text: object
    ) -> list[Event]:
        """Decode a whole text if none of it came before."""
        form, field = _DELTAS[kind]
        if not isinstance(text, str) or (form, _index(data, field)) in item.seen:
            return []
        return self._delta(item, kind, data, text)

    def _added(self, data: dict[str, Any]) -> list[Event]:
        """Open a call once it has a name."""
        shell, item = data.get("item"), self._item(data)
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

    def _annotation(self, data: dict[str, Any]) -> list[Event]:
        item, number = self._item(data), _index(data, "content_index")
        slot, citation = item.slots.get(("text", number)), read_citation(data.get("annotation"))
        if slot is None or citation is None:
            return []
        item.seen.add(("cited", number))
        return [Cited(slot, citation)]

    def _part_done(self, item: _Item, part: dict[str, Any], data: dict[str, Any]) -> list[Event]:
        kind = text_field(part, "type")
        if item.done or kind not in _PARTS:
            return []
        delta, field = _PARTS[kind]
        place = (_DELTAS[delta][0], _index(data, "content_index"))
        data = {**data, "logprobs": part.get("logprobs")}
        events = self._whole_text(item, delta, data, part.get(field))
        slot = item.slots.get(place)
        if slot is not None:
            if ("cited", place[1]) not in item.seen:
                events += [Cited(slot, citation) for citation in read_citations(part)]
            events.append(self._close(item.slots.pop(place)))
        return events

    def _item_done(self, item: _Item, whole: dict[str, Any]) -> list[Event]:
        """Decode a whole item: everything that did not come before, and its end."""
        if item.done:
            return []
        events: list[Event] = []
        kind = text_field(whole, "type")
        if kind == "message":
            for number, part in enumerate(bounded(dicts(whole.get("content")))):
                events += self._part_done(item, part, {"content_index": number})
        elif kind in CALLS:
            opened, slot = self._open_call(item, whole)
            events += opened
            if not item.seen and (arguments := read_call(whole).arguments):
                events.append(Delta(slot, arguments))
        elif kind == "reasoning":
            events += self._reasoning_done(item, whole)
        events += [self._close(slot) for slot in item.slots.values()]
        item.slots, item.seen, item.done = {}, set(), True
        return events

    def _reasoning_done(self, item: _Item, whole: dict[str, Any]) -> list[Event]:
        thought = read_reasoning(whole)
        events: list[Event] = []
        text = "" if item.seen else thought.text
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
        self._finished = True
        if not isinstance(response, dict):
            response = {"status": kind.removeprefix("response.")}
        events: list[Event] = []
        for index, whole in enumerate(bounded(dicts(response.get("output")))):
            item = self._missing(index, text_field(whole, "id"))
            if item is not None:
                events += self._item_done(item, whole)
        events += [self._close(slot) for slot in list(self._slots)]
        if "status" not in response:
            response = {**response, "status": kind.removeprefix("response.")}
        finish, detail = read_finish(response)
        return [*events, Finished(finish, detail=detail)]

    def _missing(self, index: int, name: str) -> _Item | None:
        """Return the item for one in the last event; None if it already came as a whole."""
        item = self._by_name.get(name) if name else None
        if item is None:
            item = self._by_index.get(index)
            if item is not None and item.name and name:
                return None  # another item has this index
        if item is None:
            # A vendor without indexes and ids: everything so far may belong to this item.
            if self._nameless.seen or self._nameless.slots or self._nameless.done:
                return None
            if self._by_name and not self._by_index:
                return None
            return self._item({"output_index": index, "item_id": name})
        return None if item.done else item

    def _item(self, data: dict[str, Any]) -> _Item:
        """Return the item of an event, by index or id."""
        index, whole = data.get("output_index"), data.get("item")
        name = text_field(data, "item_id") or (
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
        """Return the slot of a place, and the event that opens it if it is not open yet."""
        slot = item.slots.get(place)
        if slot is not None:
            return [], slot
        opened = self._open(kind, **fields)
        item.slots[place] = opened.slot
        return [opened], opened.slot


def _index(data: dict[str, Any], field: str) -> int:
    value = data.get(field)
    return value if type(value) is int else 0
