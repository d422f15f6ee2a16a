"""Answers for clients, whole and event by event, checked with the official SDK."""

import json
from collections.abc import Iterable

import httpx2
import openai
import pytest
from openai.types.responses import Response

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition, Fault
from adapters.ir.answer import (
    Choice,
    Cited,
    Closed,
    Delta,
    Event,
    Finished,
    Logprob,
    Opened,
    Sealed,
)
from adapters.ir.parts import Citation, Media, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from adapters.responses.encode_answer import REFUSED
from store.values.usage import Usage
from tests.adapters.responses.calls import CONTEXT, USAGE, frames, written

CODECS = CODECS_BY_FAMILY["responses"]

CALLS: list[Event] = [
    Opened(1, "call", id="a", name="tide"),
    Opened(2, "call", id="b", name="patch", custom=True, namespace="n%s"),
    *(Delta(1, '{"port":'), Delta(2, "*** Begin"), Delta(1, '"Brest"}')),
    *(Closed(1), Closed(2), Finished("tools")),
]
EVERYTHING: list[Event] = [
    *(Opened(5, "reasoning"), Delta(5, "Hm"), Delta(5, '"é'), Sealed(5, "gw1.x"), Closed(5)),
    Opened(0, "text"),
    Delta(0, "Tea ", (Logprob("Tea", -0.1, (Logprob("x", -2.0),)),)),
    *(Delta(0, "is\n"), Cited(0, Citation("https://a", "A", 1, 2)), Closed(0)),
    *(Opened(6, "text"), Delta(6, "ready."), *CALLS[:-1], Closed(6)),
    *(Opened(7, "refusal"), Delta(7, "Not that."), Closed(7), CALLS[-1]),
]


def said_by_sdk(stream: bytes) -> openai.types.responses.Response:
    """Return the response that the official SDK reads from a stream; it must not raise."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = openai.OpenAI(api_key="k", base_url="http://x/v1", http_client=http, max_retries=0)
    with client, client.responses.stream(model="public", input="?") as events:
        for _ in events:
            pass
        return events.get_final_response()


def kinds(events: Iterable[Event]) -> list[str]:
    return [said["type"].removeprefix("response.") for said in frames(written(events))]


def test_a_text():
    events = [Opened(0, "text"), Delta(0, "Tea"), Delta(0, "."), Closed(0), Finished("stop")]
    assert kinds(events) == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta", "output_text.done", "content_part.done"),
        *("output_item.done", "completed"),
    ]


def test_calls_are_open_side_by_side():
    assert kinds(CALLS) == [
        *("created", "in_progress", "output_item.added", "output_item.added"),
        *("function_call_arguments.delta", "custom_tool_call_input.delta"),
        *("function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        *("custom_tool_call_input.done", "output_item.done", "completed"),
    ]


def test_everything_is_numbered_and_said_again_as_a_whole():
    said = frames(written(EVERYTHING))
    assert [one["sequence_number"] for one in said] == list(range(len(said)))
    added = [one["output_index"] for one in said if one["type"].endswith("item.added")]
    assert added == list(range(5))
    done = {one["output_index"]: one["item"] for one in said if one["type"].endswith("item.done")}
    response = said[-1]["response"]
    assert response["output"] == [done[index] for index in sorted(done)]
    thought, message, call, custom, refusal = response["output"]
    assert thought["summary"][0]["text"] == 'Hm"é' and thought["encrypted_content"] == "gw1.x"
    assert [part["text"] for part in message["content"]] == ["Tea is\n", "ready."]
    assert message["content"][0]["annotations"][0]["url"] == "https://a"
    assert message["content"][0]["logprobs"][0]["bytes"] == [84, 101, 97]
    assert call["arguments"] == '{"port":"Brest"}'
    assert (custom["input"], custom["namespace"]) == ("*** Begin", "n%s")
    assert refusal["content"] == [{"type": "refusal", "refusal": "Not that."}]
    assert response["usage"]["total_tokens"] == 25 and response["id"] == "resp_Ab1"


def test_the_official_sdk_reads_all_of_it():
    response = said_by_sdk(written(EVERYTHING))
    assert response.output_text == "Tea is\nready."
    assert [item.type for item in response.output] == [
        *("reasoning", "message", "function_call", "custom_tool_call", "message")
    ]
    assert response.usage is not None and response.usage.total_tokens == 25
    assert said_by_sdk(written([])).output == []


def test_a_whole_answer_says_the_same():
    said = frames(written(EVERYTHING[:-1]))[-1]["response"]
    whole = at_once(CODECS.client.encode_answer((), USAGE, CONTEXT))
    assert said.keys() == json.loads(whole).keys()


def test_a_text_that_goes_on_behind_another_item():
    events = [
        *(Opened(0, "text"), Delta(0, "a"), Opened(1, "reasoning"), Delta(1, "b"), Delta(0, "c")),
        *(Sealed(1, "s"), Closed(0), Closed(1), Finished("stop")),
    ]
    stream = written(events)
    output = frames(stream)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "reasoning", "message", "reasoning"]
    assert said_by_sdk(stream).output_text == "ac"


def test_slots_without_a_word_are_left_out():
    events = [
        *(Opened(0, "text"), Delta(0, ""), Cited(0, Citation("u")), Closed(0)),
        *(Opened(1, "reasoning"), Closed(1), Delta(9, "x"), Finished("stop")),
    ]
    assert kinds(events) == ["created", "in_progress", "completed"]


def test_empty_arguments_are_an_object():
    events = [Opened(0, "call", id="a", name="f"), Closed(0), Finished("tools")]
    said = frames(written(events))
    assert said[3]["delta"] == said[4]["arguments"] == "{}"
    custom = [Opened(0, "call", id="a", name="f", custom=True), Closed(0), Finished("tools")]
    assert frames(written(custom))[-1]["response"]["output"][0]["input"] == ""


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("length", "incomplete"),
        ("filter", "incomplete"),
        ("error", "failed"),
        ("stop", "completed"),
    ],
)
def test_ends_of_streams(finish, kind):
    said = frames(written([Finished(finish)]))[-1]
    assert said["type"] == f"response.{kind}" and said["response"]["status"] == kind


def test_a_cut_text():
    said = frames(written([Opened(0, "text"), Delta(0, "x"), Closed(0), Finished("length")]))
    assert said[-1]["response"]["output"][0]["status"] == "incomplete"
    assert said[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("detail", ["", "cyber"])
def test_a_refusal_is_said_in_some_words(detail):
    events = [Opened(0, "text"), Delta(0, "I"), Closed(0), Finished("refusal", detail=detail)]
    content = frames(written(events))[-1]["response"]["output"][0]["content"]
    assert content[1] == {"type": "refusal", "refusal": detail or REFUSED}


def test_another_choice_is_none_of_this_family():
    assert kinds([Finished("stop"), Finished("length", choice=1)])[-1] == "completed"


@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_a_repeated_event_differs_in_text_and_number_alone(kind):
    once, again = (CODECS.client.open_encoder(CONTEXT) for _ in range(2))
    streams = []
    for encoder in (once, again):
        sent = [encoder.begin(), encoder.write(Opened(0, kind)), encoder.write(Delta(0, "a"))]
        for text in ("b", "c"):
            repeated = encoder is again
            sent.append(
                encoder.repeat(text.encode()) if repeated else encoder.write(Delta(0, text))
            )
        sent += [encoder.write(Closed(0)), encoder.write(Finished("stop")), encoder.end(USAGE)]
        streams.append(b"".join(sent))
    assert streams[0] == streams[1]


def test_failures():
    encoder = CODECS.client.open_encoder(CONTEXT)
    begun = encoder.begin() + encoder.write(Opened(0, "text")) + encoder.write(Delta(0, "x"))
    fault = Fault(Condition.UPSTREAM_FAILED)
    said = frames(begun + encoder.encode_fault(fault, "req"))
    assert [one["type"] for one in said[-2:]] == ["error", "response.failed"]
    assert [one["sequence_number"] for one in said] == list(range(len(said)))
    assert said[-1]["response"]["id"] == said[0]["response"]["id"]
    with pytest.raises(openai.APIError):
        said_by_sdk(begun + encoder.encode_fault(fault, "req"))
    said = frames(CODECS.client.open_encoder(CONTEXT).encode_fault(fault, "req"))
    assert [one["sequence_number"] for one in said] == [0, 1]


# ---- whole answers -------------------------------------------------------------------------------


def answer(*parts, usage=USAGE, **fields):
    said = at_once(CODECS.client.encode_answer((Choice(parts, **fields),), usage, CONTEXT))
    Response.model_validate_json(said, strict=True)
    return json.loads(said)


def test_all_kinds_of_parts():
    said = answer(
        Reasoning("Hm.", opaque="gw1.x"),
        Text("Tea", citations=(Citation("https://a", "A", 1, 2),)),
        Text("."),
        Refusal("No."),
        ToolCall("a", "tide", ""),
        ToolCall("b", "patch", "*** Begin", custom=True, namespace="n"),
        Text("Bye."),
        Media("image", "image/png", "aGk="),
        finish="tools",
        logprobs=(Logprob("Tea", -0.1, (Logprob("é", -2.0),)),),
    )
    assert said["id"] == "resp_Ab1" and said["model"] == "public" and said["status"] == "completed"
    assert [item["id"] for item in said["output"]] == [
        *("rs_gw1.Ab1_0", "msg_Ab1_1", "fc_Ab1_2", "ctc_Ab1_3", "msg_Ab1_4", "ig_Ab1_5")
    ]
    thought, message, call, custom, last, picture = said["output"]
    assert (picture["type"], picture["result"]) == ("image_generation_call", "aGk=")
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert thought["encrypted_content"] == "gw1.x"
    kinds = [part["type"] for part in message["content"]]
    assert kinds == ["output_text", "output_text", "refusal"]
    assert message["content"][0]["annotations"][0]["url"] == "https://a"
    top = [{"token": "é", "bytes": [195, 169], "logprob": -2.0}]
    tea = {"token": "Tea", "bytes": [84, 101, 97], "logprob": -0.1, "top_logprobs": top}
    assert message["content"][0]["logprobs"] == [tea]
    assert call["arguments"] == "{}" and call["call_id"] == "a"
    assert (custom["input"], custom["namespace"]) == ("*** Begin", "n")
    assert last["content"][0]["logprobs"] == []


def test_usage_is_complete():
    assert answer(Text("x"))["usage"] == {
        "input_tokens": 16,
        "input_tokens_details": {
            "cached_tokens": 3,
            "cache_write_tokens": 3,
            "cache_write_tokens_details": {"ttl_30m_tokens": 2, "ttl_12h_tokens": 1},
        },
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 25,
    }
    assert answer(usage=Usage())["usage"] == {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        *((finish, "completed", None) for finish in ("stop", "stop_sequence", "tools")),
        *((finish, "completed", None) for finish in ("refusal", "pause", "error")),
        ("length", "incomplete", "max_output_tokens"),
        ("context_full", "incomplete", "max_output_tokens"),
        ("filter", "incomplete", "content_filter"),
    ],
)
def test_ends_of_whole_answers(finish, status, reason):
    said = answer(Text("x"), finish=finish)
    assert (said["status"], said["incomplete_details"]) == (status, reason and {"reason": reason})
    assert said["output"][0]["status"] == status


def test_a_failure_without_a_word():
    said = answer(finish="error")
    assert said["status"] == "failed" and said["error"]["code"] == "server_error"


def test_a_refusal_of_a_whole_answer_is_said_in_some_words():
    assert answer(finish="refusal")["output"][0]["content"] == [
        {"type": "refusal", "refusal": REFUSED}
    ]
    said = answer(Text("I"), finish="refusal", detail="cyber")["output"][0]["content"]
    assert said[1] == {"type": "refusal", "refusal": "cyber"}
    assert len(answer(Refusal("No."), finish="refusal")["output"][0]["content"]) == 1


def test_what_says_nothing_is_left_out():
    assert answer(Text(""), Reasoning(""))["output"] == []
    assert json.loads(at_once(CODECS.client.encode_answer((), USAGE, CONTEXT)))["output"] == []


def test_counts():
    counted = json.loads(CODECS.client.encode_count(7))
    assert counted == {"object": "response.input_tokens", "input_tokens": 7}
