"""Decoding of upstreams' answers, whole and streamed, whatever a vendor omits."""

import pathlib

import pytest

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.faults import Condition, Fault
from adapters.ir.answer import Choice, Cited, Closed, Delta, Finished, Logprob, Opened, Sealed
from adapters.ir.parts import Citation, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import dumps
from adapters.json.structure import at_once

CODECS = CODECS_BY_FAMILY["responses"]

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "responses"
TEXT = "Tea is ready: three cups, one pot — enjoy."
CITATION = {"type": "url_citation", "url": "https://a", "title": "A"}


def events_of(*said):
    decoder = CODECS.upstream.open_decoder()
    found = []
    for kind, fields in said:
        found += decoder.read(None, {"type": f"response.{kind}", **fields})
    return found + decoder.end()


def spoken(events):
    """Return the content of each slot: kind, name, text."""
    texts = {}
    for event in events:
        if isinstance(event, Opened):
            texts[event.slot] = [event.kind, event.name, ""]
        elif isinstance(event, Delta):
            texts[event.slot][2] += event.text
    return [tuple(one) for one in texts.values()]


def item(kind, index=0, **fields):
    return {"output_index": index, "item": {"type": kind, **fields}}


def message(*content, index=0, **fields):
    return item("message", index, content=list(content), **fields)


def text(words, **fields):
    return {"type": "output_text", "text": words, **fields}


def completed(*items):
    return "completed", {"response": {"output": [each["item"] for each in items]}}


TEA, M = message(text("Tea")), {"output_index": 0, "item_id": "m"}
CALL = {"call_id": "c1", "name": "tide", "arguments": '{"a":1}'}
BEGUN = {**CALL, "arguments": ""}


@pytest.mark.parametrize(
    "said",
    [
        [("output_text.delta", {"delta": "Tea"}), ("completed", {"response": None})],
        [("output_text.done", {"text": "Tea"})],
        [("content_part.done", {"part": text("Tea")})],
        [("output_item.done", message(text("Tea")))],
        [completed(TEA)],
        # complete and regular
        [
            ("output_item.added", message(id="m")),
            ("content_part.added", M),
            ("output_text.delta", {**M, "delta": "Te"}),
            ("output_text.delta", {**M, "delta": "a"}),
            ("output_text.done", {**M, "text": "Tea"}),
            ("content_part.done", {**M, "part": text("Tea")}),
            ("output_item.done", message(text("Tea"), id="m")),
            completed(message(text("Tea"), id="m")),
        ],
        # no indexes, no ids
        [
            ("output_text.delta", {"delta": "Tea"}),
            ("output_text.done", {"text": "Tea"}),
            ("output_item.done", {"item": {"type": "message", "content": [text("Tea")]}}),
            completed(TEA),
        ],
        # only ids, with another one in the last event
        [
            ("output_text.delta", {"item_id": "m", "delta": "Tea"}),
            completed(message(text("Tea"), id="n")),
        ],
    ],
)
def test_a_text_is_taken_once_wherever_it_is_said(said):
    assert spoken(events_of(*said)) == [("text", "", "Tea")]


@pytest.mark.parametrize(
    "said",
    [
        [("output_item.done", item("function_call", **CALL))],
        [completed(item("function_call", **CALL))],
        [
            ("output_item.added", item("function_call", **BEGUN)),
            ("function_call_arguments.done", {"output_index": 0, "arguments": '{"a":1}'}),
        ],
        [
            ("output_item.added", item("function_call", **BEGUN)),
            ("function_call_arguments.delta", {"output_index": 0, "delta": '{"a"'}),
            ("function_call_arguments.delta", {"output_index": 0, "delta": ":1}"}),
            ("function_call_arguments.done", {"output_index": 0, "arguments": '{"a":1}'}),
            ("output_item.done", item("function_call", **CALL)),
            ("function_call_arguments.delta", {"output_index": 0, "delta": "late"}),
        ],
        # its name comes only with the whole item
        [
            ("output_item.added", item("function_call")),
            ("function_call_arguments.delta", {"output_index": 0, "delta": '{"a":1}'}),
            ("output_item.done", item("function_call", **CALL)),
        ],
    ],
)
def test_a_call_is_taken_once_wherever_it_is_said(said):
    events = events_of(*said)
    assert spoken(events) == [("call", "tide", '{"a":1}')]
    assert events[0].id == "c1"


def test_free_text_and_a_call_without_an_id():
    called = item("custom_tool_call", name="p", input="x", namespace="n")
    events = events_of(("output_item.done", called))
    assert events[0] == Opened(0, "call", id="call_0", name="p", custom=True, namespace="n")
    assert spoken(events)[0][2] == "x"


def test_parts_of_a_thought_are_paragraphs_and_only_one_form_is_read():
    events = events_of(
        ("reasoning_summary_text.delta", {"output_index": 0, "summary_index": 0, "delta": "a"}),
        ("reasoning_summary_text.done", {"output_index": 0, "summary_index": 0, "text": "a"}),
        ("reasoning_text.delta", {"output_index": 0, "content_index": 0, "delta": "full"}),
        ("reasoning_summary_text.done", {"output_index": 0, "summary_index": 1, "text": "b"}),
        ("output_item.done", item("reasoning", summary=[{"text": "a"}], encrypted_content="s")),
    )
    assert spoken(events) == [("reasoning", "", "a\n\nb")]
    assert events[-2:] == [Sealed(0, '["","s"]'), Closed(0)]


def test_a_thought_as_a_whole():
    events = events_of(("output_item.done", item("reasoning", content=[{"text": "a"}])))
    assert events == [Opened(0, "reasoning"), Delta(0, "a"), Closed(0)]
    sealed = events_of(("output_item.done", item("reasoning", encrypted_content="s")))
    assert sealed == [Opened(0, "reasoning", summary=True), Sealed(0, '["","s"]'), Closed(0)]
    assert events_of(("output_item.done", item("reasoning", summary=[]))) == []


def test_sources_and_log_probabilities():
    place = {"output_index": 0, "content_index": 0}
    token = {"token": "Tea", "logprob": -0.1, "top_logprobs": []}
    cited = text("Tea", annotations=[CITATION])
    source = Cited(0, Citation("https://a", "A"))
    assert events_of(
        ("output_text.delta", {**place, "delta": "Tea", "logprobs": [token]}),
        ("output_text.annotation.added", {**place, "annotation": CITATION}),
        ("content_part.done", {**place, "part": cited}),
        ("output_item.done", message(cited)),
    ) == [Opened(0, "text"), Delta(0, "Tea", (Logprob("Tea", -0.1),)), source, Closed(0)]
    assert source in events_of(("output_item.done", message(cited)))


def test_items_that_only_the_last_event_has_are_added():
    done = message(text("Tea"), id="m")
    events = events_of(("output_item.done", done), completed(done, item("function_call", **CALL)))
    assert [kind for kind, _, _ in spoken(events)] == ["text", "call"]
    assert events[-1] == Finished("stop")


def test_another_item_at_the_place_of_one_that_is_not_done_is_not_taken_for_it():
    events = events_of(
        ("output_text.delta", {"output_index": 0, "item_id": "m", "delta": "Tea"}),
        completed(message(text("Wind"), id="n")),
    )
    assert spoken(events) == [("text", "", "Tea")]


def test_what_is_left_open_is_closed():
    events = events_of(("refusal.delta", {"delta": "No"}), ("incomplete", {"response": {}}))
    assert events[-2:] == [Closed(0), Finished("length")]
    assert events_of(("output_text.delta", {"delta": "x"}))[-1] == Closed(0)


@pytest.mark.parametrize(
    "said",
    [
        ("output_text.delta", {"delta": 1}),
        ("output_text.delta", {"delta": ""}),
        ("output_item.added", {"item": 1}),
        ("output_item.added", {"item": {"type": []}}),
        ("output_item.done", {"item": []}),
        ("output_item.done", {"item": {"type": {}}}),
        ("content_part.done", {"part": 1}),
        ("content_part.done", {"part": {"type": []}}),
        ("output_text.annotation.added", {"annotation": CITATION}),
        ("web_search_call.searching", {}),
        ("in_progress", {"response": {}}),
    ],
)
def test_what_says_nothing_is_ignored(said):
    assert events_of(said) == []


def test_the_name_of_an_event_will_do():
    decoder = CODECS.upstream.open_decoder()
    assert len(decoder.read("response.output_text.delta", {"delta": "x"})) == 2
    assert decoder.read(None, {"delta": "x"}) == []


def test_nothing_is_read_behind_an_end_that_only_the_name_of_the_event_tells():
    decoder = CODECS.upstream.open_decoder()
    opened = decoder.read("response.output_text.delta", {"output_index": 0, "delta": "Tea"})
    ended = decoder.read("response.completed", {"response": {"status": "completed"}})
    assert opened == [Opened(0, "text"), Delta(0, "Tea")]
    assert ended == [Closed(0), Finished("stop")]
    for kind, fields in (("output_item.done", message()), ("output_text.delta", {"delta": "x"})):
        assert decoder.read(None, {"type": f"response.{kind}", **fields}) == []
    assert decoder.end() == []


# ---- whole answers -------------------------------------------------------------------------------


def decode(body):
    return at_once(CODECS.upstream.decode_answer(body))


def sample(name):
    return decode((WIRE / f"{name}.json").read_bytes())[0]


def answer(*output, **fields):
    return decode(dumps({"status": "completed", "output": list(output), **fields}))[0]


def test_samples_of_whole_answers():
    assert sample("text") == Choice((Text(TEXT),))
    incomplete, refusal = sample("incomplete"), sample("refusal")
    assert (incomplete.finish, incomplete.detail) == ("length", "max_output_tokens")
    assert refusal.finish == "refusal" and isinstance(refusal.parts[0], Refusal)
    calls = sample("tools_parallel")
    assert calls.finish == "tools"
    assert [part.id for part in calls.parts] == ["call_tide1", "call_wind2"]
    thought = sample("reasoning").parts[0]
    assert thought.summary and "rs_gw01" in thought.opaque
    assert thought.text.startswith("The harbour")


def test_kinds_of_items():
    token = {"token": "x", "logprob": -0.5, "top_logprobs": [{"token": "y", "logprob": -1}]}
    found = answer(
        {"type": "reasoning", "summary": [], "content": [{"text": "a"}, {"text": "b"}]},
        {"type": "reasoning", "summary": []},
        message(text("x", annotations=[CITATION], logprobs=[token]), text(""))["item"],
        {"type": "web_search_call", "id": "ws"},
        {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "free"},
        {"type": "function_call", "id": "fc", "name": "f", "arguments": {"a": 1}, "namespace": "n"},
    )
    assert found == Choice(
        (
            Reasoning("a\n\nb"),
            Text("x", citations=(Citation("https://a", "A"),)),
            ToolCall("c", "p", "free", custom=True),
            ToolCall("fc", "f", '{"a":1}', namespace="n"),
        ),
        "tools",
        logprobs=(Logprob("x", -0.5, (Logprob("y", -1.0),)),),
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("max_output_tokens", "length"),
        ("content_filter", "filter"),
        ("steered", "length"),
        (1, "length"),
    ],
)
def test_incomplete_answers(reason, finish):
    found = answer(status="incomplete", incomplete_details={"reason": reason})
    assert found.finish == finish
    assert answer(status="incomplete", incomplete_details=None).finish == "length"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"output": {}}', b"\xff"])
def test_what_is_no_answer(body):
    with pytest.raises(Fault) as caught:
        decode(body)
    assert caught.value.condition is Condition.UPSTREAM_INVALID


def test_odd_output_is_read_leniently():
    assert (
        answer(1, None, {}, {"type": []}, message(1, {"text": 2})["item"], message()["item"]).parts
        == ()
    )


def test_what_json_cannot_say_again_is_left_out():
    call = b'{"type":"function_call","call_id":"a","name":"f","arguments":{"a":Infinity}}'
    tokens = b'[{"token":"x","logprob":-Infinity},{"token":"y","logprob":-2},{"token":1}]'
    part = b'{"type":"output_text","text":"xy","logprobs":%b}' % tokens
    message = b'{"type":"message","content":[%b]}' % part
    (choice,) = decode(b'{"output":[%b,%b]}' % (call, message))
    assert choice.parts == (ToolCall("a", "f", ""), Text("xy"))
    assert choice.logprobs == (Logprob("y", -2.0),)


def test_counts():
    count = CODECS.upstream.decode_count
    assert count(b'{"input_tokens": 7}') == 7
    for body in (b"[]", b'{"input_tokens": -1}', b"{}"):
        with pytest.raises(Fault):
            count(body)
