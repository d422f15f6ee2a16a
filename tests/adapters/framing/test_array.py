"""Framing of a JSON array: elements, cuts, strings, sizes, garbage."""

import json
import random
import time

import pytest

from adapters.framing.array import FIRST_OBJECT, JsonArraySplitter
from adapters.framing.sse import RawPiece

TRICKY = [
    {"a": "]}[{,"},
    {"q": 'x"]', "b": "\\"},
    {"n": {"m": [[], {}, [{"z": "\\\\"}]]}},
    [],
    [1, "]", [2]],
    {"é\u2028": "\U0001f600", "e": ""},
]


def split(chunks, limit=1000):
    splitter = JsonArraySplitter(limit)
    pieces = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    return pieces, splitter


def pieces_of(data, size, limit=1000):
    return split([data[i : i + size] for i in range(0, len(data), size)], limit)[0]


@pytest.mark.parametrize("form", ["compact", "pretty", "raw"])
def test_elements_in_any_cut(form):
    given = {
        "compact": {"separators": (",", ":")},
        "pretty": {"indent": 2},
        "raw": {"ensure_ascii": False},
    }
    data = json.dumps(TRICKY, **given[form]).encode()
    pieces = split([data])[0]
    assert b"".join(pieces) == data and len(pieces) == len(TRICKY) + 1
    assert pieces[0].startswith(b"[") and pieces[-1].strip() == b"]"
    assert all(piece.startswith(b",") for piece in pieces[1:-1])
    texts = [piece.strip()[1:] for piece in pieces[:-1]]
    assert [json.loads(text) for text in texts] == TRICKY
    for size in range(1, len(data)):
        assert pieces_of(data, size) == pieces
    for at in range(len(data)):
        before, splitter = split([data[:at]])
        assert b"".join(before) + splitter.rest == data[:at]


def test_blanks_and_a_bom_belong_to_what_follows():
    data = b'\xef\xbb\xbf \r\n[ {"a":1} \n, {"b":2} \t]'
    expected = [b'\xef\xbb\xbf \r\n[ {"a":1}', b' \n, {"b":2}', b" \t]"]
    for size in range(1, len(data) + 1):
        assert pieces_of(data, size) == expected


def test_a_piece_comes_with_its_last_byte():
    splitter = JsonArraySplitter(100)
    assert splitter.empty and splitter.feed(b"") == []
    assert splitter.feed(b'[{"a":"x\\') == [] and not splitter.empty
    assert splitter.feed(b'"}') == [] and splitter.rest == b'[{"a":"x\\"}'
    assert splitter.feed(b'"}') == [b'[{"a":"x\\"}"}'] and splitter.empty
    assert splitter.feed(b"]") == [b"]"] and splitter.rest == b""


def test_an_empty_array_is_one_piece():
    assert split([b" [ ]"])[0] == [b" [ ]"]


def test_what_follows_the_end_is_passed_at_once():
    assert split([b"[{}]\n"])[0] == [b"[{}", b"]", b"\n"]
    assert split([b"[{}]", b"\n", b'["'])[0] == [b"[{}", b"]", b"\n", b'["']


def test_an_object_alone_is_one_piece():
    data = b' {"error":{"code":500,"list":[1]}}'
    for size in range(1, len(data) + 1):
        assert pieces_of(data, size) == [data]
    assert split([data + b"x"])[0] == [data, b"x"]


@pytest.mark.parametrize("data", [b"<html>[", b'"text"', b"data: {}", b"]", b"}", b"\xff"])
def test_what_is_no_array_is_passed_at_once(data):
    assert split([b" \n", data, b"more"])[0] == [b" \n" + data, b"more"]


def test_elements_that_are_no_objects_stand_before_the_next_end():
    assert split([b'[1,"]",null,{}', b",7]"])[0] == [b'[1,"]",null,{}', b",7]"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_oversized_element_passes_raw(size):
    small, big = b'{"a":1}', b'{"b":"' + b"]}\\\\" * 20 + b'"}'
    data = b"[" + small + b"," + big + b"," + small + b"]"
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    pieces, splitter = split(chunks, limit=20)
    assert b"".join(pieces) == data and splitter.rest == b"" and not splitter.oversized
    raw = [piece for piece in pieces if type(piece) is RawPiece]
    assert b"".join(raw) == b"," + big
    read = [piece for piece in pieces if type(piece) is not RawPiece]
    assert read == [b"[" + small, b"," + small, b"]"]


def test_oversized_until_it_ends():
    splitter = JsonArraySplitter(10)
    assert splitter.feed(b'[{"a":"012') == [] and not splitter.oversized
    assert splitter.feed(b"3") == [b'[{"a":"0123'] and splitter.oversized
    assert not splitter.empty and splitter.rest == b""
    assert splitter.feed(b'4"') == [b'4"'] and splitter.oversized
    assert splitter.feed(b"") == [] and splitter.oversized
    assert splitter.feed(b"},") == [b"}"] and not splitter.oversized
    assert splitter.rest == b","


def test_a_piece_of_exactly_the_limit_is_read():
    assert type(split([b'[{"a":12}'], limit=9)[0][0]) is bytes
    assert type(split([b'[{"a":123}'], limit=9)[0][0]) is RawPiece


def test_any_bytes_are_kept_and_cut_alike():
    rng = random.Random(5)
    alphabet = [b"[", b"]", b"{", b"}", b'"', b"\\", b",", b" ", b"\n", b"x", b"\xef\xbb\xbf"]
    for _ in range(3000):
        data = b"[" * rng.randint(0, 1) + b"".join(rng.choices(alphabet, k=rng.randint(1, 14)))
        at = rng.randint(0, len(data))
        for limit in (3, 1000):
            pieces, splitter = split([data[:at], data[at:]], limit)
            assert b"".join(pieces) + splitter.rest == data
        if data.lstrip(b" \n\xef\xbb\xbf").startswith((b"[", b"{")):
            # After the end, bytes pass as they come; up to it every cut gives the same elements.
            one, other = split([data])[0], split([bytes([byte]) for byte in data])[0]
            assert other[: len(one) - 1] == one[:-1]


@pytest.mark.parametrize("unit", [b"x", b'\\"', b"\\\\", b"[]"])
def test_the_work_does_not_grow_with_what_came_before(unit):
    """Scanning a long element from its start for each of its chunks would take minutes."""
    data = b'[{"a":"' + unit * (2_000_000 // len(unit)) + b'"}'
    began = time.process_time()
    assert pieces_of(data, 50, limit=10_000_000) == [data]
    assert time.process_time() - began < 10


def test_how_an_answer_begins():
    for good in (b"[{", b" \n[\r\n {", b"\xef\xbb\xbf[{"):
        assert FIRST_OBJECT.search(good)
    for bad in (b"[", b"{", b"[1,{", b"<[{", b"[["):
        assert not FIRST_OBJECT.search(bad)
