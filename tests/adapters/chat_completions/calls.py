"""What the tests of this folder do again and again: requests and streams through the codec."""

import json
from collections.abc import Iterable
from pathlib import Path

from adapters.chat_completions import CODECS
from adapters.family.codec import AnswerContext, Encoded, Target
from adapters.family.traits import Traits
from adapters.ir.answer import Choice, Event
from adapters.ir.request import Request
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from store.values.usage import Usage

WIRE = Path(__file__).parents[2] / "wire" / "chat_completions"
CONTEXT = AnswerContext("public", "Ab1", 1795000000, 10, True)
USAGE = Usage(10, 5, 3, 2, 1, 4)
HI = [{"role": "user", "content": "Is tea ready?"}]


def decoded(messages: object = HI, stream: bool = False, **fields: object) -> Request:
    """A client's request in the hub's words."""
    body = dumps({"model": "m", "messages": messages, **fields})
    return at_once(CODECS.client.decode_request(top_level(body), stream, None))


def asked_for(request: Request) -> dict[str, str]:
    """Features -> paths."""
    return {ask.feature: ask.path for ask in request.asks}


def encoded(request: Request, **traits: object) -> tuple[dict, Encoded]:
    """The body for an upstream, and what its answer is read with."""
    target = Target("openai", "up", Traits(**traits))
    made = at_once(CODECS.upstream.encode_request(request, target, False))
    return json.loads(made.body), made


def request(*turns, **fields) -> Request:
    """A request of a client of some other family."""
    return Request("messages", False, turns, **fields)


def answered(*choices: Choice, usage: Usage = USAGE) -> dict:
    """A whole answer for a client."""
    return json.loads(at_once(CODECS.client.encode_answer(choices, usage, CONTEXT)))


def message(*parts, **fields) -> dict:
    """The message of an answer of one choice."""
    return answered(Choice(parts, **fields))["choices"][0]["message"]


def written(
    events: Iterable[Event], usage: Usage | None = USAGE, context: AnswerContext = CONTEXT
) -> bytes:
    """The whole stream of events for a client."""
    encoder = CODECS.client.open_encoder(context)
    return b"".join([encoder.begin(), *map(encoder.write, events), encoder.end(usage)])


def chunks(stream: bytes) -> list[dict]:
    """The data of the events of a stream that ends as it should."""
    frames = stream.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(frame.startswith("data: {") and "\n" not in frame for frame in frames[:-2])
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def deltas(stream: bytes) -> list[dict]:
    """The deltas of a stream with one choice, without those of role and finish."""
    said = [chunk["choices"][0]["delta"] for chunk in chunks(stream) if chunk["choices"]]
    return [delta for delta in said if delta and "role" not in delta]


def read(*chunks: dict) -> list[Event]:
    """The events of an upstream's stream."""
    decoder = CODECS.upstream.open_decoder()
    found = [event for chunk in chunks for event in decoder.read(None, chunk)]
    return found + decoder.end()


def chunk(index: int = 0, finish: str | None = None, **delta: object) -> dict:
    """A chunk of an upstream."""
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}
