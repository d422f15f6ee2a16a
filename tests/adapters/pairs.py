"""Calls of a client of each family at an upstream of each family, also of its own."""

import json
import pathlib

from adapters.family.codec import AnswerContext, Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from adapters.registry import CODECS, FAMILIES, FAMILY_NAMES
from adapters.translate import Translator

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
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
IMAGE = "data:image/png;base64,aGk="
PDF = "data:application/pdf;base64,aGk="
FOREIGN = "Z3cxLg=="  # base64 of how the state of another family begins
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
ANSWERS["generate_content"].append(RICH)
STREAMS["generate_content"].append(
    b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in (RICH, RICH, END))
)
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
GENERATE_REQUEST = {
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
                {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": FOREIGN},
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
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "generate_content": GENERATE_REQUEST,
}

# job of a client's stream -> its framing
FRAMINGS = {"generate": "sse", "stream": "sse", "stream_array": "json_array"}
STREAMING = {
    "chat_completions": ["generate"],
    "responses": ["generate"],
    "messages": ["generate"],
    "generate_content": ["stream", "stream_array"],
}
PAIRS = [(client, upstream) for client in FAMILY_NAMES for upstream in FAMILY_NAMES]
STREAM_PAIRS = [(client, job, upstream) for client, upstream in PAIRS for job in STREAMING[client]]


def decoded(family, body):
    """A request in the words of the hub."""
    spans = top_level(json.dumps(body).encode())
    return at_once(CODECS[family].client.decode_request(spans, True, "m"))


def serving(client, upstream, framing="sse"):
    """One attempt of a call."""
    target = Target("demo", "up", Traits(openai_extras=True))
    context = AnswerContext("public", "Ab1", 1795000000, 10, True, framing)
    origin = Origin(upstream, "mark", b"secret", "user")
    translator = Translator(FAMILIES[upstream], CODECS[client].client, CODECS[upstream].upstream)
    request = decoded(client, REQUESTS[client])
    return at_once(translator.begin(request, target, context, origin, count=False))


def opened(client, job, attempt):
    """The bridge of a streamed answer."""
    operation = FAMILIES[client].client.operations[job]
    return attempt.open_bridge("public", "up", False, operation, 1 << 20)


def data_of(sent):
    """The data of the events of a stream."""
    lines = (line for line in sent.split(b"\n") if line.startswith(b"data: {"))
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]
