"""Whatever a vendor or a client sends ends in an answer or a fault, in nothing else."""

import json
import random

from adapters.chat_completions import CODECS
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from tests.adapters.chat_completions.bridged import GENERATE, STREAMS, begun, bridged
from tests.adapters.chat_completions.calls import WIRE, chunks, encoded, result
from tests.adapters.mutants import mutant, spoiled

MUTANTS = 1500
STREAM_MUTANTS = 10_000
ANSWERS = [json.loads(path.read_bytes()) for path in sorted(WIRE.glob("[!em]*.json"))]
SERVING = begun()
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
REQUEST = {
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


def test_the_request_that_is_spoiled_is_good():
    spans = top_level(json.dumps(REQUEST).encode())
    body, _ = encoded(result(CODECS.client.decode_request(spans, False, None)))
    assert len(body["messages"]) == 6 and len(body["tools"]) == 1


def test_mutants_of_streams_end_well_or_in_a_fault():
    chance = random.Random(16)
    streams = list(STREAMS.values())
    ends = {True: 0, False: 0}
    for _ in range(STREAM_MUTANTS):
        stream = mutant(chance.choice(streams), chance)
        half = chance.randrange(len(stream) + 1)
        sent, bridge = bridged([stream[:half], stream[half:]], SERVING)
        assert isinstance(bridge.fault, Fault | None)
        whole = bridge.fault is None and bridge.ended
        ends[whole] += 1
        assert whole == sent.endswith(b"data: [DONE]\n\n")
        if whole:
            check(chunks(sent))
    assert min(ends.values()) > STREAM_MUTANTS / 10


def check(said):
    """The rules of this family's streams, for one that ended well."""
    finished, opened = set(), {}
    roles = set()
    for one in said:
        assert one["choices"] or one["usage"]
        for choice in one["choices"]:
            index, delta = choice["index"], choice["delta"]
            assert index not in finished
            assert ("role" in delta) == (index not in roles)
            roles.add(index)
            for call in delta.get("tool_calls", ()):
                key = (index, call["index"])
                assert ("id" in call) == (key not in opened)
                assert key in opened or call["index"] == len(
                    [other for other in opened if other[0] == index]
                )
                text = call.get("function", {}).get("arguments", "")
                opened[key] = opened.get(key, "") + text
            if choice["finish_reason"]:
                finished.add(index)
    assert finished == roles and all(opened.values())


def test_mutants_of_answers_are_read_or_a_fault():
    chance = random.Random(16)
    for _ in range(MUTANTS):
        said = spoiled(chance.choice(ANSWERS), chance)
        try:
            answer = SERVING.read_answer(json.dumps(said).encode(), "public", "up", GENERATE)
        except Fault:
            continue
        assert json.loads(answer.body)["choices"]


def test_mutants_of_requests_are_read_or_a_fault():
    chance = random.Random(16)
    read = 0
    for _ in range(MUTANTS):
        said = json.dumps(spoiled(REQUEST, chance)).replace("\\ud800", "x")
        try:
            spans = top_level(said.encode())
            encoded(result(CODECS.client.decode_request(spans, False, None)))
            read += 1
        except Fault as fault:
            assert fault.param or fault.condition is Condition.INVALID_FIELD
        CODECS.client.without_foreign(spans, "up")
    assert MUTANTS / 10 < read < MUTANTS * 0.9
