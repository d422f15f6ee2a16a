"""Parts of content blocks: call ids, arguments, citations, thoughts, and the removal of foreign
ones."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.ir.parts import Citation
from adapters.json.jsonio import dumps, top_level
from adapters.messages import parts
from tests.adapters.messages.calls import assistant, text, user

CODECS = CODECS_BY_FAMILY["messages"]


def test_fit_ids_and_what_only_looks_like_ours_stay():
    assert parts.fit_id("toolu_01A-b") == "toolu_01A-b"
    for odd in ("gw_", "gw_!", "gw_AB", "gw_dG9vbA", "gw__w", "toolu_01A-b"):
        assert parts.original_id(odd) == odd


@given(st.text(min_size=1))
@settings(max_examples=200, deadline=None)
def test_every_id_comes_back(call_id):
    fit = parts.fit_id(call_id)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", fit)
    assert parts.original_id(fit) == call_id


def test_only_sources_on_the_web_come_back():
    citation = Citation("https://example.com", "T", quoted="q")
    assert parts.decode_citations([parts.encode_citation(citation)]) == (citation,)
    odd = [
        7,
        {"type": "page_location", "url": "u"},
        {"type": "web_search_result_location", "url": 7},
        {"type": "web_search_result_location", "url": "u", "title": 7, "cited_text": None},
        {"type": "search_result_location", "source": "s"},
    ]
    assert parts.decode_citations(odd) == (Citation("u"), Citation("s"))
    assert parts.decode_citations("x") == ()


ANY = st.text(st.characters())  # includes lone surrogates, which vendors have sent


@given(ANY, ANY)
@settings(max_examples=100, deadline=None)
def test_every_thought_comes_back(thinking, signature):
    thought = {"type": "thinking", "thinking": thinking, "signature": signature}
    assert parts.thought_of(parts.sealed_thought(thinking, signature)) == thought
    assert parts.thought_of(parts.sealed_data(signature)) == {
        "type": "redacted_thinking",
        "data": signature,
    }


def test_what_is_no_thought():
    for odd in ("", "c2ln", "7", "[]", "{}", '{"type":"text"}', '{"type":"thinking"}', "\ud800"):
        assert parts.thought_of(odd) is None
    assert parts.thought_of('{"type":"redacted_thinking","data":7}') is None


OURS = {"type": "thinking", "thinking": "hm", "signature": "gw1.chat_completions.m.eA.AAAA"}
THEIRS = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": parts.UNSIGNED}
CALL = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
RESULT = user({"type": "tool_result", "tool_use_id": "t"})
HELLO = {"role": "user", "content": "Is gw1. a prefix?"}
BUDGET = {"type": "enabled", "budget_tokens": 2000}
A = text("a")


def cleaned(*messages, **fields):
    body = dumps({"model": "m", "messages": list(messages), **fields})
    return json.loads(CODECS.client.without_foreign(top_level(body), "up"))


def test_a_body_without_any_keeps_its_bytes():
    for fields in ({}, {"messages": "x"}, {"messages": []}):
        body = dumps({"model": "m", **fields})
        assert CODECS.client.without_foreign(top_level(body), "up") is body
    messages = [HELLO, assistant(text("gw1."), THEIRS), {"role": "user", "content": "gw1."}]
    body = dumps({"messages": messages})
    assert CODECS.client.without_foreign(top_level(body), "up") == body


def test_thoughts_and_sources_of_others_are_taken_out():
    ours, theirs = (
        parts.encode_citation(Citation("u")),
        {"type": "web_search_result_location", "url": "v"},
    )
    cited = text("a", citations=[ours, theirs]), text("a", citations=[ours])
    found = cleaned(HELLO, assistant(OURS, HIDDEN, THEIRS, A, *cited), assistant(OURS), HELLO)
    left = assistant(THEIRS, A, text("a", citations=[theirs]), A)
    assert found["messages"] == [HELLO, left, HELLO]
    odd = [7, "gw1.", {"content": "gw1."}, assistant("gw1.", 7)]  # passed to the vendor unchanged
    assert cleaned(*odd)["messages"] == odd


@pytest.mark.parametrize(
    ("messages", "off"),
    [
        ([HELLO, assistant(OURS, CALL), RESULT], True),
        ([HELLO, assistant(OURS, CALL), RESULT, assistant(CALL), RESULT], True),
        ([HELLO, assistant(OURS, CALL), RESULT, {"role": "user", "content": "b"}], False),
        ([HELLO, assistant(OURS, A), HELLO], False),
        ([HELLO, assistant(THEIRS, CALL), RESULT], False),
    ],
)
def test_thinking_by_a_budget_is_off_while_a_round_of_tools_has_lost_its_thoughts(messages, off):
    found = cleaned(*messages, thinking=BUDGET)
    assert found["thinking"] == ({"type": "disabled"} if off else BUDGET)
    adaptive = {"type": "adaptive"}
    assert cleaned(*messages, thinking=adaptive)["thinking"] == adaptive


def test_a_body_without_any_thoughts():
    hidden = {"type": "redacted_thinking", "data": "zz"}
    messages = [HELLO, assistant(THEIRS, hidden, A), HELLO, assistant(THEIRS, CALL), RESULT]
    body = dumps({"messages": messages, "thinking": BUDGET})
    assert json.loads(parts.without_reasoning(top_level(body), "up")) == {
        "messages": [HELLO, assistant(A), HELLO, assistant(CALL), RESULT],
        "thinking": {"type": "disabled"},
    }
    plain = dumps({"messages": [HELLO, assistant(A)]})
    assert parts.without_reasoning(top_level(plain), "up") == plain
