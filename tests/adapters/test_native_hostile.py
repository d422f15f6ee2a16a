"""Hostile streams of the client's own family, the same in every run: none gets a faked end.

Readers in this file, which read as clients do, decide whether a stream looks whole.
"""

import itertools
import json
import random
import re

import pytest

from adapters.bridge import NativeBridge
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from tests.support.dialects import ALL, CHAT, GENERATE, MESSAGES, RESPONSES
from tests.support.hostile import hostile_bytes
from tests.support.upstream import SAMPLES

SAMPLE_MODEL = "demo-large"
SEED = 20261122


# ---- streams: how clients read them --------------------------------------------------------------

LINE_END = re.compile(rb"\r\n|\n|\r")


class Broken(Exception):
    """The failure of a client's reader: it raises, or it sees an error."""


def sse_data(stream):
    """Yield the data of each event. As in some clients, the last event needs no blank line, and a
    byte order mark may stand before any line."""
    data = []
    for found in [*LINE_END.split(stream), b""]:
        line = found.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if data:
                yield b"\n".join(data)
            data = []
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))


def objects_in(stream, array):
    """Yield the decoded events or elements, "[DONE]" unchanged. Raises Broken where a client would
    raise."""
    try:
        if array:
            said = json.loads(stream)
            yield from said if isinstance(said, list) else [said]
            yield "]"
            return
        for data in sse_data(stream):
            yield "[DONE]" if data.strip() == b"[DONE]" else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Broken from error


def verdict(family, stream, array=False):
    """Return a client's view of the bytes: "whole", "failed" (it raises), or "unfinished", which
    some clients take for whole."""
    open_choices, done = set(), set()
    ended = False
    try:
        for said in objects_in(stream, array):
            if said in ("[DONE]", "]"):
                ended = ended or family == CHAT or array  # whatever finish reasons are missing
                continue
            if not isinstance(said, dict) or said.get("error"):
                return "failed"
            kind = said.get("type")
            if family != GENERATE and kind in ("error", "response.failed"):
                return "failed"
            ended = ended or kind in ENDS.get(family, ())
            blocked = said.get("promptFeedback") if family == GENERATE else None
            ended = ended or bool(isinstance(blocked, dict) and blocked.get("blockReason"))
            _note_finishes(family, said, open_choices, done)
            if ended and family in ENDS:
                break  # what follows is not read
    except Broken:
        return "failed"
    finished = bool(done) and not open_choices - done
    return "whole" if ended or finished else "unfinished"


ENDS = {RESPONSES: ("response.completed", "response.incomplete"), MESSAGES: ("message_stop",)}


def _note_finishes(family, said, open_choices, done):
    names = {CHAT: ("choices", "finish_reason"), GENERATE: ("candidates", "finishReason")}
    if family not in names:
        return
    several, reason = names[family]
    choices = said.get(several)
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            index = choice.get("index")
            index = index if isinstance(index, int) else 0
            (done if choice.get(reason) else open_choices).add(index)


# ---- streams: mutants ----------------------------------------------------------------------------

STREAMS_EACH = 800
LIMIT_BYTES = 6000
GARBAGE = [
    b"data: [DONE]\n\n", b": x\n\n", b"\n", b"\r\n", b"\n\n", b"\r", b"data:\n\n", b"data: {}\n\n",
    b"event: error\n\n", b"event: error\ndata: {}\n\n", b'data: {"error":{"message":"x"}}\n\n',
    b"data: [1]\n\n", b"data: nonsense\n\n", b"id: 1\n\n", b"retry: 5\n\n", b"data: 7\n\n", b"\x00",
    b'data: {"type":"ping"}\n\n', b"data: {\ndata: }\n\n", b"\xef\xbb\xbf", b"<html>", b"dat", b"]",
    b"[", b",", b"}", b"{", b'"', b"\\", b"\xff", b"[" * 3000, b"data: " + b"x" * 9000, b"NaN",
    b'"finish_reason":"stop"', b'"finishReason":"STOP",', b'"type":"message_stop"', b"1e999",
    b'"error":null,', b'"error":{},', b'"choices":[],', b'"candidates":[],', b'"index":1,',
]  # fmt: skip
KINDS = [(family, False) for family in ALL] + [(GENERATE, True)]


def stream_samples(family, array):
    folder = SAMPLES / family
    paths = [folder / "text_stream_array.json"] if array else sorted(folder.glob("*.sse"))
    return [path.read_bytes() for path in paths]


def pieces_of(data, array):
    """Return the events, or the elements of an array with the bytes between them."""
    cut = re.compile(rb"(?<=\n  \})(?=,|\n\])" if array else rb"(?<=\n\n)|(?<=\r\n\r\n)")
    return [piece for piece in cut.split(data) if piece]


def hostile_stream(samples, array, rng):
    """Return the bytes of a stream, most of which are malformed."""
    pieces = pieces_of(rng.choice(samples), array)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at = rng.randrange(len(pieces))
        kind = rng.randrange(7)
        if kind == 0 and len(pieces) > 1:
            del pieces[at]
        elif kind == 1 and len(pieces) > 1:
            pieces.pop()  # the end is lost
        elif kind == 2:
            pieces.insert(at, pieces[at])
        elif kind == 3:
            rng.shuffle(pieces)
        elif kind == 4:
            pieces.insert(at, rng.choice(GARBAGE))
        else:
            pieces[at] = hostile_bytes(pieces[at], rng, GARBAGE)
    data = b"".join(pieces)
    ends = rng.choice([None, None, None, b"\n", b"\r\n", b"\r"])
    if ends is not None:
        data = data.replace(b"\r\n", b"\n").replace(b"\n", ends)
    if rng.random() < 0.3:
        data = hostile_bytes(data, rng, GARBAGE)
    return data


def chunks_of(data, rng):
    """Return the data, cut as a network might."""
    many = rng.choice([0, 1, 2, 8, 40])
    at = sorted(rng.randrange(len(data) + 1) for _ in range(many))
    return [data[a:b] for a, b in itertools.pairwise([0, *at, len(data)])]


def tap_of(family, array, public):
    wire = FAMILIES[family]
    operation = wire.upstream.operations["stream"]
    if array:
        operation = wire.client.operations["stream_array"]
    return wire.upstream.stream_tap(public, SAMPLE_MODEL, False, operation)


def relayed(family, array, chunks, public, limit_bytes=LIMIT_BYTES):
    """Relay a stream that ends properly; return (the client's bytes, whole, whether it was
    dropped)."""
    stream = NativeBridge(tap_of(family, array, public), limit_bytes)
    sent = b"".join([stream.feed(chunk) for chunk in chunks])
    sent += stream.close()
    assert stream.fault is None or isinstance(stream.fault, Fault)
    assert stream.usage is None or stream.reported
    assert stream.output_units >= 0
    if stream.whole and stream.fault is None:
        return sent, True, False
    if not stream.at_boundary:
        return sent, False, True  # the connection is dropped, which no client takes for an end
    fault = stream.fault or Fault(Condition.UPSTREAM_FAILED)
    return sent + stream.encode_fault(fault, "req_1"), False, False


def judge(family, array, outcome, which):
    """Check that the client fails if the stream was not whole, and that a whole stream kept its
    end."""
    sent, whole, dropped = outcome
    seen = verdict(family, sent, array)
    if whole:
        assert seen != "unfinished", (which, sent)
    elif seen == "whole":
        # Only if the end is the vendor's own, in an event too long for the gateway to read.
        assert len(max(pieces_of(which, array), key=len)) > LIMIT_BYTES, (which, sent)
        assert verdict(family, which, array) == "whole", (which, sent)
    else:
        assert seen == "failed" or dropped, (which, sent)


@pytest.mark.parametrize(("family", "array"), KINDS)
def test_no_hostile_stream_gets_a_faked_end(family, array):
    samples = stream_samples(family, array)
    seen = {True: 0, False: 0}
    for number in range(STREAMS_EACH // 2 if family == GENERATE else STREAMS_EACH):
        rng = random.Random(f"{SEED} {family} {array} {number}")
        public = rng.choice([SAMPLE_MODEL, "public/name:1"])
        data = hostile_stream(samples, array, rng)
        sent, whole, dropped = relayed(family, array, chunks_of(data, rng), public)
        seen[whole] += 1
        judge(family, array, (sent, whole, dropped), data)
        # Every cut gives the same stream, except for events that are too long to be read.
        once = relayed(family, array, [data], public, len(data))
        again = relayed(family, array, chunks_of(data, rng), public, len(data))
        assert once == again, (number, data)
        judge(family, array, once, data)
    assert min(seen.values()) > STREAMS_EACH // 50, seen
