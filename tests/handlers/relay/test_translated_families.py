"""Calls of the real families at channels of other families, and the state that translated answers
leave."""

import asyncio
import base64
import json

import pytest

from adapters.registry import FAMILIES
from handlers.relay.running import LARGE_BYTES
from store.values.usage import Served
from store.values.usage_record import StoredAt
from tests.handlers.relay.rig import Calling, channel_at
from tests.handlers.relay.upstream.scripts import JSON, refusing
from tests.support.served import until

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILIES
LOSSES = dict.fromkeys(FAMILIES, 1)
SEALED = "gw1.messages.abc.czNjcmV0.0123456789abcdef"
HI = {"role": "user", "content": "Hi"}


class Stored:
    """A store with one response of the user."""

    refuse = True

    async def find(self, user_id, ids):
        known = {"resp_mine": StoredAt("x", "id-own"), "resp_other": StoredAt("x")}
        return [known.get(one) for one in ids]

    def note(self, *args):
        raise AssertionError("a translated answer is not stored")


@pytest.fixture
def relay(client):
    return Calling(client, Stored())


def channel(upstream, family, name="main", **fields):
    return channel_at(upstream, name, family=family, losses=LOSSES, **fields)


async def relayed(relay, family, body, *channels, job="generate", target=None):
    """Make a call; return what the client received, and the record."""
    spoken = FAMILIES[family]
    operation = spoken.client.operations[job]
    return await relay.call(body, channels, family=spoken, operation=operation, target=target)


def answer_of(sent):
    [(_, status, _, body)] = sent
    return status, json.loads(body)


async def chat(peer, head, body):
    """Answer like an upstream of chat completions."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    if json.loads(body).get("stream"):
        await peer.begin_stream()
        for delta in ({"role": "assistant", "content": "He"}, {"content": "llo"}):
            choices = [{"index": 0, "delta": delta}]
            await peer.chunk(b"data: %b\n\n" % json.dumps({"id": "c", "choices": choices}).encode())
        choices = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
        last = json.dumps({"id": "c", "choices": choices, "usage": usage}).encode()
        await peer.chunk(b"data: %b\n\ndata: [DONE]\n\n" % last)
        await peer.end_stream()
        return
    choices = [{"index": 0, "message": {"role": "assistant", "content": "Hello"},
                "finish_reason": "stop"}]  # fmt: skip
    answer = {"id": "c", "model": "up", "choices": choices, "usage": usage}
    await peer.answer(json.dumps(answer).encode(), headers=JSON)


async def responses(peer, head, body):
    """Answer like an upstream of responses."""
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}
    answer = {"id": "r", "output": [message], "usage": {"input_tokens": 5, "output_tokens": 2}}
    await peer.answer(json.dumps(answer).encode(), headers=JSON)


CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


async def test_a_client_without_events_gets_one_array(relay, serve):
    upstream = channel(await serve(chat), CHAT)
    sent, record = await relayed(
        relay, GENERATE, CONTENTS, upstream, job="stream_array", target="m"
    )
    assert ("Content-Type", "application/json") in sent[0][2]
    chunks = json.loads(b"".join(one[-1] for one in sent))
    parts = [part for one in chunks for part in one["candidates"][0]["content"].get("parts", ())]
    assert "".join(part.get("text", "") for part in parts) == "Hello"
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"
    assert (record.outcome, record.upstream_family) == ("ok", CHAT)


@pytest.mark.parametrize("job", ["stream", "stream_array"])
async def test_heartbeats_before_an_answer_that_never_begins(relay, serve, job):
    go = asyncio.Event()

    async def script(peer, head, body):
        await go.wait()
        await refusing("500 No", "no")(peer, head, body)

    upstream = channel(await serve(script), CHAT)
    call = asyncio.create_task(relayed(relay, GENERATE, CONTENTS, upstream, job=job, target="m"))
    await until(lambda: relay.live._streams)
    relay.pass_s(relay.settings.upstream.commit_after_s + 39)
    go.set()
    sent, record = await call
    assert sent[0][0] == "start" and record.outcome == "upstream_error"
    whole = b"".join(one[-1] for one in sent)
    assert b'"error"' in whole and b"data: [DONE]" not in whole
    if job == "stream_array":
        assert "error" in json.loads(whole)[-1]


async def test_what_an_upstream_keeps_is_not_seen_by_another(relay, serve):
    upstream = await serve(chat)
    own = channel(upstream, RESPONSES, "own", models={"other": "up"})
    foreign = channel(upstream, CHAT)
    for response, status, code in (
        ("resp_mine", 400, "unsupported_parameter"),
        ("resp_other", 400, "not_found"),
        ("resp_nobodys", 400, "not_found"),
    ):
        body = {"model": "m", "input": "Hi", "previous_response_id": response}
        sent, record = await relayed(relay, RESPONSES, body, own, foreign)
        got, said = answer_of(sent)
        assert (record.error_code, record.outcome) == (code, "refused")
        assert said["error"]["param"] == "previous_response_id"
        assert got == status or code == "not_found"
    for field, value in (("conversation", "conv_1"), ("background", True)):
        body = {"model": "m", "input": "Hi", field: value}
        sent, record = await relayed(relay, RESPONSES, body, own, foreign)
        assert record.error_code == "unsupported_parameter"
        assert field in answer_of(sent)[1]["error"]["param"]
    body = {"contents": [{"parts": [{"text": "Hi"}]}], "cachedContent": "cachedContents/abc"}
    gemini = channel(upstream, GENERATE, "gemini", models={"other": "up"})
    sent, record = await relayed(relay, GENERATE, body, gemini, foreign, target="m")
    assert record.error_code == "unsupported_parameter"
    assert "cachedContent" in answer_of(sent)[1]["error"]["message"]
    assert upstream.requests == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_translated_answer_is_never_stored(relay, serve, stream):
    upstream = await serve(chat)
    body = {"model": "m", "input": "Hi", "store": True, "stream": stream}
    _, record = await relayed(relay, RESPONSES, body, channel(upstream, CHAT))
    assert record.outcome == "ok" and record.stored is None
    assert "store" not in json.loads(upstream.requests[0][1])


FLAT = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("filling", [0, LARGE_BYTES])
@pytest.mark.parametrize("family", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    "fields", [{"input": [HI]}, {"messages": [HI]}, {"input": "Hi", "previous_response_id": "x"}]
)
async def test_bodies_of_cursor_are_served_by_any_channel(relay, serve, family, fields, filling):
    upstream = await serve(chat if family == CHAT else responses)
    body = {"model": "m", "tools": [{**FLAT, "description": "x" * filling}], **fields}
    sent, record = await relayed(relay, CHAT, body, channel(upstream, family))
    if "previous_response_id" in fields:
        assert (record.error_code, upstream.requests) == ("unsupported_parameter", [])
        return
    status, answer = answer_of(sent)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hello")
    [(_, got)] = upstream.requests
    tool = json.loads(got)["tools"][0]
    assert (tool["function"] if family == CHAT else tool)["name"] == "f"


PATCH = {"type": "custom", "name": "patch"}


@pytest.mark.parametrize("vendor", ["openai", "openai-compatible"])
async def test_free_text_tools_of_cursor_are_functions_where_a_model_has_none(relay, serve, vendor):
    async def script(peer, head, body):
        (tool,) = json.loads(body)["tools"]
        sent = {"name": "patch", "input": "x"}
        if tool["type"] == "function":
            sent = {"name": "patch", "arguments": '{"input":"x"}'}
        call = {"id": "c", "type": tool["type"], tool["type"]: sent}
        choices = [{"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]
        await peer.answer(json.dumps({"id": "a", "choices": choices}).encode(), headers=JSON)

    upstream = await serve(script)
    served = channel(upstream, CHAT, vendor=vendor)
    body = {"model": "m", "messages": [HI], "tools": [PATCH]}
    sent, record = await relayed(relay, CHAT, body, served)
    (call,) = answer_of(sent)[1]["choices"][0]["message"]["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "patch", "input": "x"})
    assert record.outcome == "ok"
    kind = "custom" if vendor == "openai" else "function"
    assert json.loads(upstream.requests[0][1])["tools"][0]["type"] == kind


async def test_a_compaction_is_the_models_own_where_no_vendor_makes_one(relay, serve):
    upstream = await serve(chat)
    body = {"model": "m", "input": "Hi"}
    sent, record = await relayed(relay, RESPONSES, body, channel(upstream, CHAT), job="compact")
    status, compacted = answer_of(sent)
    assert (status, compacted["object"]) == (200, "response.compaction")
    assert [item["type"] for item in compacted["output"]] == ["compaction"]
    assert (record.outcome, record.usage.output_tokens) == ("ok", 2)
    channels = channel(upstream, CHAT), channel(upstream, RESPONSES, "own")
    _, record = await relayed(relay, RESPONSES, body, *channels, job="compact")
    assert record.attempts[0].channel == "own"


_MODEL_TURNS = {
    CHAT: lambda state: [{"role": "assistant", "content": "a", "reasoning_opaque": state}],
    RESPONSES: lambda state: [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": state},
        {"type": "message", "role": "assistant", "content": "a"},
    ],
    MESSAGES: lambda state: [{"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": state},
        {"type": "text", "text": "a"},
    ]}],
    GENERATE: lambda state: [
        {"role": "model", "parts": [{"text": "a", "thoughtSignature": state}]},
    ],
}  # fmt: skip


def conversation(family, state=None):
    """Return a request of the family's clients; `state`: opaque, from the previous answer."""
    hi = CONTENTS["contents"][0] if family == GENERATE else HI
    turns = [hi] if state is None else [hi, *_MODEL_TURNS[family](state), hi]
    if family == GENERATE:
        return {"contents": turns}
    if family == RESPONSES:
        return {"model": "m", "input": turns}
    return {"model": "m", "max_tokens": 9, "messages": turns}


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_native_upstream_never_sees_the_state_of_others(relay, serve, family):
    upstream = await serve(refusing("400 No", "no"))
    state = SEALED
    if family == GENERATE:
        state = base64.b64encode(SEALED.encode()).decode()
    for value in (state, "native+state="):
        body = conversation(family, value)
        await relayed(relay, family, body, channel(upstream, family), target="m")
    [(_, cleaned), (_, untouched)] = upstream.requests
    assert b"gw1." not in cleaned and b"Z3cx" not in cleaned and b'"Hi"' in cleaned
    assert untouched == json.dumps(body).encode().replace(b'"model": "m"', b'"model": "up"')


async def test_a_conversation_stays_at_its_translated_channel(relay, serve):
    upstreams = [await serve(chat) for _ in range(4)]
    channels = [channel(one, CHAT, f"c{n}") for n, one in enumerate(upstreams)]
    for _ in range(6):
        await relayed(relay, MESSAGES, conversation(MESSAGES), *channels)
    assert sorted(len(one.requests) for one in upstreams) == [0, 0, 0, 6]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_native_channel_that_fails_is_followed_by_a_translated_one(relay, serve, stream):
    bad, good = await serve(refusing("500 No", "no")), await serve(chat)
    first, second = channel(bad, MESSAGES, "native"), channel(good, CHAT, "other", priority=9)
    body = conversation(MESSAGES) | {"stream": stream, "top_k": 3}
    sent, record = await relayed(relay, MESSAGES, body, first, second)
    assert record.outcome == "ok" and b"llo" in b"".join(one[-1] for one in sent)
    assert record.attempts[-1].channel == "other"
    assert record.attempts[-1].dropped == ("top_k",)
    assert (record.upstream_family, record.usage.input_tokens, record.usage.output_tokens) == (
        CHAT,
        5,
        2,
    )


INVALID_SIGNATURE = refusing("400 No", "Invalid signature in thinking block")


@pytest.mark.parametrize("family", [RESPONSES, MESSAGES, GENERATE])
async def test_a_native_upstream_that_refuses_a_thought_is_asked_without_any(relay, serve, family):
    upstream = await serve(INVALID_SIGNATURE)
    body = conversation(family, "bmF0aXZl")
    _, record = await relayed(relay, family, body, channel(upstream, family), target="m")
    [(_, first), (_, second)] = upstream.requests
    assert b"bmF0aXZl" in first and b"bmF0aXZl" not in second
    assert second.count(b'"Hi"') == 2 and b'"a"' in second
    assert [one.status for one in record.attempts] == [400, 400]
    assert record.outcome == "upstream_error" and record.error_code == "upstream_invalid_request"


@pytest.mark.parametrize("family", FAMILIES)
async def test_without_a_thought_there_is_nothing_to_leave_out(relay, serve, family):
    upstream = await serve(INVALID_SIGNATURE)
    await relayed(relay, family, conversation(family), channel(upstream, family), target="m")
    assert len(upstream.requests) == 1


async def test_a_model_that_lacks_earlier_thoughts_is_asked_again_with_them(relay, serve):
    async def script(peer, head, body):
        turn = json.loads(body)["messages"][1]
        refused = turn.get("reasoning_content") != "hm"
        answer = refusing("400 No", "reasoning_content is missing in message 1")
        await (answer if refused else chat)(peer, head, body)

    upstream = await serve(script)
    thought = {"type": "thinking", "thinking": "hm", "signature": "gw1."}
    turn = {"role": "assistant", "content": [thought, {"type": "text", "text": "a"}]}
    body = {"model": "m", "max_tokens": 9, "messages": [HI, turn, HI]}
    for attempts in (2, 1):  # the second call knows it
        _, record = await relayed(relay, MESSAGES, body, channel(upstream, CHAT))
        assert (record.outcome, len(record.attempts)) == ("ok", attempts)
    native = {"model": "m", "messages": [HI, {"role": "assistant", "content": "a"}, HI]}
    _, record = await relayed(relay, CHAT, native, channel(upstream, CHAT))
    assert (record.outcome, len(record.attempts)) == ("upstream_error", 1)


async def test_a_round_of_tools_goes_on_without_thinking_when_its_thoughts_are_refused(
    relay, serve
):
    upstream = await serve(INVALID_SIGNATURE)
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    turns = [HI, {"role": "assistant", "content": [thought, call]},
             {"role": "user", "content": [result]}]  # fmt: skip
    thinking = {"type": "enabled", "budget_tokens": 2048}
    body = {"model": "m", "max_tokens": 4096, "thinking": thinking, "messages": turns}
    await relayed(relay, MESSAGES, body, channel(upstream, MESSAGES))
    second = json.loads(upstream.requests[1][1])
    assert second["thinking"] == {"type": "disabled"}
    assert second["messages"][1]["content"] == [call]


@pytest.mark.parametrize(
    ("usage", "tier"), [({}, "priority"), ({"serviceTier": "standard"}, "default")]
)
@pytest.mark.parametrize("job", ["generate", "stream"])
@pytest.mark.parametrize("family", [GENERATE, CHAT])
async def test_the_tier_in_the_head_of_an_answer(relay, serve, family, job, usage, tier):
    counts = {"promptTokenCount": 5, "candidatesTokenCount": 2, **usage}
    candidate = {"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}
    answer = json.dumps({"candidates": [candidate], "usageMetadata": counts}).encode()
    tier_line = "X-Gemini-Service-Tier: Priority"

    async def gemini(peer, head, body):
        if job == "generate":
            await peer.answer(answer, headers=(*JSON, tier_line))
            return
        await peer.begin_stream(tier_line)
        await peer.chunk(b"data: %b\n\n" % answer)
        await peer.end_stream()

    body = CONTENTS if family == GENERATE else {"model": "m", "messages": [HI]}
    if family == CHAT:
        body, job_of_family = body | {"stream": job == "stream"}, "generate"
    else:
        job_of_family = job
    upstream = channel(await serve(gemini), GENERATE)
    _, record = await relayed(relay, family, body, upstream, job=job_of_family, target="m")
    assert record.outcome == "ok" and record.receipt.served == Served(tier)
