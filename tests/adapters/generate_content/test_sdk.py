"""Whatever is written for clients is read by the official SDK, and what it sends is read here."""

import base64
import json

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from adapters.faults import Condition, Fault
from adapters.generate_content import CODECS
from adapters.generate_content.client import encode_fault
from adapters.ir.answer import (
    Choice,
    Cited,
    Closed,
    Delta,
    Finished,
    Logprob,
    Opened,
    Sealed,
)
from adapters.ir.parts import Citation, Reasoning, Text, ToolCall
from adapters.ir.request import Output, Thinking
from adapters.ir.usage import Usage
from adapters.json.structure import at_once
from tests.adapters.generate_content.bridged import STREAMS, bridged
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


class Server:
    """Answers each request of the SDK with the same bytes, and keeps what it sent."""

    def __init__(self, content: bytes, kind: str = "text/event-stream", status: int = 200) -> None:
        self.sent: list[bytes] = []

        def handle(request: httpx2.Request) -> httpx2.Response:
            self.sent.append(request.read())
            return httpx2.Response(status, headers={"content-type": kind}, content=content)

        arguments = {"transport": httpx2.MockTransport(handle)}
        options = types.HttpOptions(base_url="http://gateway", client_args=arguments)
        self.client = genai.Client(api_key="key", http_options=options)

    def stream(self, **fields):
        models = self.client.models
        return list(models.generate_content_stream(model="m", contents="Tea?", **fields))

    def ask(self, contents="Tea?", **fields):
        return self.client.models.generate_content(model="m", contents=contents, **fields)


def written(events) -> bytes:
    encoder = CODECS.client.open_encoder(CONTEXT)
    sent = encoder.begin() + b"".join(map(encoder.write, events))
    return sent + encoder.end(USAGE)


def test_a_stream_with_all_that_there_is():
    chunks = Server(written(EVENTS)).stream()
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


@pytest.mark.parametrize("name", sorted(set(STREAMS) - {"midstream_error"}))
def test_the_samples(name):
    chunks = Server(bridged([STREAMS[name]])[0]).stream()
    assert chunks[-1].candidates[0].finish_reason is types.FinishReason.STOP
    if not name.startswith("tools"):
        assert "".join(chunk.text or "" for chunk in chunks).startswith("Tea is ready: three")


def test_a_stream_that_fails_raises():
    encoder = CODECS.client.open_encoder(CONTEXT)
    sent = encoder.begin() + b"".join(map(encoder.write, EVENTS[:3]))
    sent += encoder.encode_fault(Fault(Condition.UPSTREAM_FAILED), "id")
    with pytest.raises(errors.ServerError) as caught:
        Server(sent).stream()
    assert (caught.value.code, caught.value.status) == (503, "UNAVAILABLE")


def test_a_whole_answer():
    parts = (
        Reasoning("Hm.", opaque=OPAQUE),
        Text("Tea."),
        ToolCall("x", "f", '{"a": [1]}'),
    )
    body = at_once(CODECS.client.encode_answer((Choice(parts, "tools"),), USAGE, CONTEXT))
    answer = Server(body, "application/json").ask()
    assert answer.function_calls[0].args == {"a": [1]}
    assert answer.candidates[0].content.parts[2].thought_signature == OPAQUE.encode()
    assert answer.usage_metadata.total_token_count == 2750


def test_a_count():
    server = Server(CODECS.client.encode_count(31), "application/json")
    counted = server.client.models.count_tokens(model="m", contents="Tea?")
    assert counted.total_tokens == 31


def test_a_request_that_cannot_be_carried():
    fault = Fault(Condition.UNSUPPORTED, param="cachedContent")
    envelope = encode_fault(fault, "id")
    with pytest.raises(errors.ClientError) as caught:
        Server(envelope.body, "application/json", envelope.status).ask()
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
    assert "cachedContent" in caught.value.message


def test_what_the_sdk_sends_is_read():
    answer = at_once(CODECS.client.encode_answer((Choice((Text("Tea."),)),), USAGE, CONTEXT))
    server = Server(answer, "application/json")
    declared = types.FunctionDeclaration(
        name="f",
        parameters=types.Schema(
            type="OBJECT",
            properties={"a": types.Schema(type="STRING", nullable=True, max_length=5)},
        ),
    )
    other = types.FunctionDeclaration(name="g", parameters_json_schema={"type": "object"})
    history = [
        types.Content(role="user", parts=[types.Part.from_text(text="Tea?")]),
        types.Content(
            role="model",
            parts=[
                types.Part(text="Hm.", thought=True),
                types.Part(
                    function_call=types.FunctionCall(name="f", args={"a": "b"}),
                    thought_signature=OPAQUE.encode() + b"\xfb\xff",
                ),
                types.Part(
                    function_call=types.FunctionCall(name="g", args={}),
                    thought_signature=OPAQUE.encode(),
                ),
            ],
        ),
        types.Content(
            role="user",
            parts=[
                types.Part.from_function_response(name="g", response={"error": "no"}),
                types.Part.from_function_response(name="f", response={"output": "yes"}),
                types.Part.from_bytes(data=b"\xfb\xff\xbf", mime_type="image/png"),
            ],
        ),
    ]
    server.ask(
        history,
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
    request = decoded(json.loads(server.sent[0]))
    assert request.system == (Text("You keep the log."),)
    assert [turn.role for turn in request.turns] == ["user", "assistant", "user"]
    thought, _, opaque, _ = request.turns[1].parts
    assert thought == Reasoning("Hm.", summary=True)
    assert opaque == Reasoning("", opaque=OPAQUE)
    results = request.turns[2].parts
    assert [(part.name, part.error) for part in results[:2]] == [("f", False), ("g", True)]
    assert base64.b64decode(results[2].data) == b"\xfb\xff\xbf"
    assert request.tools[0].schema == {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"], "maxLength": 5}},
    }
    assert request.tools[1].schema == {"type": "object"}
    assert request.output == Output(
        "schema", {"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    assert request.thinking == Thinking(budget_tokens=2000, show="summary")
    assert (request.temperature, request.top_k, request.seed) == (0.5, 4, 7)
    assert (request.max_output_tokens, request.stop) == (321, ("END",))
