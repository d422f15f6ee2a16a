"""Requests and streams through the codec of messages, for the tests of this folder."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.family.codec import AnswerContext, Encoded, Target
from adapters.family.traits import Traits
from adapters.faults import Condition
from adapters.framing.sse import EventSplitter, event_fields
from adapters.ir.answer import Event
from adapters.ir.parts import Text, Turn
from adapters.ir.request import Request
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from store.values.usage import Usage
from tests.adapters.builders import refusal_of

CODECS = CODECS_BY_FAMILY["messages"]

WIRE = Path(__file__).resolve().parents[2] / "wire/messages"
CONTEXT = AnswerContext("public", "Ab1", 1795000000, 10, include_usage=True)
USAGE = Usage(200, 90, 2000, 300, 100, 60)
HELLO = [{"role": "user", "content": "Is tea ready?"}]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: object, **fields: object) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def decoded(messages: object = None, stream: bool = False, **fields: object) -> Request:
    """Return a client's request, decoded."""
    body = {"model": "m", "max_tokens": 100, "messages": HELLO if messages is None else messages}
    return at_once(CODECS.client.decode_request(top_level(dumps(body | fields)), stream, None))


def refused(messages: object = None, **fields: object) -> tuple[Condition, str | None]:
    """Return the condition and the field of the refusal of a client's request."""
    return refusal_of(decoded, messages, **fields)


def asking(*turns: Turn, **fields: Any) -> Request:
    """Return a decoded request; without turns it says hello."""
    turns = turns or (Turn("user", (Text("Is tea ready?"),)),)
    return Request("chat_completions", False, turns, **fields)


def sent(
    request: Request, count: bool = False, limit: int | None = None, **traits: Any
) -> tuple[dict[str, Any], Encoded]:
    """Return the body for an upstream, and what is needed to read its answer."""
    traits = {"auto_cache": False, "thinking": "budget"} | traits
    target = Target("anthropic", "claude", Traits(**traits), limit)
    made = at_once(CODECS.upstream.encode_request(request, target, count))
    return json.loads(made.body), made


def events_of(stream: bytes) -> list[Event]:
    """Return the events of an upstream's stream."""
    return events_read(frames(stream))


def events_read(data: Iterable[tuple[str | None, dict[str, Any]]]) -> list[Event]:
    """Return the events of these names and data, and of the stream's end."""
    decoder = CODECS.upstream.open_decoder()
    events = [event for name, fields in data for event in decoder.read(name, fields)]
    return events + decoder.end()


def frames(stream: bytes) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Yield the names and data of the events of a stream."""
    for event in EventSplitter(1 << 20).feed(stream):
        name, data = event_fields(bytes(event))
        if data is not None:
            yield name, json.loads(data)


def written(
    events: Iterable[Event], usage: Usage | None = USAGE, context: AnswerContext = CONTEXT
) -> bytes:
    """Return the whole stream of events for a client."""
    encoder = CODECS.client.open_encoder(context)
    return b"".join([encoder.begin(), *map(encoder.write, events), encoder.end(usage)])
