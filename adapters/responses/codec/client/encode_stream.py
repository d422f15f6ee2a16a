"""Streams for clients: the events of a response, complete and in the order that clients need.

Items begin one after the other: a message or a thought is done before the next item begins, and
only calls may be open at the same time. Consecutive texts are parts of one message. What has been
said in pieces is said again as a whole, part by part, item by item and in the last event; an item
that nothing was said in is left out. Imported by this folder's ``__init__``.
"""

from adapters.family.codec import Asked, StreamEncoder
from adapters.faults import Fault
from adapters.ir.answer import Cited, Closed, Delta, Event, Finished, Opened, Sealed, SlotKind
from adapters.ir.usage import Usage
from adapters.json.jsonio import dumps, dumps_text
from adapters.responses.codec.client.response_object import (
    blank_response,
    ending,
    refusal_text,
    usage_object,
)
from adapters.responses.codec.client.stream_items import (
    Call,
    CustomCall,
    Frames,
    Item,
    Message,
    Thought,
)
from adapters.responses.fault import encode_stream_fault

_END_OF_STREAM = -1  # the slot of what is said at the end


class ResponsesEncoder(StreamEncoder):
    """Writes one stream (see ``family.codec.StreamEncoder``)."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self._frames = Frames()
        self._items: list[Item] = []
        self._current: Message | Thought | None = None  # the item that text goes into
        self._calls: dict[int, Call] = {}  # that are open, by slot
        self._kinds: dict[int, SlotKind] = {}  # of open slots
        self._spoken: Item | None = None  # the item of the last event, a piece of its text
        self._refused = False
        self._finish = Finished("stop")

    def begin(self) -> bytes:
        """See ``StreamEncoder``."""
        self.started = True
        response = b'"response":%b' % dumps(blank_response(self.asked))
        return self._frames.write(b"created", response) + self._frames.write(
            b"in_progress", response
        )

    def write(self, event: Event) -> bytes:
        """See ``StreamEncoder``."""
        self._spoken = None
        if isinstance(event, Delta):
            return self._delta(event)
        if isinstance(event, Opened):
            return self._opened(event)
        if isinstance(event, Closed):
            return self._closed(event.slot)
        if isinstance(event, Sealed):
            thought, said = self._thought(event.slot)
            thought.opaque = event.opaque
            return said
        if isinstance(event, Cited):
            current = self._current
            if isinstance(current, Message) and current.slot == event.slot:
                return current.cite(event.citation)
            return b""
        if not event.choice:
            self._finish = event
        return b""

    def repeat(self, text: bytes) -> bytes:
        """See ``StreamEncoder``."""
        assert self._spoken is not None
        return self._spoken.add(text)

    def end(self, usage: Usage | None) -> bytes:
        """See ``StreamEncoder``."""
        finish = self._finish
        said = []
        if last := refusal_text(finish.finish, finish.detail, self._refused):
            self._kinds[_END_OF_STREAM] = "refusal"
            said.append(self._delta(Delta(_END_OF_STREAM, last)))
        closing = ending(finish.finish, bool(self._items))
        if isinstance(self._current, Message) and closing["status"] == "incomplete":
            self._current.status = b"incomplete"
        said.append(self._close_current())
        said += [self._closed(slot) for slot in list(self._calls)]
        response = {
            **blank_response(self.asked),
            **closing,
            "usage": usage_object(usage or Usage()),
        }
        del response["output"]
        whole = b'"response":%b,"output":[%b]}' % (
            dumps(response)[:-1],
            b",".join([item.done for item in self._items]),
        )
        said.append(self._frames.write(response["status"].encode(), whole))
        return b"".join(said)

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """See ``StreamEncoder``."""
        return encode_stream_fault(fault, blank_response(self.asked), self._frames.number)

    def _opened(self, event: Opened) -> bytes:
        self._kinds[event.slot] = event.kind
        if event.kind != "call":
            return b""  # it begins with its first text, if it gets any
        said = self._close_current()
        kind = CustomCall if event.custom else Call
        call = kind(self._frames, len(self._items), self.asked.id, event)
        self._calls[event.slot] = call
        self._items.append(call)
        return said + call.open()

    def _delta(self, event: Delta) -> bytes:
        slot, kind = event.slot, self._kinds.get(event.slot)
        text = dumps_text(event.text)[1:-1]
        if kind is None or not (text or event.logprobs):
            return b""
        said = b""
        item: Item
        if kind == "call":
            item = self._calls[slot]
        elif kind == "reasoning":
            item, said = self._thought(slot)
        else:
            item, said = self._message(slot, refusal=kind == "refusal")
            if event.logprobs and kind == "text":
                return said + item.add_logprobs(text, event.logprobs)
        self._spoken = item
        return said + item.add(text)

    def _closed(self, slot: int) -> bytes:
        self._kinds.pop(slot, None)
        call, current = self._calls.pop(slot, None), self._current
        if call is not None:
            return call.close()
        if current is None or current.slot != slot:
            return b""
        return current.close_part() if isinstance(current, Message) else self._close_current()

    def _message(self, slot: int, *, refusal: bool) -> tuple[Message, bytes]:
        """The message with the part of a slot, and the events with which these begin."""
        current, said = self._current, b""
        if isinstance(current, Message) and current.slot == slot:
            return current, said
        if isinstance(current, Message):
            said = current.close_part() if current.slot is not None else b""
        else:
            said = self._close_current()
            current = Message(self._frames, len(self._items), self.asked.id)
            said += self._begin(current)
        self._refused = self._refused or refusal
        return current, said + current.open_part(slot, refusal=refusal)

    def _thought(self, slot: int) -> tuple[Thought, bytes]:
        """The thought of a slot, and the events with which it begins."""
        current = self._current
        if isinstance(current, Thought) and current.slot == slot:
            return current, b""
        said = self._close_current()
        thought = Thought(self._frames, len(self._items), self.asked.id)
        thought.slot = slot
        return thought, said + self._begin(thought)

    def _begin(self, item: Message | Thought) -> bytes:
        self._current = item
        self._items.append(item)
        return item.open()

    def _close_current(self) -> bytes:
        current, self._current = self._current, None
        return b"" if current is None else current.close()
