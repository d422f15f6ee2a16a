"""Requests and streams through the codec of chat completions, for the tests of this folder."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.family.codec import AnswerContext, Encoded, Target
from adapters.family.traits import Traits
from adapters.ir.answer import Choice, Event
from adapters.ir.parts import ToolCall
from adapters.ir.request import Request
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from store.values.usage import Usage

CODECS = CODECS_BY_FAMILY["chat_completions"]

WIRE = Path(__file__).parents[2] / "wire" / "chat_completions"
CONTEXT = AnswerContext("public", "Ab1", 1795000000, 10, True)
USAGE = Usage(10, 5, 3, 2, 1, 4)
HI = [{"role": "user", "content": "Is tea ready?"}]


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(**fields: object) -> dict[str, Any]:
    return {"role": "assistant", **fields}


def function_tool(**function: object) -> dict[str, Any]:
    return {"type": "function", "function": function}


def function_call(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, **function_tool(name=name, arguments=arguments)}


def custom_call(call_id: str, name: str, text: str) -> dict[str, Any]:
    return {"id": call_id, "type": "custom", "custom": {"name": name, "input": text}}


def tool_result(call_id: str, content: object = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def sent_call(call: ToolCall) -> dict[str, Any]:
    """Return a call of adapters/ir in this family's form."""
    if call.custom:
        return custom_call(call.id, call.name, call.arguments)
    return function_call(call.id, call.name, call.arguments)


def decoded(messages: object = HI, stream: bool = False, **fields: object) -> Request:
    """Return a client's request, decoded."""
    body = dumps({"model": "m", "messages": messages, **fields})
    return at_once(CODECS.client.decode_request(top_level(body), stream, None))


def encoded(request: Request, **traits: Any) -> tuple[dict, Encoded]:
    """Return the body for an upstream, and what is needed to read its answer."""
    target = Target("openai", "up", Traits(**traits))
    made = at_once(CODECS.upstream.encode_request(request, target, False))
    return json.loads(made.body), made


def request(*turns: Any, **fields: Any) -> Request:
    """Return a request of a client of another family."""
    return Request("messages", False, turns, **fields)


def answered(*choices: Choice, usage: Usage = USAGE) -> dict:
    """Return a whole answer for a client."""
    return json.loads(at_once(CODECS.client.encode_answer(choices, usage, CONTEXT)))


def message(*parts: Any, **fields: Any) -> dict:
    """Return the message of an answer with one choice."""
    return answered(Choice(parts, **fields))["choices"][0]["message"]


def written(
    events: Iterable[Event], usage: Usage | None = USAGE, context: AnswerContext = CONTEXT
) -> bytes:
    """Return the whole stream of events for a client."""
    encoder = CODECS.client.open_encoder(context)
    return b"".join([encoder.begin(), *map(encoder.write, events), encoder.end(usage)])


def chunks(stream: bytes) -> list[dict]:
    """Return the data of the events of a stream; check that it ends as it should."""
    frames = stream.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(frame.startswith("data: {") and "\n" not in frame for frame in frames[:-2])
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def deltas(stream: bytes) -> list[dict]:
    """Return the deltas of a stream with one choice, without role and finish."""
    found = [chunk["choices"][0]["delta"] for chunk in chunks(stream) if chunk["choices"]]
    return [delta for delta in found if delta and "role" not in delta]


def read(*chunks: dict) -> list[Event]:
    """Return the events of an upstream's stream."""
    decoder = CODECS.upstream.open_decoder()
    events = [event for chunk in chunks for event in decoder.read(None, chunk)]
    return events + decoder.end()


def read_stream(stream: bytes) -> list[Event]:
    """Return the events of the bytes of an upstream's stream."""
    frames = stream.decode().split("\n\n")
    return read(*(json.loads(frame[6:]) for frame in frames if frame.startswith("data: {")))


def chunk(index: int = 0, finish: str | None = None, **delta: object) -> dict:
    """Return a chunk of an upstream."""
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}
