"""What the tests of this folder do again and again: requests and streams through the codec."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.family.codec import AnswerContext, Encoded, Target
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.framing.sse import EventSplitter, event_fields
from adapters.ir.answer import Event
from adapters.ir.parts import Text, Turn
from adapters.ir.request import Request
from adapters.ir.usage import Usage
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from adapters.messages import CODECS

WIRE = Path(__file__).resolve().parents[2] / "wire/messages"
CONTEXT = AnswerContext("public", "Ab1", 1795000000, 10, include_usage=True)
USAGE = Usage(200, 90, 2000, 300, 100, 60)
HELLO = [{"role": "user", "content": "Is tea ready?"}]


def decoded(messages: object = None, stream: bool = False, **fields: object) -> Request:
    """A client's request in the hub's words."""
    body = {"model": "m", "max_tokens": 100, "messages": HELLO if messages is None else messages}
    return at_once(CODECS.client.decode_request(top_level(dumps(body | fields)), stream, None))


def refused(messages: object = None, **fields: object) -> tuple[Condition, str | None]:
    """How a client's request is refused, and for which field."""
    with pytest.raises(Fault) as caught:
        decoded(messages, **fields)
    return caught.value.condition, caught.value.param


def features(request: Request) -> dict[str, str]:
    """Features -> the paths of the last that asks for them."""
    return {ask.feature: ask.path for ask in request.asks}


def asking(*turns: Turn, **fields: Any) -> Request:
    """A request in the hub's words; without turns it says hello."""
    turns = turns or (Turn("user", (Text("Is tea ready?"),)),)
    return Request("chat_completions", False, turns, **fields)


def sent(
    request: Request, count: bool = False, limit: int | None = None, **traits: Any
) -> tuple[dict[str, Any], Encoded]:
    """The body for an upstream, and what its answer is read with."""
    traits = {"auto_cache": False, "thinking": "budget"} | traits
    target = Target("anthropic", "claude", Traits(**traits), limit)
    made = at_once(CODECS.upstream.encode_request(request, target, count))
    return json.loads(made.body), made


def events_of(stream: bytes) -> list[Event]:
    """The events of an upstream's stream, as far as the decoder says them."""
    decoder = CODECS.upstream.open_decoder()
    found: list[Event] = []
    for name, said in frames(stream):
        found += decoder.read(name, said)
    return found + decoder.end()


def frames(stream: bytes) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """The names and data of the events of a stream."""
    for event in EventSplitter(1 << 20).feed(stream):
        name, data = event_fields(bytes(event))
        if data is not None:
            yield name, json.loads(data)


def written(
    events: Iterable[Event], usage: Usage | None = USAGE, context: AnswerContext = CONTEXT
) -> bytes:
    """The whole stream of events for a client."""
    encoder = CODECS.client.open_encoder(context)
    return b"".join([encoder.begin(), *map(encoder.write, events), encoder.end(usage)])
