"""The items of a stream for clients: each writes its own events, from the first to the last.

Text is kept as the inside of a JSON string, since it is said again when its part, its item and the
response are done. Imported by ``encode_stream``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from adapters.ir.answer import Logprob, Opened
from adapters.ir.parts import Citation
from adapters.json.jsonio import dumps
from adapters.responses.annotations import annotation
from adapters.responses.codec.client.response_object import logprobs_of
from adapters.responses.kept import THOUGHT_ID


class Frames:
    """Writes events and numbers them."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def write(self, kind: bytes, fields: bytes) -> bytes:
        """One event of the kind ``response.KIND`` with these fields, JSON without its braces."""
        number, self.number = self.number, self.number + 1
        frame = b'event: response.%b\ndata: {"type":"response.%b","sequence_number":%d,%b}\n\n'
        return frame % (kind, kind, number, fields)

    def delta(self, before: bytes, text: bytes) -> bytes:
        """An event with a piece of text; ``before`` is that of ``Item.before_delta``."""
        number, self.number = self.number, self.number + 1
        return b'%b%d,"delta":"%b"}\n\n' % (before, number, text)


class Item(ABC):
    """An output item. ``before_delta``: what the events of its text begin with."""

    __slots__ = ("_frames", "_head", "_id", "_place", "before_delta", "done", "text")

    prefix: bytes

    def __init__(self, frames: Frames, index: int, name: str) -> None:
        self._frames = frames
        self._id = b"%b%b_%d" % (self.prefix, name.encode(), index)
        self._place = b'"output_index":%d' % index
        self._head = b'"item_id":"%b",%b' % (self._id, self._place)
        self.text = bytearray()  # of the part that is open
        self.before_delta = b""
        self.done = b""  # the whole item, when it is complete

    def add(self, text: bytes) -> bytes:
        """The event of a piece of text, the inside of a JSON string."""
        self.text += text
        return self._frames.delta(self.before_delta, text)

    @abstractmethod
    def open(self) -> bytes:
        """The events with which it begins."""

    @abstractmethod
    def close(self) -> bytes:
        """The events with which it ends; sets ``done``."""

    def _added(self, fields: bytes) -> bytes:
        item = b'"item":{"id":"%b",%b}' % (self._id, fields)
        return self._frames.write(b"output_item.added", b"%b,%b" % (self._place, item))

    def _finished(self, fields: bytes) -> bytes:
        self.done = b'{"id":"%b",%b}' % (self._id, fields)
        item = b'%b,"item":%b' % (self._place, self.done)
        return self._frames.write(b"output_item.done", item)

    def _write(self, kind: bytes, fields: bytes) -> bytes:
        return self._frames.write(kind, b"%b,%b" % (self._head, fields))

    def _deltas_of(self, kind: bytes, fields: bytes) -> None:
        head = b"%b,%b" % (self._head, fields) if fields else self._head
        before = b'event: response.%b\ndata: {"type":"response.%b",%b,"sequence_number":'
        self.before_delta = before % (kind, kind, head)


class Message(Item):
    """A message of the assistant; its parts are texts and refusals, one for each slot. ``status``:
    "incomplete" when the answer was cut in it."""

    __slots__ = ("_annotations", "_logprobs", "_parts", "_refusal", "_where", "slot", "status")

    prefix = b"msg_"
    _FIELDS = b'"type":"message","status":"%b","role":"assistant","content":[%b]'

    def __init__(self, frames: Frames, index: int, name: str) -> None:
        super().__init__(frames, index, name)
        self.slot: int | None = None  # of the part that is open
        self.status = b"completed"
        self._refusal = False
        self._where = b""
        self._parts: list[bytes] = []
        self._annotations: list[bytes] = []
        self._logprobs: list[bytes] = []

    def open(self) -> bytes:
        """See ``Item``."""
        return self._added(self._FIELDS % (b"in_progress", b""))

    def open_part(self, slot: int, *, refusal: bool) -> bytes:
        """The event with which a part begins."""
        self.slot, self._refusal = slot, refusal
        self._where = b'"content_index":%d' % len(self._parts)
        if refusal:
            self._deltas_of(b"refusal.delta", self._where)
        else:
            self._deltas_of(b"output_text.delta", self._where + b',"logprobs":[]')
        return self._write(b"content_part.added", b'%b,"part":%b' % (self._where, self._part()))

    def add_logprobs(self, text: bytes, logprobs: Iterable[Logprob]) -> bytes:
        """The event of a piece of text with its log probabilities."""
        said = dumps(logprobs_of(logprobs))
        self.text += text
        self._logprobs.append(said[1:-1])
        return self._write(
            b"output_text.delta", b'%b,"logprobs":%b,"delta":"%b"' % (self._where, said, text)
        )

    def cite(self, citation: Citation) -> bytes:
        """The event of a source of the text that is open."""
        said = dumps(annotation(citation))
        at = len(self._annotations)
        self._annotations.append(said)
        return self._write(
            b"output_text.annotation.added",
            b'%b,"annotation_index":%d,"annotation":%b' % (self._where, at, said),
        )

    def close_part(self) -> bytes:
        """The events with which the open part ends."""
        part, text = self._part(), bytes(self.text)
        if self._refusal:
            said = self._write(b"refusal.done", b'%b,"refusal":"%b"' % (self._where, text))
        else:
            fields = b'%b,"logprobs":[%b],"text":"%b"'
            logprobs = b",".join(self._logprobs)
            said = self._write(b"output_text.done", fields % (self._where, logprobs, text))
        said += self._write(b"content_part.done", b'%b,"part":%b' % (self._where, part))
        self._parts.append(part)
        self.text = bytearray()
        self.slot = None
        self._annotations, self._logprobs = [], []
        return said

    def close(self) -> bytes:
        """See ``Item``."""
        said = self.close_part() if self.slot is not None else b""
        content = b",".join(self._parts)
        self._parts = []
        return said + self._finished(self._FIELDS % (self.status, content))

    def _part(self) -> bytes:
        text = bytes(self.text)
        if self._refusal:
            return b'{"type":"refusal","refusal":"%b"}' % text
        return b'{"type":"output_text","annotations":[%b],"logprobs":[%b],"text":"%b"}' % (
            b",".join(self._annotations),
            b",".join(self._logprobs),
            text,
        )


class Thought(Item):
    """Reasoning: its text is shown as a summary, the one form that clients of all kinds show."""

    __slots__ = ("_shown", "opaque", "slot")

    prefix = THOUGHT_ID.encode()
    _PART = b'{"type":"summary_text","text":"%b"}'

    def __init__(self, frames: Frames, index: int, name: str) -> None:
        super().__init__(frames, index, name)
        self.slot: int | None = None
        self.opaque = ""
        self._shown = False
        self._deltas_of(b"reasoning_summary_text.delta", b'"summary_index":0')

    def open(self) -> bytes:
        """See ``Item``."""
        return self._added(b'"type":"reasoning","summary":[]')

    def add(self, text: bytes) -> bytes:
        """See ``Item``: the first piece begins the summary."""
        if self._shown:
            return super().add(text)
        self._shown = True
        part = b'"summary_index":0,"part":%b' % (self._PART % b"")
        return self._write(b"reasoning_summary_part.added", part) + super().add(text)

    def close(self) -> bytes:
        """See ``Item``."""
        said, summary = b"", b""
        if self._shown:
            text = bytes(self.text)
            summary = self._PART % text
            done = b'"summary_index":0,"text":"%b"' % text
            said = self._write(b"reasoning_summary_text.done", done)
            part = b'"summary_index":0,"part":%b' % summary
            said += self._write(b"reasoning_summary_part.done", part)
        fields = b'"type":"reasoning","summary":[%b]' % summary
        if self.opaque:
            fields += b',"encrypted_content":%b' % dumps(self.opaque)
        self.text = bytearray()
        return said + self._finished(fields)


class Call(Item):
    """A call of a function, or of a tool that takes free text."""

    __slots__ = ("_custom", "_fields")

    prefix = b"fc_"

    def __init__(self, frames: Frames, index: int, name: str, opened: Opened) -> None:
        self._custom = opened.custom
        super().__init__(frames, index, name)
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
        what = b"custom_tool_call_input" if opened.custom else b"function_call_arguments"
        self._deltas_of(what + b".delta", b"")

    def open(self) -> bytes:
        """See ``Item``."""
        return self._added(self._fields % (b"in_progress", b""))

    def close(self) -> bytes:
        """See ``Item``: arguments are an object, also when there are none."""
        said = b"" if self.text or self._custom else self.add(b"{}")
        text = bytes(self.text)
        if self._custom:
            said += self._write(b"custom_tool_call_input.done", b'"input":"%b"' % text)
        else:
            said += self._write(b"function_call_arguments.done", b'"arguments":"%b"' % text)
        fields = self._fields % (b"completed", text)
        self.text = bytearray()
        return said + self._finished(fields)


class CustomCall(Call):
    """A call of a tool that takes free text."""

    __slots__ = ()

    prefix = b"ctc_"
