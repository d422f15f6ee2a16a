"""A long answer is read like a short one, and its bytes pass unchanged except for the model's
name."""

import json

import pytest

from adapters import large_answers
from adapters.family import Operation
from adapters.family.estimate import output_units
from adapters.faults import Condition, Fault
from adapters.json.structure import at_once
from adapters.large_answers import LONG_FIELD_BYTES, read_large
from adapters.registry import FAMILIES
from tests.adapters.builders import fault_of, whole_answers
from tests.adapters.json.odd_bodies import filled, longest_step_s, string_of

PUBLIC, UPSTREAM = "public-name", "upstream-name"
LONG = "A harbour, “zwei” Pegel and 二つ. " * 4000
MODEL = {"generate_content": "modelVersion"}
ANSWERS = {
    family: {**fields, MODEL.get(family, "model"): UPSTREAM, usage: {read: 3, written: 5}}
    for family, (fields, (usage, read, written)) in whole_answers(LONG).items()
}
USAGE = {"generate_content": "usageMetadata"}
CREATE = Operation("/v1/some/endpoint")
GROUNDING = FAMILIES["generate_content"].upstream.long_marks
FAMILY = pytest.mark.parametrize("name", ANSWERS)


def reader(name, public=PUBLIC):
    return lambda body: FAMILIES[name].upstream.read_answer(body, public, UPSTREAM, CREATE)


@FAMILY
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("public", [PUBLIC, UPSTREAM])
@pytest.mark.parametrize("first", [True, False])
def test_it_says_the_same(name, indent, public, first):
    fields = list(ANSWERS[name].items())
    body = json.dumps(dict(fields if first else fields[::-1]), indent=indent).encode()
    read = reader(name, public)
    assert at_once(read_large(body, read)) == read(body)


def test_uses_of_hosted_tools_are_counted():
    items = [
        {"type": "file_search_call", "id": "a", "results": [{"text": LONG}]},
        {"type": "file_search_call", "id": "b"},
        *({"type": "code_interpreter_call", "container_id": name} for name in ("c", "c", "d")),
        {"type": "function_call", "container_id": None},
        {"type": "message", "content": [{"text": '"file_search_call" "container_id":"no"'}]},
    ]
    grounding = {
        "webSearchQueries": ["a]", 'b"\\\n[', ""],
        "groundingChunks": [{"maps": {"uri": "x"}}],
    }
    candidate = {**ANSWERS["generate_content"]["candidates"][0], "groundingMetadata": grounding}
    for name, fields, uses in (
        ("responses", {"output": items}, {"file_search": 2, "code_interpreter": 2}),
        ("generate_content", {"candidates": [candidate]}, {"web_search": 2, "maps": 1}),
    ):
        for indent in (None, 2):
            body = json.dumps({**ANSWERS[name], **fields}, indent=indent).encode()
            for end in (body, b" " * LONG_FIELD_BYTES + body):
                marks = FAMILIES[name].upstream.long_marks
                answer = at_once(read_large(end, reader(name), marks))
                assert answer == reader(name)(end) and dict(answer.usage.more) == uses


@FAMILY
def test_without_a_usage_it_is_weighed(name):
    fields = {n: v for n, v in ANSWERS[name].items() if n != USAGE.get(name, "usage")}
    body = json.dumps(fields, ensure_ascii=False).encode()
    answer = at_once(read_large(body, reader(name)))
    assert answer.usage is None
    assert answer.output_units == pytest.approx(output_units(LONG), rel=0.02)


@FAMILY
@pytest.mark.parametrize("body", [
    b"<html>" + b"x" * LONG_FIELD_BYTES, b"", b"[]", b"{}", b"{" * 2_000_000, b'{"a":1' * 1_000_000,
    b'{"choices":[' + b"{}," * 1_000_000, b'{"x":"' + b"\xff" * 1_000_000 + b'"}',
])  # fmt: skip
def test_what_is_no_answer(name, body):
    assert (
        fault_of(lambda: at_once(read_large(body, reader(name)))).condition
        is Condition.UPSTREAM_INVALID
    )


@FAMILY
def test_a_doubled_model_has_no_place(name):
    field = MODEL.get(name, "model").encode()
    body = json.dumps(ANSWERS[name]).encode().replace(b"{", b'{"%b":"x",' % field, 1)
    assert (
        fault_of(lambda: at_once(read_large(body, reader(name)))).condition
        is Condition.UPSTREAM_INVALID
    )


def test_many_short_fields_are_no_long_answer(monkeypatch):
    monkeypatch.setattr(large_answers, "SHORT_BYTES", 1000)
    fields = {f"f{n}": "x" * 500 for n in range(9)}
    body = json.dumps({**ANSWERS["chat_completions"], **fields}).encode()
    read = reader("chat_completions")
    assert at_once(read_large(body, read)) == read(body)


def slow_answers(size):
    begin, end = b'{"id":"c1","model":"m","choices":[', b"]}"
    for piece in (b"{},", b"[],", b"1,", b'"",', b" ", b"[{}],", b'{"message":{"content":"x"}},'):
        yield filled(piece, size, begin, b"{}" + end)
    for piece in (b'\\"', b"\\u0041", b"a", "é".encode(), "漢a".encode(), "😀".encode()):
        yield string_of(piece, size).replace(b'"messages"', b'"choices"')
    yield filled(b"[", size, begin, b"")
    yield filled(b"{},", size, begin, b"")
    for piece in (b'{"maps":1},', b'{"maps":{}},', b'{"webSearchQueries":["'):
        yield filled(piece, size, begin, b"{}" + end)


def test_no_step_is_long():
    bodies = list(slow_answers(8 << 20))
    assert bodies
    for body in bodies:
        longest_s = longest_step_s(
            lambda body=body: read_large(body, reader("chat_completions"), GROUNDING), (Fault,)
        )
        assert longest_s < 0.05, body[:60]
