"""Streams: every byte passes, every event at once, and no call waits for another.

The tests of adapters and of the pump check that any sample passes in any split, and what comes
between its events; these tests go through sockets.
"""

import contextlib
import json
import re
import signal
import socket
import time
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support import client, dialects
from tests.support.documents import channel, document
from tests.support.upstream import SAMPLES, STREAM_HEAD, RawUpstream
from tests.vendor.server import raise_descriptor_limit

QUIET = {"upstream.heartbeat_s": 0, "upstream.commit_after_s": 0}
BEATING = {"upstream.heartbeat_s": 1, "upstream.commit_after_s": 2}
SAMPLE_MODEL = "demo-large"  # the name in the sample files
PUBLIC = "a-public-name/of-it"
RAW_MODEL = "raw-model"
LEAVES_WITHIN_S = 2  # four times what is promised
# The largest hold of a call with the usual bound, and so the highest cost.
MOST_DOLLARS = Decimal("0.13")  # 8192 tokens of a flood


@pytest.fixture(scope="module")
def raw():
    """Yield the upstream whose bytes the test sends itself."""
    with RawUpstream() as upstream:
        yield upstream


def content(vendor, raw):
    names = {SAMPLE_MODEL: SAMPLE_MODEL, PUBLIC: SAMPLE_MODEL}
    channels = []
    for family in dialects.ALL:
        channels.append(channel(f"vendor-{family}", family, vendor.url, names))
        channels.append(channel(f"raw-{family}", family, raw.url, {RAW_MODEL: RAW_MODEL}))
    return document([*names, RAW_MODEL], channels)


@pytest.fixture(scope="module")
def gateway(launch, vendor, raw):
    """Return a gateway that adds nothing to streams."""
    return launch(content(vendor, raw), QUIET)


@pytest.fixture(scope="module")
def beating(launch, vendor, raw):
    """Return a gateway with a heartbeat each second and a commit after two."""
    return launch(content(vendor, raw), BEATING)


def post(gateway, family, body, model=SAMPLE_MODEL, *, stream=False, array=False):
    """Make a call on a connection of its own."""
    path = dialects.path_of(family, model, stream, array)
    return client.exchange(gateway.port, "POST", path, dialects.credentials(family), body)


def streamed(family, prompt, model=SAMPLE_MODEL, **more):
    body = dialects.ask(family, model, prompt, stream=True, **more)
    if family == dialects.CHAT:
        body["stream_options"] = {"include_usage": True}
    return body


def begin(connection, family, prompt, stream=True, model=SAMPLE_MODEL, **headers):
    """Send a call on a connection; its answer is not read yet."""
    body = streamed(family, prompt, model) if stream else dialects.ask(family, model, prompt)
    sent = {**dialects.credentials(family), **headers}
    connection.request("POST", dialects.path_of(family, model, stream), sent, body)


def began(port, family, prompt, stream=True):
    connection = client.Connection(port)
    begin(connection, family, prompt, stream)
    return connection


# ---- bytes ---------------------------------------------------------------------------------------


def sample(family, name="text", ending="sse", model=SAMPLE_MODEL):
    """Return the bytes of a sample file, with the name of the requested model."""
    data = (SAMPLES / family / f"{name}.{ending}").read_bytes()
    return data.replace(json.dumps(SAMPLE_MODEL).encode(), json.dumps(model).encode())


@pytest.mark.parametrize("family", dialects.ALL)
def test_only_the_models_name_differs_in_an_answer_and_a_stream(gateway, family):
    for stream, ending in ((False, "json"), (True, "sse")):
        words = "[[demo sample=text ms=0 split=7]]"
        body = streamed(family, words, PUBLIC) if stream else dialects.ask(family, PUBLIC, words)
        answer = post(gateway, family, body, PUBLIC, stream=stream)
        assert answer.status == 200 and answer.whole
        assert answer.body == sample(family, ending=ending, model=PUBLIC)
        assert ("content-length" in answer.headers) is not stream
    headers = {"content-type": "text/event-stream", "cache-control": "no-cache, no-transform",
               "x-accel-buffering": "no"}  # fmt: skip
    assert {name: answer.headers[name].partition(";")[0] for name in headers} == headers


# ---- pass-through, heartbeats, commits -----------------------------------------------------------


class Streaming:
    """A stream of the raw upstream; the test controls both ends."""

    def __init__(self, gateway, raw, family):
        self.family = family
        self.connection = client.Connection(gateway.port)
        begin(self.connection, family, "raw", model=RAW_MODEL)
        self.peer = raw.accept()
        self.events = client.events(sample(family))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()
        self.peer.close()

    def received(self, size):
        """Return the next bytes of the body, at least this many."""
        data = b""
        while len(data) < size:
            data += self.connection.read_chunk()
        return data

    def end(self):
        """End the upstream's body; only generate_content has no event that ends the stream."""
        if self.family == dialects.GENERATE:
            self.peer.chunk(b"")


@pytest.mark.parametrize("family", [dialects.MESSAGES, dialects.GENERATE])
def test_each_event_arrives_before_the_next_one_is_sent(gateway, raw, family):
    with Streaming(gateway, raw, family) as stream:
        stream.peer.send(STREAM_HEAD)
        for number, event in enumerate(stream.events):
            # In two chunks: an event is sent only when it is complete, with its terminator.
            stream.peer.chunk(event[:-1])
            stream.peer.chunk(event[-1:])
            if number == 0:
                answer = stream.connection.read_head()
                assert answer.status == 200
            assert stream.received(len(event)) == event
        # The marker ends the call, without waiting for the end of the upstream's body.
        stream.end()
        assert stream.connection.read_chunk() == b""
    record = gateway.record(answer.call_id)
    assert record["outcome"] == "ok" and record["output_tokens"] > 0


def without_heartbeats(family, body):
    """Return (the vendor's bytes, number of heartbeats); heartbeats may come only between
    events."""
    own, beats, started = [], 0, False
    for event in client.events(body):
        if family == dialects.GENERATE:  # blank lines before the next event
            own.append(event.lstrip(b"\r\n"))
            beats += (len(event) - len(own[-1])) // 2
            continue
        data = client.data_of(event)
        if dialects.is_heartbeat(family, event, started):
            beats += 1
        else:
            own.append(event)
        started = started or (isinstance(data, dict) and data.get("type") == "message_start")
    return b"".join(own), beats


def test_committed_streams_begin_with_heartbeats_and_have_them_in_gaps(beating, raw):
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(Streaming(beating, raw, family)) for family in dialects.ALL]
        answers, rest = [], []
        for stream in streams:
            answer = stream.connection.read_head()  # nothing has come from the upstream yet
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            answer.pieces += [stream.received(1), stream.received(1)]
            assert all(
                dialects.is_heartbeat(stream.family, one, False)
                for one in client.events(answer.body)
            )
            first, second, *others = stream.events
            stream.peer.send(STREAM_HEAD)
            stream.peer.chunk(first + second[:20])
            answers.append(answer)
            rest.append(second[20:] + b"".join(others))
        before = [
            without_heartbeats(s.family, a.body)[1] for s, a in zip(streams, answers, strict=True)
        ]
        time.sleep(2.5)  # in the middle of an event, whose first half is waiting
        for stream, answer, end, early in zip(streams, answers, rest, before, strict=True):
            stream.peer.chunk(end)
            stream.end()
            stream.connection.read_body(answer)
            own, beats = without_heartbeats(stream.family, answer.body)
            whole, pings = without_heartbeats(stream.family, sample(stream.family))
            assert answer.whole and own == whole
            assert beats - pings > early
            assert beating.record(answer.call_id)["outcome"] == "ok"


# ---- slow readers --------------------------------------------------------------------------------


def private_kib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", text, re.MULTILINE)
    return sum(map(int, sizes))


def settled_kib(pid):
    """Return the private memory once it no longer falls."""
    last = private_kib(pid)
    for _ in range(20):
        time.sleep(0.1)
        now = private_kib(pid)
        if now >= last:
            break
        last = now
    return last


def test_a_slow_reader_of_a_flood_costs_little_and_disturbs_nobody(gateway, vendor):
    (worker,) = gateway.worker_pids()
    flood = "[[demo flood=256 ms=0]]"
    with client.Connection(
        gateway.port
    ) as warm:  # a fast reader first, so that memory which it leaves allocated does not count
        begin(warm, dialects.CHAT, flood)
        warm.read_head()
        for _ in range(300):
            warm.read_chunk()
    vendor.reset()
    before_kib = settled_kib(worker)
    with client.Connection(gateway.port, receive_bytes=4096) as slow:
        begin(slow, dialects.CHAT, flood)
        worst_kib, worst_s = 0, 0.0
        for _ in range(40):
            slow.socket.recv(100)
            began = time.monotonic()
            assert client.exchange(gateway.port, "GET", "/livez").status == 200
            assert (
                post(gateway, dialects.CHAT, dialects.ask(dialects.CHAT, SAMPLE_MODEL)).status
                == 200
            )
            worst_s = max(worst_s, time.monotonic() - began)
            worst_kib = max(worst_kib, private_kib(worker) - before_kib)
            time.sleep(0.07)
        (flooding,) = [e for e in vendor.log() if "flood" in e["body"]]
        # The vendor is paused; the kernels' buffers hold some.
        assert flooding["chunks_sent"] * 4096 < 32 << 20
    assert worst_kib <= 2048, f"{worst_kib} KiB for one slow reader"
    assert worst_s < 2
    assert client.wait_until(lambda: gone_at(vendor, "flood"), LEAVES_WITHIN_S)


# ---- clients that disconnect ---------------------------------------------------------------------


def gone_at(vendor, marker):
    entries = [entry for entry in vendor.log() if marker in entry["body"]]
    return entries[0]["gone_at_ms"] if entries else None


PHASES = [
    # (name, family, script, streamed, how far the client reads)
    ("before the head", dialects.CHAT, "stall_before_head", False, "request"),
    ("after the head", dialects.RESPONSES, "stall_after_head", True, "request"),
    ("within an answer", dialects.GENERATE, "stall=50", False, "request"),
    ("in a running stream", dialects.MESSAGES, "ms=50 chunks=1000", True, "chunks"),
    ("blocked in a flood", dialects.CHAT, "flood=512 ms=1", True, "blocked"),
]


@pytest.mark.parametrize(("family", "words", "stream", "waits_for"), [p[1:] for p in PHASES],
                         ids=[p[0] for p in PHASES])  # fmt: skip
def test_a_client_that_leaves_closes_the_upstream(
    gateway, vendor, family, words, stream, waits_for
):
    marker = f"leaver-{time.monotonic_ns()}"
    with client.Connection(gateway.port, receive_bytes=4096) as connection:
        prompt = f"[[demo {words}]] {marker}"
        begin(connection, family, prompt, stream, **{"X-Client-Request-Id": marker})
        if waits_for == "chunks":
            connection.read_head()
            connection.read_chunk()
        arrived = client.wait_until(lambda: any(marker in e["body"] for e in vendor.log()))
        assert arrived, "the call did not reach the vendor"
        time.sleep(0.8 if waits_for == "blocked" else 0.1)
        left_ms = time.time() * 1000
        if family in (dialects.MESSAGES, dialects.GENERATE):
            connection.reset()
    gone_ms = client.wait_until(lambda: gone_at(vendor, marker), 5)
    assert gone_ms and gone_ms - left_ms < LEAVES_WITHIN_S * 1000
    record = gateway.tail.find(client_request_id=marker)
    assert (record["outcome"], record["error_code"]) == ("client_gone", "client_gone")
    assert len(record["attempts"]) == 1
    assert record["input_tokens"] > 0 and 0 < Decimal(record["cost"]) < MOST_DOLLARS
    if waits_for == "request":  # nothing was delivered, but the vendor had read the request
        assert (record["output_tokens"], record["usage_source"]) == (0, "estimated")
        assert record["status"] is None
    else:
        assert record["status"] == 200


# ---- many streams --------------------------------------------------------------------------------

STREAMS = 1000


def test_a_thousand_streams_of_one_key(gateway, vendor):
    raise_descriptor_limit()
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(
                began(gateway.port, dialects.CHAT, "[[demo first_ms=5000 chunks=4 ms=0]]")
            )
            for _ in range(STREAMS)
        ]
        at_one_time = client.wait_until(lambda: vendor.stats()["streams"] > STREAMS * 0.9)
        assert at_one_time, "they did not run at one time"
        answers = [connection.read() for connection in connections]
    for answer in answers:
        dialects.check_whole_stream(answer)
    ids = {answer.call_id for answer in answers}
    assert len(ids) == STREAMS
    assert {gateway.record(call_id, 20)["outcome"] for call_id in ids} == {"ok"}
    assert vendor.stats()["streams"] == 0


# ---- drain ---------------------------------------------------------------------------------------
# test_errors.py and test_settlement.py check what a drain ends.


@pytest.fixture(scope="module")
def drained(launch, vendor, raw):
    """Return a gateway that tests drain; running calls get three seconds."""
    settings = {**QUIET, "server.drain_timeout_s": 3}
    return launch(content(vendor, raw), settings, follow=False)


def refuses(port):
    try:
        with socket.create_connection((client.HOST, port), timeout=1):
            return False
    except OSError:
        return True


def test_a_drain_lets_running_calls_end(drained, vendor):
    with contextlib.ExitStack() as stack:
        running = [
            (family, stream, stack.enter_context(
                began(drained.port, family, "[[demo chunks=4 ms=90 first_ms=600]]", stream)))
            for family in dialects.ALL for stream in (True, False)
        ]  # fmt: skip
        kept, idle = (stack.enter_context(client.Connection(drained.port)) for _ in range(2))
        for connection in (kept, idle):
            connection.request("GET", "/livez")
            assert connection.read().status == 200
        assert client.wait_until(lambda: vendor.stats()["streams"] >= 1)
        drained.process.send_signal(signal.SIGTERM)
        signalled = time.monotonic()
        assert client.wait_until(lambda: refuses(drained.port))
        assert drained.call("GET", "/readyz", port=drained.ops_port)[0] == 503
        assert drained.call("GET", "/livez", port=drained.ops_port)[0] == 200
        # A request on a kept connection is served, with the notice that it was the last one.
        begin(kept, dialects.CHAT, "one more", stream=False)
        answer = kept.read()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert kept.until_closed() == b""
        for family, stream, connection in running:
            answer = connection.read()
            assert answer.status == 200 and answer.whole
            assert dialects.text_of(family, answer.body)
            if stream:
                dialects.check_whole_stream(answer)
        assert idle.until_closed() == b""
        assert time.monotonic() - signalled > 1, "an idle connection may still bring a request"
    assert drained.process.wait(10) == 0
    records = drained.usage()
    assert [record["outcome"] for record in records] == ["ok"] * (2 * len(dialects.ALL) + 1)
