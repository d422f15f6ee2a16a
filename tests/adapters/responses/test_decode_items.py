"""Items of the input become turns."""

import time

import pytest

from adapters.faults import Condition, Fault
from adapters.ir.parts import Hosted, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from tests.adapters.responses.calls import asked_for, decoded


def message(role, text):
    return {"type": "message", "role": role, "content": text}


def call(call_id, name="f", **more):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **more}


def output(call_id, text="done"):
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def answer(call_id, text="done"):
    return ToolResult(call_id, (Text(text),))


USER = message("user", "Tide?")


def test_neighbours_of_one_role_are_one_turn():
    items = [
        {"role": "developer", "content": "One."},
        message("system", [{"type": "input_text", "text": "Two."}]),
        {"role": "user", "content": "Tide?"},
        message("user", "And wind?"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        message("assistant", [{"type": "output_text", "text": "Yes."}]),
        call("a", namespace="sea"),
        message("assistant", [{"type": "refusal", "refusal": "No."}]),
    ]
    request = decoded(items, instructions="Zero.")
    assert request.system == (Text("Zero."), Text("One."), Text("Two."))
    assert request.turns == (
        Turn("user", (Text("Tide?"), Text("And wind?"))),
        Turn(
            "assistant",
            (
                Reasoning("Hm.", summary=True),
                Text("Yes."),
                ToolCall("a", "f", "{}", namespace="sea"),
                Refusal("No."),
            ),
        ),
    )
    assert asked_for(request) == {"prefill": "input"}


def test_results_stand_together_in_the_order_of_the_calls():
    items = [USER, call("a"), call("b"), message("user", "Quick."), output("b", "B"), output("a")]
    turns = decoded(items).turns
    assert turns[2] == Turn("user", (answer("a"), answer("b", "B"), Text("Quick.")))


def test_calls_one_after_the_other_stay_so():
    turns = decoded([USER, call("a"), output("a"), call("b"), output("b")]).turns
    assert [turn.role for turn in turns] == ["user", "assistant", "user", "assistant", "user"]


def test_a_late_result_goes_behind_its_call():
    items = [
        *(USER, call("a"), message("system", "Hush."), message("assistant", "Wait.")),
        *(message("user", "Well?"), output("a")),
    ]
    request = decoded(items)
    assert [turn.role for turn in request.turns] == [
        *("user", "assistant", "user", "system", "assistant", "user")
    ]
    assert request.turns[2].parts == (answer("a"),)
    assert asked_for(request) == {"system_turn": "input[2]"}


def test_a_result_of_no_call_is_kept_for_the_upstream_to_say():
    assert decoded([USER, output("x")]).turns == (Turn("user", (answer("x"), Text("Tide?"))),)


def test_custom_tools():
    items = [
        USER,
        {"type": "custom_tool_call", "call_id": "p", "name": "patch", "input": "*** Begin"},
        {
            "type": "custom_tool_call_output",
            "call_id": "p",
            "output": [{"type": "refusal", "refusal": "x"}],
        },
    ]
    turns = decoded(items).turns
    assert turns[1].parts == (ToolCall("p", "patch", "*** Begin", custom=True),)
    assert turns[2].parts == (ToolResult("p", (Text("x"),), custom=True),)


def test_encrypted_reasoning_keeps_its_text():
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [
            {"type": "reasoning_text", "text": "a"},
            {"type": "reasoning_text", "text": "b"},
        ],
        "encrypted_content": "gw1.x",
    }
    turns = decoded([USER, item, message("assistant", "Yes."), USER]).turns
    assert turns[1].parts[0] == Reasoning("a\n\nb", opaque="gw1.x")


def test_items_of_the_vendors_own_tools():
    items = [USER, {"type": "web_search_call", "id": "ws"}, {"type": "shell_call_output"}, USER]
    request = decoded(items)
    assert request.turns[1].parts == (Hosted("web_search_call", items[1], "input[1]"),)
    assert request.turns[2].parts[0] == Hosted("shell_call_output", items[2], "input[2]")
    assert [(ask.feature, ask.path) for ask in request.asks] == [
        ("hosted_history", "input[1]"),
        ("hosted_history", "input[2]"),
    ]


@pytest.mark.parametrize(
    "kind", ["item_reference", "compaction", "additional_tools", "of_tomorrow"]
)
def test_items_that_stand_for_what_the_vendor_has(kind):
    assert asked_for(decoded([USER, {"type": kind, "id": "x"}])) == {"stored_state": "input[1]"}


def test_a_stored_thought_is_left_out():
    request = decoded([USER, {"type": "item_reference", "id": "rs_1"}, call("a"), output("a")])
    assert asked_for(request) == {"other": "input[1]"}
    assert len(request.turns) == 3


@pytest.mark.parametrize(
    ("item", "param", "condition"),
    [
        (1, "input[0]", Condition.INVALID_FIELD),
        ({"type": 1}, "input[0].type", Condition.INVALID_FIELD),
        ({"content": "x"}, "input[0].role", Condition.FIELD_MISSING),
        (message("king", "x"), "input[0].role", Condition.INVALID_FIELD),
        (message("user", 1), "input[0].content", Condition.INVALID_FIELD),
        (message("user", [1]), "input[0].content[0]", Condition.INVALID_FIELD),
        (call(None), "input[0].call_id", Condition.FIELD_MISSING),
        (call("a", name=2), "input[0].name", Condition.INVALID_FIELD),
        ({"type": "function_call_output"}, "input[0].call_id", Condition.FIELD_MISSING),
        (
            {"type": "reasoning", "summary": "x", "encrypted_content": 1},
            "input[0].encrypted_content",
            Condition.INVALID_FIELD,
        ),
    ],
)
def test_a_wrong_item_is_named(item, param, condition):
    with pytest.raises(Fault) as caught:
        decoded([item])
    assert (caught.value.condition, caught.value.param) == (condition, param)


def test_many_late_results_cost_little():
    calls = [one for i in range(4000) for one in (call(f"c{i}"), message("system", "x"))]
    started = time.process_time()
    turns = decoded([USER, *calls, *(output(f"c{i}") for i in range(4000))]).turns
    assert sum(isinstance(turn.parts[0], ToolResult) for turn in turns) == 4000
    assert time.process_time() - started < 2
