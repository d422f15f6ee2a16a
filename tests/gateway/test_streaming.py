"""What passes through: every byte, every event at once, and nobody waits for somebody else."""

import asyncio
import contextlib
import hashlib
import json
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from commands.process.supervisor import SECOND_SIGNAL_S
from tests.support.client import (
    HOST,
    Closed,
    Connection,
    data_of,
    encode_head,
    events,
    exchange,
    wait_until,
)
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    SECRET,
    ask,
    check_refusal,
    check_stream_failure,
    check_whole_stream,
    credentials,
    is_error,
    is_heartbeat,
    is_terminal,
    path_of,
    text_of,
)
from tests.support.documents import channel, document
from tests.support.upstream import SAMPLES, STREAM_HEAD, RawUpstream
from tests.vendor.server import raise_descriptor_limit

QUIET = {"upstream.heartbeat_s": 0, "upstream.commit_after_s": 0}
BEATING = {
    "upstream.heartbeat_s": 1,
    "upstream.commit_after_s": 2,
    "upstream.max_event_bytes": 65536,
}
SAMPLE_MODEL = "demo-large"  # the name in the sample files
PUBLIC = "a-public-name/of-it"
RAW_MODEL = "raw-model"
SPLITS = (None, 1, 7, 61)
LEAVES_WITHIN_S = 2  # four times what is promised
# What a call with the usual bound of its output can be held for, and so the most it can cost.
MOST_DOLLARS = Decimal("0.13")  # 8192 tokens of a flood
COUNT_PATH = "/v1/messages/count_tokens"


@pytest.fixture(scope="module")
def raw():
    """The upstream whose bytes the test sends itself."""
    with RawUpstream() as upstream:
        yield upstream


def content(vendor, raw, full_port):
    names = {
        SAMPLE_MODEL: SAMPLE_MODEL,
        PUBLIC: SAMPLE_MODEL,
        "Public.Two": "another-upstream-name",
    }
    channels = []
    for family in ALL:
        channels.append(channel(f"vendor-{family}", family, vendor.url, names))
        channels.append(channel(f"raw-{family}", family, raw.url, {RAW_MODEL: RAW_MODEL}))
        silent = f"http://127.0.0.1:{full_port}"
        channels.append(channel(f"silent-{family}", family, silent, {"unreachable": "x"}))
    return document([*names, RAW_MODEL, "unreachable"], channels)


@pytest.fixture(scope="module")
def gateway(launch, vendor, raw, full_port):
    """Nothing of its own in any stream."""
    return launch(content(vendor, raw, full_port), QUIET, shared=False)


@pytest.fixture(scope="module")
def beating(launch, vendor, raw, full_port):
    """A heartbeat each second, a commit after two."""
    return launch(content(vendor, raw, full_port), BEATING)


def post(gateway, family, body, model=SAMPLE_MODEL, *, stream=None, array=False):
    """A call on a connection of its own; `stream` is read from the body where the body has it."""
    if stream is None:
        stream = isinstance(body, dict) and body.get("stream", False)
    path = path_of(family, model, stream, array)
    return exchange(gateway.port, "POST", path, credentials(family), body)


def post_stream(gateway, family, prompt, model=SAMPLE_MODEL):
    return post(gateway, family, streamed(family, prompt, model), model, stream=True)


def streamed(family, prompt, model=SAMPLE_MODEL, **more):
    body = ask(family, model, prompt, stream=True, **more)
    if family == CHAT and "stream_options" not in more:
        body["stream_options"] = {"include_usage": True}
    return body


def begin(connection, family, prompt, stream=True, model=SAMPLE_MODEL, **headers):
    """Sends a call on a connection; its answer is left to read."""
    body = streamed(family, prompt, model) if stream else ask(family, model, prompt)
    sent = {**credentials(family), **headers}
    connection.request("POST", path_of(family, model, stream), sent, body)


# ---- bytes ---------------------------------------------------------------------------------------


def samples(ending):
    """(family, name) of every sample that is neither an error nor a model list."""
    paths = sorted(Path(SAMPLES).glob(f"*/*.{ending}"))
    others = re.compile(r"error|models|_tokens$|text_stream_array")
    answers = [path for path in paths if path.stem == "max_tokens" or not others.search(path.stem)]
    return [(path.parent.name, path.stem) for path in answers]


def sample(family, name, ending):
    return (SAMPLES / family / f"{name}.{ending}").read_bytes()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def script(name, split, *more):
    words = [f"sample={name}", "ms=0", *more]
    return f"[[demo {' '.join(words)}{f' split={split}' if split else ''}]]"


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("family", "name"), samples("sse"))
def test_a_stream_passes_byte_for_byte(gateway, family, name, split):
    answer = post_stream(gateway, family, script(name, split))
    assert answer.status == 200 and answer.whole
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-length" not in answer.headers
    assert sha(answer.body) == sha(sample(family, name, "sse")), answer.body


@pytest.mark.parametrize("dress", ["crlf", "cr", "comments", "ping", "gzip", "batch=3"])
@pytest.mark.parametrize("family", ALL)
def test_a_dressed_stream_passes_byte_for_byte(gateway, vendor, family, dress):
    prompt = script("text", 5 if dress != "batch=3" else None, dress)
    answer = post_stream(gateway, family, prompt)
    direct = post_stream(vendor, family, prompt)
    wanted = sample(family, "text", "sse") if dress == "gzip" else direct.body
    assert answer.whole and sha(answer.body) == sha(wanted)


@pytest.mark.parametrize("split", (None, 1, 50))
@pytest.mark.parametrize(("family", "name"), samples("json"))
def test_an_answer_passes_byte_for_byte(gateway, family, name, split):
    answer = post(gateway, family, ask(family, SAMPLE_MODEL, script(name, split)))
    assert (answer.status, answer.whole) == (200, True)
    assert answer.headers["content-type"] == "application/json"
    assert sha(answer.body) == sha(sample(family, name, "json"))


# ---- the JSON array of generate_content ----------------------------------------------------------

ARRAY_SAMPLE = "text_stream_array"


def post_array(gateway, prompt, model=SAMPLE_MODEL):
    return post(gateway, GENERATE, ask(GENERATE, model, prompt), model, stream=True, array=True)


@pytest.mark.parametrize("split", (*SPLITS, 5000))
@pytest.mark.parametrize("model", [SAMPLE_MODEL, PUBLIC])
def test_an_array_passes_byte_for_byte_but_for_the_models_name(gateway, model, split):
    answer = post_array(gateway, script(ARRAY_SAMPLE, split), model)
    assert answer.status == 200 and answer.whole
    assert answer.headers["content-type"].startswith("application/json")
    original = sample(GENERATE, ARRAY_SAMPLE, "json")
    wanted = original.replace(b'"demo-large"', json.dumps(model).encode())
    assert sha(answer.body) == sha(wanted), answer.body
    record = gateway.record(answer.call_id)
    assert record["outcome"] == "ok" and record["output_tokens"] == 11 and record["stream"]
    assert record["endpoint"] == "/v1beta/models/{model}:streamGenerateContent"


def test_what_the_vendor_makes_of_an_array_passes(gateway, vendor):
    prompt = "[[demo ms=0 chunks=40 split=17 crlf]]"
    answer, direct = post_array(gateway, prompt), post_array(vendor, prompt)
    without_ids = re.compile(rb'"responseId":"[^"]*"')
    assert without_ids.sub(b"", answer.body) == without_ids.sub(b"", direct.body)
    assert len(answer.json) == 40


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("error_event=2 type=overloaded_error", "upstream_error"),
        ("cut=2", "upstream_truncated"),
        ("reset=2", "upstream_truncated"),
        ("clean_end=2", "upstream_truncated"),
        ("garbage=2", "upstream_truncated"),  # it opens what nothing closes
    ],
)
def test_an_array_that_fails_ends_as_an_array(gateway, fault, outcome):
    answer = post_array(gateway, f"[[demo ms=0 {fault}]]")
    assert answer.status == 200 and answer.whole
    *good, last = answer.json
    assert len(good) == 2 and all("candidates" in chunk for chunk in good)
    assert list(last) == ["error"] and set(last["error"]) == {"code", "message", "status"}
    assert answer.body.count(b"]") == answer.body.count(b"[")
    begins = answer.body.rindex(b',{"error":{"code":')
    assert json.loads(b"[" + answer.body[begins + 1 :]) == [last]
    record = gateway.record(answer.call_id)
    assert record["outcome"] == outcome
    assert Decimal(record["cost"]) > 0


@pytest.mark.parametrize("fault", ["cut=0", "reset=0", "garbage=0", "html200", "empty200",
                                   "error_event=0"])  # fmt: skip
def test_an_array_that_fails_before_its_first_element_is_a_refusal(gateway, fault):
    answer = post_array(gateway, f"[[demo ms=0 {fault}]]")
    assert answer.status >= 500
    assert list(answer.json) == ["error"] and answer.json["error"]["code"] == answer.status
    assert gateway.record(answer.call_id)["cost"] == "0"


def test_an_array_that_is_cut_behind_its_bracket_is_whole(gateway):
    for fault in ("cut=999", "reset=999"):
        # A model that no test of broken arrays has made the channel look bad for.
        answer = post_array(gateway, f"[[demo ms=0 {fault}]]", PUBLIC)
        assert answer.whole and "error" not in answer.json[-1]


def test_white_space_keeps_an_array_alive(beating):
    prompt = "[[demo ms=2400 chunks=2]]"
    answer = post_array(beating, prompt)
    assert answer.whole and "error" not in answer.json[-1]
    gaps = re.findall(rb"\}(\s*),\s*\{", answer.body)
    assert b"\r\n" in b"".join(gaps), answer.body
    assert beating.record(answer.call_id)["outcome"] == "ok"


@pytest.mark.parametrize("fault", ["error_event=0 type=overloaded_error", "status=503"])
def test_a_committed_array_begins_with_white_space_and_may_be_one_error(beating, fault):
    answer = post_array(beating, f"[[demo first_ms=3200 {fault}]]")
    assert answer.status == 200 and answer.whole
    assert answer.headers["content-type"].startswith("application/json")
    assert re.match(rb'(\r\n)+\[\{"error":\{"code":50\d,', answer.body), answer.body
    assert len(answer.json) == 1
    assert beating.record(answer.call_id)["cost"] == "0"


def test_a_committed_array_is_whole_with_its_white_space(beating):
    answer = post_array(beating, "[[demo first_ms=3200 ms=0]]")
    assert answer.body.startswith(b"\r\n") and answer.whole
    assert text_of(GENERATE, answer.body.lstrip())


# ---- counts, names -------------------------------------------------------------------------------


def test_a_token_count_passes_byte_for_byte(gateway):
    body = ask(MESSAGES, SAMPLE_MODEL, script("count_tokens", None))
    del body["max_tokens"]
    answer = exchange(gateway.port, "POST", COUNT_PATH, credentials(MESSAGES), body)
    assert answer.status == 200, answer.body
    assert set(answer.json) == {"input_tokens"}
    record = gateway.record(answer.call_id)
    assert (record["endpoint"], record["cost"], record["outcome"]) == (COUNT_PATH, "0", "ok")
    assert record["charges"] == [] and record["billed_to"] is None


MODEL_VALUE = re.compile(rb'"(?:model|modelVersion)"\s*:\s*("[^"]*")')
# where the model's name of a whole answer, and of an event, stands
EVENT_CARRIERS = {
    CHAT: lambda said: said,
    GENERATE: lambda said: said,
    RESPONSES: lambda said: said.get("response"),
    MESSAGES: lambda said: said["message"] if said.get("type") == "message_start" else None,
}


def renamed(family, body):
    """The sample with the one value of each event (or of the answer) in place of its own."""
    public = json.dumps(PUBLIC).encode()

    def rename(match):
        start, end = match.span(1)
        return match[0][: start - match.start()] + public + match[0][end - match.start() :]

    parts = [body] if body.lstrip().startswith(b"{") else events(body)
    changed = []
    for part in parts:
        said = json.loads(body) if part is body else data_of(part)
        carrier = said if part is body else None
        if isinstance(said, dict) and part is not body:
            carrier = EVENT_CARRIERS[family](said)
        carries = isinstance(carrier, dict) and ("model" in carrier or "modelVersion" in carrier)
        changed.append(MODEL_VALUE.sub(rename, part, count=1) if carries else part)
    return b"".join(changed)


@pytest.mark.parametrize("split", (None, 1))
@pytest.mark.parametrize(("family", "name"), samples("sse"))
def test_of_a_mapped_model_only_the_name_differs_in_a_stream(gateway, family, name, split):
    original = sample(family, name, "sse")
    answer = post_stream(gateway, family, script(name, split), PUBLIC)
    assert renamed(family, original) != original
    assert answer.whole and answer.body == renamed(family, original)


@pytest.mark.parametrize(("family", "name"), samples("json"))
def test_of_a_mapped_model_only_the_name_differs_in_an_answer(gateway, family, name):
    answer = post(gateway, family, ask(family, PUBLIC, script(name, None)), PUBLIC)
    assert answer.body == renamed(family, sample(family, name, "json"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("family", ALL)
def test_the_request_reaches_the_vendor_byte_for_byte(gateway, vendor, family, stream):
    vendor.reset()
    body = streamed(family, "häy 🍵 \u0000", SAMPLE_MODEL) if stream else ask(family, SAMPLE_MODEL)
    more = {"labels": {"a": "x"}} if family == GENERATE else {"metadata": {"user_id": "x"}}
    data = json.dumps({**body, **more}, indent=1, ensure_ascii=False).encode()
    assert post(gateway, family, data, stream=stream).status == 200
    (entry,) = vendor.log()
    assert entry["sha256"] == sha(data)


def test_in_a_request_only_the_models_name_is_changed(gateway, vendor):
    vendor.reset()
    body = {**ask(CHAT, PUBLIC), "tools": [{"type": "function", "function": {
        "name": "pick", "parameters": {"properties": {"model": {"const": PUBLIC}}}}}],
        "metadata": {"model": PUBLIC}}  # fmt: skip
    data = b'{"metadata":{"model":"first"}, ' + json.dumps(body).encode()[1:]
    data = data.replace(b', "metadata": {"model": "' + PUBLIC.encode() + b'"}', b"")
    assert post(gateway, CHAT, data).status == 200
    (entry,) = vendor.log()
    at = data.index(b'"model": "' + PUBLIC.encode())
    name = json.dumps(PUBLIC).encode()
    changed = data[:at] + data[at:].replace(name, json.dumps(SAMPLE_MODEL).encode(), 1)
    assert entry["body"].encode() == changed


# ---- usage of chat streams -----------------------------------------------------------------------


def chat_stream(options=None):
    body = ask(CHAT, SAMPLE_MODEL, "[[demo ms=0]]", stream=True)
    return body if options is None else {**body, "stream_options": options}


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
def test_usage_is_asked_for_and_taken_out_when_the_client_did_not_ask(gateway, vendor, options):
    vendor.reset()
    data = json.dumps(chat_stream(options)).encode()
    answer = post(gateway, CHAT, data)
    found = check_whole_stream(answer)
    assert not any(isinstance(data_of(e), dict) and data_of(e)["choices"] == [] for e in found)
    assert b'"usage":null' in answer.body  # what the vendor puts into the others stays
    (entry,) = vendor.log()
    sent = entry["body"].encode()
    if options is None:
        assert sent == data.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    else:
        assert json.loads(sent) == {**json.loads(data), "stream_options": {"include_usage": True}}
    record = gateway.record(answer.call_id)
    assert record["usage_source"] == "reported" and record["output_tokens"] > 0


def test_other_stream_options_are_kept(gateway, vendor):
    vendor.reset()
    post(gateway, CHAT, chat_stream({"include_obfuscation": False}))
    (entry,) = vendor.log()
    options = json.loads(entry["body"])["stream_options"]
    assert options == {"include_obfuscation": False, "include_usage": True}


def test_usage_that_was_asked_for_is_sent(gateway, vendor):
    vendor.reset()
    data = json.dumps(chat_stream({"include_usage": True})).encode()
    answer = post(gateway, CHAT, data)
    found = check_whole_stream(answer)
    last = data_of(found[-2])
    assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0
    (entry,) = vendor.log()
    assert entry["sha256"] == sha(data)
    record = gateway.record(answer.call_id)
    assert record["output_tokens"] == last["usage"]["completion_tokens"]


def test_usage_beside_a_finish_is_never_taken_out(gateway):
    body = ask(CHAT, SAMPLE_MODEL, "[[demo ms=0 usage=finish_chunk]]", stream=True)
    found = check_whole_stream(post(gateway, CHAT, body))
    assert data_of(found[-2])["choices"][0]["finish_reason"] == "stop"
    assert data_of(found[-2])["usage"]["completion_tokens"] > 0


# ---- straight through, heartbeats, commits -------------------------------------------------------


class Streaming:
    """A stream of the raw upstream: both ends in the hands of the test."""

    def __init__(self, gateway, raw, family, **more):
        self.family = family
        self.connection = Connection(gateway.port)
        begin(self.connection, family, "raw", model=RAW_MODEL, **more)
        self.peer = raw.accept()
        self.events = events(sample(family, "text", "sse"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()
        self.peer.close()

    def received(self, size):
        """The next bytes of the body, at least so many of them."""
        data = b""
        while len(data) < size:
            data += self.connection.read_chunk()
        return data

    def end(self):
        """What ends the upstream's body: only generate_content has no event that does."""
        if self.family == GENERATE:
            self.peer.chunk(b"")


@pytest.mark.parametrize("family", ALL)
def test_each_event_arrives_before_the_next_one_is_sent(gateway, raw, family):
    with Streaming(gateway, raw, family) as stream:
        stream.peer.send(STREAM_HEAD)
        for number, event in enumerate(stream.events):
            # In two pieces: an event is sent when it is complete, and is complete with its end.
            stream.peer.chunk(event[:-1])
            stream.peer.chunk(event[-1:])
            if number == 0:
                answer = stream.connection.read_head()
                assert answer.status == 200
            assert stream.received(len(event)) == event
        # The marker ends the call; the end of the upstream's body is not waited for.
        stream.end()
        assert stream.connection.read_chunk() == b""
    record = gateway.record(answer.call_id)
    assert record["outcome"] == "ok" and record["output_tokens"] > 0


@pytest.mark.parametrize("family", ALL)
def test_a_preamble_is_held_until_the_answer_is_accepted(gateway, raw, family):
    with Streaming(gateway, raw, family) as stream:
        stream.peer.send(STREAM_HEAD)
        stream.peer.chunk(b": waiting\n\n")
        stream.connection.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            stream.connection.read_head()
        stream.connection.socket.settimeout(10)
        stream.peer.chunk(stream.events[0])
        stream.connection.read_head()
        wanted = b": waiting\n\n" + stream.events[0]
        assert stream.received(len(wanted)) == wanted


def without_heartbeats(family, body):
    """(the vendor's bytes, number of heartbeats): a heartbeat stands only between events."""
    kept, beats, started = [], 0, False
    for event in events(body):
        if family == GENERATE:  # empty lines, which begin the next event
            kept.append(event.lstrip(b"\r\n"))
            beats += (len(event) - len(kept[-1])) // 2
            continue
        data = data_of(event)
        if is_heartbeat(family, event, started):
            beats += 1
        else:
            kept.append(event)
        started = started or (isinstance(data, dict) and data.get("type") == "message_start")
    return b"".join(kept), beats


def until_beats(gateway, family):
    """(status, bytes of a slow stream until heartbeats of our own have come)."""
    # The fewer events a sample has, the longer must its gaps be.
    prompt = f"[[demo sample=text ms={3900 if family == GENERATE else 1900}]]"
    pings = without_heartbeats(family, sample(family, "text", "sse"))[1]
    with Connection(gateway.port) as connection:
        begin(connection, family, prompt)
        answer, seen = connection.read_head(), b""
        while without_heartbeats(family, seen)[1] < pings + 2:
            seen += connection.read_chunk()
    return answer.status, seen


@pytest.fixture(scope="module")
def slow_streams(beating):
    """Of all families at once: each takes seconds."""
    with ThreadPoolExecutor(len(ALL)) as pool:
        seen = pool.map(lambda family: until_beats(beating, family), ALL)
        return dict(zip(ALL, seen, strict=True))


@pytest.mark.parametrize("family", ALL)
def test_heartbeats_fill_the_gaps_between_events(slow_streams, family):
    status, seen = slow_streams[family]
    kept, _ = without_heartbeats(family, seen)
    assert status == 200
    assert without_heartbeats(family, sample(family, "text", "sse"))[0].startswith(kept) and kept


BIG = b": " + b"x" * 200_000, b"y" * 1000 + b"\n\n"  # an event over the limit, in two pieces


@pytest.fixture(scope="module")
def halved(beating, raw):
    """The answers of streams that were silent in the middle of an event, all at the same time."""
    with contextlib.ExitStack() as stack:
        streams, rest = {}, {}
        for kind, family in [*(("small", f) for f in ALL), ("big", CHAT), ("big", GENERATE)]:
            stream = stack.enter_context(Streaming(beating, raw, family))
            streams[kind, family] = stream
            first, *others = stream.events
            half, end = BIG if kind == "big" else (others[0][:20], others.pop(0)[20:])
            stream.peer.send(STREAM_HEAD)
            stream.peer.chunk(first + half)
            rest[kind, family] = end + b"".join(others)
        time.sleep(2.5)
        for name, stream in streams.items():
            stream.peer.chunk(rest[name])
            stream.end()
        return {name: stream.connection.read() for name, stream in streams.items()}


@pytest.mark.parametrize("family", ALL)
def test_no_heartbeat_within_an_event(halved, family):
    answer = halved["small", family]
    kept, beats = without_heartbeats(family, answer.body)
    wanted, pings = without_heartbeats(family, sample(family, "text", "sse"))
    assert answer.whole and kept == wanted
    assert beats - pings >= 1  # before the half event, whose first half waits


# Events over the limit are the bridge's; no family's tap sees them.
@pytest.mark.parametrize("family", (CHAT, GENERATE))
def test_an_event_over_the_limit_passes_raw_and_without_heartbeats(halved, family):
    answer = halved["big", family]
    first, *rest = events(sample(family, "text", "sse"))
    assert answer.whole
    assert answer.body == b"".join((first, *BIG, *rest))


def test_committed_streams_begin_with_heartbeats(beating, raw):
    with contextlib.ExitStack() as stack:
        for stream in [stack.enter_context(Streaming(beating, raw, family)) for family in ALL]:
            check_committed(beating, stream)


def check_committed(gateway, stream):
    family = stream.family
    answer = stream.connection.read_head()  # nothing came from the upstream so far
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    beats = stream.received(1) + stream.received(1)
    assert all(is_heartbeat(family, event, False) for event in events(beats))
    stream.peer.send(STREAM_HEAD)
    stream.peer.chunk(b"".join(stream.events))
    stream.end()
    stream.connection.read_body(answer)
    kept, _ = without_heartbeats(family, beats + answer.body)
    assert kept == without_heartbeats(family, sample(family, "text", "sse"))[0]
    assert gateway.record(answer.call_id)["outcome"] == "ok"


@pytest.mark.parametrize("family", ALL)
def test_a_cut_within_an_event_over_the_limit_drops_the_connection(beating, raw, family):
    with Streaming(beating, raw, family) as stream:
        stream.peer.send(STREAM_HEAD)
        stream.peer.chunk(stream.events[0] + b"data: " + b"x" * 200_000)
        answer = stream.connection.read_head()
        stream.received(100_000)
        stream.peer.close()
        with pytest.raises((Closed, ConnectionError)):
            stream.connection.read_body(answer)
    assert not answer.whole  # nobody can take it for a whole one
    record = beating.record(answer.call_id)
    assert record["outcome"] == "upstream_truncated" and Decimal(record["cost"]) > 0


# ---- slow readers --------------------------------------------------------------------------------


def private_kib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(
        int(n) for n in re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", text, re.MULTILINE)
    )


# What waits for a slow reader is in buffers that no family knows of: one of each line end.
@pytest.mark.parametrize("family", (CHAT, GENERATE))
def test_a_slow_reader_of_a_flood_costs_little_and_disturbs_nobody(gateway, vendor, family):
    (worker,) = gateway.worker_pids()
    flood = "[[demo flood=256 ms=0]]"
    with Connection(gateway.port) as warm:  # a fast reader first: what stays of that is no matter
        begin(warm, family, flood)
        warm.read_head()
        for _ in range(300):
            warm.read_chunk()
    vendor.reset()
    before_kib = settled_kib(worker)
    with Connection(gateway.port, receive_bytes=4096) as slow:
        begin(slow, family, flood)
        worst_kib, worst_s = 0, 0.0
        for _ in range(40):
            slow.socket.recv(100)
            began = time.monotonic()
            assert exchange(gateway.port, "GET", "/livez").status == 200
            answer = post(gateway, family, ask(family, SAMPLE_MODEL))
            assert answer.status == 200
            worst_s = max(worst_s, time.monotonic() - began)
            worst_kib = max(worst_kib, private_kib(worker) - before_kib)
            time.sleep(0.07)
        (flooding,) = [e for e in vendor.log() if "flood" in e["body"]]
        assert flooding["chunks_sent"] * 4096 < 32 << 20  # the vendor waits; kernels hold some
    assert worst_kib <= 2048, f"{worst_kib} KiB for one slow reader"
    assert worst_s < 2
    assert wait_until(lambda: gone_at(vendor, "flood"), LEAVES_WITHIN_S)


def settled_kib(pid):
    """Private memory when it does not fall any more."""
    last = private_kib(pid)
    for _ in range(20):
        time.sleep(0.1)
        now = private_kib(pid)
        if now >= last:
            break
        last = now
    return last


def test_a_reader_that_pauses_gets_everything(gateway):
    body = streamed(CHAT, "[[demo flood=24 ms=0]]", SAMPLE_MODEL, max_tokens=10**7)
    with Connection(gateway.port, receive_bytes=8192) as connection:
        connection.request("POST", path_of(CHAT, SAMPLE_MODEL), credentials(), body)
        time.sleep(1.5)
        answer = connection.read()
    assert len(check_whole_stream(answer)) > 24 * 256
    assert len(text_of(CHAT, answer.body)) >= 24 << 20


# ---- clients that leave --------------------------------------------------------------------------


def gone_at(vendor, marker):
    found = [entry for entry in vendor.log() if marker in entry["body"]]
    return found[0]["gone_at_ms"] if found else None


PHASES = [
    # (name, script, streamed, how far the client waits, whether something was delivered)
    ("before the head", "stall_before_head", False, "request", False),
    ("before the head of a stream", "stall_before_head", True, "request", False),
    ("after the head", "stall_after_head", True, "request", False),
    ("within an answer", "stall=50", False, "request", False),
    ("within a slow answer", "slow_body ms=100", False, "request", False),
    ("in a silent stream", "stall=3", True, "chunks", True),
    ("in a running stream", "ms=50 chunks=1000", True, "chunks", True),
    ("in a flood", "flood=512 ms=0", True, "chunks", True),
    ("blocked in a flood", "flood=512 ms=1", True, "blocked", True),
]


@pytest.mark.parametrize(
    ("family", "farewell"),
    [(CHAT, "close"), (MESSAGES, "reset"), (RESPONSES, "close"), (GENERATE, "reset")],
)
@pytest.mark.parametrize(
    ("words", "stream", "waits_for", "delivered"),
    [p[1:] for p in PHASES],
    ids=[p[0] for p in PHASES],
)
def test_a_client_that_leaves_closes_the_upstream(
    gateway, vendor, family, words, stream, waits_for, delivered, farewell
):
    marker = f"leaver-{time.monotonic_ns()}"
    prompt = f"[[demo {words}]] {marker}"
    with Connection(gateway.port, receive_bytes=4096) as connection:
        begin(connection, family, prompt, stream, **{"X-Client-Request-Id": marker})
        if waits_for == "chunks":
            connection.read_head()
            connection.read_chunk()
        arrived = wait_until(lambda: any(marker in e["body"] for e in vendor.log()))
        assert arrived, "the call did not reach the vendor"
        time.sleep(0.8 if waits_for == "blocked" else 0.1)
        left_ms = time.time() * 1000
        getattr(connection, farewell)()
    gone_ms = wait_until(lambda: gone_at(vendor, marker), 5)
    assert gone_ms and gone_ms - left_ms < LEAVES_WITHIN_S * 1000
    record = gateway.tail.find(client_request_id=marker)
    assert (record["outcome"], record["error_code"]) == ("client_gone", "client_gone")
    assert len(record["attempts"]) == 1
    cost = Decimal(record["cost"])
    assert record["input_tokens"] > 0 and 0 < cost < MOST_DOLLARS
    if delivered:
        assert record["status"] == 200
    else:  # the vendor had read the request
        assert (record["output_tokens"], record["usage_source"]) == (0, "estimated")
        assert record["status"] is None


@pytest.mark.parametrize("family", ALL)
def test_a_client_that_leaves_while_the_gateway_connects(gateway, family):
    marker = f"leaver-{time.monotonic_ns()}"
    with Connection(gateway.port) as connection:
        headers = {"X-Client-Request-Id": marker}
        begin(connection, family, "x", False, "unreachable", **headers)
        time.sleep(0.3)
    record = gateway.tail.find(timeout_s=LEAVES_WITHIN_S + 1, client_request_id=marker)
    assert (record["outcome"], record["cost"]) == ("client_gone", "0")
    assert record["duration_ms"] < LEAVES_WITHIN_S * 1000


def test_a_client_that_leaves_behind_the_marker_had_a_whole_answer(gateway):
    body = streamed(CHAT, "[[demo ms=0 stall=999]]")
    with Connection(gateway.port) as connection:
        connection.request("POST", path_of(CHAT, SAMPLE_MODEL), credentials(), body)
        answer = connection.read_head()
        while not any(is_terminal(e) for e in events(answer.body)):
            answer.pieces.append(connection.read_chunk())
    assert gateway.record(answer.call_id)["outcome"] == "ok"


# ---- many ----------------------------------------------------------------------------------------

STREAMS = 1000


async def one_of_many(port, number):
    reader, writer = await asyncio.open_connection(HOST, port)
    prompt = f"[[demo chunks=4 ms=400]] {number}"
    body = json.dumps(streamed(CHAT, prompt)).encode()
    headers = {**credentials(), "Connection": "close"}
    writer.write(encode_head("POST", path_of(CHAT, SAMPLE_MODEL), headers, body) + body)
    answer = await reader.read(-1)
    writer.close()
    head, _, framed = answer.partition(b"\r\n\r\n")
    call_id = re.search(rb"(?i)\nx-request-id: (\w+)", head)[1].decode()
    whole = b"data: [DONE]" in framed and framed.endswith(b"0\r\n\r\n")
    return call_id, head.startswith(b"HTTP/1.1 200") and whole and framed.count(b'"content":') == 5


async def many(port):
    return await asyncio.gather(*(one_of_many(port, number) for number in range(STREAMS)))


def test_a_thousand_streams_of_one_key(gateway, vendor):
    raise_descriptor_limit()
    most = [0]
    watching = threading.Event()

    def watch():
        while not watching.wait(0.1):
            most[0] = max(most[0], vendor.stats()["streams"])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        seen = asyncio.run(many(gateway.port))
    finally:
        watching.set()
        thread.join()
    assert [call_id for call_id, good in seen if not good] == []
    assert most[0] > STREAMS * 0.9, "they did not run at one time"
    ids = {call_id for call_id, _ in seen}
    assert len(ids) == STREAMS
    outcomes = {gateway.record(call_id, 20)["outcome"] for call_id in ids}
    assert outcomes == {"ok"}
    assert vendor.stats()["streams"] == 0


LEAVERS = 500


async def leavers(port):
    """Begins many streams, then closes all of them at once."""
    writers = []
    body = json.dumps(streamed(MESSAGES, "[[demo chunks=1000 ms=500]] leaver of many")).encode()
    head = encode_head("POST", path_of(MESSAGES, SAMPLE_MODEL), credentials(MESSAGES), body)
    for _ in range(LEAVERS):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(head + body)
        writers.append((reader, writer))
    heads = [await reader.readuntil(b"\r\n\r\n") for reader, _ in writers]
    for _, writer in writers:
        writer.transport.abort()
    return [re.search(rb"(?i)\nx-request-id: (\w+)", head)[1].decode() for head in heads]


def test_many_clients_that_leave_at_once(gateway, vendor):
    raise_descriptor_limit()
    vendor.reset()
    ids = asyncio.run(leavers(gateway.port))
    left_at = time.monotonic()
    assert len(set(ids)) == LEAVERS
    assert wait_until(lambda: vendor.stats()["streams"] == 0, 3 * LEAVES_WITHIN_S)
    assert exchange(gateway.port, "GET", "/livez").status == 200
    assert time.monotonic() - left_at < 3 * LEAVES_WITHIN_S
    records = [gateway.record(call_id, 20) for call_id in ids]
    assert {record["outcome"] for record in records} == {"client_gone"}
    gateway.run("books", "verify")


# ---- drain ---------------------------------------------------------------------------------------


@pytest.fixture
def drained(launch_own, vendor, raw, full_port):
    """A gateway that the test ends; three seconds for running calls."""
    return launch_own(
        content(vendor, raw, full_port), {**QUIET, "server.drain_timeout_s": 3}, follow=False
    )


def began(port, family, prompt, stream=True):
    connection = Connection(port)
    begin(connection, family, prompt, stream)
    return connection


def refuses(port):
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return False
    except OSError:
        return True


def test_a_drain_lets_running_calls_end(drained, vendor):
    with contextlib.ExitStack() as stack:
        running = [
            (family, stream, stack.enter_context(
                began(drained.port, family, "[[demo chunks=4 ms=90 first_ms=600]]", stream)))
            for family in ALL for stream in (True, False)
        ]  # fmt: skip
        kept = stack.enter_context(Connection(drained.port))
        kept.request("GET", "/livez")
        assert kept.read().status == 200
        idle = stack.enter_context(Connection(drained.port))
        idle.request("GET", "/livez")
        assert idle.read().status == 200
        assert wait_until(lambda: vendor.stats()["streams"] >= 1)
        drained.process.send_signal(signal.SIGTERM)
        signalled = time.monotonic()
        assert wait_until(lambda: refuses(drained.port))
        assert drained.call("GET", "/readyz", port=drained.ops_port)[0] == 503
        assert drained.call("GET", "/livez", port=drained.ops_port)[0] == 200
        # A request on a kept connection is served, and told that it was the last one.
        begin(kept, CHAT, "one more", stream=False)
        answer = kept.read()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert kept.until_closed() == b""
        for family, stream, connection in running:
            answer = connection.read()
            assert answer.status == 200 and answer.whole
            assert text_of(family, answer.body)
            if stream:
                check_whole_stream(answer)
        assert idle.until_closed() == b""
        assert time.monotonic() - signalled > 1, "an idle connection may still bring a request"
    assert drained.process.wait(10) == 0
    records = drained.usage()
    assert [record["outcome"] for record in records] == ["ok"] * (2 * len(ALL) + 1)


def test_a_drain_ends_what_does_not_end(drained, vendor):
    endless = "[[demo ms=100 chunks=2000]]"
    with contextlib.ExitStack() as stack:
        streams = {
            family: stack.enter_context(began(drained.port, family, endless)) for family in ALL
        }
        silent = {
            family: stack.enter_context(began(drained.port, family, "[[demo stall=2 ms=0]]"))
            for family in ALL
        }
        headless = {
            (family, stream): stack.enter_context(
                began(drained.port, family, "[[demo stall_before_head]]", stream))
            for family in ALL for stream in (True, False)
        }  # fmt: skip
        calls = len(streams) + len(silent) + len(headless)
        told = len(streams) + len(silent)
        assert wait_until(lambda: len(vendor.log()) >= calls and vendor.stats()["streams"] >= told)
        time.sleep(0.5)
        began_at = time.monotonic()
        drained.process.send_signal(signal.SIGTERM)
        for connections in (streams, silent):
            for family, connection in connections.items():
                answer = connection.read()
                check_stream_failure(answer, family, "E38")
        assert time.monotonic() - began_at > 2, "ended before its time"
        for (family, _), connection in headless.items():
            check_refusal(connection.read(), family, "E38")
    assert drained.process.wait(15) == 0
    assert time.monotonic() - began_at < 15
    records = drained.usage()
    assert len(records) == calls
    for record in records:
        assert (record["outcome"], record["error_code"]) == ("drained", "drained")
        began_to = record["status"] == 200
        assert record["status"] in (200, 503) and (Decimal(record["cost"]) > 0) is began_to
    assert sum(record["status"] == 200 for record in records) == told
    drained.run("books", "verify")


def test_a_second_signal_ends_it(drained, vendor):
    vendor.reset()
    with began(drained.port, CHAT, "[[demo ms=100 chunks=2000]]") as connection:
        assert wait_until(lambda: len(vendor.log()) == 1)
        connection.read_head()
        before = drained.log().count("gateway draining")
        drained.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: drained.log().count("gateway draining") > before)
        time.sleep(SECOND_SIGNAL_S)
        drained.process.send_signal(signal.SIGTERM)
        answer = connection.read_chunk()  # what is in the pipe
        assert answer
        assert drained.process.wait(10) == 1
    drained.start()  # whatever was lost is found again
    (record,) = wait_until(drained.usage, 10)
    assert record["outcome"] in ("drained", "gateway_lost")
    assert drained.stop() == 0


def test_no_secret_is_in_an_event_of_a_vendors_error(gateway):
    said = "account sk-vendor-of-the-channel-42 at https://api.vendor.example/v1 is over"
    prompt = f"[[demo error_event=2 ms=0 message={json.dumps(said)}]]"
    for family in ALL:
        answer = post_stream(gateway, family, prompt)
        failed = [event for event in events(answer.body) if is_error(event)]
        assert len(failed) == (2 if family == RESPONSES else 1)
        assert all(b"sk-vendor" not in e and b"vendor.example" not in e for e in failed)
        assert SECRET.encode() not in answer.body
