"""Which call a function's response answers."""

import time

from adapters.generate_content.decode_turns import NO_CALL, CallMatcher
from adapters.ir.parts import ToolCall

MANY = 20_000


def calls(*listed):
    made = CallMatcher()
    for given, name in listed:
        made.add(ToolCall(given, name, "{}"))
    return made


def test_an_id_decides_and_a_name_where_there_is_none():
    made = calls(("x", "f"), ("y", "f"), ("z", "g"))
    assert made.answer("f", "y")[0] == 1
    assert made.answer("f", "")[0] == 0
    assert made.answer("f", "") == (NO_CALL, None)
    assert made.answer("f", "z")[1].name == "g"


def test_an_unknown_id_leaves_the_name():
    made = calls(("x", "f"))
    assert made.answer("f", "unknown")[0] == 0
    assert made.answer("f", "x") == (NO_CALL, None)


def test_a_response_without_either_is_of_the_first_that_is_open():
    made = calls(("x", "f"), ("y", "g"))
    made.answer("f", "x")
    assert made.answer("", "")[0] == 1
    assert made.answer("", "") == (NO_CALL, None)


def test_many_are_matched_at_once():
    made = calls(*((f"i{number}", "f") for number in range(MANY)))
    begun = time.perf_counter()
    for number in reversed(range(MANY)):
        assert made.answer("f", f"i{number}")[0] == number
    assert made.answer("f", "") == (NO_CALL, None)
    assert time.perf_counter() - begun < 2
