"""Counting and searching in slices gives the same result as all at once, wherever the slices
end."""

import json
import random

import pytest

from adapters.json import structure
from adapters.json.jsonio import MAX_VALUES, top_level
from adapters.json.structure import MAX_FIELDS, at_once, fields_of, has_more_values
from tests.adapters.json.odd_bodies import encoded, large_requests, longest_step_s, odd_bodies

TEXTS = ["", "a", '"', "\\", '\\"', "{}", "[,", "],", "é", "漢字", "x" * 40, "\n"]
TEXTS += ["\\" * 9, '"' * 9]


@pytest.fixture(params=[2, 3, 7, 50, 32_768])
def small_slices(request, monkeypatch):
    monkeypatch.setattr(structure, "SLICE_BYTES", request.param)


def random_value(rng, depth=0):
    kind = rng.randrange(7 if depth < 5 else 4)
    if kind < 2:
        return "".join(rng.choices(TEXTS, k=rng.randrange(4)))
    if kind < 4:
        return rng.choice([None, True, 0, -1.5e10, 123456789])
    size = rng.randrange(4)
    if kind < 6:
        return [random_value(rng, depth + 1) for _ in range(size)]
    return {f"{n}{rng.choice(TEXTS)}": random_value(rng, depth + 1) for n in range(size)}


def random_objects(count):
    rng = random.Random(20261123)
    for _ in range(count):
        fields = {f"{n}{rng.choice(TEXTS)}": random_value(rng) for n in range(rng.randrange(6))}
        indent = rng.choice([None, None, 1, 4])
        text = json.dumps(fields, indent=indent, ensure_ascii=rng.random() < 0.5)
        yield fields, rng.choice(["", " ", "\r\n "]) + text + rng.choice(["", "\n", "  \t"])


def values_in(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_in, inner))


def test_places_of_fields(monkeypatch):
    for size in (60, 64, 100, 1000):
        monkeypatch.setattr(structure, "SLICE_BYTES", size)
        for _, text in random_objects(400):
            body = text.encode()
            found = at_once(fields_of(body))
            assert found is not None, (size, body)
            spans = top_level(body)
            assert [json.loads(field.name) for field in found] == list(spans.places)
            places = [(field.start, field.end) for field in found]
            assert places == [(span.start, span.end) for span in spans.places.values()]


def test_values_are_counted_wherever_slices_end(small_slices, monkeypatch):
    monkeypatch.setattr(structure, "_COUNTED_AT_ONCE_BYTES", 64)
    for fields, text in random_objects(300):
        body, count = text.encode(), values_in(fields)
        # An empty object or array counts as one value more than it contains.
        assert not at_once(has_more_values(body, 2 * count + 1))
        assert at_once(has_more_values(body, count - 1)) or count < 2


@pytest.mark.parametrize("text", [
    "", " ", "[]", "1", '"a"', "{", '{"a":1', '{"a":1,', '{"a"}', '{"a":}', '{"a":1}}', '{"a":1},1',
    '{"a":1}{"b":1}', '{"a":"', '{"a":"\\', "{]", '{"a" 1}', "{1:1}", '{"a":1,}', "}", '{"a":[}',
    "{,}", "{" + ",".join(f'"{n}":0' for n in range(MAX_FIELDS + 1)) + "}",
])  # fmt: skip
def test_what_is_no_object_has_no_fields(text):
    assert not at_once(fields_of(text.encode())) or text == '{"a":[}'


def test_empty_objects():
    assert at_once(fields_of(b"{}")) == [] == at_once(fields_of(b" { \n} "))


def test_no_step_is_long():
    """In CPU time of the thread, which the machine's load does not affect."""
    for name, body in odd_bodies(4 << 20):
        for steps in (
            lambda body=body: has_more_values(body, MAX_VALUES),
            lambda body=body: fields_of(body),
        ):
            assert longest_step_s(steps, enough_s=0.04) < 0.05, name


def test_real_requests_have_few_values():
    for name, messages, tools in large_requests():
        body = encoded(messages, tools)
        assert not at_once(has_more_values(body, MAX_VALUES // 2)), name
        top_level(body)


def test_json_of_commas_in_strings_is_counted_exactly():
    body = json.dumps({"model": "m", "text": "," * 3_000_000}).encode()
    assert not at_once(has_more_values(body, 10))
