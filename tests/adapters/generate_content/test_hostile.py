"""Whatever a vendor or a client sends ends in an answer or a fault, in nothing else."""

import json
import random

from adapters.faults import Fault
from adapters.generate_content import CODECS
from adapters.json.jsonio import top_level
from adapters.registry import FAMILIES
from tests.adapters.generate_content.bridged import (
    FAMILY,
    STREAMS,
    WIRE,
    begun,
    bridged,
    chunks_of,
)
from tests.adapters.generate_content.calls import decoded, encoded

MUTANTS = 1500
STREAM_MUTANTS = 4000
GENERATE = FAMILIES[FAMILY].client.operations["generate"]
ANSWERS = [path.read_bytes() for path in sorted(WIRE.glob("[!e]*.json"))]
ODD = [None, True, 0, -1, 10**30, 1.5, "", "x", "\ud800", [], {}, [[]], [{}], ["a", 1]]
ODD += [{"parts": [{"text": 1}]}, {"functionCall": {}}, {"text": "x", "thoughtSignature": "x"}]
ODD += [{"functionCall": {"name": "f", "args": {"a": "\ud800"}}}, "AAAA", "STOP", float("inf")]
# A stream with all that a chunk may have.
RICH = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"text": "é"},
                    {
                        "functionCall": {"name": "f", "args": {"a": [1]}},
                        "thoughtSignature": "AAAA",
                    },
                    {"text": "b", "thoughtSignature": "AAAA"},
                ],
            },
            "index": 0,
            "logprobsResult": {
                "chosenCandidates": [{"token": "a", "logProbability": -1}],
                "topCandidates": [{"candidates": [{"token": "a", "logProbability": -1}]}],
            },
            "groundingMetadata": {
                "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}],
                "groundingSupports": [
                    {"segment": {"startIndex": 1, "endIndex": 2}, "groundingChunkIndices": [0]}
                ],
            },
            "citationMetadata": {"citationSources": [{"uri": "https://b", "endIndex": 1}]},
        }
    ],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    "modelVersion": "up",
    "responseId": "r",
}
END = {
    "candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1},
}
MADE = b"".join(b"data: %b\n\n" % json.dumps(said).encode() for said in (RICH, RICH, END))
ALL = [*(stream.replace(b"\r\n", b"\n") for stream in STREAMS.values()), MADE, MADE]


def mutant(stream: bytes, chance: random.Random) -> bytes:
    """A stream with something wrong in it."""
    events = stream.split(b"\n\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(events))
        way = chance.randrange(6)
        if way == 0:
            del events[at]
            events = events or [b""]
        elif way == 1:
            events.insert(chance.randrange(len(events)), events[at])
        elif way == 2 and events[at]:
            place = chance.randrange(len(events[at]))
            odd = bytes([chance.randrange(256)])
            events[at] = events[at][:place] + odd + events[at][place + 1 :]
        elif events[at].startswith(b"data: {"):
            try:
                said = json.loads(events[at][6:])
            except ValueError:
                continue
            spoil(said, chance)
            events[at] = b"data: " + json.dumps(said).replace("Infinity", "1e999").encode()
    return b"\n\n".join(events)


def spoil(said: object, chance: random.Random) -> None:
    """Put something odd in the place of some value, wherever it stands."""
    while isinstance(said, dict | list) and said:
        key = chance.choice(list(said)) if isinstance(said, dict) else chance.randrange(len(said))
        inner = said[key]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.2:
            if isinstance(said, dict) and chance.random() < 0.3:
                del said[key]
            else:
                said[key] = json.loads(json.dumps(chance.choice(ODD)))
            return
        said = inner


def test_mutants_of_streams_end_well_or_in_a_fault():
    chance = random.Random(16)
    ended = 0
    for number in range(STREAM_MUTANTS):
        framing = "json_array" if number % 4 == 0 else "sse"
        sent, bridge = bridged([mutant(chance.choice(ALL), chance)], framing)
        assert isinstance(bridge.fault, Fault | None)
        if bridge.fault is not None or not bridge.ended:
            assert b"finishReason" not in sent
            sent += bridge.encode_fault(bridge.fault or Fault("E26"), "id")
        if framing == "json_array":
            chunks = json.loads(sent)
        elif bridge.fault is None and bridge.ended:
            chunks = chunks_of(sent)
        else:
            continue
        if bridge.fault is None and bridge.ended:
            ended += 1
            assert chunks[-1]["candidates"][0]["finishReason"]
        else:
            assert "error" in chunks[-1]
    assert ended > STREAM_MUTANTS / 8  # the others say nothing of the ends of answers


def test_mutants_of_answers_are_read_or_a_fault():
    chance = random.Random(16)
    attempt = begun()
    for _ in range(MUTANTS):
        said = json.loads(chance.choice([*ANSWERS, json.dumps(RICH)]))
        for _ in range(chance.randint(1, 4)):
            spoil(said, chance)
        body = json.dumps(said).replace("Infinity", "1e999").encode()
        try:
            answer = attempt.read_answer(body, "public-model", "up", GENERATE)
        except Fault:
            continue
        assert isinstance(json.loads(answer.body), dict)


REQUEST = {
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "x"},
                {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                {"fileData": {"mimeType": "image/png", "fileUri": "https://a/b"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "AAAA"},
                {"functionCall": {"name": "g", "id": "y"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "g", "id": "y", "response": {"error": "x"}}},
                {
                    "functionResponse": {
                        "name": "f",
                        "response": {"output": {"a": 1}},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
                    }
                },
            ],
        },
    ],
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "f",
                    "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
                },
                {"name": "g", "parametersJsonSchema": {"type": "object", "allOf": [{}]}},
            ]
        },
        {"googleSearch": {}},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    "generationConfig": {
        "temperature": 1,
        "topK": 4,
        "stopSequences": ["x"],
        "candidateCount": 1,
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {}},
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 5},
        "responseModalities": ["TEXT"],
    },
    "safetySettings": [{}],
    "labels": {"a": "b"},
    "serviceTier": "flex",
}


def test_mutants_of_requests_are_read_or_a_fault():
    chance = random.Random(16)
    read = 0
    for number in range(MUTANTS):
        said = json.loads(json.dumps(REQUEST))
        for _ in range(chance.randint(1, 3)):
            spoil(said, chance)
        text = json.dumps(said).replace("\\ud800", "x").replace("Infinity", "9e99")
        try:
            request = decoded(json.loads(text))
            encoded(request, schemas="subset" if number % 2 else "json_schema")
            read += 1
        except Fault as fault:
            assert fault.param
    assert read > MUTANTS / 8


def test_mutants_of_bodies_with_state_of_others_stay_json():
    chance = random.Random(16)
    for _ in range(MUTANTS):
        said = json.loads(json.dumps(REQUEST).replace("AAAA", "Z3cxLg=="))
        for _ in range(chance.randint(1, 3)):
            spoil(said, chance)
        text = json.dumps(said).replace("\\ud800", "x").replace("Infinity", "9e99")
        json.loads(CODECS.client.without_foreign(top_level(text.encode()), "gemini-3-pro"))
