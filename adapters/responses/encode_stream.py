"""Encoding of streams for clients of the responses family: a response's events, complete and in the
order that clients need.

Items start one after the other: a message or reasoning is done before the next item starts, and
only calls may be open at the same time. Consecutive texts are parts of one message. Text that was
sent in chunks is repeated whole, in each part, item and the last event. It is therefore stored as
the inside of a JSON string. An item without content is left out.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from adapters.family.codec import AnswerContext, StreamEncoder
from adapters.faults import Fault
from adapters.ir.answer import (
    Cited,
    Closed,
    Delta,
    Event,
    Finished,
    Logprob,
    Opened,
    Pictured,
    Sealed,
    SlotKind,
)
from adapters.ir.parts import Citation
from adapters.json.jsonio import dumps, dumps_text, loads
from adapters.responses.client import encode_stream_fault
from adapters.responses.encode_answer import (
    blank_response,
    encode_citation,
    encode_logprobs,
    encode_usage,
    finish_fields,
    is_tool_search,
    refusal_text,
    search_arguments,
    search_call,
)
from adapters.responses.reasoning_state import THOUGHT_ID
from store.values.usage import Usage


class EventWriter:
    """A writer of numbered events."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def write(self, kind: bytes, fields: bytes) -> bytes:
        """Return one event ``response.KIND``. ``fields``: JSON without its braces."""
        number, self.number = self.number, self.number + 1
        frame = b'event: response.%b\ndata: {"type":"response.%b","sequence_number":%d,%b}\n\n'
        return frame % (kind, kind, number, fields)

    def delta(self, before: bytes, text: bytes) -> bytes:
        """Return an event with a chunk of text. ``before``: see ``OutputItem``."""
        number, self.number = self.number, self.number + 1
        return b'%b%d,"delta":"%b"}\n\n' % (before, number, text)


class OutputItem(ABC):
    """An output item. ``before_delta``: the start of its text events."""

    __slots__ = ("_head", "_id", "_place", "_writer", "before_delta", "done", "text")

    prefix: bytes

    def __init__(self, writer: EventWriter, index: int, name: str) -> None:
        self._writer = writer
        self._id = b"%b%b_%d" % (self.prefix, name.encode(), index)
        self._place = b'"output_index":%d' % index
        self._head = b'"item_id":"%b",%b' % (self._id, self._place)
        self.text = bytearray()  # of the open part
        self.before_delta = b""
        self.done = b""  # the whole item, once it is complete

    def add(self, text: bytes) -> bytes:
        """Return the event for a chunk of text, given as the inside of a JSON string."""
        self.text += text
        return self._writer.delta(self.before_delta, text)

    @abstractmethod
    def open(self) -> bytes:
        """Return the events that start the item."""

    @abstractmethod
    def close(self) -> bytes:
        """Return the events that end the item, and set ``done``."""

    def _added(self, fields: bytes) -> bytes:
        item = b'"item":{"id":"%b",%b}' % (self._id, fields)
        return self._writer.write(b"output_item.added", b"%b,%b" % (self._place, item))

    def _finished(self, fields: bytes) -> bytes:
        self.done = b'{"id":"%b",%b}' % (self._id, fields)
        item = b'%b,"item":%b' % (self._place, self.done)
        return self._writer.write(b"output_item.done", item)

    def _write(self, kind: bytes, fields: bytes) -> bytes:
        return self._writer.write(kind, b"%b,%b" % (self._head, fields) if fields else self._head)

    def _deltas_of(self, kind: bytes, fields: bytes) -> None:
        head = b"%b,%b" % (self._head, fields) if fields else self._head
        before = b'event: response.%b\ndata: {"type":"response.%b",%b,"sequence_number":'
        self.before_delta = before % (kind, kind, head)


class MessageItem(OutputItem):
    """A message of the assistant. Its parts are texts and refusals, one for each slot. ``status``:
    "incomplete" if the answer was cut inside it."""

    __slots__ = ("_annotations", "_logprobs", "_part_path", "_parts", "_refusal", "slot", "status")

    prefix = b"msg_"
    _FIELDS = b'"type":"message","status":"%b","role":"assistant","content":[%b]'

    def __init__(self, writer: EventWriter, index: int, name: str) -> None:
        super().__init__(writer, index, name)
        self.slot: int | None = None  # of the open part
        self.status = b"completed"
        self._refusal = False
        self._part_path = b""
        self._parts: list[bytes] = []
        self._annotations: list[bytes] = []
        self._logprobs: list[bytes] = []

    def open(self) -> bytes:
        return self._added(self._FIELDS % (b"in_progress", b""))

    def open_part(self, slot: int, *, refusal: bool) -> bytes:
        """Return the event that starts a part."""
        self.slot, self._refusal = slot, refusal
        self._part_path = b'"content_index":%d' % len(self._parts)
        if refusal:
            self._deltas_of(b"refusal.delta", self._part_path)
        else:
            self._deltas_of(b"output_text.delta", self._part_path + b',"logprobs":[]')
        return self._write(b"content_part.added", b'%b,"part":%b' % (self._part_path, self._part()))

    def add_logprobs(self, text: bytes, logprobs: Iterable[Logprob]) -> bytes:
        """Return the event for a chunk of text with its log probabilities."""
        encoded = dumps(encode_logprobs(logprobs))
        self.text += text
        self._logprobs.append(encoded[1:-1])
        return self._write(
            b"output_text.delta",
            b'%b,"logprobs":%b,"delta":"%b"' % (self._part_path, encoded, text),
        )

    def cite(self, citation: Citation) -> bytes:
        """Return the event for a source of the open text."""
        encoded = dumps(encode_citation(citation))
        at = len(self._annotations)
        self._annotations.append(encoded)
        return self._write(
            b"output_text.annotation.added",
            b'%b,"annotation_index":%d,"annotation":%b' % (self._part_path, at, encoded),
        )

    def close_part(self) -> bytes:
        """Return the events that end the open part."""
        part, text = self._part(), bytes(self.text)
        if self._refusal:
            events = self._write(b"refusal.done", b'%b,"refusal":"%b"' % (self._part_path, text))
        else:
            fields = b'%b,"logprobs":[%b],"text":"%b"'
            logprobs = b",".join(self._logprobs)
            events = self._write(b"output_text.done", fields % (self._part_path, logprobs, text))
        events += self._write(b"content_part.done", b'%b,"part":%b' % (self._part_path, part))
        self._parts.append(part)
        self.text = bytearray()
        self.slot = None
        self._annotations, self._logprobs = [], []
        return events

    def close(self) -> bytes:
        events = self.close_part() if self.slot is not None else b""
        content = b",".join(self._parts)
        self._parts = []
        return events + self._finished(self._FIELDS % (self.status, content))

    def _part(self) -> bytes:
        text = bytes(self.text)
        if self._refusal:
            return b'{"type":"refusal","refusal":"%b"}' % text
        return b'{"type":"output_text","annotations":[%b],"logprobs":[%b],"text":"%b"}' % (
            b",".join(self._annotations),
            b",".join(self._logprobs),
            text,
        )


class ReasoningItem(OutputItem):
    """A reasoning item. Its text is a summary, the only form that clients of all kinds show."""

    __slots__ = ("_begun", "opaque", "slot")

    prefix = THOUGHT_ID.encode()
    _PART = b'{"type":"summary_text","text":"%b"}'

    def __init__(self, writer: EventWriter, index: int, name: str) -> None:
        super().__init__(writer, index, name)
        self.slot: int | None = None
        self.opaque = ""
        self._begun = False
        self._deltas_of(b"reasoning_summary_text.delta", b'"summary_index":0')

    def open(self) -> bytes:
        return self._added(b'"type":"reasoning","summary":[]')

    def add(self, text: bytes) -> bytes:
        """See ``OutputItem``. The first chunk starts the summary."""
        if self._begun:
            return super().add(text)
        self._begun = True
        part = b'"summary_index":0,"part":%b' % (self._PART % b"")
        return self._write(b"reasoning_summary_part.added", part) + super().add(text)

    def close(self) -> bytes:
        events, summary = b"", b""
        if self._begun:
            text = bytes(self.text)
            summary = self._PART % text
            done = b'"summary_index":0,"text":"%b"' % text
            events = self._write(b"reasoning_summary_text.done", done)
            part = b'"summary_index":0,"part":%b' % summary
            events += self._write(b"reasoning_summary_part.done", part)
        fields = b'"type":"reasoning","summary":[%b]' % summary
        if self.opaque:
            fields += b',"encrypted_content":%b' % dumps(self.opaque)
        self.text = bytearray()
        return events + self._finished(fields)


class CompactionItem(ReasoningItem):
    """A summary that replaces the conversation so far: sealed text without chunks."""

    __slots__ = ()

    prefix = b"cmp_"

    def open(self) -> bytes:
        return self._added(b'"type":"compaction","encrypted_content":""')

    def close(self) -> bytes:
        return self._finished(b'"type":"compaction","encrypted_content":%b' % dumps(self.opaque))


class CallItem(OutputItem):
    """A call of a function, or of a free-text tool."""

    __slots__ = ("_custom", "_fields")

    prefix = b"fc_"

    def __init__(self, writer: EventWriter, index: int, name: str, opened: Opened) -> None:
        self._custom = opened.custom
        super().__init__(writer, index, name)
        fields = dumps({"call_id": opened.id, "name": opened.name})[1:-1]
        if opened.namespace:
            fields += b',"namespace":%b' % dumps(opened.namespace)
        kind = b"custom_tool_call" if opened.custom else b"function_call"
        field = b"input" if opened.custom else b"arguments"
        self._fields = b'"type":"%b",%b,"status":"%%b","%b":"%%b"' % (
            kind,
            fields.replace(b"%", b"%%"),
            field,
        )
        kind_of_text = b"custom_tool_call_input" if opened.custom else b"function_call_arguments"
        self._deltas_of(kind_of_text + b".delta", b"")

    def open(self) -> bytes:
        return self._added(self._fields % (b"in_progress", b""))

    def close(self) -> bytes:
        """See ``OutputItem``. Arguments are an object even if there are none."""
        events = b"" if self.text or self._custom else self.add(b"{}")
        text = bytes(self.text)
        if self._custom:
            events += self._write(b"custom_tool_call_input.done", b'"input":"%b"' % text)
        else:
            events += self._write(b"function_call_arguments.done", b'"arguments":"%b"' % text)
        fields = self._fields % (b"completed", text)
        self.text = bytearray()
        return events + self._finished(fields)


class CustomCallItem(CallItem):
    """A call of a free-text tool."""

    __slots__ = ()

    prefix = b"ctc_"


class SearchCallItem(OutputItem):
    """A call of the client-side search for tools. Its arguments are an object, sent at once."""

    __slots__ = ("_call_id",)

    prefix = b"tsc_"

    def __init__(self, writer: EventWriter, index: int, name: str, opened: Opened) -> None:
        super().__init__(writer, index, name)
        self._call_id = opened.id

    def open(self) -> bytes:
        return self._added(dumps(search_call(self._call_id, "in_progress", {}))[1:-1])

    def add(self, text: bytes) -> bytes:
        """See ``OutputItem``. The family has no event for chunks of it."""
        self.text += text
        return b""

    def close(self) -> bytes:
        arguments = search_arguments(loads(b'"%b"' % bytes(self.text)))
        return self._finished(dumps(search_call(self._call_id, "completed", arguments))[1:-1])


class PictureItem(OutputItem):
    """A picture, in the form of a call of the vendor's own tool."""

    __slots__ = ()

    prefix = b"ig_"

    def open(self) -> bytes:
        begun = b'"type":"image_generation_call","status":"in_progress","result":null'
        return self._added(begun) + self._write(b"image_generation_call.in_progress", b"")

    def close(self) -> bytes:
        events = self._write(b"image_generation_call.completed", b"")
        fields = b'"type":"image_generation_call","status":"completed","result":"%b"'
        events += self._finished(fields % bytes(self.text))
        self.text = bytearray()
        return events


_END_OF_STREAM = -1  # the slot of a refusal that is added at the end


class ResponsesEncoder(StreamEncoder):
    """Encoder of one stream (see ``family.codec.StreamEncoder``)."""

    def __init__(self, context: AnswerContext) -> None:
        super().__init__(context)
        self._writer = EventWriter()
        self._items: list[OutputItem] = []
        self._current: MessageItem | ReasoningItem | None = None  # the item that gets text
        self._calls: dict[int, CallItem | SearchCallItem] = {}  # open calls, by slot
        self._kinds: dict[int, SlotKind] = {}  # of open slots
        self._spoken: OutputItem | None = None  # item of the last event, if that was text
        self._refused = False
        self._finish = Finished("stop")

    @property
    def last_number(self) -> int | None:
        return self._writer.number - 1 if self.started else None

    def begin(self) -> bytes:
        self.started = True
        response = b'"response":%b' % dumps(blank_response(self.context))
        return self._writer.write(b"created", response) + self._writer.write(
            b"in_progress", response
        )

    def write(self, event: Event) -> bytes:
        self._spoken = None
        if isinstance(event, Delta):
            return self._delta(event)
        if isinstance(event, Opened):
            return self._opened(event)
        if isinstance(event, Closed):
            return self._closed(event.slot)
        if isinstance(event, Sealed):
            thought, events = self._thought(event.slot)
            thought.opaque = event.opaque
            return events
        if isinstance(event, Cited):
            current = self._current
            if isinstance(current, MessageItem) and current.slot == event.slot:
                return current.cite(event.citation)
            return b""
        if event.choice:
            return b""
        if isinstance(event, Pictured):
            return self._picture(event)
        self._finish = event
        return b""

    def repeat(self, text: bytes) -> bytes:
        assert self._spoken is not None
        return self._spoken.add(text)

    def end(self, usage: Usage | None) -> bytes:
        finish = self._finish
        events = []
        if last := refusal_text(finish.finish, finish.detail, self._refused):
            self._kinds[_END_OF_STREAM] = "refusal"
            events.append(self._delta(Delta(_END_OF_STREAM, last)))
        closing = finish_fields(finish.finish, bool(self._items))
        if isinstance(self._current, MessageItem) and closing["status"] == "incomplete":
            self._current.status = b"incomplete"
        events.append(self._close_current())
        events += [self._closed(slot) for slot in list(self._calls)]
        response = {
            **blank_response(self.context),
            **closing,
            "usage": encode_usage(usage or Usage()),
        }
        del response["output"]
        whole = b'"response":%b,"output":[%b]}' % (
            dumps(response)[:-1],
            b",".join([item.done for item in self._items]),
        )
        events.append(self._writer.write(response["status"].encode(), whole))
        return b"".join(events)

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        return encode_stream_fault(fault, blank_response(self.context), self._writer.number)

    def _opened(self, event: Opened) -> bytes:
        self._kinds[event.slot] = event.kind
        if event.kind != "call":
            return b""  # its first text, if any, starts it
        events = self._close_current()
        kind: type[CallItem | SearchCallItem] = CustomCallItem if event.custom else CallItem
        if is_tool_search(event, self.context):
            kind = SearchCallItem
        call = kind(self._writer, len(self._items), self.context.id, event)
        self._calls[event.slot] = call
        self._items.append(call)
        return events + call.open()

    def _picture(self, event: Pictured) -> bytes:
        events = self._close_current()
        picture = PictureItem(self._writer, len(self._items), self.context.id)
        picture.text += dumps_text(event.data)[1:-1]
        self._items.append(picture)
        return events + picture.open() + picture.close()

    def _delta(self, event: Delta) -> bytes:
        slot, kind = event.slot, self._kinds.get(event.slot)
        text = dumps_text(event.text)[1:-1]
        if kind is None or not (text or event.logprobs):
            return b""
        events = b""
        item: OutputItem
        if kind == "call":
            item = self._calls[slot]
        elif kind == "reasoning":
            item, events = self._thought(slot)
        else:
            item, events = self._message(slot, refusal=kind == "refusal")
            if event.logprobs and kind == "text":
                return events + item.add_logprobs(text, event.logprobs)
        self._spoken = item
        return events + item.add(text)

    def _closed(self, slot: int) -> bytes:
        self._kinds.pop(slot, None)
        call, current = self._calls.pop(slot, None), self._current
        if call is not None:
            return call.close()
        if current is None or current.slot != slot:
            return b""
        return current.close_part() if isinstance(current, MessageItem) else self._close_current()

    def _message(self, slot: int, *, refusal: bool) -> tuple[MessageItem, bytes]:
        """Return the message with the part of a slot, and the events that start them."""
        current, events = self._current, b""
        if isinstance(current, MessageItem) and current.slot == slot:
            return current, events
        if isinstance(current, MessageItem):
            events = current.close_part() if current.slot is not None else b""
        else:
            events = self._close_current()
            current = MessageItem(self._writer, len(self._items), self.context.id)
            events += self._begin(current)
        self._refused = self._refused or refusal
        return current, events + current.open_part(slot, refusal=refusal)

    def _thought(self, slot: int) -> tuple[ReasoningItem, bytes]:
        """Return the reasoning item of a slot, and the events that start it."""
        current = self._current
        if isinstance(current, ReasoningItem) and current.slot == slot:
            return current, b""
        events = self._close_current()
        kind = CompactionItem if self.context.compaction else ReasoningItem
        thought = kind(self._writer, len(self._items), self.context.id)
        thought.slot = slot
        return thought, events + self._begin(thought)

    def _begin(self, item: MessageItem | ReasoningItem) -> bytes:
        self._current = item
        self._items.append(item)
        return item.open()

    def _close_current(self) -> bytes:
        current, self._current = self._current, None
        return b"" if current is None else current.close()
