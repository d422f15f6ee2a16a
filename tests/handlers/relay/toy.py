"""A family that no vendor speaks, translated to chat completions: written as any other would be,
and known to nothing of the relay."""

import json

from adapters.bridge import Pairing
from adapters.family import Answer, ClientSide, Envelope, Family, Operation, Peek
from adapters.family.rate_headers import no_rate_lines
from adapters.framing.sse import EventSplitter, event_fields
from adapters.json.jsonio import top_level
from adapters.registry import FAMILIES

CHAT = FAMILIES["chat_completions"].upstream
SAY = Operation("/toy/say")
BEAT, END = b": toy\n\n", b"data: END\n\n"


def piece(text):
    return b"data: %b\n\n" % json.dumps({"piece": text}).encode()


def oops(fault):
    return json.dumps({"oops": fault.code}).encode()


def peek(spans, operation, target):
    return Peek(spans.value("toy"), bool(spans.value("live")), spans.value("most"), 1, False)


def encode_fault(fault, request_id):
    return Envelope(418, {"content-type": "application/json"}, oops(fault))


TOY = Family(
    "toy",
    ClientSide(
        operations={"generate": SAY},
        credentials=("x-toy",),
        conversation=lambda spans: b"",
        model_name=lambda spans, target: spans.value("toy"),
        peek=peek,
        encode_fault=encode_fault,
        keep_alive=lambda started: BEAT,
        model_list=lambda models, query: b"[]",
        model_entry=lambda model: b"{}",
        rate_lines=no_rate_lines,
    ),
    upstream=None,  # no vendor speaks it
)


def request_body(spans, read, operation, upstream_model, vendor):
    """A chat request for what the toy's client has said."""
    asked = {
        "model": read.model,
        "messages": [{"role": "user", "content": spans.value("ask")}],
        "max_tokens": read.max_output_tokens,
        "stream": read.stream,
    }
    chat = top_level(json.dumps(asked).encode())
    return CHAT.edit_request(chat, read, CHAT.operations["generate"], upstream_model, vendor)


def read_answer(body, public, upstream_model, operation):
    """The toy's answer, and what the chat family reads of the vendor's."""
    read = CHAT.read_answer(body, public, upstream_model, CHAT.operations["generate"])
    text = json.loads(read.body)["choices"][0]["message"]["content"]
    said = json.dumps({"said": text}).encode()
    return Answer(said, read.usage, read.reported, read.upstream_id)


class ToyBridge:
    """Reads chat events with the chat family's tap, and writes the toy's."""

    def __init__(self, tap, max_event_bytes):
        self._tap, self._splitter = tap, EventSplitter(max_event_bytes)
        self.ended = self.aligned = False

    def __getattr__(self, name):
        """What the tap knows: accepted, started, finished, whole, fault, usage and the like."""
        return getattr(self._tap, name)

    @property
    def end_seen(self):
        return self.ended

    @property
    def at_boundary(self):
        return True  # an event is written whole or not at all

    def feed(self, chunk):
        out = b""
        for event in self._splitter.feed(chunk):
            self._tap.feed(event)
            if self._tap.ended:
                self.ended = True
                return out if self._tap.fault else out + END
            out += self._encode(event)
        return out

    def close(self):
        return END if self._tap.whole and not self.ended else b""

    def encode_fault(self, fault, request_id):
        return b"data: %b\n\n" % oops(fault)

    @staticmethod
    def _encode(event):
        data = event_fields(event)[1]
        deltas = [one["delta"] for one in json.loads(data)["choices"]] if data else []
        return b"".join(piece(delta["content"]) for delta in deltas if delta.get("content"))


def open_bridge(public, upstream_model, drop_usage, operation, max_event_bytes):
    tap = CHAT.stream_tap(public, upstream_model, drop_usage, CHAT.operations["stream"])
    return ToyBridge(tap, max_event_bytes)


TOY_BY_CHAT = Pairing(
    upstream=CHAT,
    operation=lambda asked, stream: CHAT.operations["stream" if stream else asked.job],
    request_body=request_body,
    read_answer=read_answer,
    open_bridge=open_bridge,
    translated=True,
)
