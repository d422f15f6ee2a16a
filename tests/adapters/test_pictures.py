"""Pictures in the answers of one family, for clients of the others: whole and streamed."""

import json

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from adapters.codecs import CODECS
from adapters.family.codec import AnswerContext
from adapters.framing.sse import EventSplitter, event_fields
from adapters.ir.answer import Choice, Closed, Delta, Finished, Opened, Pictured
from adapters.ir.parts import Media, Text
from adapters.json.structure import at_once
from adapters.reframe import GatheringEncoder, replay
from store.values.usage import Usage

URL = "data:image/png;base64,AAAA"
CONTEXT = AnswerContext("public", "Ab1", 1795000000, 5, False)
STREAM = (
    *(Opened(0, "text"), Delta(0, "a"), Closed(0), Pictured("image/png", "AAAA")),
    *(Pictured("image/png", "AAAA"), Opened(1, "text"), Delta(1, "b"), Closed(1), Finished("stop")),
)


def whole(family):
    parts = (Text("a"), Media("image", "image/png", "AAAA"))
    return json.loads(
        at_once(CODECS[family].client.encode_answer((Choice(parts),), Usage(1, 2), CONTEXT))
    )


def streamed(family, events=STREAM):
    encoder = CODECS[family].client.open_encoder(CONTEXT)
    sent = encoder.begin() + b"".join(map(encoder.write, events)) + encoder.end(Usage(1, 2))
    datas = [event_fields(event)[1] for event in EventSplitter(1 << 20).feed(sent)]
    return [json.loads(data) for data in datas if data and data != b"[DONE]"]


def test_chat_completions():
    message = whole("chat_completions")["choices"][0]["message"]
    ChatCompletion.model_validate(whole("chat_completions"))
    assert message["content"] == "a"
    assert message["images"] == [{"type": "image_url", "index": 0, "image_url": {"url": URL}}]
    chunks = streamed("chat_completions")
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    pictures = [picture for delta in deltas for picture in delta.get("images", ())]
    assert [(p["index"], p["image_url"]["url"]) for p in pictures] == [(0, URL), (1, URL)]
    alone = streamed("chat_completions", (Pictured("image/png", "AAAA"), Finished("error")))
    assert alone[-1]["choices"][0]["finish_reason"] == "stop", "it is an answer"


def test_responses():
    Response.model_validate(whole("responses"))
    item = {"type": "image_generation_call", "status": "completed", "result": "AAAA"}
    assert whole("responses")["output"][1] == {"id": "ig_Ab1_1", **item}
    events = streamed("responses")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events if "image" in event["type"]]
    kind = "response.image_generation_call."
    assert kinds == [kind + "in_progress", kind + "completed"] * 2
    output = events[-1]["response"]["output"]
    assert [one["type"] for one in output] == ["message", item["type"], item["type"], "message"]
    assert output[1] == {"id": "ig_Ab1_1", **item}
    assert streamed("responses", (Pictured("image/png", "A", choice=1),))[-1]["response"][
        "output"
    ] == []  # fmt: skip


@pytest.mark.parametrize("choice", [0, 1])
def test_messages(choice):
    Message.model_validate(whole("messages"))
    text = f"![picture]({URL})"
    assert whole("messages")["content"][1] == {"type": "text", "text": text}
    events = streamed("messages", (Pictured("image/png", "AAAA", choice), Finished("stop")))
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert deltas == [{"type": "text_delta", "text": text}] * (1 - choice)


def test_a_picture_in_the_other_form():
    """An answer that came as events instead of one object, and the reverse."""
    gathered = GatheringEncoder(CONTEXT)
    for event in STREAM:
        gathered.write(event)
    (choice,) = gathered.choices
    picture = Media("image", "image/png", "AAAA")
    assert choice.parts == (Text("a"), picture, picture, Text("b"))
    encoder = CODECS["chat_completions"].client.open_encoder(CONTEXT)
    assert at_once(replay((choice,), encoder, Usage())).count(URL.encode()) == 2
