"""Streams for clients of this family, as the events come."""

import pytest
from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from adapters.chat_completions import CODECS
from adapters.faults import Condition, Fault
from adapters.ir.answer import Cited, Closed, Delta, Finished, Logprob, Opened, Sealed
from adapters.ir.parts import Citation
from tests.adapters.chat_completions.calls import CONTEXT, chunks, deltas, written

QUIET = replace(CONTEXT, include_usage=False)
TEXT = [Opened(0, "text"), Delta(0, "Tea is "), Delta(0, "ready."), Closed(0)]
CALLS = [
    Opened(1, "call", id="c1", name="f"),
    Delta(1, '{"x":'),
    Opened(2, "call", id="c2", name="g"),
    Delta(1, "1}"),
    Closed(1),
    Closed(2),
]
STOP, TOOLS = Finished("stop"), Finished("tools")


def accumulated(stream):
    """The answer as the SDK puts it together."""
    state = ChatCompletionStreamState()
    for chunk in chunks(stream):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.get_final_completion()


def test_a_text():
    said = chunks(written([*TEXT, STOP]))
    assert {(one["id"], one["object"], one["created"], one["model"]) for one in said} == {
        ("chatcmpl-Ab1", "chat.completion.chunk", 1795000000, "public")
    }
    assert [one["choices"] for one in said] == [
        [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": "", "refusal": None},
                "logprobs": None,
                "finish_reason": None,
            }
        ],
        *(
            [
                {
                    "index": 0,
                    "delta": {"content": text},
                    "logprobs": None,
                    "finish_reason": None,
                }
            ]
            for text in ("Tea is ", "ready.")
        ),
        [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}],
        [],
    ]
    assert [one["usage"] is None for one in said] == [True] * 4 + [False]


def test_usage_is_shown_to_those_who_asked():
    said = chunks(written([*TEXT, STOP], context=QUIET))
    assert all("usage" not in one for one in said) and len(said) == 4
    assert chunks(written([*TEXT, STOP]))[-1]["usage"]["prompt_tokens"] == 16
    assert len(chunks(written([*TEXT, STOP], usage=None))) == 4


def test_calls_are_opened_once_and_never_empty():
    assert deltas(written([*TEXT, *CALLS, TOOLS]))[2:] == [
        {"tool_calls": [call]}
        for call in (
            {
                "index": 0,
                "id": "c1",
                "type": "function",
                "function": {"name": "f", "arguments": ""},
            },
            {"index": 0, "function": {"arguments": '{"x":'}},
            {
                "index": 1,
                "id": "c2",
                "type": "function",
                "function": {"name": "g", "arguments": ""},
            },
            {"index": 0, "function": {"arguments": "1}"}},
            {"index": 1, "function": {"arguments": "{}"}},
        )
    ]


def test_the_sdk_puts_it_together():
    thought = [
        Opened(9, "reasoning"),
        Delta(9, "Hm, "),
        Delta(9, "yes."),
        Sealed(9, "sig"),
        Closed(9),
    ]
    answer = accumulated(written([*thought, *TEXT, *CALLS, TOOLS]))
    (choice,) = answer.choices
    assert choice.message.content == "Tea is ready." and choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("c1", "f", '{"x":1}'),
        ("c2", "g", "{}"),
    ]
    assert choice.message.reasoning_content == "Hm, yes."
    assert choice.message.tool_calls[0].extra_content == {"gw": "sig/0:8"}
    assert answer.usage.total_tokens == 25


def test_free_text_calls():
    events = [
        Opened(0, "call", id="c", name="patch", custom=True),
        Delta(0, "+a"),
        Closed(0),
        Opened(1, "call", id="d", name="patch", custom=True),
        Closed(1),
        TOOLS,
    ]
    assert [delta["tool_calls"][0] for delta in deltas(written(events))] == [
        {"index": 0, "id": "c", "type": "custom", "custom": {"name": "patch", "input": ""}},
        {"index": 0, "custom": {"input": "+a"}},
        {"index": 1, "id": "d", "type": "custom", "custom": {"name": "patch", "input": ""}},
    ]


def test_thoughts_refusals_and_citations():
    events = [
        Opened(0, "reasoning"), Delta(0, "One."), Closed(0),
        Opened(1, "reasoning"), Delta(1, "Two."), Closed(1),
        Opened(2, "text"), Delta(2, "Tea."), Cited(2, Citation("https://a")), Closed(2),
        Opened(3, "text"), Delta(3, "Cups."), Cited(3, Citation("https://b", "B", 0, 3)), Closed(3),
        Opened(4, "refusal"), Delta(4, "No."), Closed(4),
        STOP,
    ]  # fmt: skip
    said = deltas(written(events))
    annotations = said.pop()["annotations"]
    assert said == [
        {"reasoning_content": "One."},
        {"reasoning_content": "\n\nTwo."},
        {"content": "Tea."},
        {"content": "Cups."},
        {"refusal": "No."},
    ]
    assert [one["url_citation"] for one in annotations] == [
        {"start_index": 0, "end_index": 4, "url": "https://a", "title": ""},
        {"start_index": 4, "end_index": 7, "url": "https://b", "title": "B"},
    ]


def test_opaque_reasoning_without_a_call_comes_before_the_finish():
    events = [
        Opened(0, "reasoning", summary=True), Delta(0, "One."), Sealed(0, "s1"), Closed(0),
        *[replace(event, slot=1) for event in TEXT],
        Opened(2, "reasoning"), Sealed(2, "s2"), Closed(2),
        STOP,
    ]  # fmt: skip
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


def test_log_probabilities():
    token = Logprob("Tea", -0.1)
    events = [Opened(0, "text"), Delta(0, "Tea", (token,)), Delta(0, "."), Closed(0), STOP]
    said = chunks(written(events))
    assert said[1]["choices"][0]["logprobs"]["content"][0]["token"] == "Tea"
    assert said[2]["choices"][0]["logprobs"] is None


def test_choices_begin_in_their_order():
    events = [Opened(0, "text", choice=2), Delta(0, "c"), Closed(0), Finished("length", 2)]
    said = [one["choices"][0] for one in chunks(written(events)) if one["choices"]]
    assert [(one["index"], one["delta"]) for one in said[:3]] == [
        (index, {"role": "assistant", "content": "", "refusal": None}) for index in range(3)
    ]
    assert said[-1]["index"] == 2 and said[-1]["finish_reason"] == "length"


def test_a_model_that_failed_before_it_said_anything_is_a_fault():
    encoder = CODECS.client.open_encoder(CONTEXT)
    encoder.begin()
    with pytest.raises(Fault) as caught:
        encoder.write(Finished("error"))
    assert caught.value.condition is Condition.UPSTREAM_FAILED
    assert b'"finish_reason":"stop"' in written([*TEXT, Finished("error")])


def test_a_stream_that_failed_ends_with_the_error():
    encoder = CODECS.client.open_encoder(CONTEXT)
    frame = encoder.encode_fault(Fault(Condition.UPSTREAM_FAILED), "r")
    assert frame.startswith(b'data: {"error":{') and b"[DONE]" not in frame


def test_a_client_from_before_there_were_tools_gets_the_one_call_that_it_knows():
    sent = written([*CALLS, TOOLS], context=replace(CONTEXT, function_call=True))
    assert [delta["function_call"] for delta in deltas(sent)] == [
        {"name": "f", "arguments": ""},
        {"arguments": '{"x":'},
        {"arguments": "1}"},
    ]
    assert chunks(sent)[-2]["choices"][0]["finish_reason"] == "function_call"
    (choice,) = accumulated(sent).choices
    assert choice.message.function_call.arguments == '{"x":1}'
