"""Compaction by the model itself, from a client's request to its next one."""

import json

import pytest
from openai.types.responses import CompactedResponse

from adapters.codecs import CODECS, TRANSLATORS
from adapters.family.codec import AnswerContext, Target
from adapters.family.opaque import Origin, summary_of, wrap, wrap_summary
from adapters.family.traits import Traits
from adapters.faults import Condition
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from adapters.registry import FAMILIES
from adapters.summary import INSTRUCTION
from tests.adapters.builders import fault_of, whole_answers

CONTEXT = AnswerContext("public", "Ab1", 1795000000, 10, True)
ORIGIN = Origin("messages", "mark", b"k" * 32, "user")
RESPONSES = FAMILIES["responses"].client.operations
TRIGGER = {"type": "compaction_trigger", "id": "ct_1"}
HI = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
TOOL = {"type": "function", "name": "f"}
OTHERS = [family for family in FAMILIES if family != "responses"]


def begun(family, *items, stream=False, **context):
    body = dumps({"model": "m", "stream": stream, "input": [*items], "tools": [TOOL]})
    translator = TRANSLATORS["responses", family]
    request = at_once(translator.decode(top_level(body), stream, None))
    assert translator.refusal(request, Traits()) is None
    made = AnswerContext("public", "Ab1", 1795000000, 10, True, **context)
    target = Target("demo", "up", Traits())
    return at_once(translator.begin(request, target, made, ORIGIN, count=False))


def answer(translation, family, text, operation=RESPONSES["generate"]):
    sent = dumps(whole_answers(text)[family][0])
    return json.loads(translation.read_answer(sent, "public", "up", operation).body)


@pytest.mark.parametrize("family", OTHERS)
def test_the_summary_is_sealed_and_read_again_by_any_channel(family):
    translation = begun(family, HI, CALL, TRIGGER)
    sent = json.dumps(json.loads(translation.body))
    assert INSTRUCTION in sent and translation.dropped == ()
    assert '"none"' in sent.lower()  # tool calls are switched off
    (item,) = answer(translation, family, "We had tea.")["output"]
    assert (item["id"], item["type"]) == ("cmp_Ab1_0", "compaction")
    assert "tea" not in json.dumps(item)
    for other in OTHERS:
        again = begun(other, item, HI).body
        assert b"We had tea." in again and INSTRUCTION.encode() not in again
    native = CODECS["responses"].client.without_foreign
    body = dumps({"model": "m", "input": [item, HI]})
    message, rest = json.loads(native(top_level(body), "m"))["input"]
    assert (message["role"], rest) == ("user", HI) and "We had tea." in message["content"]


def test_the_endpoint_answers_with_its_own_object():
    translation = begun("messages", HI, compaction="object")
    assert translation.operation(RESPONSES["compact"], False).job == "generate"
    compacted = answer(translation, "messages", "Tea.", RESPONSES["compact"])
    assert list(compacted) == ["id", "object", "created_at", "output", "usage"]
    assert CompactedResponse.model_validate(compacted, strict=True)
    assert summary_of(compacted["output"][0]["encrypted_content"]) == "Tea."


def chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % dumps({"id": "c", "choices": [choice]})


@pytest.mark.parametrize("text", ["We had tea.", " "])
def test_a_stream_has_the_one_item_or_fails(text):
    translation = begun("chat_completions", HI, TRIGGER, stream=True)
    bridge = translation.open_bridge("public", "up", False, RESPONSES["generate"], 4096)
    events = [{"reasoning_content": "Hm."}, *({"content": piece} for piece in text)]
    sent = [bridge.feed(chunk(delta)) for delta in events]
    assert bridge.feed_repeat(chunk({"content": "x"})) is None
    sent += [bridge.feed(chunk({}, "stop")), bridge.feed(b"data: [DONE]\n\n")]
    if text == " ":
        assert bridge.fault.condition is Condition.UPSTREAM_INVALID
        return
    frames = [json.loads(line[6:]) for line in b"".join(sent).splitlines() if line[:5] == b"data:"]
    assert [frame["type"].removeprefix("response.") for frame in frames] == [
        "created", "in_progress", "output_item.added", "output_item.done", "completed",
    ]  # fmt: skip
    (item,) = frames[-1]["response"]["output"]
    assert frames[-2]["item"] == item and summary_of(item["encrypted_content"]) == text


def test_an_answer_without_a_text_is_no_summary():
    translation = begun("messages", HI, TRIGGER)
    fault = fault_of(answer, translation, "messages", "")
    assert fault.condition is Condition.UPSTREAM_INVALID


def test_no_other_state_is_a_summary():
    assert summary_of(wrap_summary("é", ORIGIN)) == "é"
    assert summary_of(wrap("é", ORIGIN)) is summary_of("x") is summary_of(1) is None
    assert summary_of("gw1.summary.-._w." + "x" * 16) == "\ufffd"  # without a signature
