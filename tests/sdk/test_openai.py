"""The official openai SDK, as people use it, against a real gateway before a scripted vendor."""

import asyncio
import base64
import json
import threading
import time
from decimal import Decimal

import httpx2
import openai
import pytest
from pydantic import BaseModel

from tests.sdk.world import ALIAS, MODELS_OF_ALICE, TIMEOUT_S, Wire, counts_of, sample

FAMILY = "chat_completions"
LEAVES_WITHIN_MS = 500
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(600)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(600)).decode()
SHOWN_ONCE = 4  # events before a broken stream breaks


class Kettle(BaseModel):
    name: str
    cups: int


class Weather(BaseModel):
    """The weather of a harbour."""

    harbour: str


class Tide(BaseModel):
    """The tide of a harbour."""

    harbour: str
    day: int


TOOLS = [openai.pydantic_function_tool(Weather), openai.pydantic_function_tool(Tide)]
BOTH_TOOLS = "Tell me Weather and Tide"


def user(text):
    return [{"role": "user", "content": text}]


def make_client(world, **options):
    options = {"api_key": world.keys["main"], "base_url": world.base_url + "/v1", **options}
    return openai.OpenAI(timeout=TIMEOUT_S, **options)


@pytest.fixture(scope="module")
def client(world):
    with make_client(world) as made:
        yield made


def text_of(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


# ---- answers -------------------------------------------------------------------------------------


def test_text(client, world):
    answer = client.chat.completions.create(model="tea", messages=user("Is tea ready?"))
    assert "You wrote: “Is tea ready?”" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "tea"
    record = world.gateway.record(answer._request_id)
    usage = answer.usage
    assert counts_of(record) == {"input": usage.prompt_tokens, "output": usage.completion_tokens}
    price = Decimal(2 * usage.prompt_tokens + 8 * usage.completion_tokens) / 10**6
    assert Decimal(record["cost"]) == price
    named = {name: record[name] for name in ("outcome", "model", "upstream_model", "stream")}
    assert named == {
        "outcome": "ok", "model": "tea", "upstream_model": ALIAS, "stream": False
    }  # fmt: skip
    assert record["user_agent"].startswith("OpenAI/Python")


def test_stream(client, world):
    with client.chat.completions.create(model="tea", messages=user("hello"), stream=True) as stream:
        chunks = list(stream)
    assert "You wrote: “hello”" in text_of(chunks)
    assert {chunk.model for chunk in chunks} == {"tea"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert all(chunk.usage is None and chunk.choices for chunk in chunks), "usage was not asked for"
    record = world.gateway.record(stream.response.headers["x-request-id"])
    assert record["usage_source"] == "reported"
    assert record["output_tokens"] > 0


def test_stream_with_usage(client, world):
    stream = client.chat.completions.create(
        model="tea",
        messages=user("hello"),
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = stream
    assert {chunk.usage for chunk in chunks} == {None}
    assert last.choices == []
    record = world.gateway.record(stream.response.headers["x-request-id"])
    assert counts_of(record) == {
        "input": last.usage.prompt_tokens,
        "output": last.usage.completion_tokens,
    }


def test_helper_accumulates(client):
    with client.chat.completions.stream(model="tea", messages=user("hello")) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        whole = stream.get_final_completion()
    assert "".join(deltas) == whole.choices[0].message.content
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason == "stop"
    assert whole.model == "tea"


def test_several_choices(client):
    with client.chat.completions.stream(model="tea", messages=user("hello"), n=2) as stream:
        list(stream)
        whole = stream.get_final_completion()
    first, second = (choice.message.content for choice in whole.choices)
    assert first == second
    assert "hello" in first


@pytest.mark.parametrize("kind", ["finish_chunk", "repeated", "cumulative"])
def test_usage_in_other_places(client, world, kind):
    stream = client.chat.completions.create(
        model=world.frail(FAMILY),
        messages=user(f"hello [[demo usage={kind}]]"),
        stream=True,
        stream_options={"include_usage": True},
    )
    last = [chunk.usage for chunk in stream if chunk.usage][-1]
    record = world.gateway.record(stream.response.headers["x-request-id"])
    assert counts_of(record) == {"input": last.prompt_tokens, "output": last.completion_tokens}
    assert record["usage_source"] == "reported"


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_have_their_price(client, world, stream):
    asked = {"model": "tea", "messages": user("[[demo sample=cached_usage]]")}
    if stream:
        answer = client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        )
        usage = list(answer)[-1].usage
        call_id = answer.response.headers["x-request-id"]
    else:
        answer = client.chat.completions.create(**asked)
        usage, call_id = answer.usage, answer._request_id
    assert usage.prompt_tokens_details.cached_tokens == 2000
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


@pytest.mark.parametrize("name", ["text", "length", "refusal", "reasoning", "tools_parallel"])
def test_samples_pass_unchanged(client, world, name):
    messages = user(f"[[demo sample={name}]]")
    # the vendor's own name of the model stays when the channel does not rename it
    model = world.frail(FAMILY)
    answer = client.chat.completions.create(model=model, messages=messages)
    expected = sample(FAMILY, name)
    assert answer.to_dict() == expected
    if name == "length":
        return  # there is no stream of this one
    with client.chat.completions.stream(model=model, messages=messages) as stream:
        list(stream)
        streamed = stream.get_final_completion()
    message = expected["choices"][0]["message"]
    assert (streamed.choices[0].message.content or None) == message["content"]
    assert streamed.choices[0].message.refusal == message["refusal"]
    assert streamed.choices[0].finish_reason == expected["choices"][0]["finish_reason"]


# ---- tools, images, structures, reasoning --------------------------------------------------------


def test_tools_in_parallel(client):
    messages = user(BOTH_TOOLS)
    answer = client.chat.completions.create(model="tea", messages=messages, tools=TOOLS)
    calls = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert [call.function.name for call in calls] == ["Weather", "Tide"]
    assert json.loads(calls[1].function.arguments) == {"harbour": "demo", "day": 7}
    messages += [answer.choices[0].message.to_dict()]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "calm"} for call in calls]
    done = client.chat.completions.create(model="tea", messages=messages, tools=TOOLS)
    assert "the tool results have arrived" in done.choices[0].message.content


def test_tools_in_parallel_streamed(client):
    with client.chat.completions.stream(
        model="tea", messages=user(BOTH_TOOLS), tools=TOOLS
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        whole = stream.get_final_completion()
    calls = whole.choices[0].message.tool_calls
    assert [event.name for event in done] == ["Weather", "Tide"]
    assert [call.function.parsed_arguments for call in calls] == [
        Weather(harbour="demo"),
        Tide(harbour="demo", day=7),
    ]
    assert len({call.id for call in calls}) == 2
    assert whole.choices[0].finish_reason == "tool_calls"


def test_image(client, world):
    content = [
        {"type": "text", "text": "kettle-picture"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    answer = client.chat.completions.create(
        model="tea", messages=[{"role": "user", "content": content}]
    )
    assert "I was shown 1 image" in answer.choices[0].message.content
    assert PIXEL in world.asked("kettle-picture")["body"]


def test_a_file_in_line(client, world):
    file = {"filename": "tea.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    content = [{"type": "text", "text": "kettle-manual"}, {"type": "file", "file": file}]
    answer = client.chat.completions.create(
        model="tea", messages=[{"role": "user", "content": content}]
    )
    assert "kettle-manual" in answer.choices[0].message.content
    assert PDF in world.asked("kettle-manual")["body"]


def test_structured_output(client):
    answer = client.chat.completions.parse(
        model="tea", messages=user("a kettle"), response_format=Kettle
    )
    assert answer.choices[0].message.parsed == Kettle(name="demo", cups=7)


def test_structured_output_streamed(client):
    with client.chat.completions.stream(
        model="tea", messages=user("a kettle"), response_format=Kettle
    ) as stream:
        list(stream)
        whole = stream.get_final_completion()
    assert whole.choices[0].message.parsed == Kettle(name="demo", cups=7)


def test_reasoning(client, world):
    asked = {"model": "tea", "messages": user("think"), "reasoning_effort": "high"}
    plain = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    thoughts = plain.choices[0].message.model_extra["reasoning_content"]
    deltas = [c.choices[0].delta.model_extra or {} for c in chunks if c.choices]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == thoughts
    details = plain.usage.completion_tokens_details
    assert details.reasoning_tokens == chunks[-1].usage.completion_tokens_details.reasoning_tokens
    record = world.gateway.record(plain._request_id)
    assert record["reasoning_tokens"] == details.reasoning_tokens > 0
    both = record["output_tokens"] + record["reasoning_tokens"]
    assert both == plain.usage.completion_tokens


def test_reasoning_comes_back_in_the_next_turn(client, world):
    first = client.chat.completions.create(
        model="tea", messages=user("think"), reasoning_effort="high"
    )
    message = first.choices[0].message
    turns = [*user("think"), message.to_dict(), *user("third-thoughts")]
    client.chat.completions.create(model="tea", messages=turns, reasoning_effort="high")
    sent = json.loads(world.asked("third-thoughts")["body"])["messages"]
    assert sent[1]["reasoning_content"] == message.model_extra["reasoning_content"] != ""


# ---- lists ---------------------------------------------------------------------------------------


def test_models(client):
    assert [model.id for model in client.models.list()] == MODELS_OF_ALICE


def test_a_model_with_a_slash(client):
    model = client.models.retrieve("acme/tea-1")
    assert (model.id, model.object) == ("acme/tea-1", "model")
    assert model.created > 0
    answer = client.chat.completions.create(model="acme/tea-1", messages=user("hello"))
    assert answer.model == "acme/tea-1"


def test_a_model_that_is_not_offered(client):
    for name in ("elsewhere", "off", ALIAS):
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve(name)
        assert caught.value.code == "model_not_found"


def test_lists_need_a_key(world):
    with (
        make_client(world, api_key="sk-nobody-knows-it") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()
    with make_client(world, api_key=world.keys["no-chat"]) as other:
        assert list(other.models.list()) == []


# ---- bytes and headers ---------------------------------------------------------------------------


def test_unknown_fields_pass_as_they_are(client, world):
    extra = {"brewing": {"steps": [1.0, "é", None], "note": "unknown-field-42"}}
    client.chat.completions.create(
        model=world.frail(FAMILY), messages=user("hello"), extra_body=extra
    )
    body = world.asked("unknown-field-42")["body"]
    assert '"brewing":{"steps":[1.0,"é",null],"note":"unknown-field-42"}' in body


def test_headers_of_the_vendor(world):
    with make_client(world, organization="org-tea", project="proj_tea") as client:
        raw = client.chat.completions.with_raw_response.create(
            model="tea",
            messages=user("headers-of-the-vendor"),
            extra_headers={"X-Client-Request-Id": "tea-42", "OpenAI-Beta": "kettles=v2"},
        )
    down = raw.headers
    assert down["openai-processing-ms"] == "12"
    forbidden = ("set-cookie", "openai-organization", "x-ratelimit-limit-requests")
    assert not [name for name in forbidden if name in down]
    up = world.asked("headers-of-the-vendor")["headers"]
    assert up["authorization"] == "Bearer sk-of-the-operator"
    sent = {name: value for name, value in up.items() if name.startswith("openai-")}
    assert sent == {
        "openai-organization": "org-tea", "openai-project": "proj_tea", "openai-beta": "kettles=v2"
    }  # fmt: skip
    assert not [name for name in up if name.startswith("x-")]
    assert up["user-agent"] == "sluice"
    record = world.gateway.record(down["x-request-id"])
    assert record["client_request_id"] == "tea-42"
    assert record["upstream_request_id"] == raw.parse().id


def test_head_of_a_stream(client):
    with client.chat.completions.with_streaming_response.create(
        model="tea", messages=user("hello"), stream=True
    ) as answer:
        headers = answer.headers
        text = answer.text()
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["request-id"] == headers["x-request-id"]
    assert text.endswith("data: [DONE]\n\n")
    assert "event:" not in text


# ---- streams that end early ----------------------------------------------------------------------


def check_left(world, word, since_ms, call_id):
    assert world.left(word) - since_ms < LEAVES_WITHIN_MS
    record = world.gateway.record(call_id)
    assert (record["outcome"], record["error_code"]) == ("client_gone", "client_gone")
    return record


def test_closing_a_stream_closes_the_upstream(client, world):
    stream = client.chat.completions.create(
        model="tea", messages=user("close-me [[demo ms=50 chunks=2000]]"), stream=True
    )
    for _ in range(3):
        next(stream)
    since_ms = time.time() * 1000
    stream.close()
    record = check_left(world, "close-me", since_ms, stream.response.headers["x-request-id"])
    assert record["output_tokens"] > 0, "what was delivered is charged"
    assert record["usage_source"] == "estimated"


def test_leaving_the_helper_closes_the_upstream(client, world):
    with client.chat.completions.stream(
        model="tea", messages=user("leave-me [[demo ms=50 chunks=2000]]")
    ) as stream:
        next(iter(stream))
        since_ms = time.time() * 1000
    assert world.left("leave-me") - since_ms < LEAVES_WITHIN_MS


def test_a_timeout_of_the_client_closes_the_upstream(client, world):
    impatient = client.with_options(timeout=0.3, max_retries=0)
    gives_up_ms = time.time() * 1000 + 300
    with pytest.raises(openai.APITimeoutError):
        impatient.chat.completions.create(
            model=world.frail(FAMILY), messages=user("too-slow [[demo stall_before_head]]")
        )
    assert world.left("too-slow") - gives_up_ms < LEAVES_WITHIN_MS
    assert world.asked("too-slow")["status"] is None


BROKEN = {
    "cut=4": ("server_error", "upstream_error", "upstream_truncated"),
    "reset=4": ("server_error", "upstream_error", "upstream_truncated"),
    "clean_end=4": ("server_error", "upstream_error", "upstream_truncated"),
    "stall=4": ("server_error", "upstream_timeout", "timeout"),
    "garbage=4": ("server_error", "upstream_invalid_response", "upstream_error"),
    "error_event=4": ("server_error", "upstream_error", "upstream_error"),
    "error_event=4 type=rate_limit_error": (
        "rate_limit_error", "upstream_rate_limited", "upstream_error",
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_stream_raises(client, world, words):
    kind, code, outcome = BROKEN[words]
    shown = []
    stream = client.chat.completions.create(
        model=world.frail(FAMILY), messages=user(f"[[demo chunks=20 {words}]]"), stream=True
    )
    with pytest.raises(openai.APIError) as caught:
        shown.extend(stream)
    assert (caught.value.type, caught.value.code) == (kind, code)
    assert type(caught.value) is openai.APIError, "the stream itself came to its proper end"
    assert text_of(shown) == "0 1 2 "
    assert not [chunk for chunk in shown if chunk.choices[0].finish_reason]
    record = world.gateway.record(stream.response.headers["x-request-id"])
    assert (record["status"], record["outcome"]) == (200, outcome)
    assert record["usage_source"] == "estimated"
    assert record["output_tokens"] > 0


def test_a_broken_stream_raises_in_the_helper(client, world):
    with (
        client.chat.completions.stream(
            model=world.frail(FAMILY), messages=user("[[demo cut=4]]")
        ) as stream,
        pytest.raises(openai.APIError) as caught,
    ):
        stream.get_final_completion()
    assert caught.value.code == "upstream_error"


def test_a_stream_without_done_is_whole(client, world):
    stream = client.chat.completions.create(
        model=world.frail(FAMILY), messages=user("hello [[demo no_done]]"), stream=True
    )
    assert [c for c in stream if c.choices[0].finish_reason == "stop"]
    assert world.gateway.record(stream.response.headers["x-request-id"])["outcome"] == "ok"


@pytest.fixture
def hasty_client(hasty):
    with make_client(hasty) as made:
        yield made


def test_heartbeats_are_not_seen(hasty_client, world):
    """The head and comments come before the vendor has said anything."""
    stream = hasty_client.chat.completions.create(
        model=world.frail(FAMILY), messages=user("hello [[demo first_ms=2400]]"), stream=True
    )
    head_at = time.monotonic()
    text = text_of([next(stream)])
    assert time.monotonic() - head_at > 0.2, "the head waited for the first event"
    assert "You wrote: “hello”" in text + text_of(stream)


def test_a_failure_after_the_head_is_an_error_in_the_stream(hasty_client, world):
    stream = hasty_client.chat.completions.create(
        model=world.frail(FAMILY), messages=user("[[demo first_ms=2400 status=500]]"), stream=True
    )
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert (caught.value.type, caught.value.code) == ("server_error", "upstream_error")


def test_a_vendor_that_closes_before_its_head_is_asked_twice_at_most(client, world):
    """Once more on a kept connection, for that is how a stale one looks; ten are kept here."""
    model = world.frail(FAMILY)
    slow = user("[[demo first_ms=400]]")
    calls = [
        threading.Thread(
            target=client.chat.completions.create, kwargs={"model": model, "messages": slow}
        )
        for _ in range(10)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    with pytest.raises(openai.InternalServerError):
        client.with_options(max_retries=0).chat.completions.create(
            model=model, messages=user("once-or-twice [[demo close_before_head]]")
        )
    seen = [entry for entry in world.upstream.log() if "once-or-twice" in entry["body"]]
    assert 1 <= len(seen) <= 2


def test_a_retry_of_the_sdk_is_a_call_of_its_own(world):
    wire = Wire()
    with (
        httpx2.Client(transport=wire, timeout=TIMEOUT_S) as http,
        make_client(world, http_client=http) as client,
        pytest.raises(openai.InternalServerError),
    ):
        client.chat.completions.create(
            model=world.frail(FAMILY), messages=user("thrice [[demo status=500]]")
        )
    ids = [headers["x-request-id"] for _, headers in wire.answers]
    assert len(set(ids)) == 3
    up = [entry for entry in world.upstream.log() if "thrice" in entry["body"]]
    assert len(up) == 3
    assert not [entry for entry in up if "x-stainless-retry-count" in entry["headers"]]


# ---- the asynchronous client ---------------------------------------------------------------------


def make_async_client(world):
    return openai.AsyncOpenAI(
        api_key=world.keys["main"], base_url=world.base_url + "/v1", timeout=TIMEOUT_S
    )


async def test_many_at_once(world):
    async def one(client, number):
        stream = await client.chat.completions.create(
            model="tea", messages=user(f"number {number}"), stream=True
        )
        return text_of([chunk async for chunk in stream])

    async with make_async_client(world) as client:
        texts = await asyncio.gather(*(one(client, number) for number in range(40)))
    for number, text in enumerate(texts):
        assert f"You wrote: “number {number}”" in text


async def test_cancelling_a_task_closes_the_upstream(world):
    async def read(client, begun):
        stream = await client.chat.completions.create(
            model="tea", messages=user("cancel-me [[demo ms=50 chunks=2000]]"), stream=True
        )
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
    left_ms = await loop.run_in_executor(None, world.left, "cancel-me")
    assert left_ms - since_ms < LEAVES_WITHIN_MS


async def test_a_broken_stream_raises_in_the_asynchronous_client(world):
    async with make_async_client(world) as client:
        stream = await client.chat.completions.create(
            model=world.frail(FAMILY), messages=user("[[demo cut=4]]"), stream=True
        )
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
    assert caught.value.code == "upstream_error"
