"""The contract of every registered family, checked with all its samples in tests/wire/<family>/."""

import json
import pathlib
import random
import re

import pytest

from adapters.bridge import NativeBridge
from adapters.family import Family, Operation, Peek
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.registry import FAMILIES, VENDORS
from adapters.upstream_errors.read import read_upstream_error
from tests.adapters.builders import fault_of, fed
from tests.support.hostile import hostile_bytes

WIRE = pathlib.Path(__file__).parent.parent / "wire"
MAX_EVENT_BYTES = 65536
MODEL = "demo-large"
PUBLIC = "public/name:1"
MODEL_VALUE = re.compile(rb'("(?:model|modelVersion)":\s*)"demo-large"')

STREAMS = [
    (family, path)
    for family in FAMILIES.values()
    for path in sorted((WIRE / family.name).glob("*.sse"))
]
GOOD_STREAMS = [(f, p) for f, p in STREAMS if p.stem != "midstream_error"]
# Lists, counts and a streamed array are not answers that this test can read.
OTHERS = ("error_", "models", "count_tokens", "input_tokens", "text_stream_array")
ANSWERS = [
    (family, path)
    for family in FAMILIES.values()
    for path in sorted((WIRE / family.name).glob("*.json"))
    if not path.stem.startswith(OTHERS)
]
ARRAY_SAMPLE = WIRE / "generate_content" / "text_stream_array.json"
GENERATE = FAMILIES["generate_content"]
CHUNK = re.compile(rb"data: (.*?)\r?\n")


def array_of(path: pathlib.Path) -> bytes:
    """Return the chunks of a stream of events as one JSON array."""
    return b"[" + b",\r\n".join(CHUNK.findall(path.read_bytes())) + b"\n]"


# The sample of an array, and every stream in that form, in two spellings.
ARRAYS = {"sample": ARRAY_SAMPLE.read_bytes()}
for _, sample in GOOD_STREAMS:
    if sample.parent.name == GENERATE.name:
        ARRAYS[sample.stem] = array_of(sample)
        ARRAYS[f"{sample.stem}_pretty"] = json.dumps(
            json.loads(array_of(sample)), indent=2
        ).encode()
of_arrays = pytest.mark.parametrize("name", ARRAYS)
ERRORS = [
    (family, path)
    for family in FAMILIES.values()
    for path in sorted((WIRE / family.name).glob("error_*.json"))
]
CONDITIONS = {
    "error_400_field": "E22",
    "error_401": "E24",
    "error_402_billing": "E24",
    "error_404_model": "E24",
    "error_429": "E25",
    "error_429_quota": "E24",
    "error_529": "E27",
}
LINE_ENDS = [b"\n", b"\r\n", b"\r"]


def name_of(value: object) -> str:
    return value.stem if isinstance(value, pathlib.Path) else getattr(value, "name", repr(value))


of_families = pytest.mark.parametrize("family", FAMILIES.values(), ids=name_of)
of_streams = pytest.mark.parametrize(("family", "path"), GOOD_STREAMS, ids=name_of)


def cuts(data: bytes, rng: random.Random) -> list[list[bytes]]:
    """Return the data whole, byte by byte, event by event and cut at random."""
    ways = [[data], [data[i : i + 1] for i in range(len(data))]]
    ways.append([event for event in re.split(rb"(?<=\n\n)", data) if event])
    for _ in range(20):
        at = sorted(rng.sample(range(1, len(data)), rng.randint(1, 12)))
        ways.append([data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)])
    return ways


def plain(family: Family) -> Operation:
    """Return the operation that requests a whole answer."""
    return next(iter(family.client.operations.values()))


def streamed(family: Family) -> Operation:
    """Return the operation that requests a stream of events."""
    return family.upstream.operations["stream"]


def lines_of(path: pathlib.Path) -> bytes:
    """Return a sample with lines that end in LF alone, whatever its family uses."""
    return path.read_bytes().replace(b"\r\n", b"\n")


def first_event(family: Family) -> bytes:
    data = lines_of(next(p for f, p in GOOD_STREAMS if f is family))
    return data.split(b"\n\n")[0] + b"\n\n"


def has_marker(family: Family) -> bool:
    """Return True if a stream of events ends with an event of its own; otherwise finish reasons
    end it."""
    return family is not GENERATE


def run(
    family: Family,
    chunks: list[bytes],
    public: str = MODEL,
    drop: bool = False,
    operation: Operation | None = None,
) -> tuple[bytes, NativeBridge]:
    tap = family.upstream.stream_tap(public, MODEL, drop, operation or streamed(family))
    stream = NativeBridge(tap, MAX_EVENT_BYTES)
    sent = b"".join([fed(stream, chunk) for chunk in chunks])
    return sent + stream.close(), stream


def run_array(chunks: list[bytes], public: str = MODEL) -> tuple[bytes, NativeBridge]:
    array = GENERATE.client.operations["stream_array"]
    return run(GENERATE, chunks, public, operation=array)


@pytest.mark.parametrize("ends", LINE_ENDS)
@of_streams
def test_stream_is_byte_exact_however_it_is_cut(family, path, ends):
    data = lines_of(path).replace(b"\n", ends)
    for chunks in cuts(data, random.Random(7)):
        sent, stream = run(family, chunks)
        assert sent == data
        assert stream.accepted and stream.started and stream.whole
        assert stream.ended == has_marker(family)
        assert stream.fault is None and stream.at_boundary
        assert stream.usage is not None and stream.upstream_id
        assert stream.output_units > 0 or path.stem == "refusal"


@pytest.mark.parametrize("ends", LINE_ENDS)
@of_streams
def test_only_the_model_value_differs_when_names_differ(family, path, ends):
    data = lines_of(path).replace(b"\n", ends)
    expected, times = MODEL_VALUE.subn(rb'\1"' + PUBLIC.encode() + b'"', data)
    assert times > 0
    for chunks in cuts(data, random.Random(8)):
        assert run(family, chunks, public=PUBLIC)[0] == expected


@of_streams
def test_a_comment_and_blank_lines_and_a_bom_pass(family, path):
    data = b"\xef\xbb\xbf: hello\n\n\n" + lines_of(path).replace(b"\n\n", b"\n\n\n: x\n\n", 2)
    for chunks in cuts(data, random.Random(9)):
        sent, stream = run(family, chunks)
        assert sent == data and stream.whole


NOTHING = (b"data:", b"data: ", b"data", b"event: keepalive", b"event: keepalive\ndata:", b"id: 7")


@pytest.mark.parametrize("ends", LINE_ENDS)
@of_streams
def test_events_without_data_are_left_out(family, path, ends):
    data = lines_of(path)
    events = data.split(b"\n\n")
    nothing = b"".join(each + b"\n\n" for each in NOTHING)
    noisy = nothing + (b"\n\n" + nothing).join(events)
    for chunks in cuts(noisy.replace(b"\n", ends), random.Random(9)):
        sent, stream = run(family, chunks)
        assert sent == data.replace(b"\n", ends) and stream.whole and stream.fault is None


FINISH = re.compile(
    rb'"(finish_reason|stop_reason|finishReason)":"|response.(completed|incomplete)'
)


@of_streams
def test_a_cut_stream_is_never_whole_before_its_finish(family, path):
    data = lines_of(path)
    finish = FINISH.search(data)
    assert finish is not None
    for end in range(0, finish.start(), 7):
        sent, stream = run(family, [data[:end]])
        assert not stream.whole
        assert data.startswith(sent) or data.startswith(sent.rstrip(b"\n"))
        assert sent == b"" or sent.endswith(b"\n\n")


@of_families
def test_an_error_event_of_the_vendor_is_not_passed(family):
    data = (WIRE / family.name / "midstream_error.sse").read_bytes()
    for chunks in cuts(data, random.Random(10)):
        sent, stream = run(family, chunks)
        assert sent and data.startswith(sent) and b"stopped answering" not in sent
        fault = stream.fault
        assert fault is not None and fault.message == "The upstream channel stopped answering."
        assert not stream.whole and stream.feed(b"data: {}\n\n") == b""


@of_families
def test_our_own_stream_fault_is_read_back_as_an_error(family):
    """One gateway must understand what another one writes."""
    for before in (b"", first_event(family)):
        for condition in Condition:
            tap = run(family, [before])[1]
            event = tap.encode_fault(Fault(condition, model="m", param="p"), "req_1")
            sent, stream = run(family, [before + event])
            assert sent == before and stream.fault is not None
            assert stream.accepted is bool(before)


@of_families
@pytest.mark.parametrize("started", [False, True])
def test_heartbeats_disturb_nobody(family, started):
    data = lines_of(next(p for f, p in GOOD_STREAMS if f is family))
    first, rest = data.split(b"\n\n", 1)
    beat = family.client.keep_alive(started)
    data = first + b"\n\n" + beat + rest if started else beat + data
    sent, stream = run(family, [data])
    assert sent == data and stream.whole


@pytest.mark.parametrize(("family", "path"), ANSWERS, ids=name_of)
def test_a_whole_answer_is_byte_exact_but_for_the_model(family, path):
    body = path.read_bytes()
    same = family.upstream.read_answer(body, MODEL, MODEL, plain(family))
    assert same.body is body and same.usage is not None and same.upstream_id
    renamed = family.upstream.read_answer(body, PUBLIC, MODEL, plain(family))
    expected, times = MODEL_VALUE.subn(rb'\1"' + PUBLIC.encode() + b'"', body)
    assert times == 1 and renamed.body == expected and renamed.usage == same.usage


@of_streams
def test_stream_and_whole_answer_report_the_same_usage(family, path):
    whole = path.with_suffix(".json")
    stream = run(family, [path.read_bytes()])[1]
    answer = family.upstream.read_answer(whole.read_bytes(), MODEL, MODEL, plain(family))
    assert stream.usage == answer.usage


@pytest.mark.parametrize(("family", "path"), ERRORS, ids=name_of)
def test_error_bodies_in_place_of_an_answer(family, path):
    status = int(path.stem.split("_")[1])
    read = read_upstream_error(status, {}, path.read_bytes())
    assert read.fault.condition == CONDITIONS[path.stem]
    assert read.fail_over == (status != 400)
    fault = fault_of(family.upstream.read_answer, path.read_bytes(), MODEL, MODEL, plain(family))
    assert fault.condition is read.fault.condition
    if family is GENERATE:  # the same where a streamed array is expected
        for body in (path.read_bytes(), b"[" + path.read_bytes() + b"]"):
            stream = run_array([body])[1]
            assert stream.fault.condition is read.fault.condition and not stream.accepted


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"{}", b"\xff", b'"x"', b"1"])
@of_families
def test_no_answer_at_all_is_e30(family, body):
    fault = fault_of(family.upstream.read_answer, body, PUBLIC, MODEL, plain(family))
    assert fault.condition is Condition.UPSTREAM_INVALID


@pytest.mark.parametrize("data", [b"nonsense", b"[1]", b'{"a":', b"<html>", b"7"])
@of_families
def test_an_unreadable_event_is_e30(family, data):
    for before in (b"", first_event(family)):
        sent, stream = run(family, [before + b"data: " + data + b"\n\n"])
        assert sent == before
        assert stream.fault.condition is Condition.UPSTREAM_INVALID


# ---- the JSON array ------------------------------------------------------------------------------


@pytest.mark.parametrize("public", [MODEL, PUBLIC])
@pytest.mark.parametrize(
    ("name", "ends"), [*((name, b"\r\n") for name in ARRAYS), *(("sample", e) for e in LINE_ENDS)]
)
def test_an_array_is_byte_exact_but_for_the_model_however_it_is_cut(name, ends, public):
    data = ARRAYS[name].replace(b"\r\n", b"\n").replace(b"\n", ends)
    expected, times = MODEL_VALUE.subn(rb'\1"' + public.encode() + b'"', data)
    assert times > 1
    for chunks in cuts(data, random.Random(11)):
        sent, stream = run_array(chunks, public)
        assert sent == expected
        assert stream.accepted and stream.whole and stream.fault is None and not stream.ended
        assert stream.usage is not None and stream.upstream_id == "gw0001"
        assert stream.output_units > 0


@of_arrays
def test_an_array_and_a_stream_of_events_report_the_same(name):
    sample = ARRAY_SAMPLE.with_name(f"{name.removesuffix('_pretty')}.sse".replace("sample", "text"))
    of_array = run_array([ARRAYS[name]])[1]
    of_events = run(GENERATE, [sample.read_bytes()])[1]
    assert of_array.usage == of_events.usage and of_array.reported == of_events.reported
    assert of_array.output_units == of_events.output_units


@of_arrays
def test_an_array_without_its_bracket_is_never_whole(name):
    data = ARRAYS[name].rstrip()
    for end in range(0, len(data), 1 if name == "sample" else 5):
        sent, stream = run_array([data[:end]])
        assert not stream.whole and stream.at_boundary and data.startswith(sent)
        assert sent == b"" or stream.accepted
        beat = GENERATE.client.keep_alive(True)
        broken = sent + beat + stream.encode_fault(Fault(Condition.UPSTREAM_FAILED), "req_1")
        *good, last = json.loads(broken)
        assert list(last) == ["error"] and all("candidates" in chunk for chunk in good)


def test_an_array_of_our_own_that_failed_is_read_back_as_an_error():
    for before in (b"", ARRAY_SAMPLE.read_bytes().partition(b"\n  },")[0] + b"\n  }"):
        tap = run_array([before])[1]
        broken = before + tap.encode_fault(Fault(Condition.UPSTREAM_FAILED), "req_1")
        json.loads(broken)
        for chunks in cuts(broken, random.Random(12)):
            sent, stream = run_array(chunks)
            assert sent == before and stream.fault is not None and not stream.whole


# ---- requests ------------------------------------------------------------------------------------

# A streaming request of each family, model m, at most 5 tokens of output.
TURN = b'"messages":[{"role":"user","content":"model"}],"metadata":{"model":"m"}'
REQUESTS = {
    "chat_completions": b'{"model":"m", ' + TURN + b',"max_tokens":5,"stream":true,'
    b'"stream_options":{"include_usage":true}}',
    "responses": b' {"input":"model" , "model" : "m","max_output_tokens":5,"stream":true,'
    b'"metadata":{"model":"m"}}\n',
    "messages": b' {"max_tokens":5,"stream":true,"model":"m",' + TURN + b"}",
    # The path has model and stream; some clients repeat the model here.
    "generate_content": b'{"contents":[{"parts":[{"text":"x"}]}],"model":"m",'
    b'"generationConfig":{"maxOutputTokens":5}}',
}


def request_of(family: Family) -> bytes:
    return REQUESTS[family.name]


@of_families
def test_a_request_passes_when_nothing_needs_editing(family):
    body = request_of(family)
    spans = top_level(body)
    peek = family.client.peek(spans, streamed(family), "m")
    assert family.client.model_name(spans, "m") == "m"
    assert (peek.model, peek.stream, peek.max_output_tokens, peek.choices) == ("m", True, 5, 1)
    told = Peek("m", True, 5, 1, include_usage=True)
    assert family.upstream.edit_request(spans, told, streamed(family), "m", VENDORS["demo"]) is body
    renamed = family.upstream.edit_request(
        spans, told, streamed(family), "up/stream", VENDORS["demo"]
    )
    assert renamed == body.replace(b'"m"', b'"up/stream"', 1)


@of_families
@pytest.mark.parametrize("vendor", VENDORS.values(), ids=name_of)
def test_header_lines_are_safe(family, vendor):
    client = {
        "authorization": "Bearer client-secret",
        "x-api-key": "client-secret",
        "cookie": "a=b",
        "x-forwarded-for": "1.2.3.4",
        "anthropic-version": "2023-06-01\r\nx-evil: 1",
        "anthropic-beta": "a\r\nx-evil: 1",
        "openai-organization": "org\nx-evil: 1",
    }
    lines = family.upstream.request_headers(client, vendor, "upstream-key")
    text = "\n".join(lines)
    assert "client-secret" not in text and "cookie" not in text and "forwarded" not in text
    assert all(re.fullmatch(r"[a-z-]+: [\x20-\x7e]+", line) for line in lines), lines
    assert sum("upstream-key" in line for line in lines) == 1
    assert "content-type: application/json" in lines
    fault = fault_of(family.upstream.request_headers, client, vendor, "key\nx-evil: 1")
    assert fault.condition is Condition.CHANNEL_MISCONFIGURED


ODD = b"\xff", b"\\ud800", b"null", b"[" * 2000, b'"', b"}", b"-1", b"1e999", b"\r", b"NaN"


def survives(action, *args, **kwargs) -> None:
    try:
        action(*args, **kwargs)
    except Fault:
        pass


def value_mutant(data: bytes, rng: random.Random) -> bytes:
    """Return the data with the value of one JSON field replaced: still JSON, but of another
    type."""
    values = list(re.finditer(rb'":\s*("(?:[^"\\\\]|\\\\.)*"|\d+|null|true|false)', data))
    if not values:
        return data
    value = rng.choice(values)
    other = rng.choice([b"null", b"7", b'"x"', b"[]", b"{}", b"1e999", b'{"code":[]}', b"[{}]"])
    return data[: value.start(1)] + other + data[value.end(1) :]


def edit(family: Family, body: bytes) -> None:
    spans = top_level(body)
    survives(lambda: list(family.client.stored_fields.refs(spans)))
    for operation in family.client.operations.values():
        if not operation.stored:
            peek = family.client.peek(spans, operation, "m")
            family.upstream.edit_request(spans, peek, operation, "other", VENDORS["demo"])


@of_families
def test_mutants_raise_nothing_but_faults(family):
    rng = random.Random(2026)
    samples = [path.read_bytes() for path in sorted((WIRE / family.name).iterdir())]
    samples += ARRAYS.values() if family is GENERATE else ()
    assert len(samples) > 10
    good = 0
    for number in range(2000):
        data = samples[number % len(samples)]
        spoil_value = rng.random() < 0.5
        data = value_mutant(data, rng) if spoil_value else hostile_bytes(data, rng, ODD)
        cut = rng.randrange(len(data) + 1)
        for public in (MODEL, PUBLIC):
            stream = run(family, [data[:cut], data[cut:]], public, drop=True)[1]
            assert stream.usage is None or stream.reported
            good += stream.whole
            assert b'"error"' in stream.encode_fault(Fault(Condition.UPSTREAM_FAILED), "req_1")
            if family is GENERATE:
                stream = run_array([data[:cut], data[cut:]], public)[1]
                assert stream.usage is None or stream.reported
                assert stream.encode_fault(Fault(Condition.UPSTREAM_FAILED), "r").isascii()
            for operation in family.client.operations.values():
                survives(family.upstream.read_answer, data, public, MODEL, operation)
        read_upstream_error(rng.choice([200, 302, 400, 401, 404, 429, 500, 503]), {}, data)
        for body in (data, b"%b{" % data):
            ids = family.upstream.issued_ids(body, True)
            assert all(isinstance(issued, str) and issued for issued in ids)
        survives(edit, family, hostile_bytes(request_of(family), rng, ODD))
    assert 100 < good < 3900  # some pass and some fail


OPENAI_KEY = {"error": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "x"}}
GOOGLE_KEY = {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "x"}}
ANTHROPIC_KEY = {"type": "error", "error": {"type": "authentication_error", "message": "x"}}
QUOTA = {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "x"}}
RESPONSE_KEY = {
    "type": "response.failed",
    "response": {"id": "resp_1", "output": [], "status": "failed", **OPENAI_KEY},
}
REFUSED_KEYS = [OPENAI_KEY, GOOGLE_KEY, ANTHROPIC_KEY, QUOTA]
ABOUT_NO_KEY = {"error": {"type": "server_error", "message": "x"}}


@of_families
def test_a_refused_key_inside_an_answer_is_told_as_such(family):
    errors = [(error, True) for error in REFUSED_KEYS] + [(ABOUT_NO_KEY, False)]
    if family.name == "responses":
        errors.append((RESPONSE_KEY, True))
    answering = [
        operation
        for operation in family.client.operations.values()
        if not operation.stored and operation.job != "count"
    ]
    assert answering
    for error, refused in errors:
        body = json.dumps(error).encode()
        fault = fault_of(family.upstream.read_answer, body, PUBLIC, MODEL, plain(family))
        assert fault.key_refused is refused, error
        for operation in answering:
            of_events = operation.framing == "sse"
            tap = family.upstream.stream_tap(PUBLIC, MODEL, False, operation)
            bridge = NativeBridge(tap, MAX_EVENT_BYTES)
            assert bridge.feed(b"data: %b\n\n" % body if of_events else b"[%b]" % body) == b""
            assert tap.fault is not None and not tap.accepted
            assert tap.fault.key_refused is refused, (operation.endpoint, error)
