"""The official anthropic SDK, as people use it, against a real gateway before a scripted vendor."""

import asyncio
import base64
import json
import time
from decimal import Decimal

import anthropic
import pytest
from pydantic import BaseModel

from tests.sdk.world import ALIAS, MODELS_OF_ALICE, TIMEOUT_S, counts_of, sample

FAMILY = "messages"
LEAVES_WITHIN_MS = 500
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(600)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(600)).decode()
TOOLS = [
    {
        "name": name,
        "description": f"The {name} of a harbour.",
        "input_schema": {
            "type": "object",
            "properties": {"harbour": {"type": "string"}, "day": {"type": "integer"}},
        },
    }
    for name in ("get_weather", "get_tide")
]
BOTH_TOOLS = "Call get_weather and get_tide"
THINKING = {"type": "adaptive", "display": "summarized"}


class Kettle(BaseModel):
    name: str
    cups: int


def user(text):
    return [{"role": "user", "content": text}]


def make_client(world, **options):
    options = {"api_key": world.keys["main"], "base_url": world.base_url, **options}
    return anthropic.Anthropic(timeout=TIMEOUT_S, **options)


@pytest.fixture(scope="module")
def client(world):
    with make_client(world) as made:
        yield made


def text_of(events):
    return "".join(
        event.delta.text
        for event in events
        if event.type == "content_block_delta" and event.delta.type == "text_delta"
    )


# ---- answers -------------------------------------------------------------------------------------


def test_text(client, world):
    answer = client.messages.create(model="tea", max_tokens=200, messages=user("Is tea ready?"))
    assert "You wrote: “Is tea ready?”" in answer.content[0].text
    assert answer.stop_reason == "end_turn"
    assert answer.model == "tea"
    record = world.gateway.record(answer._request_id)
    usage = answer.usage
    assert counts_of(record) == {"input": usage.input_tokens, "output": usage.output_tokens}
    price = Decimal(2 * usage.input_tokens + 8 * usage.output_tokens) / 10**6
    assert Decimal(record["cost"]) == price
    named = {name: record[name] for name in ("outcome", "model", "upstream_model", "stream")}
    assert named == {
        "outcome": "ok", "model": "tea", "upstream_model": ALIAS, "stream": False
    }  # fmt: skip
    assert record["endpoint"] == "/v1/messages"
    assert record["user_agent"].startswith("Anthropic/Python")


def test_stream(client, world):
    with client.messages.create(
        model="tea", max_tokens=200, messages=user("hello"), stream=True
    ) as stream:
        events = list(stream)
    assert "You wrote: “hello”" in text_of(events)
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[0].message.model == "tea"
    assert events[-2].delta.stop_reason == "end_turn"
    record = world.gateway.record(stream.response.headers["request-id"])
    assert counts_of(record) == {
        "input": events[0].message.usage.input_tokens,
        "output": events[-2].usage.output_tokens,
    }


def test_helper_accumulates(client):
    with client.messages.stream(
        model="tea", max_tokens=200, messages=user("hello"), system="Be brief."
    ) as stream:
        text = "".join(stream.text_stream)
        whole = stream.get_final_message()
    assert whole.content[0].text == text
    assert whole.stop_reason == "end_turn"
    assert whole.model == "tea"
    assert whole.usage.output_tokens > 1


def test_limits_and_stops(client):
    short = client.messages.create(model="tea", max_tokens=3, messages=user("hello"))
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 3)
    stopped = client.messages.create(
        model="tea", max_tokens=200, messages=user("hello"), stop_sequences=["gateway"]
    )
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "gateway")


def test_cumulative_usage(client, world):
    with client.messages.stream(
        model=world.frail(FAMILY), max_tokens=200, messages=user("hello [[demo usage=cumulative]]")
    ) as stream:
        seen = [event.usage.output_tokens for event in stream if event.type == "message_delta"]
        whole = stream.get_final_message()
    assert len(seen) > 2
    assert seen == sorted(seen)
    record = world.gateway.record(stream.response.headers["request-id"])
    assert record["output_tokens"] == whole.usage.output_tokens == seen[-1]
    assert record["usage_source"] == "reported"


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_have_their_price(client, world, stream):
    asked = {"model": "tea", "max_tokens": 500, "messages": user("[[demo sample=cached_usage]]")}
    if stream:
        with client.messages.stream(**asked) as streamed:
            usage = streamed.get_final_message().usage
            call_id = streamed.response.headers["request-id"]
    else:
        answer = client.messages.create(**asked)
        usage, call_id = answer.usage, answer._request_id
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (200, 2000)
    record = world.gateway.record(call_id)
    assert counts_of(record) == {
        "input": 200,
        "cache_read": 2000,
        "cache_write": 400,
        "output": 90,
        "reasoning": 60,
    }
    expected = Decimal(200 * 2 + 2000 * Decimal("0.5") + 400 * Decimal("2.5") + 150 * 8) / 10**6
    assert Decimal(record["cost"]) == expected


@pytest.mark.parametrize("name", ["text", "max_tokens", "refusal", "thinking", "tools_parallel"])
def test_samples_pass_unchanged(client, world, name):
    messages = user(f"[[demo sample={name}]]")
    # the vendor's own name of the model stays when the channel does not rename it
    model = world.frail(FAMILY)
    answer = client.messages.create(model=model, max_tokens=99, messages=messages)
    expected = sample(FAMILY, name)
    assert answer.to_dict() == expected
    if name == "max_tokens":
        return  # there is no stream of this one
    with client.messages.stream(model=model, max_tokens=99, messages=messages) as stream:
        streamed = stream.get_final_message()
    assert streamed.stop_reason == expected["stop_reason"]
    assert [block.type for block in streamed.content] == [b["type"] for b in expected["content"]]


# ---- tools, images, structures, thinking ---------------------------------------------------------


def test_tools_in_parallel(client):
    asked = {"model": "tea", "max_tokens": 500, "tools": TOOLS}
    messages = user(BOTH_TOOLS)
    answer = client.messages.create(**asked, messages=messages)
    assert answer.stop_reason == "tool_use"
    assert [(block.type, block.name) for block in answer.content] == [
        ("tool_use", "get_weather"),
        ("tool_use", "get_tide"),
    ]
    assert answer.content[1].input == {"harbour": "demo", "day": 7}
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "calm"}
        for block in answer.content
    ]
    turns = [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": results},
    ]
    done = client.messages.create(**asked, messages=messages + turns)
    assert "the tool results have arrived" in done.content[0].text


def test_tools_in_parallel_streamed(client):
    with client.messages.stream(
        model="tea", max_tokens=500, messages=user(BOTH_TOOLS), tools=TOOLS
    ) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        whole = stream.get_final_message()
    assert [block.name for block in whole.content] == ["get_weather", "get_tide"]
    assert [block.input for block in whole.content] == [{"harbour": "demo", "day": 7}] * 2
    assert len({block.id for block in whole.content}) == 2
    assert "".join(pieces) == 2 * json.dumps({"harbour": "demo", "day": 7})
    assert whole.stop_reason == "tool_use"


def test_image(client, world):
    content = [
        {"type": "text", "text": "kettle-photograph"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
        },
    ]
    answer = client.messages.create(
        model="tea", max_tokens=200, messages=[{"role": "user", "content": content}]
    )
    assert "I was shown 1 image" in answer.content[0].text
    assert PIXEL in world.asked("kettle-photograph")["body"]


def test_a_document_in_line(client, world):
    content = [
        {
            "type": "document",
            "title": "Tea",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        },
        {"type": "text", "text": "kettle-handbook"},
    ]
    answer = client.messages.create(
        model="tea", max_tokens=200, messages=[{"role": "user", "content": content}]
    )
    assert "kettle-handbook" in answer.content[0].text
    assert PDF in world.asked("kettle-handbook")["body"]


def test_structured_output(client):
    answer = client.messages.parse(
        model="tea", max_tokens=200, messages=user("a kettle"), output_format=Kettle
    )
    assert answer.parsed_output == Kettle(name="demo", cups=7)


def test_structured_output_streamed(client):
    with client.messages.stream(
        model="tea", max_tokens=200, messages=user("a kettle"), output_format=Kettle
    ) as stream:
        whole = stream.get_final_message()
    assert whole.parsed_output == Kettle(name="demo", cups=7)


def test_thinking(client, world):
    asked = {
        "model": "tea", "max_tokens": 500, "messages": user("think"), "thinking": THINKING
    }  # fmt: skip
    plain = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        thoughts = [event.thinking for event in stream if event.type == "thinking"]
        streamed = stream.get_final_message()
    assert [block.type for block in plain.content] == ["thinking", "text"]
    assert "".join(thoughts) == plain.content[0].thinking == streamed.content[0].thinking
    assert streamed.content[0].signature == plain.content[0].signature != ""
    record = world.gateway.record(plain._request_id)
    assert record["reasoning_tokens"] == plain.usage.output_tokens_details.thinking_tokens > 0
    both = record["output_tokens"] + record["reasoning_tokens"]
    assert both == plain.usage.output_tokens


def test_thinking_comes_back_in_the_next_turn(client, world):
    first = client.messages.create(
        model="tea", max_tokens=500, messages=user("think"), thinking=THINKING
    )
    turns = [
        *user("think"),
        {"role": "assistant", "content": first.content},
        *user("second-thoughts"),
    ]
    client.messages.create(model="tea", max_tokens=500, messages=turns, thinking=THINKING)
    assert first.content[0].signature in world.asked("second-thoughts")["body"]


# ---- counts and lists ----------------------------------------------------------------------------


def test_count_tokens(client, world):
    answer = client.messages.count_tokens(model="tea", messages=user("Is tea ready?"), tools=TOOLS)
    called = client.messages.create(
        model="tea", max_tokens=500, messages=user("Is tea ready?"), tools=TOOLS
    )
    assert answer.input_tokens == called.usage.input_tokens
    record = world.gateway.record(answer._request_id)
    assert (record["endpoint"], record["cost"]) == ("/v1/messages/count_tokens", "0")
    assert (record["outcome"], record["stream"]) == ("ok", False)
    assert counts_of(record) == {}


def test_count_tokens_needs_no_money(world):
    with make_client(world, api_key=world.keys["poor"]) as poor:
        assert poor.messages.count_tokens(model="tea", messages=user("hello")).input_tokens > 0
        with pytest.raises(anthropic.PaymentRequiredError):
            poor.messages.create(model="tea", max_tokens=9, messages=user("hello"))


def test_models_page_by_page(client):
    first = client.models.list(limit=40)
    assert len(first.data) == 40
    assert first.has_more
    assert [model.id for model in client.models.list(limit=40)] == MODELS_OF_ALICE
    last = client.models.list(limit=5, before_id=MODELS_OF_ALICE[20])
    assert [model.id for model in last.data] == MODELS_OF_ALICE[15:20]


def test_a_model_with_a_slash(client):
    model = client.models.retrieve("acme/tea-1")
    assert (model.id, model.type, model.lifecycle) == ("acme/tea-1", "model", "active")
    assert model.created_at.year >= 2026
    answer = client.messages.create(model="acme/tea-1", max_tokens=9, messages=user("hello"))
    assert answer.model == "acme/tea-1"


def test_a_model_that_is_not_offered(client):
    for name in ("elsewhere", "off", ALIAS):
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.models.retrieve(name)
        assert caught.value.type == "not_found_error"


# ---- credentials, versions, headers --------------------------------------------------------------


def test_the_older_way_to_send_the_key(world):
    """Older SDKs and other clients send x-api-key, the older version, and a query string."""
    older = {
        "x-api-key": world.keys["main"],
        "Authorization": anthropic.omit,
        "anthropic-version": "2023-06-01",
    }
    with make_client(world) as client:
        client.messages.create(
            model="tea",
            max_tokens=9,
            messages=user("older-way"),
            extra_headers=older,
            extra_query={"beta": "true"},
            extra_body={"temperature": 1.0},
        )
    up = world.asked("older-way")
    assert up["path"] == "/v1/messages"
    assert up["headers"]["anthropic-version"] == "2023-06-01"
    assert '"temperature":1.0' in up["body"]
    with make_client(world, api_key=None, auth_token=world.keys["main"]) as client:
        assert client.messages.create(model="tea", max_tokens=9, messages=user("hello")).content


def test_authorization_decides_alone(world):
    with make_client(world) as client, pytest.raises(anthropic.AuthenticationError):
        client.messages.create(
            model="tea",
            max_tokens=9,
            messages=user("hello"),
            extra_headers={
                "Authorization": "Bearer a-key-nobody-made",
                "x-api-key": world.keys["main"],
            },
        )


def test_betas_travel_with_the_body(client, world):
    answer = client.beta.messages.create(
        model="tea",
        max_tokens=50,
        messages=user("with-betas"),
        betas=["context-management-2025-06-27", "effort-2025-11-24"],
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
    )
    assert answer.content[0].text
    up = world.asked("with-betas")
    assert up["headers"]["anthropic-beta"] == "context-management-2025-06-27,effort-2025-11-24"
    assert "clear_tool_uses_20250919" in up["body"]


def test_headers_of_the_vendor(client, world):
    raw = client.messages.with_raw_response.create(
        model="tea",
        max_tokens=50,
        messages=user("vendor-headers"),
        workspace_id="wrkspc_tea",
        extra_headers={"X-Client-Request-Id": "tea-43"},
    )
    forbidden = ("set-cookie", "anthropic-organization-id", "anthropic-ratelimit-requests-limit")
    assert not [name for name in forbidden if name in raw.headers]
    up = world.asked("vendor-headers")["headers"]
    assert up["x-api-key"] == "sk-of-the-operator"
    assert {name for name in up if name.startswith(("anthropic-", "x-"))} == {
        "anthropic-version",
        "x-api-key",
    }
    assert "authorization" not in up
    assert up["user-agent"] == "sluice"
    record = world.gateway.record(raw.headers["request-id"])
    assert record["client_request_id"] == "tea-43"
    assert record["upstream_request_id"] == raw.parse().id


def test_head_of_a_stream(client):
    with client.messages.with_streaming_response.create(
        model="tea", max_tokens=50, messages=user("hello"), stream=True
    ) as answer:
        headers = answer.headers
        text = answer.text()
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["request-id"] == headers["x-request-id"]
    assert text.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert "[DONE]" not in text


# ---- streams that end early ----------------------------------------------------------------------


def test_closing_a_stream_closes_the_upstream(client, world):
    stream = client.messages.create(
        model="tea",
        max_tokens=9000,
        messages=user("shut-me [[demo ms=50 chunks=2000]]"),
        stream=True,
    )
    for _ in range(4):
        next(stream)
    since_ms = time.time() * 1000
    stream.close()
    assert world.left("shut-me") - since_ms < LEAVES_WITHIN_MS
    record = world.gateway.record(stream.response.headers["request-id"])
    assert (record["outcome"], record["error_code"]) == ("client_gone", "client_gone")
    assert record["output_tokens"] > 0, "what was delivered is charged"
    assert record["input_tokens"] > 0


def test_leaving_the_helper_closes_the_upstream(client, world):
    with client.messages.stream(
        model="tea", max_tokens=9000, messages=user("quit-me [[demo ms=50 chunks=2000]]")
    ) as stream:
        next(iter(stream))
        since_ms = time.time() * 1000
    assert world.left("quit-me") - since_ms < LEAVES_WITHIN_MS


# error type in the event, outcome of the record
BROKEN = {
    "cut=5": ("overloaded_error", "upstream_truncated"),
    "reset=5": ("overloaded_error", "upstream_truncated"),
    "clean_end=5": ("overloaded_error", "upstream_truncated"),
    "no_done": ("overloaded_error", "upstream_truncated"),
    "stall=5": ("timeout_error", "timeout"),
    "garbage=5": ("api_error", "upstream_error"),
    "error_event=5": ("overloaded_error", "upstream_error"),
    "error_event=5 type=rate_limit_error": ("rate_limit_error", "upstream_error"),
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_stream_raises(client, world, words):
    kind, outcome = BROKEN[words]
    shown = []
    stream = client.messages.create(
        model=world.frail(FAMILY),
        max_tokens=900,
        messages=user(f"[[demo chunks=20 {words}]]"),
        stream=True,
    )
    with pytest.raises(anthropic.APIStatusError) as caught:
        shown.extend(stream)
    error = caught.value
    assert (error.status_code, error.type) == (200, kind)
    call_id = stream.response.headers["request-id"]
    assert error.body["request_id"] == error.request_id == call_id
    assert text_of(shown).startswith("0 1 2 ")
    assert "message_stop" not in [event.type for event in shown]
    record = world.gateway.record(call_id)
    assert (record["status"], record["outcome"]) == (200, outcome)
    assert record["output_tokens"] > 0


def test_a_broken_stream_raises_in_the_helper(client, world):
    with (
        client.messages.stream(
            model=world.frail(FAMILY), max_tokens=99, messages=user("[[demo cut=5]]")
        ) as stream,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        stream.get_final_message()
    assert caught.value.type == "overloaded_error"


@pytest.fixture
def hasty_client(hasty):
    with make_client(hasty) as made:
        yield made


def test_heartbeats_are_not_seen(hasty_client, world):
    """The head and comments come before the vendor has said anything."""
    stream = hasty_client.messages.create(
        model=world.frail(FAMILY),
        max_tokens=99,
        messages=user("hello [[demo first_ms=2400]]"),
        stream=True,
    )
    head_at = time.monotonic()
    events = [next(stream)]
    assert time.monotonic() - head_at > 0.2, "the head waited for the first event"
    events += stream
    assert "You wrote: “hello”" in text_of(events)
    assert events[0].type == "message_start"


def test_pings_inside_a_message(client, world):
    with client.messages.with_streaming_response.create(
        model=world.frail(FAMILY), max_tokens=99, messages=user("[[demo stall=3]]"), stream=True
    ) as answer:
        text = answer.text()
    start, ping, error = (text.index(f"event: {w}\n") for w in ("message_start", "ping", "error"))
    assert start < ping < error


def test_a_failure_after_the_head_is_an_error_in_the_stream(hasty_client, world):
    stream = hasty_client.messages.create(
        model=world.frail(FAMILY),
        max_tokens=99,
        messages=user("[[demo first_ms=2400 status=529]]"),
        stream=True,
    )
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(stream)
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")


# ---- the asynchronous client ---------------------------------------------------------------------


def make_async_client(world):
    return anthropic.AsyncAnthropic(
        api_key=world.keys["main"], base_url=world.base_url, timeout=TIMEOUT_S
    )


async def test_many_at_once(world):
    async def one(client, number):
        async with client.messages.stream(
            model="tea", max_tokens=200, messages=user(f"number {number}")
        ) as stream:
            return await stream.get_final_text()

    async with make_async_client(world) as client:
        texts = await asyncio.gather(*(one(client, number) for number in range(40)))
    for number, text in enumerate(texts):
        assert f"You wrote: “number {number}”" in text


async def test_cancelling_a_task_closes_the_upstream(world):
    async def read(client, begun):
        async with client.messages.stream(
            model="tea", max_tokens=9000, messages=user("drop-me [[demo ms=50 chunks=2000]]")
        ) as stream:
            async for _ in stream:
                begun.set()

    async with make_async_client(world) as client:
        begun = asyncio.Event()
        task = asyncio.create_task(read(client, begun))
        await begun.wait()
        since_ms = time.time() * 1000
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    loop = asyncio.get_running_loop()
    left_ms = await loop.run_in_executor(None, world.left, "drop-me")
    assert left_ms - since_ms < LEAVES_WITHIN_MS
