"""A family that no vendor speaks, with codecs: written like any other, and unknown to the relay.
Its upstream codec writes what the tests can read, whatever the family is called."""

import json

from adapters.family import ClientSide, Envelope, Family, Operation, Peek, codec
from adapters.family.rate_headers import no_rate_lines
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Delta, Finished, Sealed
from adapters.ir.parts import Reasoning, Text, Turn
from adapters.ir.request import Ask, Request
from adapters.json.jsonio import dumps
from adapters.registry import FAMILIES
from adapters.translate import Translator

SAY = Operation("/toy/say")
COUNT = Operation("/toy/count", "count", free=True)
BEAT, END = b": toy\n\n", b"data: END\n\n"


def piece(text):
    return b"data: %b\n\n" % json.dumps({"piece": text}).encode()


def oops(fault):
    return json.dumps({"oops": fault.code, "at": fault.param}).encode()


def peek(spans, operation, target):
    return Peek(spans.value("toy"), bool(spans.value("live")), spans.value("most"), 1, False)


def encode_fault(fault, request_id):
    return Envelope(418, {"content-type": "application/json"}, oops(fault))


TOY = Family(
    "toy",
    ClientSide(
        operations={"generate": SAY, "count": COUNT},
        credentials=("x-toy",),
        conversation=lambda spans: b"",
        model_name=lambda spans, target: spans.value("toy"),
        peek=peek,
        encode_fault=encode_fault,
        keep_alive=lambda started, number: BEAT,
        model_list=lambda models, query: b"[]",
        model_entry=lambda model: b"{}",
        rate_lines=no_rate_lines,
    ),
    upstream=None,  # no vendor speaks it
)


def decode_request(spans, stream, target):
    """Decode a request of the toy's client: `ask`, a returned `thought`, and what it `wants`."""
    yield False
    said, ask = spans.value("thought"), json.loads(spans.raw("ask") or b"null")
    if not isinstance(ask, str):
        raise Fault(Condition.INVALID_FIELD, param="ask")
    thought = (Turn("assistant", (Reasoning("hm", opaque=said),)),) if said else ()
    wants = spans.value("wants") or ()
    return Request(
        "toy",
        stream,
        (*thought, Turn("user", (Text(ask),))),
        max_output_tokens=spans.value("most"),
        asks=tuple(Ask(feature, f"wants.{feature}") for feature in wants),
    )


def encode_answer(choices, usage, asked):
    yield False
    text = "".join(part.text for one in choices for part in one.parts if isinstance(part, Text))
    return dumps({"said": text, "used": usage.input_tokens, "model": asked.model})


class Encoder(codec.StreamEncoder):
    def begin(self):
        self.started = True
        return b""

    def write(self, event):
        if isinstance(event, Delta):
            return piece(event.text)
        if isinstance(event, Sealed):
            return b"data: %b\n\n" % dumps({"seal": event.opaque})
        return b""

    def repeat(self, text):
        return piece(text.decode())

    def end(self, usage):
        return END

    def encode_fault(self, fault, request_id):
        return b"data: %b\n\n" % oops(fault)


class Decoder(codec.StreamDecoder):
    """A decoder of chat chunks; a delta with `seal` has a thought's opaque state."""

    def __init__(self):
        super().__init__()
        self._open_slot = None

    def read(self, name, said):
        events = []
        for choice in said.get("choices", ()):
            delta = choice.get("delta", {})
            if "seal" in delta:
                opened = self._open("reasoning")
                events += [opened, Sealed(opened.slot, delta["seal"]), self._close(opened.slot)]
            if delta.get("content"):
                if not self._slots:
                    opened = self._open("text")
                    self._open_slot = opened.slot
                    events.append(opened)
                events.append(Delta(self._open_slot, delta["content"]))
            if choice.get("finish_reason"):
                events += [self._close(slot) for slot in list(self._slots)]
                events.append(Finished("stop"))
        return events


def encode_request(request, target, count):
    """Encode a chat request, with the thought's opaque state if there is one."""
    yield False
    if request.turns[-1].parts[0].text == "Too much!":
        raise Fault(Condition.UNSUPPORTED, param="ask")
    seals = [part.opaque for turn in request.turns for part in turn.parts[:1]
             if isinstance(part, Reasoning) and part.opaque]  # fmt: skip
    asked = {
        "model": target.model,
        "messages": [{"role": "user", "content": request.turns[-1].parts[0].text}],
        "max_tokens": request.max_output_tokens,
        "stream": request.stream,
        "stream_options": {"include_usage": True} if target.stream_options else None,
        "seals": seals,
    }
    return codec.Encoded(dumps({name: value for name, value in asked.items() if value}))


def decode_answer(body):
    yield False
    return tuple(
        Choice((Text(choice["message"]["content"]),)) for choice in json.loads(body)["choices"]
    )


def upstream_codec(decode_count=None, **verdicts):
    """Return an upstream codec that carries everything except what `verdicts` say."""
    return codec.UpstreamCodec(
        verdict=lambda feature, traits: verdicts.get(feature, "map"),
        encode_request=encode_request,
        decode_answer=decode_answer,
        open_decoder=Decoder,
        decode_count=decode_count,
    )


CLIENT = codec.ClientCodec(
    decode_request=decode_request,
    encode_answer=encode_answer,
    open_encoder=Encoder,
    encode_count=lambda tokens: dumps({"count": tokens}),
    without_foreign=lambda spans, model: spans.body,
)
TO_CHAT = upstream_codec(metadata="note", seed="note", n="refuse")
TO_MESSAGES = upstream_codec(lambda body: json.loads(body)["input_tokens"], video="refuse")
TOY_CODECS = codec.Codecs(CLIENT, TO_CHAT)
TRANSLATIONS = {
    ("toy", "chat_completions"): Translator(FAMILIES["chat_completions"], CLIENT, TO_CHAT),
    ("toy", "messages"): Translator(FAMILIES["messages"], CLIENT, TO_MESSAGES),
}
