"""Every pace and every fault does at the socket what its word says, in both families."""

import gzip
import json
import socket
import time
import zlib

import pytest

from tests.support.upstream import ScriptedUpstream

FAMILIES = ("chat_completions", "messages")
PATHS = {"chat_completions": "/v1/chat/completions", "messages": "/v1/messages"}
ENDS = {"chat_completions": b"data: [DONE]\n\n", "messages": b'{"type":"message_stop"}\n\n'}


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def request_bytes(family, words, *, stream=True, text="hi", model="demo-large"):
    body = {
        "model": model,
        "max_tokens": 1_000_000,
        "stream": stream,
        "messages": [{"role": "user", "content": f"[[demo {words}]] {text}"}],
    }
    data = json.dumps(body).encode()
    return (
        f"POST {PATHS[family]} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-up\r\n"
        "anthropic-version: 2023-06-01\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    ).encode() + data


class Heard:
    """All that came back, and how it ended: "eof", "reset" or "silent"."""

    def __init__(self, upstream, family, words, *, silence_s=0.2, **facts):
        received = b""
        self.started = time.monotonic()
        self.arrivals = []
        self.end = "eof"
        with socket.create_connection(("127.0.0.1", upstream.port), timeout=10) as sock:
            sock.sendall(request_bytes(family, words, **facts))
            if "stall" in words:
                sock.settimeout(silence_s)
            try:
                while part := sock.recv(1 << 20):
                    self.arrivals.append((time.monotonic() - self.started, part))
                    received += part
            except ConnectionResetError:
                self.end = "reset"
            except TimeoutError:
                self.end = "silent"
        self.head, _, self.raw = received.partition(b"\r\n\r\n")
        self.chunked = b"transfer-encoding: chunked" in self.head
        self.body, self.chunks, self.whole = self.raw, [], True
        if self.chunked:
            self._dechunk()

    def _dechunk(self):
        rest, self.whole = self.raw, False
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            if int(size, 16) == 0:
                self.whole = rest == b"\r\n"
                break
            chunk, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
            self.chunks.append(chunk)
        self.body = b"".join(self.chunks)

    def header(self, name):
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(": ")
            if key == name:
                return value
        return None

    @property
    def status(self):
        return int(self.head.split(b" ")[1])


def test_a_whole_stream_is_one_chunk_an_event(upstream, family):
    heard = Heard(upstream, family, "ms=0 chunks=5")
    assert heard.status == 200
    assert heard.header("content-type").startswith("text/event-stream")
    assert heard.end == "eof" and heard.whole
    whole = {"chat_completions": 1 + 5 + 2, "messages": 2 + 5 + 3}
    assert len(heard.chunks) == whole[family]
    assert heard.body.endswith(ENDS[family])
    assert heard.body.index(b'"0 "') < heard.body.index(b'"4 "')


# Pace.


def test_the_default_pace_is_seen_by_a_person(family):
    with ScriptedUpstream(paced=True) as upstream:
        heard = Heard(upstream, family, "chunks=10")
    times = [at for at, part in heard.arrivals if b"data: " in part]
    assert len(times) >= 10
    assert 0.25 < times[-1] - times[0] < 1.5


def test_ms_sets_the_pace(upstream, family):
    heard = Heard(upstream, family, "chunks=3 ms=100")
    assert heard.arrivals[-1][0] > 0.4


def test_first_ms_delays_the_head(upstream, family):
    for stream in (True, False):
        heard = Heard(upstream, family, "first_ms=200 ms=0", stream=stream)
        assert heard.arrivals[0][0] >= 0.2


def test_slow_body(upstream, family):
    heard = Heard(upstream, family, "slow_body ms=5", stream=False)
    assert len(heard.arrivals) > 10
    assert json.loads(heard.body)["model"] == "demo-large"


# How the bytes travel.


def test_split_and_batch(upstream, family):
    heard = Heard(upstream, family, "split=7 ms=0 chunks=3")
    assert {len(chunk) for chunk in heard.chunks} <= set(range(1, 8))
    assert heard.whole and heard.body.endswith(ENDS[family])
    heard = Heard(upstream, family, "batch=100 ms=0 chunks=3")
    assert len(heard.chunks) == 1
    heard = Heard(upstream, family, "split=7", stream=False)
    assert json.loads(heard.body)["model"] == "demo-large"


def test_line_ends_and_comments(upstream, family):
    heard = Heard(upstream, family, "crlf ms=0")
    assert heard.body.count(b"\n") == heard.body.count(b"\r\n") > 5
    heard = Heard(upstream, family, "cr ms=0")
    assert b"\n" not in heard.body and heard.body.count(b"\r\r") > 5
    heard = Heard(upstream, family, "comments chunks=2 ms=0")
    assert heard.body.count(b": keep-alive\n\n") == len(heard.chunks)
    assert heard.body.startswith(b": keep-alive\n\n")


def test_gzip(upstream, family):
    heard = Heard(upstream, family, "gzip ms=0 chunks=3")
    assert heard.header("content-encoding") == "gzip"
    assert heard.whole and gzip.decompress(heard.body).endswith(ENDS[family])
    first = zlib.decompressobj(wbits=31).decompress(heard.chunks[0])
    assert first.endswith(b"\n\n")  # each event can be read when it comes
    heard = Heard(upstream, family, "gzip", stream=False)
    assert json.loads(gzip.decompress(heard.body))["model"] == "demo-large"


@pytest.mark.parametrize("stream", [True, False])
def test_gzip_bomb(upstream, stream):
    heard = Heard(upstream, "chat_completions", "gzip_bomb ms=0", stream=stream)
    assert heard.whole
    assert len(heard.body) < 5_000_000
    unpack = zlib.decompressobj(wbits=31)
    size, rest, last = 0, heard.body, b""
    while rest:
        piece = unpack.decompress(rest, 1 << 24)
        size, rest = size + len(piece), unpack.unconsumed_tail
        last = (last + piece)[-5000:]
    assert size > 250 * 1024 * 1024
    assert last.endswith(b"data: [DONE]\n\n") if stream else json.loads(last.strip())


def test_big_headers(upstream, family):
    heard = Heard(upstream, family, "big_headers=200 ms=0")
    assert len(heard.head) > 200_000
    assert heard.whole


def test_wrong_length(upstream, family):
    for stream in (True, False):
        heard = Heard(upstream, family, "wrong_length ms=0", stream=stream)
        assert int(heard.header("content-length")) == len(heard.body) + 1000
        assert heard.end == "eof"


def test_flood(upstream, family):
    heard = Heard(upstream, family, "flood=20")
    assert 20 * 1024 * 1024 < len(heard.body) < 32 * 1024 * 1024
    assert heard.whole and heard.body.endswith(ENDS[family])
    assert heard.arrivals[-1][0] < 5


# Errors of the vendor.


def test_status(upstream, family):
    for stream in (True, False):
        words = 'status=429 retry_after=7 code=insufficient_quota message="No more."'
        heard = Heard(upstream, family, words, stream=stream)
        assert heard.status == 429
        assert heard.header("retry-after") == "7"
        error = json.loads(heard.body)["error"]
        assert error["message"] == "No more."
        assert error["type"] == "rate_limit_error"
        if family == "chat_completions":
            assert error["code"] == "insufficient_quota"


@pytest.mark.parametrize(
    ("variant", "kind", "check"),
    [
        ("html", "text/html", lambda body: b"<html>" in body and b"Sorry" in body),
        ("text", "text/plain", lambda body: body == b"Sorry"),
        ("empty", "application/json", lambda body: body == b""),
        ("array", "application/json", lambda body: b"Sorry" in body and body[:1] == b"["),
        ("detail", "application/json", lambda body: json.loads(body) == {"detail": "Sorry"}),
        ("message", "application/json", lambda body: json.loads(body) == {"message": "Sorry"}),
        ("error_text", "application/json", lambda body: json.loads(body) == {"error": "Sorry"}),
    ],
)
def test_error_bodies(upstream, family, variant, kind, check):
    heard = Heard(upstream, family, f"status=503 body={variant} message=Sorry")
    assert heard.status == 503
    assert heard.header("content-type").startswith(kind)
    assert check(heard.body)


@pytest.mark.parametrize(
    ("word", "kind", "start"),
    [
        ("html200", "text/html", b"<html>"),
        ("empty200", "application/json", b""),
        ("json200", "application/json", b'{"object":"unexpected"'),
        ("error200", "application/json", b"{"),
    ],
)
def test_wrong_answers_with_200(upstream, family, word, kind, start):
    for stream in (True, False):
        heard = Heard(upstream, family, word, stream=stream)
        assert (heard.status, heard.header("content-type").partition(";")[0]) == (200, kind)
        assert heard.body.startswith(start)
        assert (b'"error"' in heard.body) is (word == "error200")
        assert (heard.body == b"") is (word == "empty200")


def test_redirect(upstream, family):
    heard = Heard(upstream, family, "redirect")
    assert (heard.status, heard.header("location")) == (302, "/__redirected")


def test_garbage(upstream, family):
    heard = Heard(upstream, family, "garbage=1 ms=0")
    bad = heard.body.split(b"\n\n")[1].rpartition(b"data: ")[2]
    with pytest.raises(ValueError):
        json.loads(bad)
    assert heard.body.endswith(ENDS[family])
    assert Heard(upstream, family, "garbage=1", stream=False).body.startswith(b"<html>")


@pytest.mark.parametrize("place", [0, 1, 3])
def test_error_event(upstream, family, place):
    heard = Heard(upstream, family, f"error_event={place} type=slow_down message=Sorry ms=0")
    frames = heard.body.split(b"\n\n")[:-1]
    assert len(frames) == place + 1
    error = json.loads(frames[-1].rpartition(b"data: ")[2])["error"]
    assert (error["type"], error["message"]) == ("slow_down", "Sorry")
    assert heard.whole


# Faults of the connection.


@pytest.mark.parametrize("stream", [True, False])
def test_before_the_head(upstream, family, stream):
    heard = Heard(upstream, family, "close_before_head", stream=stream)
    assert (heard.head, heard.end) == (b"", "eof")
    heard = Heard(upstream, family, "reset_before_head", stream=stream)
    assert (heard.head, heard.end) == (b"", "reset")
    heard = Heard(upstream, family, "stall_before_head", stream=stream)
    assert (heard.head, heard.end) == (b"", "silent")
    heard = Heard(upstream, family, "stall_after_head", stream=stream)
    assert heard.status == 200
    assert (heard.body, heard.end) == (b"", "silent")


@pytest.mark.parametrize("place", [0, 1, 4])
@pytest.mark.parametrize(
    ("word", "end"), [("cut", "eof"), ("reset", "reset"), ("stall", "silent"), ("clean_end", "eof")]
)
def test_in_the_middle_of_a_stream(upstream, family, word, end, place):
    heard = Heard(upstream, family, f"{word}={place} ms=0 chunks=9")
    assert heard.status == 200
    assert len(heard.chunks) == place
    assert heard.end == end
    assert heard.whole is (word == "clean_end")


@pytest.mark.parametrize("place", [0, 50])
@pytest.mark.parametrize(("word", "end"), [("cut", "eof"), ("reset", "reset"), ("stall", "silent")])
def test_in_the_middle_of_a_plain_answer(upstream, family, word, end, place):
    heard = Heard(upstream, family, f"{word}={place}", stream=False)
    assert len(heard.body) == place
    assert int(heard.header("content-length")) > 100
    assert heard.end == end


def test_clean_end_of_half_a_plain_answer(upstream, family):
    heard = Heard(upstream, family, "clean_end=50", stream=False)
    assert (len(heard.body), heard.whole, heard.end) == (50, True, "eof")


def test_an_event_number_past_the_end_takes_effect_there(upstream, family):
    heard = Heard(upstream, family, "stall=1000 ms=0")
    assert heard.body.endswith(ENDS[family])
    assert (heard.whole, heard.end) == (False, "silent")


def test_the_script_may_stand_in_the_model_name(upstream, family):
    heard = Heard(upstream, family, "ms=0", model="script.chunks=3.cut=2")
    assert (len(heard.chunks), heard.whole) == (2, False)
