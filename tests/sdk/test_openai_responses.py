"""The openai SDK's responses API, with a real gateway and a scripted vendor."""

from decimal import Decimal

import openai
import pytest

from tests.sdk import sdks
from tests.sdk.world import ALIAS, counts_of

BOTH_TOOLS = "Tell me Weather and Tide"


TOOLS = [
    {
        "type": "function",
        "name": kind.__name__,
        "description": kind.__doc__,
        "parameters": {**kind.model_json_schema(), "additionalProperties": False},
        "strict": True,
    }
    for kind in (sdks.Weather, sdks.Tide)
]
LOGBOOK = {"type": "custom", "name": "logbook", "description": "A line for the logbook."}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def words(text):
    return {"type": "input_text", "text": text}


@pytest.fixture(scope="module")
def client(world):
    with sdks.openai_client(world) as made:
        yield made


@pytest.fixture(scope="module")
def solo(world):
    """Yield a client whose group has one channel, so that its stored responses can be named."""
    with sdks.openai_client(world, api_key=world.keys["solo"]) as made:
        yield made


def kinds_of(response):
    return [item.type for item in response.output]


# ---- answers -------------------------------------------------------------------------------------


def test_helper_accumulates(client):
    with client.responses.stream(model="tea", input="hello") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        whole = stream.get_final_response()
    assert whole.output_text == "".join(deltas)
    assert (whole.status, whole.model) == ("completed", "tea")
    assert whole.usage.output_tokens > 0


# ---- tools, images, files, structures, reasoning -------------------------------------------------


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


@pytest.mark.parametrize(
    ("word", "part", "data"),
    [
        (
            "kettle-drawing",
            {"type": "input_image", "detail": "auto", "image_url": sdks.IMAGE_URL},
            sdks.PIXEL_BASE64,
        ),
        (
            "tea-manual",
            {"type": "input_file", "filename": "t.pdf", "file_data": sdks.PDF_URL},
            sdks.PDF_BASE64,
        ),
    ],
)
def test_media(client, world, word, part, data):
    answer = client.responses.create(model="tea", input=[user(words(word), part)])
    assert word in answer.output_text
    assert data in world.asked(word)["body"]


# ---- counts, compaction, stored responses, lists -------------------------------------------------


def test_compact(client, world):
    compacted = client.responses.compact(model="tea", input=[user(words("a long talk"))])
    assert compacted.object == "response.compaction"
    assert kinds_of(compacted) == ["message", "compaction"]
    record = world.gateway.record(compacted._request_id)
    assert record["endpoint"] == "/v1/responses/compact"
    usage = compacted.usage
    assert counts_of(record) == {"input": usage.input_tokens, "output": usage.output_tokens}
    assert Decimal(record["cost"]) > 0
    # The compacted conversation starts the next turn.
    talk = [item.to_dict(exclude_none=True, warnings=False) for item in compacted.output]
    done = client.responses.create(model="tea", input=[*talk, user(words("and then?"))])
    assert "and then?" in done.output_text


def test_stored_responses(solo, world):
    said = [f"number {number}" for number in range(5)]
    made = solo.responses.create(model="tea", input=[user(words(text)) for text in said])
    found = solo.responses.retrieve(made.id)
    assert (found.id, found.output_text) == (made.id, made.output_text)
    record = world.gateway.record(found._request_id)
    assert (record["endpoint"], record["cost"]) == ("/v1/responses/{id}", "0")
    first = solo.responses.input_items.list(made.id, limit=2, order="asc")
    assert (len(first.data), first.has_more) == (2, True)
    assert [item.content[0].text for item in first] == said
    solo.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        solo.responses.retrieve(made.id)
    assert caught.value.code == "not_found"
    assert made.id in caught.value.message


def test_cancel(solo, world):
    """Only a background response can be cancelled. This one is created directly at the vendor,
    because a gateway could not bill it; so the gateway knows no owner of it."""
    with sdks.openai_client(world, base_url=world.upstream.url + "/v1") as at_the_vendor:
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
