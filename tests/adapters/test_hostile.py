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
from adapters.json.structure import at_once
from adapters.registry import CODECS, FAMILIES, FAMILY_NAMES
from adapters.translate import Translator
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
REQUEST_MUTANTS = 1000  # of each family, each for all families
STREAM_MUTANTS = 1000  # of each pair
ANSWER_MUTANTS = 400
# the last event of a stream that is whole, and the list with an answer's content
LAST_OF = {
    "chat_completions": b"data: [DONE]",
    "responses": b"response.completed",
    "messages": b"message_stop",
    "generate_content": b'"finishReason":"',
}
PARTS_OF = {
    "chat_completions": "choices",
    "responses": "object",
    "messages": "role",
    "generate_content": "candidates",
}
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
FUNCTION = {"name": "f", "parameters": {"type": "object"}, "strict": True}
EXTRA = {"gw": "gw1.x/0:3", "google": {"thought_signature": "c2ln"}}
CALLS = [
    {
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": EXTRA,
    },
    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
]
CHAT_REQUEST = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x", "prompt_cache_breakpoint": {"ttl": "30m"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "file", "file": {"file_data": "aGk=", "filename": "a.txt"}},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "x"}, {"type": "refusal", "refusal": "x"}],
            "reasoning_content": "Hm.",
            "reasoning_opaque": "gw1.y/0:3 gw1.z",
            "tool_calls": CALLS,
            "function_call": {"name": "h", "arguments": "{}"},
        },
        {"role": "tool", "tool_call_id": "b", "content": "x"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]},
        {"role": "function", "name": "h", "content": "x"},
    ],
    "tools": [
        {"type": "function", "function": FUNCTION},
        {
            "type": "custom",
            "custom": {
                "name": "g",
                "format": {
                    "type": "grammar",
                    "grammar": {"syntax": "lark", "definition": "x"},
                },
            },
        },
    ],
    "functions": [{"name": "h"}],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    },
    "response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": {}}},
    "stream_options": {"include_usage": True},
    "logit_bias": {"5": 1},
    "stop": ["x"],
    "metadata": {"a": "b"},
    "web_search_options": {},
    "reasoning_effort": "low",
}
REQUESTS = {
    "chat_completions": CHAT_REQUEST,
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
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]},
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
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}],
        },
        "text": {
            "format": {"type": "json_schema", "name": "t", "schema": SCHEMA},
            "verbosity": "low",
        },
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
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


def decoded(family, body):
    sound = json.dumps(body).replace("\\ud800", "x")  # UTF-8 has no halves of characters
    spans = top_level(sound.encode())
    CODECS[family].client.without_foreign(spans, "up")
    return at_once(CODECS[family].client.decode_request(spans, True, "m"))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_mutants_of_requests_are_read_or_a_fault_of_the_client(family):
    chance = random.Random(family)
    read = sent = 0
    for _ in range(REQUEST_MUTANTS):
        body = spoiled(REQUESTS[family], chance)
        try:
            request = decoded(family, body)
        except Fault as fault:
            assert fault.blame == "client"
            assert fault.param or fault.condition is Condition.INVALID_FIELD
            continue
        read += 1
        for codecs in CODECS.values():
            target = Target("demo", "up", chance.choice(MODELS))
            try:
                steps = codecs.upstream.encode_request(request, target, chance.random() < 0.2)
                json.loads(at_once(steps).body)
            except Fault as fault:
                assert fault.blame == "client" and fault.param
            else:
                sent += 1
    assert REQUEST_MUTANTS / 10 < read < REQUEST_MUTANTS * 0.9
    assert sent > REQUEST_MUTANTS // 2


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_requests_are_sound_before_they_are_spoiled(family):
    request = decoded(family, REQUESTS[family])
    assert request.turns and request.tools
    for codecs in CODECS.values():
        target = Target("demo", "up", Traits(openai_extras=True, custom_tools=True))
        assert json.loads(at_once(codecs.upstream.encode_request(request, target, False)).body)


def test_the_name_of_a_result_without_one_is_that_of_its_call():
    part = {"functionResponse": {"response": {"output": "r"}}}
    calls = {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}
    body = {"contents": [{"parts": [{"text": "x"}]}, calls, {"parts": [part]}]}
    assert decoded("generate_content", body).turns[2].parts[0].name == "f"


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("traits", MODELS)
def test_a_budget_of_thinking_without_bounds_is_sent(family, traits):
    config = {"thinkingConfig": {"thinkingBudget": 10**30}}
    body = {"contents": [{"parts": [{"text": "x"}]}], "generationConfig": config}
    request = decoded("generate_content", body)
    target = Target("demo", "up", traits)
    assert json.loads(at_once(CODECS[family].upstream.encode_request(request, target, False)).body)


def serving(client, upstream):
    """One attempt of a call, also between two sides of the same family."""
    request = decoded(client, REQUESTS[client])
    target = Target("demo", "up", Traits(openai_extras=True))
    origin = Origin(upstream, "mark", b"secret", "user")
    translator = Translator(FAMILIES[upstream], CODECS[client].client, CODECS[upstream].upstream)
    return at_once(translator.begin(request, target, CONTEXT, origin, count=False))


def data_of(sent):
    """The data of the events of a stream."""
    lines = (line for line in sent.split(b"\n") if line.startswith(b"data: {"))
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def check_chat_stream(sent):
    """Assert the rules of streams of chat completions, for one that ended well."""
    assert sent.endswith(b"data: [DONE]\n\n")
    finished, arguments = set(), {}
    roles = set()
    for chunk in data_of(sent):
        assert chunk["choices"] or chunk["usage"]
        for choice in chunk["choices"]:
            index, delta = choice["index"], choice["delta"]
            assert index not in finished
            assert ("role" in delta) == (index not in roles)
            roles.add(index)
            for call in delta.get("tool_calls", ()):
                key = (index, call["index"])
                assert ("id" in call) == (key not in arguments)
                assert key in arguments or call["index"] == len(
                    [other for other in arguments if other[0] == index]
                )
                text = call.get("function", {}).get("arguments", "")
                arguments[key] = arguments.get(key, "") + text
            if choice["finish_reason"]:
                finished.add(index)
    assert finished == roles and all(arguments.values())


def check_responses_stream(sent):
    """Assert the rules of streams of responses, for one that ended well."""
    events = data_of(sent)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"].split(".")[1] in ("completed", "incomplete", "failed")


def check_messages_stream(sent):
    """Assert the rules of streams of messages, for one that ended well."""
    kinds = [event["type"] for event in data_of(sent)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop")


def check_generate_content_stream(sent):
    """Assert the rules of streams of generate-content, for one that ended well."""
    reasons = [
        candidate.get("finishReason")
        for chunk in data_of(sent)
        for candidate in chunk.get("candidates", ())
    ]
    assert any(reasons)


CHECKS = {
    "chat_completions": check_chat_stream,
    "responses": check_responses_stream,
    "messages": check_messages_stream,
    "generate_content": check_generate_content_stream,
}
PAIRS = [(client, upstream) for client in FAMILY_NAMES for upstream in FAMILY_NAMES]


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_mutants_of_streams_end_well_or_in_a_fault(client, upstream):
    chance = random.Random(client + upstream)
    operations = FAMILIES[client].client.operations
    operation = operations.get("stream") or operations["generate"]
    attempt = serving(client, upstream)
    ends = {True: 0, False: 0}
    for _ in range(STREAM_MUTANTS):
        stream = mutant(chance.choice(STREAMS[upstream]), chance)
        half = chance.randrange(len(stream) + 1)
        bridge = attempt.open_bridge("public", "up", False, operation, 1 << 20)
        sent = bridge.feed(stream[:half]) + bridge.feed(stream[half:]) + bridge.close()
        whole = bridge.fault is None and bridge.ended
        ends[whole] += 1
        if whole:
            CHECKS[client](sent)
            continue
        fault = bridge.fault or Fault(Condition.UPSTREAM_FAILED)
        assert fault.blame in ("upstream", "gateway", "client")
        assert LAST_OF[client] not in sent
        assert sent + bridge.encode_fault(fault, "req")
    assert min(ends.values()) > STREAM_MUTANTS / 20


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_mutants_of_answers_are_read_or_a_fault(client, upstream):
    chance = random.Random(client + upstream)
    attempt = serving(client, upstream)
    operation = FAMILIES[client].client.operations["generate"]
    read = 0
    for _ in range(ANSWER_MUTANTS):
        body = json.dumps(spoiled(chance.choice(ANSWERS[upstream]), chance)).encode()
        try:
            answer = attempt.read_answer(body, "public", "up", operation)
        except Fault:
            continue
        assert json.loads(answer.body)[PARTS_OF[client]]
        read += 1
    assert ANSWER_MUTANTS / 10 < read < ANSWER_MUTANTS
