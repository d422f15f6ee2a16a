"""The openai SDK on its responses side, against a real gateway before a scripted vendor."""

import asyncio
import base64
import time
from decimal import Decimal

import openai
import pytest
from pydantic import BaseModel

from tests.sdk.world import ALIAS, MODELS_OF_ALICE, TIMEOUT_S, counts_of, sample

FAMILY = "responses"
LEAVES_WITHIN_MS = 500
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(600)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(600)).decode()
BOTH_TOOLS = "Tell me Weather and Tide"
SEALED = "reasoning.encrypted_content"


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


TOOLS = [
    {
        "type": "function",
        "name": kind.__name__,
        "description": kind.__doc__,
        "parameters": {**kind.model_json_schema(), "additionalProperties": False},
        "strict": True,
    }
    for kind in (Weather, Tide)
]
LOGBOOK = {"type": "custom", "name": "logbook", "description": "A line for the logbook."}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def words(text):
    return {"type": "input_text", "text": text}


def make_client(world, **options):
    options = {"api_key": world.keys["main"], "base_url": world.base_url + "/v1", **options}
    return openai.OpenAI(timeout=TIMEOUT_S, **options)


@pytest.fixture(scope="module")
def client(world):
    with make_client(world) as made:
        yield made


@pytest.fixture(scope="module")
def solo(world):
    """A client whose group has one channel: what that has stored can be named."""
    with make_client(world, api_key=world.keys["solo"]) as made:
        yield made


def text_of(events):
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def kinds_of(response):
    return [item.type for item in response.output]


# ---- answers -------------------------------------------------------------------------------------


def test_text(client, world):
    answer = client.responses.create(model="tea", input="Is tea ready?", instructions="Be brief.")
    assert "You wrote: “Is tea ready?”" in answer.output_text
    assert (answer.status, answer.model, answer.instructions) == ("completed", "tea", "Be brief.")
    record = world.gateway.record(answer._request_id)
    usage = answer.usage
    assert counts_of(record) == {"input": usage.input_tokens, "output": usage.output_tokens}
    price = Decimal(2 * usage.input_tokens + 8 * usage.output_tokens) / 10**6
    assert Decimal(record["cost"]) == price
    named = {name: record[name] for name in ("outcome", "model", "upstream_model", "stream")}
    assert named == {
        "outcome": "ok", "model": "tea", "upstream_model": ALIAS, "stream": False
    }  # fmt: skip
    assert record["endpoint"] == "/v1/responses"
    assert record["user_agent"].startswith("OpenAI/Python")


def test_stream(client, world):
    with client.responses.create(model="tea", input="hello", stream=True) as stream:
        events = list(stream)
    assert "You wrote: “hello”" in text_of(events)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    shown = [event.response for event in events if hasattr(event, "response")]
    assert {response.model for response in shown} == {"tea"}
    assert len({response.id for response in shown}) == 1
    record = world.gateway.record(stream.response.headers["x-request-id"])
    usage = shown[-1].usage
    assert counts_of(record) == {"input": usage.input_tokens, "output": usage.output_tokens}
    assert (record["stream"], record["usage_source"]) == (True, "reported")


def test_helper_accumulates(client):
    with client.responses.stream(model="tea", input="hello") as stream:
        text = text_of(stream)
        whole = stream.get_final_response()
    assert whole.output_text == text
    assert (whole.status, whole.model) == ("completed", "tea")
    assert whole.usage.output_tokens > 0


def test_a_bound_is_told(client, world):
    short = client.responses.create(model="tea", input="hello there", max_output_tokens=16)
    assert short.status == "incomplete"
    assert short.incomplete_details.reason == "max_output_tokens"
    stream = client.responses.create(
        model="tea", input="hello there", max_output_tokens=16, stream=True
    )
    assert list(stream)[-1].type == "response.incomplete"
    record = world.gateway.record(stream.response.headers["x-request-id"])
    assert (record["outcome"], record["output_tokens"]) == ("ok", 16)


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_have_their_price(client, world, stream):
    asked = {"model": "tea", "input": "[[demo sample=cached_usage]]"}
    if stream:
        answer = client.responses.create(**asked, stream=True)
        usage = list(answer)[-1].response.usage
        call_id = answer.response.headers["x-request-id"]
    else:
        answer = client.responses.create(**asked)
        usage, call_id = answer.usage, answer._request_id
    assert usage.input_tokens_details.cached_tokens == 2000
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


@pytest.mark.parametrize("name", ["text", "incomplete", "refusal", "reasoning", "tools_parallel"])
def test_samples_pass_unchanged(client, world, name):
    prompt = f"[[demo sample={name}]]"
    # the vendor's own name of the model stays when the channel does not rename it
    model = world.frail(FAMILY)
    answer = client.responses.create(model=model, input=prompt)
    expected = sample(FAMILY, name)
    assert answer.to_dict() == expected
    # The SDK's helper has a final response of completed ones alone.
    *_, last = client.responses.create(model=model, input=prompt, stream=True)
    assert last.type == f"response.{expected['status']}"
    streamed = last.response
    assert kinds_of(streamed) == [item["type"] for item in expected["output"]]


# ---- tools, images, files, structures, reasoning -------------------------------------------------


def test_tools_in_parallel(client):
    talk = [user(words(BOTH_TOOLS))]
    answer = client.responses.create(model="tea", input=talk, tools=TOOLS, store=False)
    assert [(item.type, item.name) for item in answer.output] == [
        ("function_call", "Weather"),
        ("function_call", "Tide"),
    ]
    assert Tide.model_validate_json(answer.output[1].arguments) == Tide(harbour="demo", day=7)
    talk += [item.to_dict() for item in answer.output]
    talk += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "calm"}
        for item in answer.output
    ]
    done = client.responses.create(model="tea", input=talk, tools=TOOLS, store=False)
    assert "the tool results have arrived" in done.output_text


def test_tools_in_parallel_streamed(client):
    tools = [openai.pydantic_function_tool(kind) for kind in (Weather, Tide)]
    flat = [{"type": "function", **tool["function"]} for tool in tools]
    with client.responses.stream(model="tea", input=BOTH_TOOLS, tools=flat) as stream:
        events = list(stream)
        whole = stream.get_final_response()
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert [Weather.model_validate_json(e.arguments).harbour for e in done] == ["demo", "demo"]
    assert [item.name for item in whole.output] == ["Weather", "Tide"]
    assert len({item.call_id for item in whole.output}) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_custom_tools(client, stream):
    talk = [user(words("Write into the logbook"))]
    asked = {"model": "tea", "tools": [LOGBOOK, *TOOLS], "store": False}
    if stream:
        with client.responses.stream(**asked, input=talk) as streamed:
            events = list(streamed)
            answer = streamed.get_final_response()
        deltas = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
        assert "".join(deltas) == answer.output[0].input
    else:
        answer = client.responses.create(**asked, input=talk)
    [call] = answer.output
    assert (call.type, call.name) == ("custom_tool_call", "logbook")
    assert call.input == "a line of free text"
    talk += [
        call.to_dict(),
        {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "written"},
    ]
    done = client.responses.create(**asked, input=talk)
    assert "the tool results have arrived" in done.output_text


def test_image(client, world):
    image = {
        "type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"
    }  # fmt: skip
    answer = client.responses.create(model="tea", input=[user(words("kettle-drawing"), image)])
    assert "I was shown 1 image" in answer.output_text
    assert PIXEL in world.asked("kettle-drawing")["body"]


def test_a_file_in_line(client, world):
    file = {
        "type": "input_file",
        "filename": "tea.pdf",
        "file_data": f"data:application/pdf;base64,{PDF}",
    }
    answer = client.responses.create(model="tea", input=[user(words("tea-manual"), file)])
    assert "tea-manual" in answer.output_text
    assert PDF in world.asked("tea-manual")["body"]


def test_structured_output(client):
    answer = client.responses.parse(model="tea", input="a kettle", text_format=Kettle)
    assert answer.output_parsed == Kettle(name="demo", cups=7)


def test_structured_output_streamed(client):
    with client.responses.stream(model="tea", input="a kettle", text_format=Kettle) as stream:
        whole = stream.get_final_response()
    assert whole.output_parsed == Kettle(name="demo", cups=7)


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_comes_back_in_the_next_turn(client, world, stream):
    asked = {
        "model": "tea",
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": [SEALED],
        "store": False,
    }
    talk = [user(words("think"))]
    if stream:
        with client.responses.stream(**asked, input=talk) as streamed:
            thoughts = "".join(
                event.delta
                for event in streamed
                if event.type == "response.reasoning_summary_text.delta"
            )
            first = streamed.get_final_response()
            call_id = streamed._response.headers["x-request-id"]
    else:
        first = client.responses.create(**asked, input=talk)
        thoughts, call_id = first.output[0].summary[0].text, first._request_id
    assert kinds_of(first) == ["reasoning", "message"]
    assert first.output[0].summary[0].text == thoughts != ""
    sealed = first.output[0].encrypted_content
    usage = first.usage
    record = world.gateway.record(call_id)
    assert record["reasoning_tokens"] == usage.output_tokens_details.reasoning_tokens > 0
    assert record["output_tokens"] + record["reasoning_tokens"] == usage.output_tokens
    word = f"second-thoughts-{stream}"
    talk += [item.to_dict(exclude_none=True) for item in first.output] + [user(words(word))]
    # The vendor refuses a seal that is not its own, or that was changed.
    assert word in client.responses.create(**asked, input=talk).output_text
    assert sealed in world.asked(word)["body"]


# ---- counts, compaction, what is stored, lists ---------------------------------------------------


def test_count_tokens(client, world):
    raw = client.responses.input_tokens.with_raw_response.count(
        model="tea", input="Is tea ready?", tools=TOOLS
    )
    counted = raw.parse()
    called = client.responses.create(model="tea", input="Is tea ready?", tools=TOOLS)
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == called.usage.input_tokens
    record = world.gateway.record(raw.headers["x-request-id"])
    assert (record["endpoint"], record["cost"]) == ("/v1/responses/input_tokens", "0")
    assert (record["outcome"], counts_of(record)) == ("ok", {})


def test_count_tokens_needs_no_money(world):
    with make_client(world, api_key=world.keys["poor"]) as poor:
        assert poor.responses.input_tokens.count(model="tea", input="hello").input_tokens > 0
        with pytest.raises(openai.RateLimitError) as caught:
            poor.responses.create(model="tea", input="hello")
    assert caught.value.code == "insufficient_quota"


def test_compact(client, world):
    compacted = client.responses.compact(model="tea", input=[user(words("a long talk"))])
    assert compacted.object == "response.compaction"
    assert kinds_of(compacted) == ["message", "compaction"]
    record = world.gateway.record(compacted._request_id)
    assert record["endpoint"] == "/v1/responses/compact"
    usage = compacted.usage
    assert counts_of(record) == {"input": usage.input_tokens, "output": usage.output_tokens}
    assert Decimal(record["cost"]) > 0
    # What was compacted is the beginning of the next turn.
    talk = [item.to_dict(exclude_none=True, warnings=False) for item in compacted.output]
    done = client.responses.create(model="tea", input=[*talk, user(words("and then?"))])
    assert "and then?" in done.output_text


def test_stored_responses(solo, world):
    made = solo.responses.create(model="tea", input="keep this")
    found = solo.responses.retrieve(made.id)
    assert (found.id, found.output_text) == (made.id, made.output_text)
    record = world.gateway.record(found._request_id)
    assert (record["endpoint"], record["cost"]) == ("/v1/responses/{id}", "0")
    items = list(solo.responses.input_items.list(made.id, order="asc"))
    assert [item.content[0].text for item in items] == ["keep this"]


def test_delete(solo):
    made = solo.responses.create(model="tea", input="do not keep this")
    solo.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        solo.responses.retrieve(made.id)
    assert caught.value.code == "not_found"
    assert made.id in caught.value.message


def test_input_items_page_by_page(solo):
    talk = [user(words(f"number {number}")) for number in range(5)]
    made = solo.responses.create(model="tea", input=talk)
    first = solo.responses.input_items.list(made.id, limit=2, order="asc")
    assert (len(first.data), first.has_more) == (2, True)
    found = [item.content[0].text for item in first]
    assert found == [f"number {number}" for number in range(5)]


def test_cancel(solo, world):
    """Only one that runs in the background can be cancelled, and such a one is made at the vendor,
    for a gateway could not bill it: so it was given to nobody here."""
    with make_client(world, base_url=world.upstream.url + "/v1") as at_the_vendor:
        made = at_the_vendor.responses.create(model=ALIAS, input="no hurry", background=True)
    assert made.status == "queued"
    for ask_for in (solo.responses.cancel, solo.responses.retrieve):
        with pytest.raises(openai.NotFoundError) as refused:
            ask_for(made.id)
        assert refused.value.code == "not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        solo.responses.cancel(solo.responses.create(model="tea", input="at once").id)
    assert caught.value.code == "upstream_invalid_request"


def test_previous_response(solo, world):
    first = solo.responses.create(model="tea", input=BOTH_TOOLS, tools=TOOLS)
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "calm"}
        for item in first.output
    ]
    second = solo.responses.create(
        model="tea", input=results, tools=TOOLS, previous_response_id=first.id
    )
    assert "the tool results have arrived" in second.output_text
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens
    with pytest.raises(openai.NotFoundError) as caught:
        solo.responses.create(model="tea", input="go on", previous_response_id="resp_nobodys")
    assert caught.value.code == "not_found"


def test_models(client):
    assert [model.id for model in client.models.list()] == MODELS_OF_ALICE


# ---- bytes and headers ---------------------------------------------------------------------------


def test_unknown_fields_pass_as_they_are(client, world):
    extra = {"client_metadata": {"steps": [1.0, "é", None], "note": "unknown-field-43"}}
    client.responses.create(model=world.frail(FAMILY), input="hello", extra_body=extra)
    body = world.asked("unknown-field-43")["body"]
    assert '"client_metadata":{"steps":[1.0,"é",null],"note":"unknown-field-43"}' in body


def test_headers_of_the_vendor(client, world):
    raw = client.responses.with_raw_response.create(
        model="tea",
        input="headers-of-responses",
        extra_headers={"X-Client-Request-Id": "tea-44", "OpenAI-Beta": "kettles=v2"},
    )
    forbidden = ("set-cookie", "openai-organization", "x-ratelimit-limit-requests")
    assert not [name for name in forbidden if name in raw.headers]
    up = world.asked("headers-of-responses")["headers"]
    assert up["authorization"] == "Bearer sk-of-the-operator"
    assert up["openai-beta"] == "kettles=v2"
    assert not [name for name in up if name.startswith("x-")]
    record = world.gateway.record(raw.headers["x-request-id"])
    assert record["client_request_id"] == "tea-44"
    assert record["upstream_request_id"] == raw.parse().id


def test_head_of_a_stream(client):
    with client.responses.with_streaming_response.create(
        model="tea", input="hello", stream=True
    ) as answer:
        headers = answer.headers
        text = answer.text()
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["request-id"] == headers["x-request-id"]
    assert text.startswith("event: response.created\ndata: {")
    assert "[DONE]" not in text


# ---- streams that end early ----------------------------------------------------------------------


def check_left(world, word, since_ms, call_id):
    assert world.left(word) - since_ms < LEAVES_WITHIN_MS
    record = world.gateway.record(call_id)
    assert (record["outcome"], record["error_code"]) == ("client_gone", "client_gone")
    return record


def test_closing_a_stream_closes_the_upstream(client, world):
    stream = client.responses.create(
        model="tea", input="close-this [[demo ms=50 chunks=2000]]", stream=True
    )
    for event in stream:
        if event.type == "response.output_text.delta":
            break
    since_ms = time.time() * 1000
    stream.close()
    record = check_left(world, "close-this", since_ms, stream.response.headers["x-request-id"])
    assert record["output_tokens"] > 0, "what was delivered is charged"
    assert record["usage_source"] == "estimated"


def test_leaving_the_helper_closes_the_upstream(client, world):
    with client.responses.stream(
        model="tea", input="leave-this [[demo ms=50 chunks=2000]]"
    ) as stream:
        next(iter(stream))
        since_ms = time.time() * 1000
        call_id = stream._response.headers["x-request-id"]
    check_left(world, "leave-this", since_ms, call_id)


# type and code in the event, outcome of the record; six events are shown before the fault
BROKEN = {
    "cut=6": ("server_error", "upstream_error", "upstream_truncated"),
    "reset=6": ("server_error", "upstream_error", "upstream_truncated"),
    "clean_end=6": ("server_error", "upstream_error", "upstream_truncated"),
    "no_done": ("server_error", "upstream_error", "upstream_truncated"),
    "stall=6": ("server_error", "upstream_timeout", "timeout"),
    "garbage=6": ("server_error", "upstream_invalid_response", "upstream_error"),
    "error_event=6 code=server_error": ("server_error", "upstream_error", "upstream_error"),
    "error_event=6 type=rate_limit_error": (
        "rate_limit_error", "upstream_rate_limited", "upstream_error",
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_stream_raises(client, world, words):
    kind, code, outcome = BROKEN[words]
    shown = []
    stream = client.responses.create(
        model=world.frail(FAMILY), input=f"[[demo chunks=20 {words}]]", stream=True
    )
    with pytest.raises(openai.APIError) as caught:
        shown.extend(stream)
    assert (caught.value.type, caught.value.code) == (kind, code)
    assert type(caught.value) is openai.APIError, "the stream itself came to its proper end"
    assert text_of(shown).startswith("0 1 ")
    assert "response.completed" not in [event.type for event in shown]
    record = world.gateway.record(stream.response.headers["x-request-id"])
    assert (record["status"], record["outcome"]) == (200, outcome)
    assert record["usage_source"] == "estimated"
    assert record["output_tokens"] > 0


def test_a_broken_stream_raises_in_the_helper(client, world):
    with (
        client.responses.stream(model=world.frail(FAMILY), input="[[demo cut=6]]") as stream,
        pytest.raises(openai.APIError) as caught,
    ):
        stream.get_final_response()
    assert caught.value.code == "upstream_error"


@pytest.fixture
def hasty_client(hasty):
    with make_client(hasty) as made:
        yield made


def test_heartbeats_are_not_seen(hasty_client, world):
    """The head and comments come before the vendor has said anything."""
    stream = hasty_client.responses.create(
        model=world.frail(FAMILY), input="hello [[demo first_ms=2400]]", stream=True
    )
    head_at = time.monotonic()
    events = [next(stream)]
    assert time.monotonic() - head_at > 0.2, "the head waited for the first event"
    events += stream
    assert events[0].type == "response.created"
    assert "You wrote: “hello”" in text_of(events)


def test_a_failure_after_the_head_is_an_error_in_the_stream(hasty_client, world):
    stream = hasty_client.responses.create(
        model=world.frail(FAMILY), input="[[demo first_ms=2400 status=500]]", stream=True
    )
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert (caught.value.type, caught.value.code) == ("server_error", "upstream_error")


# ---- the asynchronous client ---------------------------------------------------------------------


def make_async_client(world):
    return openai.AsyncOpenAI(
        api_key=world.keys["main"], base_url=world.base_url + "/v1", timeout=TIMEOUT_S
    )


async def test_many_at_once(world):
    async def one(client, number):
        async with client.responses.stream(model="tea", input=f"number {number}") as stream:
            return (await stream.get_final_response()).output_text

    async with make_async_client(world) as client:
        texts = await asyncio.gather(*(one(client, number) for number in range(30)))
    for number, text in enumerate(texts):
        assert f"You wrote: “number {number}”" in text


async def test_cancelling_a_task_closes_the_upstream(world):
    async def read(client, begun):
        stream = await client.responses.create(
            model="tea", input="cancel-this [[demo ms=50 chunks=2000]]", stream=True
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
    left_ms = await loop.run_in_executor(None, world.left, "cancel-this")
    assert left_ms - since_ms < LEAVES_WITHIN_MS


async def test_a_broken_stream_raises_in_the_asynchronous_client(world):
    async with make_async_client(world) as client:
        stream = await client.responses.create(
            model=world.frail(FAMILY), input="[[demo cut=6]]", stream=True
        )
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
    assert caught.value.code == "upstream_error"
