"""What a vendor needs to go on thinking, through a client of another family and back: signatures
of this family through the others' clients, the others' state through this family's clients."""

import json

import pytest

from adapters.family.codec import Target
from adapters.family.opaque import Origin
from adapters.json.jsonio import top_level
from adapters.models import traits_of
from adapters.registry import FAMILIES, TRANSLATORS
from tests.adapters.generate_content.bridged import chunks_of
from tests.adapters.generate_content.calls import CONTEXT, FAMILY, done, target

ARGS = {"a": 1}
OTHERS = ("chat_completions", "responses", "messages")
FIRST = {
    "chat_completions": {"messages": [{"role": "user", "content": "?"}]},
    "responses": {"input": [{"role": "user", "content": "?"}]},
    "messages": {"max_tokens": 5, "messages": [{"role": "user", "content": "?"}]},
    FAMILY: {
        "contents": [{"parts": [{"text": "?"}]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"}},
    },
}
MODELS = {"messages": ("anthropic", "claude-opus-4-6"), "responses": ("openai", "gpt-5.5")}


def begun(client, upstream, body):
    """An attempt for a body."""
    if upstream == FAMILY:
        aim = target("gemini-3-pro")
    else:
        vendor, model = MODELS[upstream]
        aim = Target(vendor, model, traits_of(vendor, upstream, model), 32_000)
    translator = TRANSLATORS[client, upstream]
    whole = body if client == FAMILY else {"model": "m", **body}
    request = done(translator.decode(top_level(json.dumps(whole).encode()), False, "m"))
    origin = Origin(upstream, "mark", b"secret", "user")
    return done(translator.begin(request, aim, CONTEXT, origin, count=False))


def answered(client, upstream, said):
    """What the client is told of an upstream's answer."""
    attempt = begun(client, upstream, FIRST[client])
    operation = FAMILIES[client].client.operations["generate"]
    return json.loads(attempt.read_answer(json.dumps(said).encode(), "m", "up", operation).body)


def next_body(client, answer):
    """The client's next request, with the results of what was called, or other words."""
    first = FIRST[client]
    if client == "chat_completions":
        message = answer["choices"][0]["message"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": "r"}
            for call in message.get("tool_calls") or ()
        ]
        more = results or [{"role": "user", "content": "!"}]
        return {"messages": [*first["messages"], message, *more]}
    if client == "responses":
        results = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "r"}
            for item in answer["output"]
            if item["type"] == "function_call"
        ]
        more = results or [{"role": "user", "content": "!"}]
        return {"input": [*first["input"], *answer["output"], *more]}
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "r"}
        for block in answer["content"]
        if block["type"] == "tool_use"
    ]
    said = {"role": "assistant", "content": answer["content"]}
    user = {"role": "user", "content": results or "!"}
    return {**first, "messages": [*first["messages"], said, user]}


def gemini(*parts):
    return {
        "candidates": [
            {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1},
        "responseId": "r",
    }


THOUGHT = {"text": "Hm.", "thought": True}
TEXT = {"text": "Let me look."}
SIGNED = {"functionCall": {"id": "x1", "name": "f", "args": ARGS}, "thoughtSignature": "QUFB"}
SECOND = {"functionCall": {"id": "y2", "name": "f", "args": {}}}


@pytest.mark.parametrize("client", OTHERS)
@pytest.mark.parametrize(
    "parts", [(THOUGHT, TEXT, SIGNED, SECOND), (SIGNED, SECOND), (TEXT, SIGNED)]
)
def test_signatures_of_calls_come_back_through_all_clients(client, parts):
    answer = answered(client, FAMILY, gemini(*parts))
    sent = json.loads(begun(client, FAMILY, next_body(client, answer)).body)
    assert sent["contents"][1]["parts"] == [part for part in parts if part is not THOUGHT]


@pytest.mark.parametrize("client", ["chat_completions", "responses"])
def test_signatures_of_texts_come_back(client):
    text = {**TEXT, "thoughtSignature": "QUFB"}
    answer = answered(client, FAMILY, gemini(THOUGHT, text))
    sent = json.loads(begun(client, FAMILY, next_body(client, answer)).body)
    assert sent["contents"][1]["parts"] == [text]


CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "up",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "SIGN"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": ARGS},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
GPT = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "up",
    "output": [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "SIGN",
        },
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "call_1",
            "name": "f",
            "arguments": json.dumps(ARGS),
            "status": "completed",
        },
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
}


@pytest.mark.parametrize("keeps_thoughts", [True, False])
@pytest.mark.parametrize(("upstream", "said"), [("messages", CLAUDE), ("responses", GPT)])
def test_state_of_others_comes_back_also_from_clients_that_drop_thoughts(
    upstream, said, keeps_thoughts
):
    answer = answered(FAMILY, upstream, said)
    parts = answer["candidates"][0]["content"]["parts"]
    assert [part.get("text") for part in parts] == ["Hm.", "Let me look.", None]
    kept = [part for part in parts if keeps_thoughts or not part.get("thought")]
    result = {"functionResponse": {"name": "f", "response": {"output": "r"}}}
    first = FIRST[FAMILY]
    contents = [
        *first["contents"],
        {"role": "model", "parts": kept},
        {"role": "user", "parts": [result]},
    ]
    sent = json.loads(begun(FAMILY, upstream, {**first, "contents": contents}).body)
    if upstream == "messages":
        blocks = sent["messages"][1]["content"]
        assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
        assert blocks[0] == CLAUDE["content"][0]
    else:
        kinds = [item["type"] for item in sent["input"]]
        assert kinds == ["message", "reasoning", "message", "function_call", "function_call_output"]
        assert sent["input"][1]["encrypted_content"] == "SIGN"


def test_state_in_a_stream_is_on_the_call():
    events = (
        {"type": "message_start", "message": {**CLAUDE, "content": [], "stop_reason": None}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": CLAUDE["content"][0] | {"thinking": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "Hm."},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "SIGN"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": CLAUDE["content"][2] | {"input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": "{}"},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    )
    stream = "".join(f"event: {said['type']}\ndata: {json.dumps(said)}\n\n" for said in events)
    operation = FAMILIES[FAMILY].client.operations["stream"]
    attempt = begun(FAMILY, "messages", FIRST[FAMILY])
    bridge = attempt.open_bridge("m", "up", False, operation, 1 << 20)
    chunks = chunks_of(bridge.feed(stream.encode()) + bridge.close())
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert [set(part) for part in parts] == [
        {"text", "thought"},
        {"functionCall", "thoughtSignature"},
        {"text"},
    ]
