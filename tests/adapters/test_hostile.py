"""Whatever a client or a vendor sends, between any two families it ends in an answer or a fault."""

import json
import pathlib
import random

import pytest

from adapters.family.codec import AnswerContext, Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.registry import CODECS, FAMILIES, FAMILY_NAMES, TRANSLATORS
from tests.adapters.mutants import mutant, spoiled

WIRE = pathlib.Path(__file__).parents[1] / "wire"
ANSWERS = {
    family: [
        json.loads(path.read_bytes())
        for path in sorted((WIRE / family).glob("*.json"))
        if not path.stem.startswith(("error", "models", "count", "input_tokens"))
    ]
    for family in FAMILY_NAMES
}
STREAMS = {
    family: [
        path.read_bytes().replace(b"\r\n", b"\n") for path in sorted((WIRE / family).glob("*.sse"))
    ]
    for family in FAMILY_NAMES
}
REQUEST_MUTANTS = 400  # of each family, each for all others
STREAM_MUTANTS = 300  # of each pair
CONTEXT = AnswerContext("public", "Ab1", 1795000000, 10, True)
MODELS = (
    Traits(),
    Traits(openai_extras=True, verbosity=True, audio=True, strict_tools=True),
    Traits(structured="tool", thinking="budget"),
    Traits(thinking="adaptive", system_turns=True, prefill=False),
    Traits(thinking="none", sampling=False, schemas="subset", structured="none"),
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
IMAGE = "data:image/png;base64,aGk="
PDF = "data:application/pdf;base64,aGk="
REQUESTS = {
    "chat_completions": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "image_url", "image_url": {"url": IMAGE}},
                    {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
                ],
            },
            {
                "role": "assistant",
                "content": "y",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "r"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "r"}]},
            {"role": "user", "content": "z"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
            {"type": "custom", "custom": {"name": "g"}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": SCHEMA},
        },
        "stop": ["a"],
        "reasoning_effort": "low",
        "max_completion_tokens": 5,
    },
    "responses": {
        "model": "m",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "x"},
                    {"type": "input_image", "image_url": IMAGE},
                    {"type": "input_file", "file_data": "aGk=", "filename": "a.txt"},
                ],
            },
            {"type": "reasoning", "summary": [], "encrypted_content": "e"},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"a":1}'},
            {"type": "custom_tool_call", "call_id": "b", "name": "c", "input": "free"},
            {"type": "function_call_output", "call_id": "a", "output": "x"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": "x"},
        ],
        "tools": [
            {"type": "function", "name": "f", "parameters": SCHEMA},
            {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}]},
            {"type": "web_search"},
        ],
        "tool_choice": "required",
        "text": {"format": {"type": "json_schema", "name": "t", "schema": SCHEMA}},
        "reasoning": {"effort": "low", "summary": "auto"},
    },
    "messages": {
        "model": "m",
        "max_tokens": 900,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "x"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "d"},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "text", "text": "y"},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [
                            {"type": "text", "text": "r"},
                            {"type": "image", "source": {"type": "url", "url": "https://x"}},
                        ],
                        "is_error": True,
                    }
                ],
            },
        ],
        "tools": [
            {"name": "f", "input_schema": SCHEMA},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
        "stop_sequences": ["a"],
    },
    "generate_content": {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "x"},
                    {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "t", "thought": True},
                    {
                        "functionCall": {"name": "f", "args": {"a": 1}},
                        "thoughtSignature": "aGk=",
                    },
                ],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "f", "response": {"output": "r"}}}],
            },
        ],
        "tools": [
            {"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]},
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {
            "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT"},
            "stopSequences": ["a"],
            "thinkingConfig": {"thinkingBudget": 100},
            "responseLogprobs": True,
            "logprobs": 2,
        },
    },
}


def done(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def decoded(family, body):
    sound = json.dumps(body).replace("\\ud800", "x")  # what UTF-8 cannot say is refused before
    return done(CODECS[family].client.decode_request(top_level(sound.encode()), True, "m"))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_mutants_of_requests(family):
    chance = random.Random(family)
    sent = 0
    for _ in range(REQUEST_MUTANTS):
        body = spoiled(REQUESTS[family], chance)
        try:
            request = decoded(family, body)
        except Fault as fault:
            assert fault.blame == "client"
            continue
        for codecs in CODECS.values():
            target = Target("demo", "up", chance.choice(MODELS))
            try:
                steps = codecs.upstream.encode_request(request, target, chance.random() < 0.2)
                json.loads(done(steps).body)
            except Fault as fault:
                assert fault.blame == "client" and fault.param
            else:
                sent += 1
    assert sent > REQUEST_MUTANTS // 2


def test_odd_requests_that_once_raised_something_else():
    part = {"functionResponse": {"response": {"output": "r"}}}
    calls = {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}
    body = {"contents": [{"parts": [{"text": "x"}]}, calls, {"parts": [part]}]}
    result = decoded("generate_content", body).turns[2].parts[0]
    assert result.name == "f"
    config = {"thinkingConfig": {"thinkingBudget": 10**30}}
    body = {"contents": [{"parts": [{"text": "x"}]}], "generationConfig": config}
    try:
        request = decoded("generate_content", body)
    except Fault:
        return
    for codecs in CODECS.values():
        for traits in MODELS:
            done(codecs.upstream.encode_request(request, Target("demo", "up", traits), False))


def serving(client, upstream):
    """One attempt of a call that both families know."""
    request = decoded(client, REQUESTS[client])
    target = Target("demo", "up", Traits(openai_extras=True))
    origin = Origin(upstream, "mark", b"secret", "user")
    return done(TRANSLATORS[client, upstream].begin(request, target, CONTEXT, origin, count=False))


@pytest.mark.parametrize(("client", "upstream"), TRANSLATORS)
def test_mutants_of_streams(client, upstream):
    chance = random.Random(client + upstream)
    operations = FAMILIES[client].client.operations
    operation = operations.get("stream") or operations["generate"]
    attempt = serving(client, upstream)
    for _ in range(STREAM_MUTANTS):
        stream = mutant(chance.choice(STREAMS[upstream]), chance)
        bridge = attempt.open_bridge("public", "up", False, operation, 1 << 20)
        sent = bridge.feed(stream) + bridge.close()
        if bridge.fault is not None or not bridge.ended:
            fault = bridge.fault or Fault(Condition.UPSTREAM_FAILED)
            assert fault.blame in ("upstream", "gateway", "client")
            sent += bridge.encode_fault(fault, "req")
        assert sent


@pytest.mark.parametrize(("client", "upstream"), TRANSLATORS)
def test_mutants_of_answers(client, upstream):
    chance = random.Random(client + upstream)
    attempt = serving(client, upstream)
    operation = FAMILIES[client].client.operations["generate"]
    read = 0
    for _ in range(STREAM_MUTANTS):
        body = json.dumps(spoiled(chance.choice(ANSWERS[upstream]), chance)).encode()
        try:
            answer = attempt.read_answer(body, "public", "up", operation)
        except Fault:
            continue
        assert isinstance(json.loads(answer.body), dict)
        read += 1
    assert read
