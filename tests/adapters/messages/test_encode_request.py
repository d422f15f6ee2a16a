"""The fields around the conversation, as upstreams of the messages family take them."""

import pytest
from msgspec.structs import replace

from adapters.faults import Condition, Fault
from adapters.ir.parts import CacheMark, Text, Turn
from adapters.ir.request import Ask, Output, Thinking, Tool
from adapters.messages.encode_request import DEFAULT_MAX_TOKENS
from tests.adapters.messages.calls import asking, sent

SCHEMA = {
    "type": "object",
    "properties": {"cups": {"type": "integer"}},
    "additionalProperties": False,
}


def test_the_least_request():
    body, made = sent(asking())
    assert body == {
        "model": "claude",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Is tea ready?"}]}],
    }
    assert (made.names, made.output_tool, made.cut, made.dropped) == ({}, "", (), ())


def test_bounds():
    assert sent(asking(), limit=64000)[0]["max_tokens"] == 64000
    assert sent(asking(max_output_tokens=7), limit=64000)[0]["max_tokens"] == 7


def test_options():
    request = asking(
        temperature=1.5,
        top_k=4,
        stop=("END", " \n", ""),
        end_user="u" * 300,
        tier="default",
    )
    body, made = sent(request)
    assert body["temperature"] == 1 and body["top_k"] == 4
    assert body["stop_sequences"] == ["END"] and made.cut == (" \n",)
    assert body["metadata"] == {"user_id": "u" * 256}
    assert body["service_tier"] == "standard_only"
    assert sent(asking(tier="priority"))[0]["service_tier"] == "auto"
    assert "stop_sequences" not in sent(asking(stop=("\n",)))[0]


def test_one_of_temperature_and_top_p():
    body, made = sent(asking(temperature=0.2, top_p=0.9))
    assert body["temperature"] == 0.2 and "top_p" not in body and made.dropped == ("top_p",)
    assert sent(asking(top_p=0.9))[0]["top_p"] == 0.9
    assert not {"temperature", "top_p"} & set(sent(asking(temperature=0.2), sampling=False)[0])


def test_streams_and_counts():
    request = asking(temperature=0.1, stop=("END",), thinking=Thinking("high"), end_user="u")
    streamed = replace(request, stream=True)
    assert sent(streamed)[0]["stream"] is True
    body, made = sent(streamed, count=True)
    assert set(body) == {"model", "messages", "thinking"} and made.cut == ()


def test_system_texts_are_blocks():
    request = asking(system=(Text("Be brief.", CacheMark()), Text(" "), Text("Kindly.")))
    assert sent(request)[0]["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Kindly."},
    ]


def test_a_request_of_nothing_but_system_text():
    body, _ = sent(asking(Turn("user", ()), system=(Text("Count to three."),)))
    assert "system" not in body
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Count to three."}]}
    ]


def test_json_output():
    body, _ = sent(asking(output=Output("json")))
    assert "JSON object" in body["system"][0]["text"]
    body, _ = sent(asking(output=Output("schema", SCHEMA)))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}


def test_an_answer_of_names_that_are_not_known_before_is_a_tool():
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    body, made = sent(asking(output=Output("schema", schema)))
    assert "output_config" not in body and made.output_tool == "respond"
    assert body["tools"][0]["input_schema"] == schema
    rows = {"type": "array", "items": schema}
    assert sent(asking(output=Output("schema", rows)))[0]["output_config"]
    assert "tools" not in sent(asking(output=Output("schema", schema)), structured="none")[0]


def test_an_answer_that_is_no_object_cannot_be_a_tool():
    asks = (Ask("schema_output", "response_format"),)
    request = asking(output=Output("schema", {"type": "array"}), asks=asks)
    with pytest.raises(Fault) as caught:
        sent(request, structured="tool")
    assert caught.value.condition is Condition.UNSUPPORTED
    assert caught.value.param == "response_format"


def test_tools_are_there_before_the_answer_is_asked_for():
    body, _ = sent(asking(tools=(Tool("function", "tide"),), output=Output("schema", SCHEMA)))
    assert [tool["name"] for tool in body["tools"]] == ["tide"]
    assert "tool_choice" not in body


def test_an_answer_that_was_begun_is_not_thought_about_and_has_no_schema():
    turns = Turn("user", (Text("a"),)), Turn("assistant", (Text("{"),))
    body, made = sent(asking(*turns, thinking=Thinking("high")))
    assert "thinking" not in body and made.dropped == ("reasoning",)
    assert body["messages"][-1]["role"] == "assistant"
    body, _ = sent(asking(*turns, output=Output("schema", SCHEMA)))
    assert body["messages"][-1]["role"] == "user"
