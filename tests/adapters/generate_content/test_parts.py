"""State of other families passed through clients, and its removal; calls and their results."""

import base64
import json
import time

import pytest

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.family.opaque import PREFIX, Origin, wrap
from adapters.faults import Fault
from adapters.generate_content.decode_turns import NO_CALL, CallMatcher
from adapters.generate_content.parts import BYPASS
from adapters.ir.answer import Choice
from adapters.ir.parts import Reasoning, Text, ToolCall
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from store.values.usage import Usage
from tests.adapters.generate_content.calls import CONTEXT, USER, decoded

CODECS = CODECS_BY_FAMILY["generate_content"]

WRAPPED = wrap("value", Origin("messages", "mark", b"secret", "user"))
OURS = base64.b64encode(WRAPPED.encode()).decode()
NATIVE = base64.b64encode(b"a vendor's own").decode()
CALL = {"functionCall": {"name": "f", "args": {"x": 1.0}}}


def cleaned(body, model="gemini-3-pro"):
    return CODECS.client.without_foreign(top_level(body), model)


def test_the_mark_is_how_wrapped_state_begins():
    for text in (WRAPPED, PREFIX + "a", PREFIX + "z", PREFIX + "_"):
        begin = base64.b64encode(text.encode())
        assert begin.startswith(CODECS.client.foreign_mark)


def test_contents_without_any_stay_byte_for_byte():
    head = b'{ "x" :1, "contents": [ {"parts":[{"text":"\\u00e9 \xc3\xa9"}] } ,\n'
    ours = b'{"parts":[{"text":"a","thoughtSignature":"%b"}]}' % OURS.encode()
    tail = b' , {"parts":[{"thoughtSignature": "%b","text":"b"}]}], "y":1e2}' % NATIVE.encode()
    assert cleaned(head + ours + tail) == head + b'{"parts":[{"text":"a"}]}' + tail
    body = b'{"contents":[]}'
    assert cleaned(body) is body


A, SIGNED_A, EMPTY = {"text": "a"}, {"text": "a", "thoughtSignature": OURS}, {"text": ""}
FOREIGN, OWN = {**EMPTY, "thoughtSignature": OURS}, {**CALL, "thoughtSignature": NATIVE}
URL_SAFE = OURS.replace("+", "-").replace("/", "_").rstrip("=")


@pytest.mark.parametrize(
    ("parts", "model", "left"),
    [
        *(
            ([{**CALL, name: URL_SAFE}], model, [part])
            for name in ("thoughtSignature", "thought_signature")
            for model, part in (
                ("gemini-3-pro", {**CALL, "thoughtSignature": BYPASS}),
                ("models/gemini-2.5-flash", CALL),
            )
        ),
        ([A, FOREIGN], "gemini-3-pro", [A]),
        ([FOREIGN], "gemini-3-pro", [EMPTY]),
        ([FOREIGN, FOREIGN], "gemini-3-pro", [EMPTY]),
        ([OWN, SIGNED_A], "gemini-3-pro", [OWN, A]),
    ],
)
def test_foreign_state_is_removed(parts, model, left):
    body = json.dumps({"contents": [{"role": "model", "parts": parts}]}).encode()
    assert json.loads(cleaned(body, model)) == {"contents": [{"role": "model", "parts": left}]}


@pytest.mark.parametrize(
    ("model", "left"),
    [("gemini-3-pro", {**CALL, "thoughtSignature": BYPASS}), ("gemini-2.5-pro", CALL)],
)
def test_without_any_reasoning_the_vendors_own_go_too(model, left):
    spans = top_level(json.dumps({"contents": [{"parts": [OWN]}, {}]}).encode())
    body = json.loads(CODECS.client.without_reasoning(spans, model))
    assert body["contents"] == [{"parts": [left]}, {}]


@pytest.mark.parametrize("name", ["generateContentRequest", "generate_content_request"])
def test_a_request_that_is_to_be_counted(name):
    parts = [{"text": "é", "thoughtSignature": OURS}, A]
    body = json.dumps({"a": 1, name: {"contents": [{"parts": parts}]}}, ensure_ascii=False)
    left = {"contents": [{"parts": [{"text": "é"}, A]}]}
    assert json.loads(cleaned(body.encode())) == {"a": 1, name: left}


@pytest.mark.parametrize(
    "contents",
    [
        b"7",
        b'["Z3cxL"]',
        b'[{"parts":"Z3cxL"}]',
        b'[{"parts":[{"text":"Z3cxL"}]}]',
        b'[{"parts":[{"thoughtSignature":"Z3cxL"},{"thoughtSignature":1}]}]',
    ],
)
def test_odd_contents_stay(contents):
    body = b'{"contents":%b}' % contents
    assert json.loads(cleaned(body)) == json.loads(body)


def test_a_number_out_of_range_is_refused():
    body = b'{"contents":[{"parts":[{"text":"Z3cxL","x":1e999}]}]}'
    with pytest.raises(Fault):
        cleaned(body)


# ---- state of other families through clients of this one ----------------------------------------

HM, SO = Reasoning("Hm.", True, "gw1.a"), Reasoning("So.", True, "gw1.b")
WORD, TOOL_CALL = Text("t"), ToolCall("x", "f", "{}")


@pytest.mark.parametrize("keeps_thoughts", [True, False])
@pytest.mark.parametrize(
    "parts",
    [(HM, WORD, TOOL_CALL), (HM, WORD, SO, TOOL_CALL), (HM, SO, WORD), (WORD, HM, TOOL_CALL, SO)],
)
def test_state_of_others_comes_back_also_from_clients_that_drop_thoughts(parts, keeps_thoughts):
    body = at_once(CODECS.client.encode_answer((Choice(parts),), Usage(), CONTEXT))
    sent = json.loads(body)["candidates"][0]["content"]["parts"]
    sent = [part for part in sent if keeps_thoughts or not part.get("thought")]
    read = decoded({"contents": [USER, {"role": "model", "parts": sent}]}).turns[1].parts
    if keeps_thoughts:
        assert read == parts
    assert states(read) == states(parts)
    assert [part for part in read if part in (WORD, TOOL_CALL)] == [
        part for part in parts if part in (WORD, TOOL_CALL)
    ]


def states(parts):
    return [part.opaque for part in parts if isinstance(part, Reasoning)]


# ---- calls and their results ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "responses"),
    [
        (["x:f", "y:f", "z:g"], [("f", "y", 1), ("f", "", 0), ("f", "", None), ("f", "z", 2)]),
        (["x:f"], [("f", "unknown", 0), ("f", "x", None)]),
        (["x:f", "y:g"], [("f", "x", 0), ("", "", 1), ("", "", None)]),
    ],
    ids=["an_id_decides", "an_unknown_id_leaves_the_name", "the_first_that_is_open"],
)
def test_responses_find_their_calls(calls, responses):
    matcher = CallMatcher()
    added = [ToolCall(*each.split(":"), "{}") for each in calls]
    for call in added:
        matcher.add(call)
    for name, call_id, place in responses:
        expected = (NO_CALL, None) if place is None else (place, added[place])
        assert matcher.answer(name, call_id) == expected


def test_many_are_matched_at_once():
    matcher = CallMatcher()
    for number in range(20_000):
        matcher.add(ToolCall(f"i{number}", "f", "{}"))
    begun = time.perf_counter()
    for number in reversed(range(20_000)):
        assert matcher.answer("f", f"i{number}")[0] == number
    assert matcher.answer("f", "") == (NO_CALL, None)
    assert time.perf_counter() - begun < 2
