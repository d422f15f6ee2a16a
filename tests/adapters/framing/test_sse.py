"""Framing: events, line ends, cuts, sizes."""

import itertools
import random

import pytest

from adapters.framing import sse
from adapters.framing.sse import BEGIN_BYTES, BOM, begins_events, is_idle


def joined(pieces):
    """Return the pieces, with adjacent ones that contain no event joined."""
    runs = itertools.groupby(pieces, key=lambda piece: type(piece) is sse.IdlePiece)
    return [piece for idle, run in runs for piece in ([b"".join(run)] if idle else run)]


ENDS = [b"\n", b"\r\n", b"\r"]


def split(chunks, limit=1000):
    splitter = sse.EventSplitter(limit)
    pieces = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    return pieces, splitter


@pytest.mark.parametrize("end", ENDS)
def test_events_of_any_line_end_in_any_cut(end):
    events = [b"data: a" + end * 2, b": c" + end + b"data: b" + end * 2, b"event: x" + end * 2]
    data = b"".join(events)
    assert split([data])[0] == events
    for size in range(1, len(data)):
        chunks = [data[i : i + size] for i in range(0, len(data), size)]
        assert split(chunks)[0] == events
    for at in range(len(data)):
        pieces, splitter = split([data[:at]])
        assert b"".join(pieces) + splitter.rest == data[:at]


def test_mixed_line_ends_keep_every_byte():
    rng = random.Random(3)
    alphabet = [b"data: x", b"\r\n", b"\n", b"\r", b":", b"y"]
    for _ in range(3000):
        data = b"".join(rng.choices(alphabet, k=rng.randint(1, 12)))
        at = rng.randint(0, len(data))
        for limit in (3, 1000):
            pieces, splitter = split([data[:at], data[at:]], limit)
            assert b"".join(pieces) + splitter.rest == data
        whole = split([data])[0]
        bytewise = split([bytes([byte]) for byte in data])[0]
        assert joined(whole) == joined(bytewise) or b"\r" in data


def test_crlf_is_never_half_a_blank_line():
    assert split([b"data: a\r\ndata: b\r\n\r\n"])[0] == [b"data: a\r\ndata: b\r\n\r\n"]
    assert split([b"data: a\r", b"\ndata: b\r\n\r\n"])[0] == [b"data: a\r\ndata: b\r\n\r\n"]


def test_the_last_lf_of_crlf_belongs_to_its_event():
    splitter = sse.EventSplitter(100)
    assert splitter.feed(b"data: a\r\n\r") == []
    assert splitter.feed(b"\n") == [b"data: a\r\n\r\n"]
    assert splitter.feed(b"data: a\r\n\r") == []
    assert splitter.feed(b"data: b\n\n") == [b"data: a\r\n\r", b"data: b\n\n"]


def test_a_stream_of_crs_waits_for_nothing():
    assert split([b"data: a\r\r"])[0] == [b"data: a\r\r"]


def test_blank_lines_are_events_of_their_own_at_once():
    assert split([b"\n", b"\r\n", b"\r"])[0] == [b"\n", b"\r\n", b"\r"]
    assert split([b"data: a\n\n\ndata: b\n\n"])[0] == [b"data: a\n\n", b"\n", b"data: b\n\n"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("idle", [b"@", b": c@@", b":@: d@@", b"@@: c@@@:@@"])
def test_what_stands_between_events_is_one_piece(end, idle):
    idle, event = idle.replace(b"@", end), b"data: a" + end * 2
    pieces, splitter = split([idle * 1000 + event * 2 + idle * 1000 + b": of this" + end + event])
    assert pieces == [idle * 1000, event, event, idle * 1000, b": of this" + end + event]
    assert [type(piece) is sse.IdlePiece for piece in pieces] == [True, False, False, True, False]
    assert splitter.empty


@pytest.mark.parametrize(("more", "kind"), [(0, bytes), (1, sse.RawPiece)])
@pytest.mark.parametrize("item", [b"data: a\n", b"{}"])
def test_an_event_of_too_many_items_is_not_read(item, more, kind):
    lines = item.count(b"\n")  # the blank line counts too
    event = item * (sse.MAX_EVENT_ITEMS + more - lines) + b"\n" * (2 - lines)
    for size in (1 << 16, 1 << 20):
        chunks = [event[at : at + size] for at in range(0, len(event), size)]
        pieces, splitter = split(chunks, limit=1 << 20)
        assert pieces == [event] and type(pieces[0]) is kind and splitter.empty


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_oversized_event_passes_raw(end, size):
    small, big = b"data: a" + end * 2, b"data: " + b"b" * 40 + end + b"data: c" + end * 2
    data = small + big + small
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    pieces, splitter = split(chunks, limit=20)
    assert b"".join(pieces) == data and splitter.rest == b"" and not splitter.oversized
    raw = [piece for piece in pieces if type(piece) is sse.RawPiece]
    assert b"".join(raw) == big
    assert [piece for piece in pieces if type(piece) is not sse.RawPiece] == [small, small]


def test_oversized_until_it_ends():
    splitter = sse.EventSplitter(10)
    assert splitter.feed(b"data: 012") == [] and not splitter.oversized
    assert splitter.feed(b"3456789") == [b"data: 0123456789"] and splitter.oversized
    assert not splitter.empty and splitter.rest == b""
    assert splitter.feed(b"x\r\n") == [b"x\r\n"] and splitter.oversized
    assert splitter.feed(b"\r") == [b"\r"] and splitter.oversized
    assert splitter.feed(b"data: 1\n\n") == [b"data: 1\n\n"] and not splitter.oversized
    assert splitter.empty


def test_event_of_exactly_the_limit_is_read():
    assert type(split([b"data: 12\n\n"], limit=10)[0][0]) is bytes
    assert type(split([b"data: 123\n\n"], limit=10)[0][0]) is sse.RawPiece


@pytest.mark.parametrize("end", ENDS)
def test_fields(end):
    lines = [b": comment", b"event: name", b"id: 7", b"retry: 3", b"data: one", b"data:two", b""]
    assert sse.event_fields(end.join(lines) + end) == ("name", b"one\ntwo")


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (b"\xef\xbb\xbfdata: x\n\n", (None, b"x")),
        (b"data\n\n", (None, b"")),
        (b"data:\n\n", (None, b"")),
        (b"data:  x\n\n", (None, b" x")),
        (b"event: ping\n\n", ("ping", None)),
        (b"event\ndata: x\n\n", (None, b"x")),
        (b": only a comment\n\n", (None, None)),
        (b"\n", (None, None)),
        (b"", (None, None)),
        (b"data: x", (None, b"x")),
        (b"database: x\n\n", (None, None)),
        (b"event: \xff\ndata: x\n\n", ("\ufffd", b"x")),
    ],
)
def test_fields_of_odd_events(event, fields):
    assert sse.event_fields(event) == fields


def test_every_byte_of_the_data_has_a_place():
    for first, second, end in itertools.product(
        [b"data: ", b"data:", b"\xef\xbb\xbfdata:"], [b"data: ", b"data:"], ENDS
    ):
        event = b": x" + end + first + b"abc" + end + b"data" + end + second + b"de" + end * 2
        data = sse.event_fields(event)[1]
        lines = sse.data_lines(event)
        assert [line for _, line in lines] == (
            [b"abc", b"", b"de"] if data[:1] == b"a" else [b"", b"de"]
        )
        for offset, byte in enumerate(data):
            if byte != 10:
                assert event[sse.place_in_event(event, offset)] == byte
        with pytest.raises(ValueError):
            sse.place_in_event(event, len(data) + 1)


@pytest.mark.parametrize(
    ("body", "is_stream"),
    [
        *((begin, True) for begin in (b"data: {}", b"data:", b"event:x", b"id: 7", b"retry: 3")),
        *((begin, True) for begin in (b": hello", b"\r\n\n:", BOM + b"data:", b" \n\tevent: x")),
        *((begin, None) for begin in (b"", b"\n", b"d", b"data", b"\r\nret", BOM, BOM + b"even")),
        *((begin, False) for begin in (b"{", b"[1]", b"<html>", b"data {", b"dates: x", b"null")),
        *((begin, False) for begin in (b" " * BEGIN_BYTES, b"\n" * 9999 + b"data:")),
    ],
)
def test_the_first_bytes_of_a_stream(body, is_stream):
    assert begins_events(body) is is_stream


def test_events_of_blank_lines_and_comments():
    for idle in (b"\n", b": x\n\n", b": x\n: y\n\n", BOM + b":\r\n\r\n", b"\r\r"):
        assert is_idle(idle)
    for event in (
        b"data:\n\n",
        b": x\ndata\n\n",
        b"event: ping\n\n",
        b"id: 7\n\n",
        b"retry: 3\n\n",
    ):
        assert not is_idle(event)
