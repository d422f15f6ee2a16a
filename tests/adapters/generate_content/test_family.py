"""The generate-content family over all its samples: any cut, exact bytes, mutants."""

import json
import pathlib
import random
import re

import pytest

from adapters.bridge import NativeBridge
from adapters.faults import Condition, Fault
from adapters.generate_content import FAMILY
from adapters.json.jsonio import top_level
from adapters.registry import VENDORS
from adapters.upstream_errors.read import read_upstream_error

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "generate_content"
MODEL = "demo-large"
PUBLIC = "public/name:1"
MODEL_VALUE = re.compile(rb'("modelVersion":\s*)"demo-large"')
PLAIN, EVENTS, ARRAY, COUNT = FAMILY.client.operations.values()

SSE = sorted(WIRE.glob("*.sse"))
GOOD_SSE = [path for path in SSE if path.stem != "midstream_error"]
ANSWERS = [
    path
    for path in sorted(WIRE.glob("*.json"))
    if not path.stem.startswith(("error_", "models", "count_tokens", "text_stream_array"))
]
ERRORS = sorted(WIRE.glob("error_*.json"))
LINE_ENDS = [b"\r\n", b"\n", b"\r"]


def name_of(value: object) -> str | None:
    return value.stem if isinstance(value, pathlib.Path) else None


def arrays() -> dict[str, bytes]:
    """The sample of an array, and every other stream in that form, written in several ways."""
    found = {"sample": (WIRE / "text_stream_array.json").read_bytes().rstrip()}
    for path in GOOD_SSE:
        chunks = re.findall(rb"data: (.*?)\r\n\r\n", path.read_bytes())
        found[path.stem] = b"[" + b",\r\n".join(chunks) + b"\n]"
        whole = [json.loads(chunk) for chunk in chunks]
        found[path.stem + "_pretty"] = json.dumps(whole, indent=2).encode()
    return found


ARRAYS = arrays()


def cuts(data: bytes, rng: random.Random) -> list[list[bytes]]:
    """The data whole, byte by byte and cut at random."""
    ways = [[data], [data[i : i + 1] for i in range(len(data))]]
    for _ in range(20):
        at = sorted(rng.sample(range(1, len(data)), rng.randint(1, 12)))
        ways.append([data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])
    return ways


def run(operation, chunks, public=MODEL, limit=65536) -> tuple[bytes, NativeBridge]:
    stream = NativeBridge(FAMILY.upstream.stream_tap(public, MODEL, False, operation), limit)
    sent = b"".join([stream.feed(chunk) for chunk in chunks])
    return sent + stream.close(), stream


def check_whole(stream: NativeBridge) -> None:
    assert stream.accepted and stream.whole and stream.finished and stream.fault is None
    assert stream.at_boundary and stream.usage is not None and stream.upstream_id == "gw0001"
    assert stream.output_units > 0 and stream.reported


@pytest.mark.parametrize("ends", LINE_ENDS)
@pytest.mark.parametrize("path", GOOD_SSE, ids=name_of)
def test_a_stream_is_byte_exact_however_it_is_cut(path, ends):
    data = path.read_bytes().replace(b"\r\n", ends)
    expected, times = MODEL_VALUE.subn(rb'\1"' + PUBLIC.encode() + b'"', data)
    assert times > 0
    for chunks in cuts(data, random.Random(7)):
        sent, stream = run(EVENTS, chunks)
        assert sent == data and not stream.ended
        check_whole(stream)
        assert run(EVENTS, chunks, public=PUBLIC)[0] == expected


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_byte_exact_however_it_is_cut(name):
    data = ARRAYS[name]
    expected, times = MODEL_VALUE.subn(rb'\1"' + PUBLIC.encode() + b'"', data)
    assert times > 0
    for chunks in cuts(data, random.Random(8)):
        sent, stream = run(ARRAY, [*chunks, b"\n"])
        assert sent == data + b"\n" and not stream.ended  # the body's end ends it
        check_whole(stream)
        assert run(ARRAY, chunks, public=PUBLIC)[0] == expected


@pytest.mark.parametrize("path", GOOD_SSE, ids=name_of)
def test_all_forms_report_the_same_usage(path):
    answer = FAMILY.upstream.read_answer(
        path.with_suffix(".json").read_bytes(), MODEL, MODEL, PLAIN
    )
    assert answer.usage is not None
    assert run(EVENTS, [path.read_bytes()])[1].usage == answer.usage
    for form in (path.stem, path.stem + "_pretty"):
        assert run(ARRAY, [ARRAYS[form]])[1].usage == answer.usage


@pytest.mark.parametrize("path", GOOD_SSE, ids=name_of)
def test_a_cut_stream_is_never_whole_before_its_finish(path):
    data = path.read_bytes()
    for end in range(data.index(b'"finishReason"')):
        sent, stream = run(EVENTS, [data[:end]])
        assert not stream.whole and stream.fault is None
        assert data.startswith(sent) or data.startswith(sent.rstrip(b"\r\n"))
        assert sent == b"" or sent.endswith((b"\r\n\r\n", b"\n\n", b"\r\n\n"))


@pytest.mark.parametrize("name", ARRAYS)
def test_a_cut_array_is_never_whole_and_can_be_ended_with_an_error(name):
    data = ARRAYS[name]
    fault = Fault(Condition.UPSTREAM_FAILED)
    for end in range(0, len(data) - 1, 5):
        sent, stream = run(ARRAY, [data[:end]])
        assert not stream.whole and stream.at_boundary and data.startswith(sent)
        ended = json.loads(sent + FAMILY.client.keep_alive(True) + stream.encode_fault(fault, "r"))
        assert ended[-1]["error"]["status"] == "UNAVAILABLE"
        assert all("candidates" in chunk for chunk in ended[:-1])


@pytest.mark.parametrize("operation", [EVENTS, ARRAY], ids=lambda one: one.framing)
def test_an_error_of_the_vendor_is_not_passed(operation):
    data = (WIRE / "midstream_error.sse").read_bytes()
    if operation is ARRAY:
        data = b"[" + b",".join(re.findall(rb"data: (.*?)\r\n\r\n", data)) + b"]"
    for chunks in cuts(data, random.Random(10)):
        sent, stream = run(operation, chunks)
        assert sent and data.startswith(sent) and b"stopped answering" not in sent
        fault = stream.fault
        assert fault is not None and fault.message == "The upstream channel stopped answering."
        assert not stream.whole


def test_our_own_stream_fault_is_read_back_as_an_error():
    """What one gateway writes, another must understand."""
    for operation, first in (
        (EVENTS, GOOD_SSE[0].read_bytes().split(b"\r\n\r\n")[0] + b"\r\n\r\n"),
        (ARRAY, ARRAYS["text"].split(b",\r\n")[0]),
    ):
        for condition in Condition:
            tap = run(operation, [first])[1]
            event = tap.encode_fault(Fault(condition, model="m", param="p"), "req_1")
            sent, stream = run(operation, [first + event])
            assert sent == first and stream.fault is not None
            tap = FAMILY.upstream.stream_tap(MODEL, MODEL, False, operation)
            event = tap.encode_fault(Fault(condition, model="m", param="p"), "req_1")
            sent, stream = run(operation, [FAMILY.client.keep_alive(False) + event])
            assert sent == b"" and stream.fault is not None and not stream.accepted


def test_heartbeats_disturb_nobody():
    beat = FAMILY.client.keep_alive(False)
    assert beat == FAMILY.client.keep_alive(True) == b"\r\n"
    data = GOOD_SSE[0].read_bytes()
    first, rest = data.split(b"\r\n\r\n", 1)
    for beaten in (beat + data, first + b"\r\n\r\n" + beat + rest):
        sent, stream = run(EVENTS, [beaten])
        assert sent == beaten and stream.whole
    first, rest = ARRAYS["text"].split(b",\r\n", 1)
    beaten = beat + first + beat + b",\r\n" + rest
    assert json.loads(beaten) and run(ARRAY, [beaten])[0] == beaten


@pytest.mark.parametrize("path", ANSWERS, ids=name_of)
def test_a_whole_answer_is_byte_exact_but_for_the_model(path):
    body = path.read_bytes()
    same = FAMILY.upstream.read_answer(body, MODEL, MODEL, PLAIN)
    assert same.body is body and same.usage is not None and same.upstream_id == "gw0001"
    renamed = FAMILY.upstream.read_answer(body, PUBLIC, MODEL, PLAIN)
    expected, times = MODEL_VALUE.subn(rb'\1"' + PUBLIC.encode() + b'"', body)
    assert times == 1 and renamed.body == expected and renamed.usage == same.usage


@pytest.mark.parametrize("path", ERRORS, ids=name_of)
def test_error_bodies_in_place_of_an_answer(path):
    for body in (path.read_bytes(), b"[" + path.read_bytes() + b"]"):
        with pytest.raises(Fault) as caught:
            FAMILY.upstream.read_answer(body, MODEL, MODEL, PLAIN)
        assert caught.value.condition is not Condition.UPSTREAM_INVALID
        status = int(path.stem.split("_")[1])
        read = read_upstream_error(status, {}, body)
        assert read.fail_over and read.fault.condition is caught.value.condition
        # The same where a stream should be.
        stream = run(ARRAY, [body])[1]
        assert stream.fault.condition is caught.value.condition and not stream.accepted


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"{}", b"\xff", b'"x"', b"1"])
def test_no_answer_at_all_is_e30(body):
    for operation in (PLAIN, COUNT):
        with pytest.raises(Fault) as caught:
            FAMILY.upstream.read_answer(body, PUBLIC, MODEL, operation)
        assert caught.value.condition is Condition.UPSTREAM_INVALID
    sent, stream = run(ARRAY, [body])
    assert sent == b"" and not stream.whole and not stream.accepted
    fault = stream.fault
    assert fault is None if body == b"" else fault.condition is Condition.UPSTREAM_INVALID


def test_the_list_of_models_has_the_fields_of_the_sample():
    sample = json.loads((WIRE / "models.json").read_bytes())
    assert set(json.loads(FAMILY.client.model_list([], {}))) <= set(sample)


def test_token_counts_pass():
    body = (WIRE / "count_tokens.json").read_bytes()
    assert FAMILY.upstream.read_answer(body, PUBLIC, MODEL, COUNT).body is body
    assert COUNT.free and COUNT.job == "count"


REQUESTS = [
    b'{"model":"models/m","contents":[{"role":"user","parts":[{"text":"x"}]}],'
    b'"generation_config":{"maxOutputTokens":5,"candidate_count":2}}',
    b'{"generateContentRequest": {"model": "models/m", "contents": [] }}',
]


def mutant(data: bytes, rng: random.Random) -> bytes:
    """The data with a few bytes flipped, cut out, doubled or put in."""
    out = bytearray(data)
    odd = [b"\xff", b"\\ud800", b"null", b"[" * 2000, b'"', b"}", b"-1", b"1e999", b"\r", b"]"]
    odd += [b"NaN", b"\r\n\r\n", b"data: ", b",", b"\\", b'"modelVersion":"demo-large",']
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) or 1)
        length = rng.randint(1, 30)
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + length]
        elif kind == 2:
            out[at:at] = out[at : at + length]
        elif kind == 3:
            out[at:at] = rng.choice(odd)
        else:
            place = bytes(out).find(rng.choice([b'":', b"data:", b"[", b"{", b"\n"]), at)
            if place >= 0:
                out[place : place + 1] = rng.choice([b"", b"7", b'":[]', b"\x00", b'{"a":'])
    return bytes(out)


def survives(action, *args) -> None:
    try:
        action(*args)
    except Fault:
        pass


def edit(body: bytes, operation) -> None:
    spans = top_level(body)
    list(FAMILY.client.stored_fields.refs(spans))
    peek = FAMILY.client.peek(spans, operation, "m")
    FAMILY.upstream.edit_request(spans, peek, operation, "other", VENDORS["gemini"])


def test_mutants_raise_nothing_but_faults():
    rng = random.Random(2026)
    samples = [path.read_bytes() for path in sorted(WIRE.iterdir())] + list(ARRAYS.values())
    for number in range(2000):
        data = mutant(samples[number % len(samples)], rng)
        cut = rng.randrange(len(data) + 1)
        limit = rng.choice([200, 65536])
        for public in (MODEL, PUBLIC):
            for operation in (EVENTS, ARRAY):
                sent, stream = run(operation, [data[:cut], data[cut:]], public, limit)
                assert stream.usage is None or stream.reported
                if public == MODEL and stream.fault is None:
                    assert data.startswith(sent.removesuffix(b"\n\n").removesuffix(b"\n"))
                fault = Fault(Condition.UPSTREAM_FAILED)
                assert stream.encode_fault(fault, "r").isascii()
            survives(FAMILY.upstream.read_answer, data, public, MODEL, PLAIN)
            survives(FAMILY.upstream.read_answer, data, public, MODEL, COUNT)
        for operation in (PLAIN, COUNT):
            survives(edit, mutant(rng.choice(REQUESTS), rng), operation)
