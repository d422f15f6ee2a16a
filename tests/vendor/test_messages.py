"""The messages vendor, read by the official SDK and byte by byte."""

import json

import anthropic
import httpx2
import pytest

from tests.support.upstream import ScriptedUpstream

TOOLS = [
    {
        "name": name,
        "input_schema": {"type": "object", "properties": {"port": {"type": "string"}}},
    }
    for name in ("get_tide", "get_wind")
]
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
HEADERS = {"x-api-key": "sk-up", "anthropic-version": "2023-06-01"}


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def client(upstream):
    with anthropic.Anthropic(api_key="sk-up", base_url=upstream.url, max_retries=0) as made:
        yield made


def said(words="", text="Hello"):
    return [{"role": "user", "content": f"[[demo ms=0 {words}]] {text}"}]


def events_of(upstream, **body):
    """The stream as (event name, decoded data)."""
    answer = httpx2.post(
        f"{upstream.url}/v1/messages",
        json={"model": "demo-large", "max_tokens": 100, "stream": True, **body},
        headers=HEADERS,
    )
    assert answer.status_code == 200, answer.text
    frames = answer.text.split("\n\n")
    assert frames.pop() == ""
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_text(client):
    answer = client.messages.create(
        model="demo-large", max_tokens=100, messages=said(text="Höre ☂")
    )
    assert answer.model == "demo-large"
    assert "Höre ☂" in answer.content[0].text
    assert answer.stop_reason == "end_turn"
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 10


def test_stream_helper(client):
    plain = client.messages.create(model="demo-large", max_tokens=100, messages=said())
    with client.messages.stream(model="demo-large", max_tokens=100, messages=said()) as stream:
        for _ in stream:
            pass
        final = stream.get_final_message()
    assert final.content[0].text == plain.content[0].text
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == plain.usage.output_tokens
    assert final.usage.input_tokens == plain.usage.input_tokens


def test_order_of_the_stream(upstream):
    events = events_of(upstream, messages=said("chunks=2"))
    assert all(name == data["type"] for name, data in events)
    assert [name for name, _ in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0][1]["message"]["usage"]["output_tokens"] == 1
    assert events[-2][1]["usage"] == {"output_tokens": 1}


@pytest.mark.parametrize(
    ("word", "counts"),
    [
        ("none", []),
        ("zero", [0]),
        ("absurd", [10**15]),
        ("repeated", [2, 2]),
        ("cumulative", [1, 2, 2]),
    ],
)
def test_usage_words(upstream, word, counts):
    events = events_of(upstream, messages=said(f"chunks=2 bytes=4 usage={word}"))
    deltas = [data for name, data in events if name == "message_delta"]
    assert [data["usage"]["output_tokens"] for data in deltas if "usage" in data] == counts
    assert ("usage" in events[0][1]["message"]) is (word != "none")


def test_no_done(upstream):
    assert events_of(upstream, messages=said("no_done"))[-1][0] == "message_delta"


def test_ping(upstream):
    names = [name for name, _ in events_of(upstream, messages=said("ping chunks=2"))]
    assert names[:2] == ["message_start", "ping"]
    assert names.count("ping") == 6


def test_parallel_tools_and_their_results(client):
    messages = said("tools")
    answer = client.messages.create(
        model="demo-large", max_tokens=200, messages=messages, tools=TOOLS
    )
    assert answer.stop_reason == "tool_use"
    assert [block.name for block in answer.content] == ["get_tide", "get_wind"]
    assert answer.content[0].input == {"port": "demo"}
    messages.append({"role": "assistant", "content": answer.content})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "high"}
        for block in answer.content
    ]
    messages.append({"role": "user", "content": results})
    after = client.messages.create(
        model="demo-large", max_tokens=200, messages=messages, tools=TOOLS
    )
    assert after.stop_reason == "end_turn"
    assert "tool results" in after.content[0].text


def test_streamed_tools(client):
    with client.messages.stream(
        model="demo-large",
        max_tokens=200,
        messages=said(text="get_tide, get_wind!"),
        tools=TOOLS,
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_message()
    assert [(block.name, block.input) for block in final.content] == [
        ("get_tide", {"port": "demo"}),
        ("get_wind", {"port": "demo"}),
    ]


@pytest.mark.parametrize(
    "thinking", [{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}]
)
def test_thinking(client, thinking):
    with client.messages.stream(
        model="demo-large", max_tokens=2000, messages=said(), thinking=thinking
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_message()
    block, text = final.content
    assert block.thinking and block.signature and text.text
    thought = final.usage.output_tokens_details.thinking_tokens
    assert 0 < thought < final.usage.output_tokens
    plain = client.messages.create(
        model="demo-large", max_tokens=2000, messages=said(), thinking=thinking
    )
    assert plain.content[0] == block


def test_thinking_that_is_not_shown(client):
    answer = client.messages.create(
        model="demo-large",
        max_tokens=2000,
        messages=said(),
        thinking={"type": "adaptive", "display": "omitted"},
    )
    assert answer.content[0].thinking == ""
    assert answer.content[0].signature


def test_images_are_seen(client):
    content = [IMAGE, {"type": "text", "text": "What is this?"}]
    answer = client.messages.create(
        model="demo-large", max_tokens=200, messages=[{"role": "user", "content": content}]
    )
    assert "1 image" in answer.content[0].text


def test_structured_output(client):
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"enum": [4]}}}
    schema["additionalProperties"] = False
    answer = client.messages.create(
        model="demo-large",
        max_tokens=200,
        messages=said(),
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert json.loads(answer.content[0].text) == {"name": "demo", "n": 4}


def test_bounds(client):
    answer = client.messages.create(model="demo-large", max_tokens=2, messages=said())
    assert (answer.content[0].text, answer.stop_reason) == ("Hello fr", "max_tokens")
    assert answer.usage.output_tokens == 2
    answer = client.messages.create(model="demo-large", max_tokens=0, messages=said())
    assert (answer.content, answer.stop_reason) == ([], "max_tokens")


def test_stop_sequence(client):
    answer = client.messages.create(
        model="demo-large",
        max_tokens=100,
        messages=said('text="one two three"'),
        stop_sequences=["two"],
    )
    assert answer.content[0].text == "one "
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "two")


def test_count_tokens(client):
    counted = client.messages.count_tokens(model="demo-large", messages=said())
    answer = client.messages.create(model="demo-large", max_tokens=9, messages=said())
    assert counted.input_tokens == answer.usage.input_tokens


def test_models(client):
    assert [model.id for model in client.models.list(limit=1)] == ["demo-large", "demo-small"]


@pytest.mark.parametrize(
    "credential",
    [
        {},
        {"x-api-key": ""},
        {"x-api-key": "sk-bad1"},
        {"authorization": "Bearer sk-bad1"},
        {"authorization": "sk-up", "x-api-key": "sk-up"},
    ],
)
def test_credentials(upstream, credential):
    answer = httpx2.post(
        f"{upstream.url}/v1/messages",
        json={"model": "m", "max_tokens": 1, "messages": said()},
        headers={"anthropic-version": "2023-06-01", **credential},
    )
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("version", [None, "2024-01-01"])
def test_versions(upstream, version):
    headers = {"x-api-key": "sk-up"} | ({"anthropic-version": version} if version else {})
    answer = httpx2.post(
        f"{upstream.url}/v1/messages",
        json={"model": "m", "max_tokens": 1, "messages": said()},
        headers=headers,
    )
    assert answer.status_code == 400
    assert "anthropic-version" in answer.json()["error"]["message"]


def test_errors_have_the_vendors_shape(client):
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model="m", max_tokens=-1, messages=said())
    body = caught.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith("max_tokens: ")
    assert body["request_id"] == caught.value.request_id
    with pytest.raises(anthropic.BadRequestError, match="'explode'"):
        client.messages.create(model="m", max_tokens=1, messages=said("explode"))
    with pytest.raises(anthropic.OverloadedError):
        client.messages.create(model="m", max_tokens=1, messages=said("status=529"))


def test_content_type_and_method(upstream):
    url = f"{upstream.url}/v1/messages"
    answer = httpx2.post(url, content=b"{}", headers={**HEADERS, "content-type": "text/plain"})
    assert answer.status_code == 400
    answer = httpx2.get(url, headers=HEADERS)
    assert answer.status_code == 405
    assert answer.json()["type"] == "error"


def test_error_event_is_raised_by_the_sdk(client):
    stream = client.messages.create(
        model="m", max_tokens=99, messages=said("error_event=3"), stream=True
    )
    seen = []
    with pytest.raises(anthropic.APIStatusError) as caught:
        for event in stream:
            seen.append(event.type)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
    assert caught.value.body["error"]["type"] == "overloaded_error"
