"""State of other families on its way through clients, and its removal; calls and the results that
answer them.
"""

import base64
import json
import time

import pytest

from adapters.family.codec import Target
from adapters.family.opaque import PREFIX, Origin, wrap
from adapters.faults import Fault
from adapters.generate_content import CODECS
from adapters.generate_content.decode_turns import NO_CALL, CallMatcher
from adapters.generate_content.parts import BYPASS
from adapters.ir.parts import ToolCall
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from adapters.models import traits_of
from adapters.registry import FAMILIES, TRANSLATORS
from tests.adapters.generate_content.bridged import chunks_of
from tests.adapters.generate_content.calls import CONTEXT, FAMILY, target

WRAPPED = wrap("value", Origin("messages", "mark", b"secret", "user"))
OURS = base64.b64encode(WRAPPED.encode()).decode()
NATIVE = base64.b64encode(b"a vendor's own").decode()
CALL = {"functionCall": {"name": "f", "args": {"x": 1.0}}}


def cleaned(body, model="gemini-3-pro"):
    return CODECS.client.without_foreign(top_level(body), model)


def cleaned_parts(*parts, model="gemini-3-pro"):
    body = json.dumps({"contents": [{"role": "model", "parts": list(parts)}]}).encode()
    return json.loads(cleaned(body, model))["contents"][0]["parts"]


def test_the_mark_is_how_wrapped_state_begins():
    assert OURS.encode().startswith(CODECS.client.foreign_mark)
    for rest in ("a", "z", "_"):
        begun = base64.b64encode((PREFIX + rest).encode())
        assert begun.startswith(CODECS.client.foreign_mark)


def test_contents_without_any_stay_byte_for_byte():
    head = b'{ "x" :1, "contents": [ {"parts":[{"text":"\\u00e9 \xc3\xa9"}] } ,\n'
    ours = b'{"parts":[{"text":"a","thoughtSignature":"%b"}]}' % OURS.encode()
    tail = b' , {"parts":[{"thoughtSignature": "%b","text":"b"}]}], "y":1e2}' % NATIVE.encode()
    assert cleaned(head + ours + tail) == head + b'{"parts":[{"text":"a"}]}' + tail


def test_a_body_without_any_is_the_same():
    body = b'{"contents":[{"parts":[{"text":"Z3cxL"}]}]}'
    assert json.loads(cleaned(body)) == json.loads(body)
    body = b'{"contents":[]}'
    assert cleaned(body) is body


@pytest.mark.parametrize("name", ["thoughtSignature", "thought_signature"])
def test_a_call_gets_the_documented_value_where_the_model_wants_one(name):
    part = {**CALL, name: OURS.replace("+", "-").replace("/", "_").rstrip("=")}
    assert cleaned_parts(part) == [{**CALL, "thoughtSignature": BYPASS}]
    assert cleaned_parts(part, model="models/gemini-2.5-flash") == [CALL]


def test_empty_texts_that_had_state_alone_go():
    empty = {"text": "", "thoughtSignature": OURS}
    assert cleaned_parts({"text": "a"}, empty) == [{"text": "a"}]
    assert cleaned_parts(empty) == cleaned_parts(empty, empty) == [{"text": ""}]


def test_the_vendors_own_signatures_stay():
    part = {**CALL, "thoughtSignature": NATIVE}
    assert cleaned_parts(part, {"text": "a", "thoughtSignature": OURS}) == [part, {"text": "a"}]


def test_without_any_reasoning_the_vendors_own_go_too():
    body = json.dumps({"contents": [{"parts": [{**CALL, "thoughtSignature": NATIVE}]}, {}]})
    spans = top_level(body.encode())
    found = json.loads(CODECS.client.without_reasoning(spans, "gemini-3-pro"))
    assert found["contents"] == [{"parts": [{**CALL, "thoughtSignature": BYPASS}]}, {}]
    found = json.loads(CODECS.client.without_reasoning(spans, "gemini-2.5-pro"))
    assert found["contents"] == [{"parts": [CALL]}, {}]


def test_a_request_that_is_to_be_counted():
    inner = {"contents": [{"parts": [{"text": "é", "thoughtSignature": OURS}, {"text": "b"}]}]}
    for name in ("generateContentRequest", "generate_content_request"):
        body = json.dumps({"a": 1, name: inner}, ensure_ascii=False).encode()
        found = json.loads(cleaned(body))
        assert found == {"a": 1, name: {"contents": [{"parts": [{"text": "é"}, {"text": "b"}]}]}}


def test_odd_contents_stay():
    for body in (
        b'{"contents":7}',
        b'{"contents":["Z3cxL"]}',
        b'{"contents":[{"parts":"Z3cxL"}]}',
        b'{"contents":[{"parts":[{"thoughtSignature":"Z3cxL"},{"thoughtSignature":1}]}]}',
    ):
        assert json.loads(cleaned(body)) == json.loads(body)


def test_a_number_out_of_range_is_refused():
    body = b'{"contents":[{"parts":[{"text":"Z3cxL","x":1e999}]}]}'
    with pytest.raises(Fault):
        cleaned(body)


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
    request = at_once(translator.decode(top_level(json.dumps(whole).encode()), False, "m"))
    origin = Origin(upstream, "mark", b"secret", "user")
    return at_once(translator.begin(request, aim, CONTEXT, origin, count=False))


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


MANY = 20_000


def calls(*listed):
    made = CallMatcher()
    for given, name in listed:
        made.add(ToolCall(given, name, "{}"))
    return made


def test_an_id_decides_and_a_name_where_there_is_none():
    made = calls(("x", "f"), ("y", "f"), ("z", "g"))
    assert made.answer("f", "y")[0] == 1
    assert made.answer("f", "")[0] == 0
    assert made.answer("f", "") == (NO_CALL, None)
    assert made.answer("f", "z")[1].name == "g"


def test_an_unknown_id_leaves_the_name():
    made = calls(("x", "f"))
    assert made.answer("f", "unknown")[0] == 0
    assert made.answer("f", "x") == (NO_CALL, None)


def test_a_response_without_either_is_of_the_first_that_is_open():
    made = calls(("x", "f"), ("y", "g"))
    made.answer("f", "x")
    assert made.answer("", "")[0] == 1
    assert made.answer("", "") == (NO_CALL, None)


def test_many_are_matched_at_once():
    made = calls(*((f"i{number}", "f") for number in range(MANY)))
    begun = time.perf_counter()
    for number in reversed(range(MANY)):
        assert made.answer("f", f"i{number}")[0] == number
    assert made.answer("f", "") == (NO_CALL, None)
    assert time.perf_counter() - begun < 2
