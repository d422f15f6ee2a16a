"""Calls of a client of each family at an upstream of each family, its own included."""

import json
import pathlib

from adapters.codecs import CODECS
from adapters.family.codec import AnswerContext, Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from adapters.registry import FAMILIES, FAMILY_NAMES
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
FOREIGN = "Z3cxLg=="  # base64 of the prefix of other families' state
LINKED = {"mimeType": "image/png", "fileUri": "https://a/b"}
INLINE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
PROBABLE = {"token": "a", "logProbability": -1}
SUPPORT = {"segment": {"startIndex": 1, "endIndex": 2}, "groundingChunkIndices": [0]}
COUNTS = {"promptTokenCount": 1, "candidatesTokenCount": 1}
# A stream with everything that a chunk may contain.
RICH_PARTS = [
    {"text": "Hm.", "thought": True},
    {"text": "é"},
    {"functionCall": {"name": "f", "args": {"a": [1]}}, "thoughtSignature": "AAAA"},
    {"text": "b", "thoughtSignature": "AAAA"},
]
RICH_CANDIDATE = {
    "content": {"role": "model", "parts": RICH_PARTS},
    "index": 0,
    "logprobsResult": {
        "chosenCandidates": [PROBABLE],
        "topCandidates": [{"candidates": [PROBABLE]}],
    },
    "groundingMetadata": {
        "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}],
        "groundingSupports": [SUPPORT],
    },
    "citationMetadata": {"citationSources": [{"uri": "https://b", "endIndex": 1}]},
}
RICH = {
    "candidates": [RICH_CANDIDATE],
    "usageMetadata": COUNTS | {"totalTokenCount": 2},
    "modelVersion": "up",
    "responseId": "r",
}
END = {
    "candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": COUNTS,
}
ANSWERS["generate_content"].append(RICH)
STREAMS["generate_content"].append(
    b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in (RICH, RICH, END))
)


def typed(kind, **fields):
    return {"type": kind, **fields}


def turn(role, *content, **fields):
    return {"role": role, "content": list(content), **fields}


TEXT, FUNCTION = typed("text", text="x"), {"name": "f", "parameters": {"type": "object"}}
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}
EXTRA = {"gw": "gw1.x/0:3", "google": {"thought_signature": "c2ln"}}
CHAT_CALLS = [
    typed("function", id="a", function={"name": "f", "arguments": "{}"}, extra_content=EXTRA),
    typed("custom", id="b", custom={"name": "g", "input": "x"}),
]
CHAT_REQUEST = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        turn(
            "user",
            TEXT | {"prompt_cache_breakpoint": {"ttl": "30m"}},
            typed("image_url", image_url={"url": IMAGE}),
            typed("file", file={"file_data": "aGk=", "filename": "a.txt"}),
        ),
        turn(
            "assistant",
            TEXT,
            typed("refusal", refusal="x"),
            reasoning_content="Hm.",
            reasoning_opaque="gw1.y/0:3 gw1.z",
            tool_calls=CHAT_CALLS,
            function_call={"name": "h", "arguments": "{}"},
        ),
        {"role": "tool", "tool_call_id": "b", "content": "x"},
        turn("tool", TEXT, tool_call_id="a"),
        {"role": "function", "name": "h", "content": "x"},
    ],
    "tools": [
        typed("function", function=FUNCTION | {"strict": True}),
        typed("custom", custom={"name": "g", "format": GRAMMAR}),
    ],
    "functions": [{"name": "h"}],
    "tool_choice": typed(
        "allowed_tools",
        allowed_tools={"mode": "auto", "tools": [typed("function", function={"name": "f"})]},
    ),
    "response_format": typed("json_schema", json_schema={"name": "t", "schema": {}}),
    "stream_options": {"include_usage": True},
    "logit_bias": {"5": 1},
    "stop": ["x"],
    "metadata": {"a": "b"},
    "web_search_options": {},
    "reasoning_effort": "low",
}
RESPONSES_REQUEST = {
    "model": "m",
    "input": [
        turn(
            "user",
            typed("input_text", text="x"),
            typed("input_image", image_url=IMAGE),
            typed("input_file", file_data="aGk=", filename="a.txt"),
        ),
        typed("reasoning", summary=[typed("summary_text", text="x")]),
        typed("reasoning", summary=[], encrypted_content="e"),
        typed("function_call", call_id="a", name="f", arguments='{"a":1}'),
        typed("custom_tool_call", call_id="b", name="c", input="free"),
        typed("function_call_output", call_id="a", output="x"),
        typed("custom_tool_call_output", call_id="b", output="x"),
    ],
    "tools": [
        typed("function", name="f", parameters=SCHEMA),
        typed("namespace", name="n", tools=[typed("custom", name="c")]),
        typed("web_search"),
    ],
    "tool_choice": typed(
        "allowed_tools", mode="auto", tools=[typed("function", name="f"), typed("mcp")]
    ),
    "text": {"format": typed("json_schema", name="t", schema=SCHEMA), "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
}
RESULT_BLOCKS = [TEXT, typed("image", source=typed("url", url="https://x"))]
MESSAGES_REQUEST = {
    "model": "m",
    "max_tokens": 900,
    "system": [typed("text", text="s", cache_control={"type": "ephemeral"})],
    "messages": [
        turn(
            "user",
            TEXT,
            typed("image", source=typed("base64", media_type="image/png", data="aGk=")),
            typed("document", source=typed("text", media_type="text/plain", data="d")),
        ),
        turn(
            "assistant",
            typed("thinking", thinking="t", signature="s"),
            typed("text", text="y"),
            typed("tool_use", id="a", name="f", input={"a": 1}),
        ),
        turn("user", typed("tool_result", tool_use_id="a", is_error=True, content=RESULT_BLOCKS)),
    ],
    "tools": [
        {"name": "f", "input_schema": SCHEMA},
        typed("web_search_20250305", name="web_search"),
    ],
    "tool_choice": typed("any", disable_parallel_tool_use=True),
    "thinking": typed("enabled", budget_tokens=1024),
    "metadata": {"user_id": "u"},
    "stop_sequences": ["a"],
    "output_config": {"effort": "low", "format": typed("json_schema", schema=SCHEMA)},
}
G_RESULTS = [
    {"name": "g", "id": "y", "response": {"error": "x"}},
    {"name": "f", "response": {"output": {"a": 1}}, "parts": [INLINE]},
]
G_SCHEMA = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}
GENERATE_REQUEST = {
    "contents": [
        {"role": "user", "parts": [{"text": "x"}, INLINE, {"fileData": LINKED}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": FOREIGN},
                {"functionCall": {"name": "g", "id": "y"}},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": result} for result in G_RESULTS]},
    ],
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [
        {
            "functionDeclarations": [
                {"name": "f", "parameters": G_SCHEMA},
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
    "responses": RESPONSES_REQUEST,
    "messages": MESSAGES_REQUEST,
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
    """Return a request, decoded."""
    spans = top_level(json.dumps(body).encode())
    return at_once(CODECS[family].client.decode_request(spans, True, "m"))


def serving(client, upstream, framing="sse"):
    """Return one attempt of a call."""
    target = Target("demo", "up", Traits(openai_extras=True))
    context = AnswerContext("public", "Ab1", 1795000000, 10, True, framing)
    origin = Origin(upstream, "mark", b"secret", "user")
    translator = Translator(FAMILIES[upstream], CODECS[client].client, CODECS[upstream].upstream)
    request = decoded(client, REQUESTS[client])
    return at_once(translator.begin(request, target, context, origin, count=False))


def opened(client, job, attempt):
    """Return the bridge of a streamed answer."""
    operation = FAMILIES[client].client.operations[job]
    return attempt.open_bridge("public", "up", False, operation, 1 << 20)


def data_of(sent):
    """Return the data of a stream's events."""
    lines = (line for line in sent.split(b"\n") if line.startswith(b"data: {"))
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]
