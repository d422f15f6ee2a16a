"""Whatever is written for clients is read by the official SDK, and what it sends is read here."""

import base64
import json

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from adapters.faults import Condition, Fault
from adapters.generate_content import CODECS
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Logprob, Opened, Sealed
from adapters.ir.parts import Citation, Reasoning, Text
from adapters.ir.request import Output, Thinking
from adapters.ir.usage import Usage
from adapters.json.structure import at_once
from tests.adapters.generate_content.calls import CONTEXT, decoded

USAGE = Usage(200, 90, 2000, 300, 100, 60)
OPAQUE = "gw1.messages.mark.dmFsdWU.AAAAAAAAAAAAAAAA"
EVENTS = (
    Opened(0, "reasoning"),
    Delta(0, "Hm."),
    Sealed(0, OPAQUE),
    Closed(0),
    Opened(1, "text"),
    Delta(1, "Tea\u2028", (Logprob("Tea", -0.5),)),
    Delta(1, " is é"),
    Cited(1, Citation("https://a.example", "A", 0, 3)),
    Closed(1),
    Opened(2, "call", id="x", name="f"),
    Delta(2, '{"a": '),
    Delta(2, "[1]}"),
    Closed(2),
    Finished("tools"),
)


def client_of(content: bytes, kind: str = "text/event-stream") -> tuple[genai.Client, list[bytes]]:
    """A client whose requests are all answered with the same bytes, and what it sends."""
    sent: list[bytes] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.read())
        return httpx2.Response(200, headers={"content-type": kind}, content=content)

    arguments = {"transport": httpx2.MockTransport(handle)}
    options = types.HttpOptions(base_url="http://gateway", client_args=arguments)
    return genai.Client(api_key="key", http_options=options), sent


def stream_of(content: bytes) -> list[types.GenerateContentResponse]:
    client, _ = client_of(content)
    return list(client.models.generate_content_stream(model="m", contents="Tea?"))


def written(events) -> bytes:
    encoder = CODECS.client.open_encoder(CONTEXT)
    sent = encoder.begin() + b"".join(map(encoder.write, events))
    return sent + encoder.end(USAGE)


def test_a_stream_with_all_that_there_is():
    chunks = stream_of(written(EVENTS))
    assert "".join(chunk.text or "" for chunk in chunks) == "Tea\u2028 is é"
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    assert [part.text for part in parts if part.thought] == ["Hm."]
    (call,) = [part for part in parts if part.function_call]
    assert (call.function_call.id, call.function_call.name) == ("x", "f")
    assert call.function_call.args == {"a": [1]}
    assert call.thought_signature == OPAQUE.encode()
    last = chunks[-1]
    assert last.candidates[0].finish_reason is types.FinishReason.STOP
    grounding = last.candidates[0].grounding_metadata
    assert grounding.grounding_chunks[0].web.uri == "https://a.example"
    usage = last.usage_metadata
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (2600, 2000)
    assert (usage.candidates_token_count, usage.thoughts_token_count) == (90, 60)
    assert {(chunk.model_version, chunk.response_id) for chunk in chunks} == {
        ("public-model", "CALL1")
    }


def test_a_stream_that_fails_raises():
    encoder = CODECS.client.open_encoder(CONTEXT)
    sent = encoder.begin() + b"".join(map(encoder.write, EVENTS[:3]))
    sent += encoder.encode_fault(Fault(Condition.UPSTREAM_FAILED), "id")
    with pytest.raises(errors.ServerError) as caught:
        stream_of(sent)
    assert (caught.value.code, caught.value.status) == (503, "UNAVAILABLE")


def test_what_the_sdk_sends_is_read():
    answer = at_once(CODECS.client.encode_answer((Choice((Text("Tea."),)),), USAGE, CONTEXT))
    client, sent = client_of(answer, "application/json")
    field = types.Schema(type="STRING", nullable=True, max_length=5)
    schema = types.Schema(type="OBJECT", properties={"a": field})
    declared = types.FunctionDeclaration(name="f", parameters=schema)
    other = types.FunctionDeclaration(name="g", parameters_json_schema={"type": "object"})
    part, opaque = types.Part, OPAQUE.encode()
    call_f = types.FunctionCall(name="f", args={"a": "b"})
    call_g = types.FunctionCall(name="g", args={})
    history = [
        types.Content(role="user", parts=[part.from_text(text="Tea?")]),
        types.Content(
            role="model",
            parts=[
                part(text="Hm.", thought=True),
                part(function_call=call_f, thought_signature=opaque + b"\xfb\xff"),
                part(function_call=call_g, thought_signature=opaque),
            ],
        ),
        types.Content(
            role="user",
            parts=[
                part.from_function_response(name="g", response={"error": "no"}),
                part.from_function_response(name="f", response={"output": "yes"}),
                part.from_bytes(data=b"\xfb\xff\xbf", mime_type="image/png"),
            ],
        ),
    ]
    client.models.generate_content(
        model="m",
        contents=history,
        config=types.GenerateContentConfig(
            system_instruction="You keep the log.",
            temperature=0.5,
            top_k=4,
            max_output_tokens=321,
            stop_sequences=["END"],
            seed=7,
            tools=[types.Tool(function_declarations=[declared, other])],
            response_mime_type="application/json",
            response_schema={"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}},
            thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=2000),
        ),
    )
    request = decoded(json.loads(sent[0]))
    assert request.system == (Text("You keep the log."),)
    assert [turn.role for turn in request.turns] == ["user", "assistant", "user"]
    thought, _, opaque, _ = request.turns[1].parts
    assert thought == Reasoning("Hm.", summary=True)
    assert opaque == Reasoning("", opaque=OPAQUE)
    results = request.turns[2].parts
    assert [(part.name, part.error) for part in results[:2]] == [("f", False), ("g", True)]
    assert base64.b64decode(results[2].data) == b"\xfb\xff\xbf"
    properties = {"a": {"type": ["string", "null"], "maxLength": 5}}
    assert [tool.schema for tool in request.tools] == [
        {"type": "object", "properties": properties},
        {"type": "object"},
    ]
    form = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert request.output == Output("schema", form)
    assert request.thinking == Thinking(budget_tokens=2000, show="summary")
    assert (request.temperature, request.top_k, request.seed) == (0.5, 4, 7)
    assert (request.max_output_tokens, request.stop) == (321, ("END",))
