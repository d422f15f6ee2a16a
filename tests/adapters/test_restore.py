"""Restoring of answers to the form that the client requested, whole and streamed, for any cut."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.family.codec import Encoded
from adapters.family.opaque import Origin, unwrap
from adapters.ir.answer import Choice, Closed, Delta, Finished, Logprob, Opened, Sealed
from adapters.ir.parts import Reasoning, Refusal, Text, ToolCall
from adapters.ir.request import Tool
from adapters.json.structure import at_once
from adapters.restore import Restorer, free_text
from tests.adapters.builders import slot

ORIGIN = Origin("messages", "mark", b"k" * 32, "user")
PATCH = Tool("custom", "apply_patch")
SPACED = Tool("function", "get.weather:now", namespace="weather")


def encoded(**fields):
    return Encoded(b"", **fields)


def whole(choice, **fields):
    return at_once(Restorer(encoded(**fields), ORIGIN, "A1").choice(choice))


def streamed(events, **fields):
    restorer = Restorer(encoded(**fields), ORIGIN, "A1")
    return [out for event in events for out in restorer.events([event])]


def text_of(events, number=0):
    return "".join(one.text for one in events if isinstance(one, Delta) and one.slot == number)


def opened_of(events):
    return [one for one in events if isinstance(one, Opened)]


@pytest.mark.parametrize(
    ("said", "parts", "finish"),
    [
        ("stop", (Text("a"),), "stop"),
        ("stop", (Text("a"), ToolCall("1", "f", "{}")), "tools"),
        ("tools", (Text("a"),), "stop"),
        ("stop", (Refusal("no"),), "refusal"),
        ("length", (ToolCall("1", "f", '{"a'),), "length"),
        ("filter", (ToolCall("1", "f", "{}"),), "filter"),
        ("pause", (), "pause"),
    ],
)
def test_the_finish_says_what_the_answer_has(said, parts, finish):
    assert whole(Choice(parts, said)).finish == finish
    kinds = {Text: "text", ToolCall: "call", Refusal: "refusal"}
    events = [event for n, part in enumerate(parts) for event in slot(n, kinds[type(part)], "x")]
    assert streamed([*events, Finished(said)])[-1].finish == finish


def test_names_of_tools_are_the_clients():
    names = {"get_weather_now": SPACED}
    call = whole(Choice((ToolCall("1", "get_weather_now", "{}"),), "tools"), names=names).parts[0]
    assert call == ToolCall("1", "get.weather:now", "{}", namespace="weather")
    [opened] = opened_of(streamed(slot(0, "call", "{}", id="1", name="get_weather_now"),
                                  names=names))  # fmt: skip
    assert (opened.id, opened.name, opened.namespace) == ("1", "get.weather:now", "weather")
    other = ToolCall("1", "unknown", "{}")
    assert whole(Choice((other,)), names=names).parts == (other,)


def test_free_text_tools_get_their_text():
    names, wrapped = {"apply_patch": PATCH}, '{"input": "*** Begin\\n"}'
    call = whole(Choice((ToolCall("1", "apply_patch", wrapped),)), names=names).parts[0]
    assert (call.arguments, call.custom) == ("*** Begin\n", True)
    events = streamed(slot(0, "call", *wrapped, id="1", name="apply_patch"), names=names)
    assert opened_of(events)[0].custom
    assert [type(one) for one in events] == [Opened, Delta, Closed]
    assert text_of(events) == "*** Begin\n"
    # an upstream that has custom tools itself
    native = slot(0, "call", "*** ", "Begin", id="1", name="apply_patch", custom=True)
    assert text_of(streamed(native, names=names)) == "*** Begin"


@pytest.mark.parametrize("odd", ["", "no json", "[]", '{"input": 5}', '{"other": "x"}'])
def test_what_is_no_free_text_stays_as_it_is(odd):
    assert free_text(odd) == odd


def test_structured_output_that_came_as_a_tool_is_text():
    call = ToolCall("1", "respond", '{"cups": 3}')
    choice = whole(Choice((call,), "tools"), output_tool="respond")
    assert (choice.parts, choice.finish) == ((Text('{"cups": 3}'),), "stop")
    called = slot(0, "call", '{"cups"', ": 3}", id="1", name="respond")
    events = streamed([*called, Finished("tools")], output_tool="respond")
    assert opened_of(events) == [Opened(0, "text")] and text_of(events) == '{"cups": 3}'
    assert events[-1].finish == "stop"


def test_a_call_without_a_name_is_no_structured_output():
    assert whole(Choice((ToolCall("1", "", "{}"),))).parts == (ToolCall("1", "", "{}"),)
    assert opened_of(streamed(slot(0, "call", "{}")))[0].kind == "call"


def test_opaque_state_is_wrapped():
    choice = whole(Choice((Reasoning("hm", opaque="s"), Reasoning("hm"))))
    assert unwrap(choice.parts[0].opaque, ORIGIN) == "s" and choice.parts[1].opaque == ""
    [_, sealed, _] = streamed([Opened(0, "reasoning"), Sealed(0, "s"), Closed(0)])
    assert unwrap(sealed.opaque, ORIGIN) == "s"


def test_text_ends_where_a_stop_sequence_stands():
    choice = whole(Choice((Text("one END two"), Text("three")), "length"), cut=("END",))
    assert choice.parts == (Text("one "),)
    assert (choice.finish, choice.stop_sequence) == ("stop_sequence", "END")
    events = [
        *slot(0, "text", "one EN", "D two", " more"),
        *slot(1, "text", "three"),
        *slot(2, "call", "{}", name="f"),
        Finished("tools"),
    ]
    stopped = Finished("stop_sequence", stop_sequence="END")
    assert streamed(events, cut=("END",)) == [*slot(0, "text", "one "), stopped]


def test_other_choices_and_thoughts_are_not_cut():
    events = [*slot(0, "reasoning", "an END"), *slot(1, "text", "a END"),
              *slot(2, "text", "b", choice=1)]  # fmt: skip
    out = streamed(events, cut=("END",))
    assert (text_of(out), text_of(out, 1), text_of(out, 2)) == ("an END", "a ", "b")


def test_what_may_begin_a_stop_sequence_is_held_and_comes_at_the_end():
    out = streamed(slot(0, "text", "a E", "N"), cut=("END",))
    assert out == slot(0, "text", "a ", "EN")
    # An empty sequence stops nothing.
    assert text_of(streamed(slot(0, "text", "ab"), cut=("",))) == "ab"


STOPS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)


def first_stop(text, stops):
    """Return the text before the stop sequence that is complete first (of two the longer), and the
    sequence."""
    ends = [(end, end - len(stop), stop) for end in range(len(text) + 1) for stop in stops
            if text[:end].endswith(stop)]  # fmt: skip
    return (text[: min(ends)[1]], min(ends)[2]) if ends else (text, None)


@settings(max_examples=300, deadline=None)
@given(st.text("abcd", max_size=30), STOPS, st.integers(0, 2**32))
def test_the_cut_is_the_same_for_any_split(text, stops, seed):
    rng = random.Random(seed)
    at = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 6)))
    pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
    out = streamed([*slot(0, "text", *pieces), Finished("stop")], cut=tuple(stops))
    shown, found = first_stop(text, stops)
    assert (text_of(out), out[-1].stop_sequence) == (shown, found)
    choice = whole(Choice((Text(text),)), cut=tuple(stops))
    assert (choice.parts[0].text, choice.stop_sequence) == (shown, found)


def test_only_plain_text_and_thoughts_may_be_repeated():
    restorer = Restorer(encoded(names={"apply_patch": PATCH}), ORIGIN, "A1")
    restorer.events([Opened(0, "text"), Opened(1, "reasoning"), Opened(2, "call", name="f")])
    may = [restorer.repeats(Delta(number, "x")) for number in range(4)]
    assert may == [True, True, False, False]
    assert not restorer.repeats(Closed(0))
    assert not restorer.repeats(Delta(0, "x", (Logprob("x", -1.0),)))
    cutting = Restorer(encoded(cut=("END",)), ORIGIN, "A1")
    cutting.events([Opened(0, "text")])
    assert not cutting.repeats(Delta(0, "x"))


def test_calls_get_ids_that_no_other_call_has():
    calls = [ToolCall(call_id, "f", "{}") for call_id in ("", "", "c", "c")]
    whole = at_once(Restorer(encoded(), ORIGIN, "A1").choice(Choice(tuple(calls), "tools")))
    ids = [part.id for part in whole.parts]
    assert ids == ["call_A1_0", "call_A1_1", "c", "call_A1_3"]
    restorer = Restorer(encoded(names={"f": PATCH}), ORIGIN, "A1")
    opened = [Opened(slot, "call", id=call.id, name="f") for slot, call in enumerate(calls)]
    assert [event.id for event in restorer.events(opened)] == ids
