"""Results that every official SDK must get alike: answers, records, lists, streams that end
early."""

import asyncio
import time
from decimal import Decimal

import pytest

from tests.sdk.sdks import SDKS, Generate, Messages, OpenAI
from tests.sdk.world import ALIAS, LACKS, MODELS_OF_ALICE, PRICE, WIRE, counts_of, sample
from tests.support.dialects import FROM_VENDORS

LEAVES_WITHIN_MS = 500
NOT_FOUND = {
    "chat_completions": "model_not_found",
    "responses": "model_not_found",
    "messages": "not_found_error",
    "generate_content": "NOT_FOUND",
}
SAMPLES = (
    "text length refusal reasoning tools_parallel",
    "text incomplete refusal reasoning tools_parallel",
    "text max_tokens refusal thinking tools_parallel",
    "text max_tokens thinking tools_parallel safety_stop blocked_prompt",
)
KEY = "sk-of-the-operator"
BEARER = f"Bearer {KEY}"
ENDLESS = "[[demo ms=50 chunks=2000]]"


@pytest.fixture(params=SDKS, ids=[sdk.family for sdk in SDKS], scope="module")
def sdk(request):
    return request.param


@pytest.fixture(scope="module")
def connection(world, sdk):
    with sdk.client(world) as pair:
        yield pair


@pytest.fixture
def client(connection):
    return connection[0]


@pytest.fixture
def wire(connection):
    return connection[1]


@pytest.fixture
def hasty_connection(hasty, sdk):
    with sdk.client(hasty) as pair:
        yield pair


def record_of(world, wire):
    return world.gateway.record(wire.answers[-1][1]["x-request-id"])


def cost_of(counts):
    return sum(
        count * Decimal(PRICE["output" if name == "reasoning" else name]) / 10**6
        for name, count in counts.items()
    )


def called(sdk, client, *, stream, prompt):
    """Return the answer to a call, or the events of its stream."""
    if not stream:
        return [sdk.create(client, "tea", prompt)]
    return list(sdk.create(client, "tea", prompt, stream=True, **sdk.streamed))


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_and_its_record(sdk, client, wire, world, stream):
    events = called(sdk, client, stream=stream, prompt="Is tea ready?")
    assert "You wrote: “Is tea ready?”" in sdk.text(events)
    assert sdk.names(events) == {"tea"}
    assert not stream or sdk.finished(events)
    record = record_of(world, wire)
    count, output = sdk.usage(events)
    assert counts_of(record) == {"input": count, "output": output}
    assert Decimal(record["cost"]) == cost_of(counts_of(record)) > 0
    path = sdk.path.replace(":generate", ":streamGenerate" if stream else ":generate")
    expected = {
        **{"outcome": "ok", "model": "tea", "upstream_model": ALIAS, "stream": stream},
        **{"endpoint": path, "usage_source": "reported"},
    }
    assert {name: record[name] for name in expected} == expected
    assert record["user_agent"].startswith(sdk.agent)
    _, headers = wire.answers[-1]
    assert headers["request-id"] == headers["x-request-id"]
    if stream:
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("kind", ["finish_chunk", "repeated", "cumulative"])
def test_usage_in_other_places(sdk, client, wire, world, kind):
    prompt = f"hello [[demo usage={kind}]]"
    events = list(sdk.create(client, world.frail(sdk.family), prompt, stream=True, **sdk.streamed))
    count, output = sdk.usage(events)
    record = record_of(world, wire)
    assert counts_of(record) == {"input": count, "output": output}
    assert record["usage_source"] == "reported"


@pytest.mark.parametrize(
    ("sdk", "name"),
    [
        pytest.param(sdk, name, id=f"{sdk.family} {name}")
        for sdk, names in zip(SDKS, SAMPLES, strict=True)
        for name in names.split()
    ],
    indirect=["sdk"],
)
def test_samples_pass_unchanged(sdk, client, world, name):
    # the vendor's own model name stays if the channel does not rename it
    model, prompt = world.frail(sdk.family), f"[[demo sample={name}]]"
    answer = sdk.create(client, model, prompt)
    assert sdk.content(answer) == sdk.expected(sample(sdk.family, name))
    if (WIRE / sdk.family / f"{name}.sse").exists():
        events = list(sdk.create(client, model, prompt, stream=True))
        assert sdk.text(events) == sdk.text([answer])
        assert sdk.finished(events)


@pytest.mark.parametrize(
    ("sdk", "sent", "expected"),
    [
        (
            SDKS[0],
            {"OpenAI-Organization": "org-tea", "OpenAI-Beta": "kettles=v2"},
            {
                "authorization": BEARER,
                "openai-organization": "org-tea",
                "openai-beta": "kettles=v2",
            },
        ),
        (
            SDKS[1],
            {"OpenAI-Project": "proj_tea"},
            {"authorization": BEARER, "openai-project": "proj_tea"},
        ),
        (
            SDKS[2],
            {"anthropic-workspace-id": "wrkspc_tea", "anthropic-version": "2023-06-01"},
            {"x-api-key": KEY, "anthropic-version": "2023-06-01"},
        ),
        (SDKS[3], {"x-goog-user-project": "somebody's"}, {"x-goog-api-key": KEY}),
    ],
    ids=[sdk.family for sdk in SDKS],
    indirect=["sdk"],
)
def test_headers_to_and_from_the_vendor(sdk, client, wire, world, sent, expected):
    word = f"headers-{sdk.family}"
    answer = sdk.create(client, "tea", word, extra_headers={"X-Client-Request-Id": word, **sent})
    up = world.asked(word)["headers"]
    own = ("x-", "openai-", "anthropic-", "authorization")
    assert {name: up[name] for name in up if name.startswith(own)} == expected
    assert up["user-agent"] == "sluice"
    _, down = wire.answers[-1]
    assert not [name for name in (*FROM_VENDORS, "server-timing") if name in down]
    record = record_of(world, wire)
    assert record["client_request_id"] == word
    assert record["upstream_request_id"] in (
        getattr(answer, "id", ""),
        sdk.content(answer).get("response_id"),
    )


# ---- counts and lists ----------------------------------------------------------------------------


@pytest.mark.parametrize("sdk", SDKS[1:], ids=lambda sdk: sdk.family, indirect=True)
def test_counting_needs_no_money(sdk, client, wire, world):
    tokens, _ = sdk.usage(called(sdk, client, stream=False, prompt="Is tea ready?"))
    assert sdk.count(client, "Is tea ready?") == tokens
    record = record_of(world, wire)
    assert (record["endpoint"], record["outcome"]) == (sdk.count_path, "ok")
    assert (record["stream"], record["cost"], counts_of(record)) == (False, "0", {})
    with sdk.client(world, "poor") as (poor, _):
        assert sdk.count(poor, "Is tea ready?") == tokens


def test_lists_of_models(sdk, client, world):
    assert sdk.models(client) == MODELS_OF_ALICE
    with sdk.client(world, "a-key-nobody-made") as (stranger, _), pytest.raises(sdk.error):
        sdk.models(stranger)
    with sdk.client(world, LACKS[sdk.family]) as (other, _):
        assert sdk.models(other) == []


def test_a_model_by_its_name(sdk, client, world):
    assert sdk.model(client, "acme/tea-1") == "acme/tea-1"
    sdk.create(client, "acme/tea-1", "with-a-slash")
    for name in ("elsewhere", "off", ALIAS):
        with pytest.raises(sdk.error) as caught:
            sdk.model(client, name)
        assert NOT_FOUND[sdk.family] in sdk.facts(caught.value)


# ---- streams that end early ----------------------------------------------------------------------

TRUNCATED = ("upstream_error", "overloaded_error", ("ServerError", 503, "UNAVAILABLE"))
SILENT = ("upstream_timeout", "timeout_error", ("ServerError", 504, "DEADLINE_EXCEEDED"))
UNREADABLE = ("upstream_invalid_response", "api_error", ("ServerError", 500, "INTERNAL"))
LIMITED = ("upstream_rate_limited", "rate_limit_error", ("ClientError", 429, "RESOURCE_EXHAUSTED"))


def facts_of(sdk, code, messages_type, generate_facts):
    """Return the facts of a stream's error in this family."""
    if isinstance(sdk, Generate):
        return generate_facts
    if isinstance(sdk, Messages):
        return 200, messages_type, True
    kind = "rate_limit_error" if code == "upstream_rate_limited" else "server_error"
    # The SDK's base class of errors, because the stream itself ended properly.
    return "APIError", kind, code


@pytest.mark.parametrize(
    ("words", "expected", "outcome"),
    [
        ("cut=", TRUNCATED, "upstream_truncated"),
        ("reset=", TRUNCATED, "upstream_truncated"),
        ("clean_end=", TRUNCATED, "upstream_truncated"),
        ("stall=", SILENT, "timeout"),
        ("garbage=", UNREADABLE, "upstream_error"),
        ("code=server_error error_event=", TRUNCATED, "upstream_error"),
        ("type=rate_limit_error error_event=", LIMITED, "upstream_error"),
    ],
)
def test_a_broken_stream_raises(sdk, client, wire, world, words, expected, outcome):
    words += str(sdk.fault_place)
    if isinstance(sdk, Generate):
        words = words.replace("rate_limit_error", "RESOURCE_EXHAUSTED")
    events = []
    prompt = f"[[demo chunks=20 {words}]]"
    with pytest.raises(sdk.error) as caught:
        events.extend(sdk.create(client, world.frail(sdk.family), prompt, stream=True))
    assert sdk.facts(caught.value) == facts_of(sdk, *expected)
    assert sdk.text(events).startswith("0 1 ")
    assert not sdk.finished(events)
    record = record_of(world, wire)
    assert (record["status"], record["outcome"]) == (200, outcome)
    assert record["output_tokens"] > 0
    if isinstance(sdk, OpenAI):
        assert record["usage_source"] == "estimated"


def test_a_stream_without_its_last_event(sdk, client, wire, world):
    """Chat completions are whole without [DONE]; generate-content has no such event."""
    stream = sdk.create(client, world.frail(sdk.family), "[[demo no_done]]", stream=True)
    if sdk.family in ("responses", "messages"):
        with pytest.raises(sdk.error) as caught:
            list(stream)
        assert sdk.facts(caught.value) == facts_of(sdk, *TRUNCATED)
        assert record_of(world, wire)["outcome"] == "upstream_truncated"
    else:
        assert sdk.finished(list(stream))
        assert record_of(world, wire)["outcome"] == "ok"


async def test_a_broken_stream_raises_in_the_asynchronous_client(sdk, world):
    events = []
    async with sdk.async_client(world) as client:
        prompt = f"[[demo cut={sdk.fault_place}]]"
        stream = await sdk.create(client, world.frail(sdk.family), prompt, stream=True)
        with pytest.raises(sdk.error) as caught:
            async for event in stream:
                events.append(event)
    assert events
    assert sdk.facts(caught.value) == facts_of(sdk, *TRUNCATED)


def test_closing_a_stream_closes_the_upstream(sdk, client, wire, world):
    word = f"close-{sdk.family}"
    stream = sdk.create(client, "tea", f"{word} {ENDLESS}", stream=True)
    for _ in range(sdk.fault_place):
        next(stream)
    since_ms = time.time() * 1000
    stream.close()
    assert world.left(word) - since_ms < LEAVES_WITHIN_MS
    record = record_of(world, wire)
    assert (record["outcome"], record["error_code"]) == ("client_gone", "client_gone")
    assert record["output_tokens"] > 0, "what was delivered is charged"
    reported = isinstance(sdk, Generate)  # it is in each chunk
    assert record["usage_source"] == ("reported" if reported else "estimated")


async def test_cancelling_a_task_closes_the_upstream(sdk, world):
    word = f"cancel-{sdk.family}"

    async def read(client, begun):
        async for _ in await sdk.create(client, "tea", f"{word} {ENDLESS}", stream=True):
            begun.set()

    async with sdk.async_client(world) as client:
        begun = asyncio.Event()
        task = asyncio.create_task(read(client, begun))
        await begun.wait()
        since_ms = time.time() * 1000
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    loop = asyncio.get_running_loop()
    left_ms = await loop.run_in_executor(None, world.left, word)
    assert left_ms - since_ms < LEAVES_WITHIN_MS


async def test_many_at_once(sdk, world):
    async def text_of(client, number):
        stream = await sdk.create(client, "tea", f"number {number}", stream=True)
        return sdk.text([event async for event in stream])

    async with sdk.async_client(world) as client:
        texts = await asyncio.gather(*(text_of(client, number) for number in range(40)))
    assert len(texts) == 40
    for number, text in enumerate(texts):
        assert f"You wrote: “number {number}”" in text


def test_heartbeats_are_not_seen(sdk, hasty_connection, world):
    """The head and comments come before the vendor has sent anything."""
    client, wire = hasty_connection
    prompt = "hello [[demo first_ms=2400]]"
    stream = iter(sdk.create(client, world.frail(sdk.family), prompt, stream=True))
    events = [next(stream)]
    assert time.monotonic() - wire.head_at > 0.2, "the head waited for the first event"
    events += stream
    assert "You wrote: “hello”" in sdk.text(events)
    assert record_of(world, wire)["ttft_ms"] >= 2400


def test_a_failure_after_the_head_is_an_error_in_the_stream(sdk, hasty_connection, world):
    client, wire = hasty_connection
    prompt = "[[demo first_ms=2400 status=500]]"
    with pytest.raises(sdk.error) as caught:
        list(sdk.create(client, world.frail(sdk.family), prompt, stream=True))
    assert sdk.facts(caught.value) == facts_of(sdk, *TRUNCATED)
    assert [status for status, _ in wire.answers] == [200]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("words", ["other_form no_type", "empty_data"])
def test_answers_that_are_not_as_they_should_be(sdk, client, wire, world, words, stream):
    prompt = f"hello [[demo {words}]]"
    events = called(sdk, client, stream=stream, prompt=prompt)
    assert "You wrote: “hello”" in sdk.text(events) and sdk.names(events) == {"tea"}
    assert not stream or sdk.finished(events)
    record = record_of(world, wire)
    assert (record["outcome"], record["usage_source"]) == ("ok", "reported")
