"""The chat completions vendor, read by the official SDK and byte by byte."""

import json

import httpx2
import openai
import pytest
from pydantic import BaseModel

from tests.support.upstream import ScriptedUpstream

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
        },
    }
    for name in ("get_tide", "get_wind")
]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def client(upstream):
    with openai.OpenAI(api_key="sk-up", base_url=f"{upstream.url}/v1", max_retries=0) as made:
        yield made


def said(words="", text="Hello"):
    return [{"role": "user", "content": f"[[demo ms=0 {words}]] {text}"}]


def events_of(upstream, **body):
    """The decoded data of a stream, and whether the terminal marker came last."""
    answer = httpx2.post(
        f"{upstream.url}/v1/chat/completions",
        json={"model": "demo-large", "stream": True, **body},
        headers={"authorization": "Bearer sk-up"},
    )
    assert answer.status_code == 200, answer.text
    frames = answer.text.split("\n\n")
    assert frames.pop() == ""
    data = [frame.removeprefix("data: ") for frame in frames]
    done = data[-1] == "[DONE]"
    return [json.loads(text) for text in data if text != "[DONE]"], done


def test_text(client):
    answer = client.chat.completions.create(model="demo-large", messages=said(text="Höre ☂"))
    assert answer.model == "demo-large"
    assert "Höre ☂" in answer.choices[0].message.content
    assert "[[" not in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens > 10
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_lone_surrogate_in_the_prompt_comes_back_as_valid_utf8(upstream):
    body = b'{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"a \\ud800 b"}]}'
    headers = {"authorization": "Bearer sk-up", "content-type": "application/json"}
    answer = httpx2.post(f"{upstream.url}/v1/chat/completions", content=body, headers=headers)
    assert "a ? b" in answer.content.decode("utf-8")


def test_stream_helper(client):
    plain = client.chat.completions.create(model="demo-large", messages=said())
    options = {"include_usage": True}
    with client.chat.completions.stream(
        model="demo-large", messages=said(), stream_options=options
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == plain.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"
    assert final.usage == plain.usage


def test_order_of_the_stream(upstream):
    events, done = events_of(
        upstream, messages=said("chunks=2"), stream_options={"include_usage": True}
    )
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert deltas == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "0 "},
        {"content": "1 "},
        {},
    ]
    assert [event["usage"] for event in events[:-1]] == [None] * 4
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 1
    assert len({event["id"] for event in events}) == 1
    assert done


def test_usage_only_when_asked(upstream):
    for options in ({}, {"stream_options": {"include_usage": False}}):
        events, done = events_of(upstream, messages=said("chunks=2"), **options)
        assert all("usage" not in event for event in events)
        assert done


@pytest.mark.parametrize(
    ("word", "counts"),
    [
        ("none", []),
        ("zero", [0]),
        ("absurd", [10**15]),
        ("repeated", [2, 2]),
        ("cumulative", [0, 1, 2, 2]),
        ("finish_chunk", [2]),
    ],
)
def test_usage_words(upstream, word, counts):
    events, _ = events_of(
        upstream,
        messages=said(f"chunks=2 bytes=4 usage={word}"),
        stream_options={"include_usage": True},
    )
    usages = [event["usage"] for event in events if event["usage"]]
    assert [usage["completion_tokens"] for usage in usages] == counts
    if word in ("cumulative", "finish_chunk"):
        assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_no_done(upstream):
    events, done = events_of(upstream, messages=said("no_done"))
    assert not done
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_parallel_tools_and_their_results(client):
    messages = said("tools")
    answer = client.chat.completions.create(model="demo-large", messages=messages, tools=TOOLS)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    assert [call.function.name for call in message.tool_calls] == ["get_tide", "get_wind"]
    assert json.loads(message.tool_calls[0].function.arguments) == {"port": "demo"}
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "high"})
    after = client.chat.completions.create(model="demo-large", messages=messages, tools=TOOLS)
    assert after.choices[0].finish_reason == "stop"
    assert "tool results" in after.choices[0].message.content


def test_streamed_tools(client):
    with client.chat.completions.stream(
        model="demo-large", messages=said(text="get_tide, get_wind!"), tools=TOOLS
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [call.function.arguments for call in calls] == ['{"port": "demo"}'] * 2
    assert len({call.id for call in calls}) == 2


def test_custom_tool(client):
    answer = client.chat.completions.create(
        model="demo-large",
        messages=said("tools"),
        tools=[{"type": "custom", "custom": {"name": "note"}}],
    )
    assert answer.choices[0].message.tool_calls[0].custom.input


def test_images_are_seen(client):
    content = [{"type": "text", "text": "What is this?"}, IMAGE, IMAGE]
    answer = client.chat.completions.create(
        model="demo-large", messages=[{"role": "user", "content": content}]
    )
    assert "2 images" in answer.choices[0].message.content


def test_structured_output(client):
    class Harbour(BaseModel):
        name: str
        berths: int
        open: bool

    answer = client.chat.completions.parse(
        model="demo-large", messages=said(), response_format=Harbour
    )
    assert answer.choices[0].message.parsed == Harbour(name="demo", berths=7, open=True)


@pytest.mark.parametrize("bound", ["max_tokens", "max_completion_tokens"])
def test_length(client, bound):
    answer = client.chat.completions.create(model="demo-large", messages=said(), **{bound: 2})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 2
    assert answer.choices[0].message.content == "Hello fr"


def test_stop_sequence(client):
    answer = client.chat.completions.create(
        model="demo-large", messages=said('text="one two three"'), stop=["two"]
    )
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("one ", "stop")


def test_several_choices(client):
    answer = client.chat.completions.create(model="demo-large", messages=said("chunks=2"), n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage.completion_tokens == 3
    with client.chat.completions.stream(
        model="demo-large", messages=said("chunks=2"), n=3
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["0 1 "] * 3


def test_reasoning(client):
    answer = client.chat.completions.create(
        model="demo-large", messages=said(), reasoning_effort="high"
    )
    assert answer.choices[0].message.reasoning_content
    details = answer.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens < answer.usage.completion_tokens


def test_models(client):
    assert [model.id for model in client.models.list()] == ["demo-large", "demo-small"]


@pytest.mark.parametrize("header", [None, "", "sk-up", "Bearer", "Basic sk-up", "Bearer sk-bad1"])
def test_credentials(upstream, header):
    headers = {} if header is None else {"authorization": header}
    answer = httpx2.post(
        f"{upstream.url}/v1/chat/completions",
        json={"model": "m", "messages": said()},
        headers=headers,
    )
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


def test_errors_have_the_vendors_shape(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=said(), temperature=3)
    assert caught.value.param == "temperature"
    assert caught.value.code == "invalid_value"
    assert caught.value.type == "invalid_request_error"
    assert "between 0 and 2" in caught.value.message
    assert caught.value.request_id.startswith("req_")
    with pytest.raises(openai.BadRequestError, match="'messages'") as caught:
        client.chat.completions.create(model="m", messages=[])
    with pytest.raises(openai.BadRequestError, match="'explode'"):
        client.chat.completions.create(model="m", messages=said("explode"))
    with pytest.raises(openai.BadRequestError, match="'explode'"):
        client.chat.completions.create(model="script.explode", messages=said())


def test_content_type_and_method_and_path(upstream):
    url = f"{upstream.url}/v1/chat/completions"
    headers = {"authorization": "Bearer sk-up"}
    answer = httpx2.post(url, content=b"{}", headers={**headers, "content-type": "text/plain"})
    assert answer.status_code == 415
    assert httpx2.post(url, content=b"{}", headers=headers).status_code == 415
    assert httpx2.get(url, headers=headers).status_code == 405
    answer = httpx2.post(f"{upstream.url}/v1/nothing", json={}, headers=headers)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_url"
    headers["content-type"] = "application/json; charset=utf-8"
    answer = httpx2.post(url, content=b"{", headers=headers)
    assert "not valid JSON" in answer.json()["error"]["message"]


def test_error_event_is_raised_by_the_sdk(client):
    stream = client.chat.completions.create(
        model="m", messages=said("error_event=2 type=server_error code=slow_down"), stream=True
    )
    seen = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in stream:
            seen.append(chunk)
    assert len(seen) == 2
    assert (caught.value.type, caught.value.code) == ("server_error", "slow_down")
