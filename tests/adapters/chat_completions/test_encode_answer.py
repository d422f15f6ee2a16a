"""Answers for clients of this family, whole and streamed."""

import json

import pytest
from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Logprob, Opened, Sealed
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.structure import at_once
from store.values.usage import Usage
from tests.adapters.builders import fault_of, slot
from tests.adapters.chat_completions.calls import (
    CONTEXT,
    USAGE,
    answered,
    assistant,
    chunks,
    custom_call,
    deltas,
    function_call,
    message,
    written,
)

CODECS = CODECS_BY_FAMILY["chat_completions"]

BEFORE_TOOLS = replace(CONTEXT, function_call=True)


def test_a_text():
    answer = answered(Choice((Text("Tea is ready."),)))
    usage = answer.pop("usage")
    choice = {"index": 0, "message": assistant(content="Tea is ready.", refusal=None)}
    assert answer == {
        "id": "chatcmpl-Ab1",
        "object": "chat.completion",
        "created": 1795000000,
        "model": "public",
        "choices": [choice | {"logprobs": None, "finish_reason": "stop"}],
    }
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_usage_contains_what_is_cached_and_reasoned():
    predicted = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    assert answered(Choice(()), usage=Usage(200, 90, 2000, 300, 100, 60))["usage"] == {
        "prompt_tokens": 2600,
        "completion_tokens": 150,
        "total_tokens": 2750,
        "prompt_tokens_details": {
            "cached_tokens": 2000,
            "cache_write_tokens": 400,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {"reasoning_tokens": 60, "audio_tokens": 0, **predicted},
    }


def test_answers_of_nothing_and_refusals():
    assert message() == assistant(content="", refusal=None)
    assert message(Refusal("No."), finish="refusal") == assistant(content=None, refusal="No.")
    assert fault_of(answered, Choice((), "error")).condition is Condition.UPSTREAM_FAILED
    fault_of(CODECS.client.encode_count, 5)  # the family has no counts


def test_calls_and_text_and_thoughts():
    assert message(
        Reasoning("One."),
        Reasoning("Two."),
        Text("Let me "),
        Text("look."),
        ToolCall("c1", "f", '{"x":1}'),
        ToolCall("c2", "g", ""),
        ToolCall("c3", "patch", "", custom=True),
        finish="tools",
    ) == assistant(
        content="Let me look.",
        refusal=None,
        reasoning_content="One.\n\nTwo.",
        tool_calls=[
            function_call("c1", "f", '{"x":1}'),
            function_call("c2", "g", "{}"),
            custom_call("c3", "patch", ""),
        ],
    )
    assert message(ToolCall("c1", "f", "{}"))["content"] is None


def test_citations_point_into_the_whole_text():
    first = Text("Tea. ", citations=(Citation("https://a", "A"),))
    second = Text("Two cups.", citations=(Citation("https://b", start=4, end=8),))
    assert [each["url_citation"] for each in message(first, second)["annotations"]] == [
        {"start_index": 0, "end_index": 5, "url": "https://a", "title": "A"},
        {"start_index": 9, "end_index": 13, "url": "https://b", "title": ""},
    ]


def test_log_probabilities():
    token = Logprob("Té", -0.5, (Logprob("a", -1.0),))
    (choice,) = answered(Choice((Text("Té"),), logprobs=(token,)))["choices"]
    (said,) = choice["logprobs"]["content"]
    assert said["token"] == "Té" and said["bytes"] == [84, 195, 169]
    assert said["top_logprobs"] == [{"token": "a", "logprob": -1.0, "bytes": [97]}]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("stop_sequence", "stop"),
        ("length", "length"),
        ("tools", "tool_calls"),
        ("filter", "content_filter"),
        ("refusal", "stop"),
        ("pause", "stop"),
        ("context_full", "length"),
        ("error", "stop"),
    ],
)
def test_finishes_of_several_choices(finish, reason):
    answer = answered(Choice((Text("a"),)), Choice((Text("x"),), finish))
    found = [(each["index"], each["finish_reason"]) for each in answer["choices"]]
    assert found == [(0, "stop"), (1, reason)]


def test_a_client_from_before_there_were_tools_gets_the_one_call_that_it_knows():
    choice = Choice((ToolCall("c1", "f", ""), ToolCall("c2", "g", "{}")), "tools")
    body = at_once(CODECS.client.encode_answer((choice,), USAGE, BEFORE_TOOLS))
    (said,) = json.loads(body)["choices"]
    call = {"name": "f", "arguments": "{}"}
    assert said["message"] == assistant(content=None, refusal=None, function_call=call)
    assert said["finish_reason"] == "function_call"


# ---- streams -------------------------------------------------------------------------------------

QUIET = replace(CONTEXT, include_usage=False)
TEXT = slot(0, "text", "Tea is ", "ready.")
CALLS = [
    *(Opened(1, "call", id="c1", name="f"), Delta(1, '{"x":')),
    *(Opened(2, "call", id="c2", name="g"), Delta(1, "1}"), Closed(1), Closed(2)),
]
STOP, TOOLS = Finished("stop"), Finished("tools")
FIRST = {"role": "assistant", "content": "", "refusal": None}


def accumulated(stream):
    """Return the answer that the SDK accumulates."""
    state = ChatCompletionStreamState()
    for chunk in chunks(stream):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.get_final_completion()


def test_a_streamed_text():
    said = chunks(written([*TEXT, STOP]))
    assert {(each["id"], each["object"], each["created"], each["model"]) for each in said} == {
        ("chatcmpl-Ab1", "chat.completion.chunk", 1795000000, "public")
    }
    texts = FIRST, {"content": "Tea is "}, {"content": "ready."}, {}
    choices = [
        [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}] for delta in texts
    ]
    choices[-1][0]["finish_reason"] = "stop"
    assert [each["choices"] for each in said] == [*choices, []]
    assert [each["usage"] is None for each in said] == [True] * 4 + [False]


def test_usage_is_shown_to_those_who_asked():
    said = chunks(written([*TEXT, STOP], context=QUIET))
    assert len(said) == 4 and all("usage" not in each for each in said)
    assert chunks(written([*TEXT, STOP]))[-1]["usage"]["prompt_tokens"] == 16
    assert len(chunks(written([*TEXT, STOP], usage=None))) == 4


def test_calls_are_opened_once_and_never_empty():
    assert deltas(written([*TEXT, *CALLS, TOOLS]))[2:] == [
        {"tool_calls": [call]}
        for call in (
            {"index": 0, **function_call("c1", "f", "")},
            {"index": 0, "function": {"arguments": '{"x":'}},
            {"index": 1, **function_call("c2", "g", "")},
            {"index": 0, "function": {"arguments": "1}"}},
            {"index": 1, "function": {"arguments": "{}"}},
        )
    ]


def test_free_text_calls():
    patch = {"name": "patch", "custom": True}
    events = [*slot(0, "call", "+a", id="c", **patch), *slot(1, "call", id="d", **patch), TOOLS]
    assert [delta["tool_calls"][0] for delta in deltas(written(events))] == [
        {"index": 0, **custom_call("c", "patch", "")},
        {"index": 0, "custom": {"input": "+a"}},
        {"index": 1, **custom_call("d", "patch", "")},
    ]


def test_thoughts_refusals_and_citations():
    events = [
        *slot(0, "reasoning", "One."),
        *slot(1, "reasoning", "Two."),
        *(Opened(2, "text"), Delta(2, "Tea."), Cited(2, Citation("https://a")), Closed(2)),
        *(Opened(3, "text"), Delta(3, "Cups."), Cited(3, Citation("https://b", "B", 0, 3))),
        Closed(3),
        *slot(4, "refusal", "No."),
        STOP,
    ]
    said = deltas(written(events))
    annotations = said.pop()["annotations"]
    assert said == [
        {"reasoning_content": "One."},
        {"reasoning_content": "\n\nTwo."},
        {"content": "Tea."},
        {"content": "Cups."},
        {"refusal": "No."},
    ]
    assert [each["url_citation"] for each in annotations] == [
        {"start_index": 0, "end_index": 4, "url": "https://a", "title": ""},
        {"start_index": 4, "end_index": 7, "url": "https://b", "title": "B"},
    ]


def test_opaque_reasoning_without_a_call_comes_before_the_finish():
    thoughts = (
        slot(0, "reasoning", "One.", seal="s1", summary=True),
        slot(2, "reasoning", seal="s2"),
    )
    events = [*thoughts[0], *slot(1, "text", "Tea is ready."), *thoughts[1], STOP]
    assert deltas(written(events))[-1] == {"reasoning_opaque": "s1/0:4s s2/4:4t"}


def test_empty_deltas_and_unknown_slots_make_no_frame():
    encoder = CODECS.client.open_encoder(CONTEXT)
    assert encoder.begin() and encoder.started
    assert encoder.write(Opened(0, "text")) == b""
    assert encoder.write(Delta(0, "")) == encoder.write(Delta(7, "x")) == b""
    assert encoder.repeat(b"") == b""


def test_a_repeated_delta_is_the_same_frame():
    encoder = CODECS.client.open_encoder(CONTEXT)
    encoder.begin()
    encoder.write(Opened(0, "reasoning"))
    first = encoder.write(Delta(0, "tea"))
    assert encoder.repeat(b"tea") == first
    encoder.write(Sealed(0, "sig"))
    encoder.write(Closed(0))
    assert b'"sig/0:6"' in encoder.write(STOP)


def test_streamed_log_probabilities():
    token = Logprob("Tea", -0.1)
    events = [Opened(0, "text"), Delta(0, "Tea", (token,)), Delta(0, "."), Closed(0), STOP]
    said = chunks(written(events))
    assert said[1]["choices"][0]["logprobs"]["content"][0]["token"] == "Tea"
    assert said[2]["choices"][0]["logprobs"] is None


def test_choices_begin_in_their_order():
    events = [*slot(0, "text", "c", choice=2), Finished("length", 2)]
    said = [each["choices"][0] for each in chunks(written(events)) if each["choices"]]
    begun = [(each["index"], each["delta"]) for each in said[:3]]
    assert begun == [(index, FIRST) for index in range(3)]
    assert said[-1]["index"] == 2 and said[-1]["finish_reason"] == "length"


def test_streams_that_failed():
    encoder = CODECS.client.open_encoder(CONTEXT)
    encoder.begin()
    assert fault_of(encoder.write, Finished("error")).condition is Condition.UPSTREAM_FAILED
    assert b'"finish_reason":"stop"' in written([*TEXT, Finished("error")])
    frame = encoder.encode_fault(Fault(Condition.UPSTREAM_FAILED), "r")
    assert frame.startswith(b'data: {"error":{') and b"[DONE]" not in frame


def test_a_streaming_client_from_before_there_were_tools_gets_the_one_call_that_it_knows():
    sent = written([*CALLS, TOOLS], context=BEFORE_TOOLS)
    assert [delta["function_call"] for delta in deltas(sent)] == [
        {"name": "f", "arguments": ""},
        {"arguments": '{"x":'},
        {"arguments": "1}"},
    ]
    assert chunks(sent)[-2]["choices"][0]["finish_reason"] == "function_call"
    (choice,) = accumulated(sent).choices
    assert choice.message.function_call.arguments == '{"x":1}'
