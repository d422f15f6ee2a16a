"""The responses family as a whole: samples in any cut, mutants, lists, heartbeats."""

import json
import pathlib
import random
import re

import pytest

from adapters.bridge import NativeBridge
from adapters.family import ModelEntry
from adapters.faults import Condition, Fault
from adapters.ir.usage import Usage
from adapters.json.jsonio import top_level
from adapters.registry import VENDORS
from adapters.responses import FAMILY
from adapters.upstream_errors.read import read_upstream_error

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "responses"
MAX_EVENT_BYTES = 65536
MODEL = "demo-large"
PUBLIC = "public/name:1"
MODEL_VALUE = re.compile(rb'("model":\s*)"demo-large"')
CREATE = FAMILY.client.operations["generate"]

STREAMS = [p for p in sorted(WIRE.glob("*.sse")) if p.stem != "midstream_error"]
ANSWERS = [path.with_suffix(".json") for path in STREAMS]
FAILED = (WIRE / "midstream_error.sse").read_bytes()
LINE_ENDS = [b"\n", b"\r\n", b"\r"]
REQUEST = (
    b'{"model":"m", "input":[{"role":"user","content":"x"}],"max_output_tokens":5,"stream":true}'
)

every_stream = pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
every_answer = pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
every_end = pytest.mark.parametrize("ends", LINE_ENDS)


def test_there_are_samples():
    assert len(STREAMS) == 6 and all(path.exists() for path in ANSWERS)


def cuts(data: bytes, seed: int) -> list[list[bytes]]:
    """The data whole, byte by byte, event by event and cut at random."""
    rng = random.Random(seed)
    ways = [[data], [data[i : i + 1] for i in range(len(data))]]
    ways.append([piece + b"\n\n" for piece in data.split(b"\n\n") if piece])
    for _ in range(20):
        at = sorted(rng.sample(range(1, len(data)), rng.randint(1, 12)))
        ways.append([data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])
    return ways if b"\r" not in data else ways[:2] + ways[3:]


def run(chunks: list[bytes], public: str = MODEL) -> tuple[bytes, NativeBridge]:
    stream = NativeBridge(FAMILY.upstream.stream_tap(public, MODEL, True, CREATE), MAX_EVENT_BYTES)
    sent = b"".join([stream.feed(chunk) for chunk in chunks])
    return sent + stream.close(), stream


@every_end
@every_stream
def test_a_stream_is_byte_exact_however_it_is_cut(path, ends):
    data = path.read_bytes().replace(b"\n", ends)
    for chunks in cuts(data, 7):
        sent, stream = run(chunks)
        assert sent == data
        assert stream.accepted and stream.whole and stream.ended and stream.started
        assert stream.fault is None and stream.upstream_id == "resp_gw0001"
        assert stream.usage is not None and stream.output_units > 0


@every_end
@every_stream
def test_only_the_models_value_differs_when_names_differ(path, ends):
    data = path.read_bytes().replace(b"\n", ends)
    expected, times = MODEL_VALUE.subn(rb'\1"' + PUBLIC.encode() + b'"', data)
    assert times == 3
    for chunks in cuts(data, 8):
        assert run(chunks, PUBLIC)[0] == expected


@every_stream
def test_comments_blank_lines_a_bom_and_a_done_at_the_end(path):
    data = b"\xef\xbb\xbf: hello\n\n\n" + path.read_bytes().replace(b"\n\n", b"\n\n\n: x\n\n", 2)
    for chunks in cuts(data + b"data: [DONE]\n\n", 9):
        sent, stream = run(chunks)
        assert sent == data and stream.whole


@every_stream
def test_a_stream_without_its_end_is_cut(path):
    data = path.read_bytes()
    end = re.search(rb"event: response\.(completed|incomplete)\ndata: .*\}", data).end()
    for size in range(0, end, 7):
        sent, stream = run([data[:size]])
        assert not stream.whole and not stream.finished
        assert data.startswith(sent) or data.startswith(sent.rstrip(b"\n"))
        assert sent == b"" or sent.endswith(b"\n\n")
    assert run([data[:end]])[1].whole


@every_answer
def test_a_whole_answer_is_byte_exact_but_for_the_model(path):
    body = path.read_bytes()
    same = FAMILY.upstream.read_answer(body, MODEL, MODEL, CREATE)
    assert same.body is body and same.upstream_id == "resp_gw0001"
    renamed = FAMILY.upstream.read_answer(body, PUBLIC, MODEL, CREATE)
    expected, times = MODEL_VALUE.subn(rb'\1"' + PUBLIC.encode() + b'"', body)
    assert times == 1 and renamed.body == expected and renamed.usage == same.usage
    stream = run([path.with_suffix(".sse").read_bytes()])[1]
    assert stream.usage == same.usage and stream.reported == same.reported


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("text", Usage(14, 11)),
        ("incomplete", Usage(14, 2)),
        ("tools_parallel", Usage(120, 48)),
        ("reasoning", Usage(30, 18, reasoning_tokens=22)),
        ("cached_usage", Usage(200, 90, 2000, 400, reasoning_tokens=60)),
    ],
)
def test_the_usage_of_the_samples(name, usage):
    body = (WIRE / f"{name}.json").read_bytes()
    assert FAMILY.upstream.read_answer(body, MODEL, MODEL, CREATE).usage == usage


def test_a_count():
    body = (WIRE / "input_tokens.json").read_bytes()
    counting = FAMILY.client.operations["count"]
    assert FAMILY.upstream.read_answer(body, PUBLIC, MODEL, counting).body is body


@pytest.mark.parametrize(("name", "condition"), [("error_401", "E24"), ("error_400_field", "E22")])
def test_error_bodies_in_place_of_an_answer(name, condition):
    body = (WIRE / f"{name}.json").read_bytes()
    with pytest.raises(Fault) as caught:
        FAMILY.upstream.read_answer(body, MODEL, MODEL, CREATE)
    assert caught.value.condition == condition


def test_a_vendors_error_is_replaced_by_our_own():
    before = FAILED[: FAILED.index(b"event: error")]
    for chunks in cuts(FAILED, 10):
        sent, stream = run(chunks)
        assert sent == before and stream.fault.condition is Condition.UPSTREAM_FAILED
        assert not stream.whole and stream.feed(b"data: {}\n\n") == b""
    ours = stream.encode_fault(stream.fault, "01ABC")

    def events(data: bytes) -> list[tuple[bytes, dict]]:
        pairs = [one.split(b"\ndata: ") for one in data.split(b"\n\n") if one]
        return [(name, json.loads(said)) for name, said in pairs]

    assert events(ours) == events(FAILED[len(before) :])


def test_our_own_end_is_read_back_as_an_error():
    """What one gateway writes, another must understand."""
    first = STREAMS[0].read_bytes().split(b"\n\n")[0] + b"\n\n"
    for condition in Condition:
        tap = run([first])[1]
        end = tap.encode_fault(Fault(condition, model="m", param="p"), "req_1")
        for events in (end, end[end.index(b"event: response.failed") :]):
            sent, stream = run([first + events])
            assert sent == first and stream.fault is not None


@pytest.mark.parametrize("data", [b"nonsense", b"[1]", b'{"a":', b"<html>", b"7"])
def test_an_unreadable_event_is_e30(data):
    first = STREAMS[0].read_bytes().split(b"\n\n")[0] + b"\n\n"
    for before in (b"", first):
        sent, stream = run([before + b"data: " + data + b"\n\n"])
        assert sent == before and stream.fault.condition is Condition.UPSTREAM_INVALID


def test_heartbeats_are_comments_that_disturb_nobody():
    beat = FAMILY.client.keep_alive(True)
    assert beat == FAMILY.client.keep_alive(False) == b": keep-alive\n\n"
    first, rest = STREAMS[0].read_bytes().split(b"\n\n", 1)
    for data in (beat + first + b"\n\n" + rest, first + b"\n\n" + beat + rest):
        sent, stream = run([data])
        assert sent == data and stream.whole


def test_the_list_of_models():
    models = [ModelEntry(name, 1795000000, None, None) for name in ("demo-large", "demo-small")]
    one = {"id": "demo-large", "object": "model", "created": 1795000000, "owned_by": "gateway"}
    listed = json.loads(FAMILY.client.model_list(models, {"limit": "1"}))
    assert listed == {"object": "list", "data": [one, {**one, "id": "demo-small"}]}
    assert json.loads(FAMILY.client.model_entry(models[0])) == one
    assert json.loads(FAMILY.client.model_list([], {})) == {"object": "list", "data": []}


BITS = [b"\xff", b"\\ud800", b"null", b"[" * 2000, b'"', b"}", b"-1", b"1e999", b"\r", b"NaN"]
MARKS = [b'":', b"data:", b"[", b"{", b"\n", b"event: ", b"delta", b"response"]
OTHERS = [b"", b"7", b'":[]', b"\x00", b'{"a":', b'"error":']


def mutant(data: bytes, rng: random.Random) -> bytes:
    """The data with a few bytes changed, cut out, doubled or put in."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(out) or 1), rng.randint(1, 30)
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + length]
        elif kind == 2:
            out[at:at] = out[at : at + length]
        elif kind == 3:
            out[at:at] = rng.choice(BITS)
        else:
            place = bytes(out).find(rng.choice(MARKS), at)
            if place >= 0:
                out[place : place + 1] = rng.choice(OTHERS)
    return bytes(out)


def value_mutant(data: bytes, rng: random.Random) -> bytes:
    """The data with one value of some JSON field replaced: still JSON, but of another type."""
    found = list(re.finditer(rb'":\s*("(?:[^"\\\\]|\\\\.)*"|\d+|null|true|false)', data))
    one = rng.choice(found)
    other = rng.choice([b"null", b"7", b'"x"', b"[]", b"{}", b"1e999", b'{"code":[]}', b"[{}]"])
    return data[: one.start(1)] + other + data[one.end(1) :]


def survives(action, *args) -> None:
    try:
        action(*args)
    except Fault:
        pass


def edit(body: bytes) -> None:
    spans = top_level(body)
    survives(lambda: list(FAMILY.client.stored_fields.refs(spans)))
    for operation in ("generate", "compact"):
        asked = FAMILY.client.operations[operation]
        FAMILY.upstream.edit_request(
            spans, FAMILY.client.peek(spans, asked, None), asked, "other", VENDORS["demo"]
        )


def test_mutants_raise_nothing_but_faults():
    rng = random.Random(2026)
    samples = [path.read_bytes() for path in sorted(WIRE.iterdir())]
    for number in range(1500):
        change = rng.choice([mutant, value_mutant])
        data = change(samples[number % len(samples)], rng)
        cut = rng.randrange(len(data) + 1)
        for public in (MODEL, PUBLIC):
            stream = run([data[:cut], data[cut:]], public)[1]
            assert stream.usage is None or stream.reported
            end = stream.encode_fault(Fault(Condition.UPSTREAM_FAILED), "req_1")
            assert [json.loads(one.split(b"\ndata: ")[1]) for one in end.split(b"\n\n")[:2]]
            for operation in FAMILY.client.operations.values():
                survives(FAMILY.upstream.read_answer, data, public, MODEL, operation)
        read_upstream_error(rng.choice([200, 302, 400, 401, 404, 429, 500, 503]), {}, data)
        survives(edit, mutant(REQUEST, rng))
