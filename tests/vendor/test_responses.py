"""The responses vendor, read by the official SDK and byte by byte."""

import json

import httpx2
import openai
import pytest
from pydantic import BaseModel

from demo.family import ModelRequest, Route
from demo.speech import sign
from tests.support.upstream import ScriptedUpstream
from tests.vendor.compose import Composer
from tests.vendor.directives import Script
from tests.vendor.family import Refusal, is_signed
from tests.vendor.responses import PATH, Responses
from tests.vendor.stored import Shelf

TOOLS = [
    {
        "type": "function",
        "name": name,
        "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
        "strict": False,
    }
    for name in ("get_tide", "get_wind")
]
CUSTOM = {"type": "custom", "name": "note"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
HEADERS = {"authorization": "Bearer sk-up"}
SEALED = "reasoning.encrypted_content"
SETTINGS = {
    "instructions": "Be brief.",
    "max_output_tokens": 500,
    "metadata": {"a": "b"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "k",
    "reasoning": {"effort": "low", "summary": "auto"},
    "safety_identifier": "s",
    "service_tier": "flex",
    "temperature": 0.5,
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "tool_choice": "none",
    "top_p": 0.9,
    "truncation": "auto",
    "user": "u",
}
RESPONSE_FIELDS = {
    *("id", "object", "created_at", "status", "background", "completed_at", "error"),
    *("incomplete_details", "instructions", "max_output_tokens", "max_tool_calls", "model"),
    *("output", "parallel_tool_calls", "previous_response_id", "prompt_cache_key"),
    *("prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store"),
    *("temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation"),
    *("usage", "user", "metadata"),
}


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def client(upstream):
    with openai.OpenAI(api_key="sk-up", base_url=f"{upstream.url}/v1", max_retries=0) as made:
        yield made


def said(words="", text="Hello"):
    return f"[[demo ms=0 {words}]] {text}"


def ask(upstream, path="", **body):
    return httpx2.post(f"{upstream.url}{PATH}{path}", json={"model": "m", **body}, headers=HEADERS)


def events_of(upstream, **body):
    """The decoded events of a stream; each was named in its first line as well."""
    answer = ask(upstream, stream=True, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = answer.text.split("\n\n")
    assert frames.pop() == ""
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def kinds(events):
    return [event["type"].removeprefix("response.") for event in events]


# With the official SDK.


def test_text_and_the_stream_helper(client):
    plain = client.responses.create(model="demo-large", input=said(text="Höre ☂"))
    assert "Höre ☂" in plain.output_text
    assert "[[" not in plain.output_text
    assert (plain.status, plain.model) == ("completed", "demo-large")
    with client.responses.stream(model="demo-large", input=said(text="Höre ☂")) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == plain.output_text
    assert final.usage == plain.usage
    assert final.usage.total_tokens == final.usage.input_tokens + final.usage.output_tokens


def test_structured_output(client):
    class Harbour(BaseModel):
        name: str
        berths: int
        open: bool

    answer = client.responses.parse(model="m", input=said(), text_format=Harbour)
    assert answer.output_parsed == Harbour(name="demo", berths=7, open=True)
    with client.responses.stream(model="m", input=said(), text_format=Harbour) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == answer.output_parsed


@pytest.mark.parametrize("stored", [True, False])
def test_parallel_tools_and_their_results(client, stored):
    """The items of the answer are sent back as the SDK gave them, or by the id of the answer."""
    settings = {"model": "m", "tools": [*TOOLS, CUSTOM], "store": stored, "include": [SEALED]}
    settings["reasoning"] = {"summary": "auto"}
    with client.responses.stream(input=said("tools"), **settings) as stream:
        stream.until_done()
        first = stream.get_final_response()
    calls = [item for item in first.output if item.type != "reasoning"]
    assert [call.name for call in calls] == ["get_tide", "get_wind", "note"]
    assert json.loads(calls[0].arguments) == {"port": "demo"}
    assert calls[2].input
    assert len({call.call_id for call in calls}) == len({call.id for call in calls}) == 3
    results = [
        {
            "type": f"{call.type}_output",
            "call_id": call.call_id,
            "output": "high",
        }
        for call in calls
    ]
    if stored:
        settings["previous_response_id"] = first.id
    else:
        items = [item.model_dump(exclude_none=True) for item in first.output]
        for item in items:
            item.pop("parsed_arguments", None)
        results = [{"role": "user", "content": said("tools")}, *items, *results]
    after = client.responses.create(input=results, **settings)
    assert "tool results" in after.output_text
    assert after.usage.input_tokens > (first.usage.total_tokens if stored else 0)
    assert after.previous_response_id == (first.id if stored else None)


def test_counting_and_compacting(client):
    count = client.responses.input_tokens.count(model="m", input=said(), tools=TOOLS)
    assert count.object == "response.input_tokens"
    answer = client.responses.create(model="m", input=said(), tools=TOOLS)
    assert count.input_tokens == answer.usage.input_tokens
    items = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "words"},
        {"role": "user", "content": said(text="last")},
    ]
    compacted = client.responses.compact(model="m", input=items)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    assert [item.role for item in compacted.output[:2]] == ["user", "user"]
    assert compacted.usage.output_tokens > 0
    # The official types know the words of the user only as input.
    items = [item.to_dict(warnings=False) for item in compacted.output]
    assert client.responses.create(model="m", input=[*items, *items_of("on")]).output_text


def items_of(text):
    return [{"role": "user", "content": said(text=text)}]


def test_stored_responses(client):
    made = client.responses.create(model="m", input=[*items_of("one"), *items_of("two")])
    assert client.responses.retrieve(made.id) == made
    listed = [item.content[0].text for item in client.responses.input_items.list(made.id)]
    assert [text[-3:] for text in listed] == ["two", "one"]
    page = client.responses.input_items.list(made.id, limit=1, order="asc")
    assert (page.data[0].content[0].text[-3:], page.has_more) == ("one", True)
    assert len(list(page)) == 2
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        client.responses.cancel(made.id)
    client.responses.delete(made.id)
    for forgotten in (
        client.responses.retrieve,
        client.responses.delete,
        client.responses.cancel,
        client.responses.input_items.list,
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            forgotten(made.id)
        assert caught.value.body["message"] == f"Response with id '{made.id}' not found."
        assert (caught.value.code, caught.value.param) == (None, None)


def test_what_is_not_to_be_stored_is_not(client):
    made = client.responses.create(model="m", input=said(), store=False)
    assert made.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input=said(), previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"


def test_in_the_background(client):
    made = client.responses.create(model="m", input=said(), background=True)
    assert (made.status, made.output) == ("queued", [])
    done = client.responses.retrieve(made.id)
    assert (done.status, bool(done.output_text)) == ("completed", True)
    assert client.responses.cancel(made.id) == done
    made = client.responses.create(model="m", input=said(), background=True)
    cancelled = client.responses.cancel(made.id)
    assert (cancelled.status, cancelled.output) == ("cancelled", [])
    assert client.responses.retrieve(made.id) == cancelled


def test_errors_have_the_vendors_shape(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input=said(), temperature=3)
    assert (caught.value.param, caught.value.code) == ("temperature", "invalid_value")
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id.startswith("req_")
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input=said(), extra_body={"stop": "x"})
    assert caught.value.body == {
        "message": "Unknown parameter: 'stop'.",
        "type": "invalid_request_error",
        "param": "stop",
        "code": "unknown_parameter",
    }
    nested = [{"type": "function", "function": {"name": "f"}}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input=said(), tools=nested)
    assert caught.value.param == "tools[0].name"
    assert caught.value.code == "missing_required_parameter"
    with pytest.raises(openai.BadRequestError, match="'explode'"):
        client.responses.create(model="m", input=said("explode"))


# Byte by byte.


def test_the_response_repeats_its_settings(upstream):
    answer = ask(upstream, input=said(), tools=TOOLS, **SETTINGS).json()
    assert set(answer) == RESPONSE_FIELDS
    assert {name: answer[name] for name in SETTINGS} == SETTINGS
    assert answer["tools"] == [{"description": None, **tool} for tool in TOOLS]
    assert answer["object"] == "response"
    assert answer["id"].startswith("resp_")


def test_the_settings_that_were_not_given(upstream):
    answer = ask(upstream, input=said()).json()
    assert set(answer) == RESPONSE_FIELDS
    assert (answer["store"], answer["parallel_tool_calls"], answer["tools"]) == (True, True, [])
    assert (answer["temperature"], answer["top_p"], answer["tool_choice"]) == (1.0, 1.0, "auto")
    assert answer["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert answer["reasoning"] == {"effort": None, "summary": None}
    assert answer["service_tier"] == "default"
    assert answer["metadata"] == {}


def test_a_format_is_repeated_with_its_usual_settings(upstream):
    described = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    answer = ask(upstream, input=said(), text={"format": described}).json()
    assert answer["text"]["format"] == {**described, "description": None, "strict": False}
    assert answer["output"][0]["content"][0]["text"] == "{}"


def test_order_of_a_text(upstream):
    events = events_of(upstream, input=said("chunks=2"))
    assert kinds(events) == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta", "output_text.done", "content_part.done"),
        *("output_item.done", "completed"),
    ]
    created, progress, added, opened, delta, _, done, closed, finished, completed = events
    assert created["response"] == progress["response"]
    assert set(created["response"]) == RESPONSE_FIELDS
    started = created["response"]
    assert (started["status"], started["output"], started["usage"]) == ("in_progress", [], None)
    item = finished["item"]
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": "0 1 "}
    assert added["item"] == {**item, "status": "in_progress", "content": []}
    assert item == {**added["item"], "status": "completed", "content": [part]}
    assert opened.items() >= {**place, "part": {**part, "text": ""}}.items()
    assert delta.items() >= {**place, "delta": "0 ", "logprobs": []}.items()
    assert done.items() >= {**place, "text": "0 1 ", "logprobs": []}.items()
    assert closed.items() >= {**place, "part": part}.items()
    response = completed["response"]
    assert (response["id"], response["output"]) == (started["id"], [item])
    assert response["usage"] == {
        "input_tokens": response["usage"]["input_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": response["usage"]["input_tokens"] + 1,
    }


def test_order_of_reasoning_and_calls(upstream):
    events = events_of(
        upstream,
        input=said("tools"),
        tools=[TOOLS[0], CUSTOM],
        reasoning={"effort": "high", "summary": "auto"},
        include=[SEALED],
    )
    assert kinds(events)[2:] == [
        *("output_item.added", "reasoning_summary_part.added"),
        *("reasoning_summary_text.delta", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.delta"),
        *("custom_tool_call_input.done", "output_item.done", "completed"),
    ]
    added = [event for event in events if event["type"].endswith("output_item.added")]
    done = [event for event in events if event["type"].endswith("output_item.done")]
    assert [event["output_index"] for event in added] == [0, 1, 2]
    assert [event["item"]["id"] for event in added] == [event["item"]["id"] for event in done]
    output = [event["item"] for event in done]
    assert [item["id"].split("_")[0] for item in output] == ["rs", "fc", "ctc"]
    assert events[-1]["response"]["output"] == output
    assert [item["call_id"][:5] for item in output[1:]] == ["call_", "call_"]
    assert (added[1]["item"]["arguments"], added[2]["item"]["input"]) == ("", "")
    assert is_signed(output[0]["encrypted_content"])
    assert not is_signed(added[0]["item"]["encrypted_content"])
    summary = output[0]["summary"][0]["text"]
    assert "".join(event["delta"] for event in events[4:6]) == summary
    assert events[4]["summary_index"] == 0


def test_reasoning_without_a_summary(upstream):
    events = events_of(upstream, input=said(), reasoning={"effort": "high"})
    assert kinds(events)[2:4] == ["output_item.added", "output_item.done"]
    item = events[3]["item"]
    assert (item["type"], item["summary"]) == ("reasoning", [])
    assert "encrypted_content" not in item
    usage = events[-1]["response"]["usage"]
    assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]


def test_a_tool_of_a_namespace_is_called_by_it(upstream):
    space = {"type": "namespace", "name": "sea", "description": "d", "tools": TOOLS}
    answer = ask(upstream, input=said("tools"), tools=[space], parallel_tool_calls=False).json()
    [call] = answer["output"]
    assert (call["name"], call["namespace"]) == ("get_tide", "sea")


def test_refusal(upstream):
    events = events_of(upstream, input=said('type=refusal text="I will not."'))
    assert kinds(events)[3:-3] == [
        *("content_part.added", "refusal.delta", "refusal.done"),
    ]
    assert events[3]["part"] == {"type": "refusal", "refusal": ""}
    assert events[5]["refusal"] == "I will not."
    assert "logprobs" not in events[4]
    response = events[-1]["response"]
    assert response["status"] == "completed"
    assert response["output"][0]["content"] == [{"type": "refusal", "refusal": "I will not."}]


@pytest.mark.parametrize("stream", [False, True])
def test_length(upstream, stream):
    if stream:
        events = events_of(upstream, input=said(), max_output_tokens=16)
        assert kinds(events)[-1] == "incomplete"
        answer = events[-1]["response"]
    else:
        answer = ask(upstream, input=said(), max_output_tokens=16).json()
    assert (answer["status"], answer["completed_at"]) == ("incomplete", None)
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["status"] == "incomplete"
    assert answer["usage"]["output_tokens"] == 16


def test_a_bound_that_cuts_a_call_leaves_no_call(upstream):
    events = events_of(
        upstream,
        input=said("tools"),
        tools=[{**TOOLS[0], "name": "f" * 64}],
        max_output_tokens=16,
    )
    assert kinds(events) == ["created", "in_progress", "incomplete"]
    assert events[-1]["response"]["output"] == []


def test_obfuscation_when_asked_for(upstream):
    options = {"include_obfuscation": True}
    events = events_of(upstream, input=said("chunks=1"), stream_options=options)
    delta = next(event for event in events if "delta" in event)
    assert len(delta["delta"] + delta["obfuscation"]) == 16


def test_queued_when_it_streams_in_the_background(upstream):
    events = events_of(upstream, input=said("chunks=1"), background=True)
    assert kinds(events)[:3] == ["created", "queued", "in_progress"]
    assert events[1]["response"]["status"] == "queued"


@pytest.mark.parametrize(
    ("word", "counts"),
    [("none", [None]), ("zero", [0]), ("absurd", [10**15]), ("repeated", [2, 2])],
)
def test_usage_words(upstream, word, counts):
    events = events_of(upstream, input=said(f"chunks=2 bytes=4 usage={word}"))
    usages = [event["response"]["usage"] for event in events if event["type"].endswith("completed")]
    assert [usage and usage["output_tokens"] for usage in usages] == counts


def test_no_done(upstream):
    events = events_of(upstream, input=said("no_done"))
    assert kinds(events)[-1] == "output_item.done"


def test_images_are_seen(upstream):
    content = [{"type": "input_text", "text": said(text="What?")}, IMAGE, IMAGE]
    answer = ask(upstream, input=[{"role": "user", "content": content}]).json()
    assert "2 images" in answer["output"][0]["content"][0]["text"]


def test_items_without_a_type_are_kept_with_one(upstream, client):
    made = ask(upstream, input=[{"role": "user", "content": said()}]).json()
    [item] = client.responses.input_items.list(made["id"])
    assert (item.type, item.role, item.content[0].type) == ("message", "user", "input_text")
    again = ask(upstream, input=[{"type": "item_reference", "id": item.id}, *items_of("on")])
    assert again.status_code == 200, again.text


def test_an_error_event_is_followed_by_the_failed_response(upstream):
    events = events_of(upstream, input=said("error_event=4 code=slow_down message=Sorry"))
    assert kinds(events)[4:] == ["error", "failed"]
    assert events[4] == {
        "type": "error",
        "code": "slow_down",
        "message": "Sorry",
        "param": None,
        "sequence_number": 4,
    }
    response = events[5]["response"]
    assert response == {
        **events[0]["response"],
        "status": "failed",
        "error": {"code": "slow_down", "message": "Sorry"},
    }
    answer = httpx2.get(f"{upstream.url}{PATH}/{response['id']}", headers=HEADERS)
    assert answer.status_code == 404


def test_an_error_event_of_a_given_type_has_the_error_as_an_object_too(upstream):
    events = events_of(upstream, input=said("error_event=2 type=server_error message=Sorry"))
    nested = {"type": "server_error", "code": None, "message": "Sorry", "param": None}
    assert events[2]["error"] == nested
    assert events[3]["response"]["error"]["code"] == "server_error"


def test_an_error_event_before_anything_else_stands_alone(upstream):
    assert kinds(events_of(upstream, input=said("error_event=0"))) == ["error"]


def test_an_error_event_within_a_sample_goes_on_counting(tmp_path):
    (tmp_path / "responses").mkdir()
    sample = b"".join(
        b'data: {"type":"x","response":{"id":"resp_s"},"sequence_number":%d}\n\n' % number
        for number in (7, 8, 9)
    )
    (tmp_path / "responses" / "text.sse").write_bytes(sample)
    script = Script(sample="text", error_event=2)
    asked = ModelRequest("m", "hi", 5, stream=True)
    composer = Composer(Responses(), Route("generate", "POST"), asked, script, tmp_path, "req_1")
    last = list(composer.compose().steps)[-1].decode()
    assert '"sequence_number":9' in last
    assert '"sequence_number":10' in last
    assert '"id":"resp_s"' in last


def test_garbage_and_cut(upstream):
    answer = ask(upstream, stream=True, input=said("garbage=2 chunks=1"))
    frame = answer.text.split("\n\n")[2]
    with pytest.raises(ValueError):
        json.loads(frame.partition("data: ")[2])
    answer = ask(upstream, stream=True, input=said("clean_end=3"))
    assert answer.text.count("\n\n") == 3


def test_a_flood_is_not_repeated_and_not_kept(upstream):
    events = events_of(upstream, input=said("flood=2"))
    deltas = [event["delta"] for event in events if "delta" in event]
    assert sum(map(len, deltas)) > 2 * 1024 * 1024
    assert len(events[-1]["response"]["output"][0]["content"][0]["text"]) < 100_000
    name = events[0]["response"]["id"]
    answer = httpx2.get(f"{upstream.url}{PATH}/{name}", headers=HEADERS)
    assert answer.status_code == 404


@pytest.mark.parametrize("header", [None, "", "sk-up", "Basic sk-up", "Bearer sk-bad1"])
@pytest.mark.parametrize(("method", "path"), [("POST", ""), ("GET", "/resp_1")])
def test_credentials(upstream, header, method, path):
    headers = {} if header is None else {"authorization": header}
    answer = httpx2.request(method, f"{upstream.url}{PATH}{path}", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/compact"),
        ("DELETE", "/input_tokens"),
        ("POST", "/resp_1"),
        ("GET", "/resp_1/cancel"),
        ("DELETE", "/resp_1/input_items"),
    ],
)
def test_methods(upstream, method, path):
    answer = httpx2.request(method, f"{upstream.url}{PATH}{path}", headers=HEADERS)
    assert answer.status_code == 405


def test_paths_and_content_type(upstream):
    answer = ask(upstream, "?beta=true", input=said())
    assert answer.status_code == 200
    assert answer.headers["x-request-id"].startswith("req_")
    assert ask(upstream, "/resp_1/nothing").json()["error"]["code"] == "unknown_url"
    answer = httpx2.post(f"{upstream.url}{PATH}", content=b"{}", headers=HEADERS)
    assert answer.status_code == 415


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up"])
def test_a_page_that_cannot_be(upstream, query):
    made = ask(upstream, input=said()).json()
    url = f"{upstream.url}{PATH}/{made['id']}/input_items?{query}"
    answer = httpx2.get(url, headers=HEADERS)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.split("=")[0]


def test_a_stored_response_is_not_streamed_again(upstream):
    made = ask(upstream, input=said()).json()
    answer = httpx2.get(f"{upstream.url}{PATH}/{made['id']}?stream=true", headers=HEADERS)
    assert answer.status_code == 400


def test_the_route_of_another_method():
    for method, task in (("GET", "stored"), ("DELETE", "forget"), ("PUT", "stored")):
        route = Responses().route(method, f"{PATH}/resp_1", {})
        assert (route.task, route.argument) == (task, "resp_1")
    assert Responses().route("GET", "/v1/response", {}) is None


# The shelf.


def response(name, text="x"):
    item = {"id": f"msg_{name}", "text": text}
    return {"id": name, "background": False, "usage": None, "output": [item]}


def test_the_shelf_is_bounded_in_number_and_in_bytes():
    shelf = Shelf(count_max=2, bytes_max=10_000)
    for name in ("a", "b", "c"):
        shelf.put(response(name), [])
    assert [bool(shelf.get(name)) for name in ("a", "b", "c")] == [False, True, True]
    assert (shelf.item("msg_a"), shelf.item("msg_b")["text"]) == (None, "x")
    shelf.put(response("d", "y" * 9_990), [])
    assert [shelf.get(name) for name in ("b", "c", "d")] == [None, None, None]
    for _ in range(3):
        shelf.put(response("e", "y" * 6_000), [])
    assert shelf.get("e")
    assert (shelf.drop("e"), shelf.drop("e"), shelf.get("e")) == (True, False, None)
    shelf.put(response("f", "y" * 9_000), [])
    assert shelf.get("f")


def test_a_lone_surrogate_is_kept_as_something_else():
    shelf = Shelf()
    shelf.put(response("a", "\ud800"), [])
    assert shelf.item("msg_a")["text"] == "?"


def test_a_seal_is_known_again():
    assert is_signed(sign("Höre ☂".encode()))
    assert not any(map(is_signed, ("", "AAAA", "no base64!", "ü", sign(b"a")[:-4])))


def test_a_refusal_of_an_unknown_id_has_no_code():
    with pytest.raises(Refusal) as caught:
        Responses().lookup(Route("stored", "GET", "resp_0"))
    shaped = Responses().refusal(caught.value, "req_1")
    assert shaped["error"]["code"] is None
