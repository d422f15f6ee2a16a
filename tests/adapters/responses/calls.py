"""Helpers for the tests of this folder: requests and streams through the codec."""

import json
from collections.abc import Iterable

import pytest

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.family.codec import AnswerContext, Encoded, Target
from adapters.family.traits import Traits
from adapters.faults import Fault
from adapters.ir.answer import Event
from adapters.ir.parts import Part, Turn
from adapters.ir.request import Request
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from store.values.usage import Usage

CODECS = CODECS_BY_FAMILY["responses"]

CONTEXT = AnswerContext("public", "Ab1", 1795000000, 10, True)
OPENAI = {"openai_extras": True, "custom_tools": True, "verbosity": True}
USAGE = Usage(10, 5, 3, 2, 1, 4)


def decoded(input_: object = "Is tea ready?", stream: bool = False, **fields: object) -> Request:
    """Return a client's request, decoded."""
    body = dumps({"model": "m", "input": input_, **fields})
    return at_once(CODECS.client.decode_request(top_level(body), stream, None))


def refusal(input_: object = "?", **fields: object) -> tuple[str, str | None]:
    """Return the condition and param of the fault that refuses a client's request."""
    with pytest.raises(Fault) as caught:
        decoded(input_, **fields)
    return caught.value.condition.value, caught.value.param


def encoded(request: Request, count: bool = False, **traits: object) -> tuple[dict, Encoded]:
    """Return the body for an upstream, and what is needed to read its answer; for OpenAI by
    default."""
    target = Target("openai", "up", Traits(**{**OPENAI, **traits}))
    made = at_once(CODECS.upstream.encode_request(request, target, count))
    return json.loads(made.body), made


def user(*parts: Part) -> Turn:
    return Turn("user", parts)


def assistant(*parts: Part) -> Turn:
    return Turn("assistant", parts)


def written(events: Iterable[Event], usage: Usage = USAGE) -> bytes:
    """Return the whole stream of events for a client."""
    encoder = CODECS.client.open_encoder(CONTEXT)
    return b"".join([encoder.begin(), *map(encoder.write, events), encoder.end(usage)])


def frames(stream: bytes) -> list[dict]:
    """Return the data of a stream's events, checking that each has its event's name."""
    found = []
    for frame in stream.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        said = json.loads(data.removeprefix("data: "))
        assert name == f"event: {said['type']}"
        found.append(said)
    return found


def read(stream: bytes) -> list[Event]:
    """Return the events of an upstream's stream."""
    decoder = CODECS.upstream.open_decoder()
    found: list[Event] = []
    for frame in stream.decode().split("\n\n"):
        for line in frame.split("\n"):
            if line.startswith("data: "):
                said = json.loads(line.removeprefix("data: "))
                found += decoder.read(said.get("type"), said)
    return found + decoder.end()
