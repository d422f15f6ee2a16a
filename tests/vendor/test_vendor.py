"""What other tests rely on: the vendor refuses bad bytes, plays each fault as its word says, and
logs what arrived and when a client left."""

import gzip
import json
import signal
import socket
import subprocess
import sys
import time

import httpx2
import pytest

from tests.support.upstream import ROOT, ScriptedUpstream
from tests.vendor.family import Refusal
from tests.vendor.fields import decode_object

CHAT, TALK, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
GENERATE = "/v1beta/models/demo-large:generateContent"
BEARER = {"authorization": "Bearer sk-up"}
X_API_KEY = {"x-api-key": "sk-up", "anthropic-version": "2023-06-01"}
GOOGLE_KEY = {"x-goog-api-key": "sk-up"}


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


def connect(upstream):
    return socket.create_connection(("127.0.0.1", upstream.port), timeout=10)


def wait_for(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.02)
    return value


# Bytes that are a request, and bytes that are none.

BODY = b'{"model":"m","messages":[{"role":"user","content":"[[demo chunks=1]] hi"}]}'
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-up\r\n"
    b"content-type: application/json\r\n"
)
LENGTH = b"content-length: %d\r\n" % len(BODY)
CLOSE = b"connection: close\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET /v1/models HTTP/1.1\r\n"


def read_all(sock):
    received = b""
    while part := sock.recv(1 << 16):
        received += part
    return received


def test_bodies_of_both_framings_on_one_connection(upstream):
    upstream.reset()
    first, rest = BODY[:10], BODY[10:]
    pieces = b"%x;note=1\r\n%s\r\n%X\r\n%s\r\n" % (len(first), first, len(rest), rest)
    last = HEAD + CLOSE + LENGTH + b"expect: 100-continue\r\n\r\n"
    with connect(upstream) as sock:
        for byte in CHUNKED + pieces + b"0\r\nx-trailer: 1\r\n\r\n":
            sock.sendall(bytes([byte]))
        sock.sendall(HEAD + LENGTH + b"\r\n" + BODY + last)
        wait_for(lambda: len(upstream.log()) == 2)
        sock.sendall(BODY)
        answer = read_all(sock)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answer.count(b"connection: keep-alive") == 2
    assert answer.count(b"HTTP/1.1 100 Continue\r\n\r\n") == 1
    entries = upstream.log()
    assert [entry["body"] for entry in entries] == [BODY.decode()] * 3
    assert len({entry["connection"] for entry in entries}) == 1


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /v1/models\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.0\r\nhost: x\r\n\r\n", 400),
        (b"GET v1/models HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (GET + b"\r\n", 400),
        (GET + b"host : x\r\n\r\n", 400),
        (GET + b"host: x\r\nfolded: a\r\n b\r\n\r\n", 400),
        (GET + b"host: x\r\nnul: a\x00b\r\n\r\n", 400),
        (GET + b"host: x\r\nbare: a\nb: c\r\n\r\n", 400),
        (HEAD + LENGTH + b"transfer-encoding: chunked\r\n\r\n", 400),
        (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n{}", 400),
        (HEAD + b"content-length: -1\r\n\r\n", 400),
        (HEAD + b"content-length: 99999999999\r\n\r\n", 413),
        (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n", 501),
        (CHUNKED + b"zz\r\n", 400),
        (CHUNKED + b"2\r\n{}x\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_bytes_that_are_no_request(upstream, data, status):
    upstream.reset()
    with connect(upstream) as sock:
        sock.sendall(data)
        assert sock.recv(1000).startswith(b"HTTP/1.1 %d " % status)
    [entry] = upstream.log()
    assert entry["fault"]
    assert not entry["stream"]


@pytest.mark.parametrize("data", [CHUNKED + b"2\n{}", HEAD + LENGTH + b"\r\n" + BODY[:20]])
def test_a_client_that_leaves_in_its_body(upstream, data):
    upstream.reset()
    with connect(upstream) as sock:
        sock.sendall(data)
    [entry] = wait_for(upstream.log)
    assert entry["fault"] == "the body is not complete"
    assert entry["gone_at_ms"] >= entry["at_ms"] - 50


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"a":NaN}', b'{"a":1,"a":2}', b'{"a":"\xff"}', b"[" * 100_000],
)
def test_bodies_that_are_no_strict_json_object(body):
    with pytest.raises(Refusal):
        decode_object(body)


# Keys, versions, paths, methods and content types.


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        *(
            (method, path, {"authorization": value} if value is not None else {}, 401)
            for method, path in (("POST", CHAT), ("POST", RESPONSES), ("GET", f"{RESPONSES}/r"))
            for value in (None, "", "sk-up", "Bearer", "Basic sk-up", "Bearer sk-bad1")
        ),
        *(
            ("POST", TALK, {"anthropic-version": "2023-06-01", **credential}, 401)
            for credential in (
                {},
                {"x-api-key": ""},
                {"x-api-key": "sk-bad1"},
                {"authorization": "Bearer sk-bad1"},
                {"authorization": "sk-up", "x-api-key": "sk-up"},
            )
        ),
        ("POST", TALK, {"x-api-key": "sk-up"}, 400),
        ("POST", TALK, {**X_API_KEY, "anthropic-version": "2024-01-01"}, 400),
        *(
            ("POST", GENERATE, credential, 403)
            for credential in ({}, {"x-goog-api-key": ""}, {"authorization": "sk-up"}, X_API_KEY)
        ),
        ("POST", GENERATE, {"x-goog-api-key": "sk-bad1"}, 400),
        ("POST", GENERATE, {"authorization": "Bearer sk-bad1"}, 400),
        ("POST", f"{GENERATE}?key=sk-bad1", {}, 400),
        ("POST", f"{GENERATE}?beta=true", GOOGLE_KEY, 400),
        ("GET", CHAT, BEARER, 405),
        ("GET", TALK, X_API_KEY, 405),
        ("GET", RESPONSES, BEARER, 405),
        ("GET", f"{RESPONSES}/compact", BEARER, 405),
        ("DELETE", f"{RESPONSES}/input_tokens", BEARER, 405),
        ("POST", f"{RESPONSES}/resp_1", BEARER, 405),
        ("GET", f"{RESPONSES}/resp_1/cancel", BEARER, 405),
        ("DELETE", f"{RESPONSES}/resp_1/input_items", BEARER, 405),
        ("GET", GENERATE, GOOGLE_KEY, 405),
        ("GET", f"{RESPONSES}/resp_1", BEARER, 404),
        ("POST", "/v1/nothing", BEARER, 404),
        ("POST", "/v1beta/models/demo-large:embedContent", GOOGLE_KEY, 404),
        *(
            ("GET", f"/v1beta/models?{query}", GOOGLE_KEY, 400)
            for query in ("pageSize=x", "limit=1")
        ),
    ],
)
def test_requests_that_are_refused_by_their_head(upstream, method, path, headers, status):
    body = {"json": {}} if method == "POST" else {}
    answer = httpx2.request(method, upstream.url + path, headers=headers, **body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (CHAT, BEARER, 415),
        (RESPONSES, BEARER, 415),
        (TALK, X_API_KEY, 400),
        (GENERATE, GOOGLE_KEY, 400),
    ],
)
def test_content_types_that_are_refused(upstream, path, headers, status):
    plain = {**headers, "content-type": "text/plain"}
    answer = httpx2.post(upstream.url + path, content=b"{}", headers=plain)
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("headers", "query"),
    [(GOOGLE_KEY, ""), (BEARER, ""), ({}, "?key=sk-up"), (GOOGLE_KEY, "?key=sk-bad")],
)
def test_keys_of_generate_content_that_are_accepted(upstream, headers, query):
    body = {"contents": [{"parts": [{"text": "hi"}]}]}
    answer = httpx2.post(upstream.url + GENERATE + query, json=body, headers=headers)
    assert answer.status_code == 200


# Faults at the socket.

DONE = b"data: [DONE]\n\n"


def request_bytes(words, *, stream=True, model="demo-large"):
    messages = [{"role": "user", "content": f"[[demo {words}]] hi"}]
    body = {"model": model, "stream": stream, "max_tokens": 1_000_000, "messages": messages}
    data = json.dumps(body).encode()
    return HEAD + CLOSE + b"content-length: %d\r\n\r\n" % len(data) + data


class Received:
    """All that came back, and how it ended: "eof", "reset" or "silent"."""

    def __init__(self, upstream, words, **options):
        data, self.end = b"", "eof"
        started = time.monotonic()
        with connect(upstream) as sock:
            sock.sendall(request_bytes(words, **options))
            if "stall" in words:
                sock.settimeout(0.2)
            try:
                while part := sock.recv(1 << 20):
                    data += part
            except ConnectionResetError:
                self.end = "reset"
            except TimeoutError:
                self.end = "silent"
        self.seconds = time.monotonic() - started
        self.head, _, raw = data.partition(b"\r\n\r\n")
        self.chunks, self.body, self.whole = [], raw, True
        if b"transfer-encoding: chunked" in self.head:
            self.whole = False
            while raw and not self.whole:
                size, _, raw = raw.partition(b"\r\n")
                chunk, raw = raw[: int(size, 16)], raw[int(size, 16) + 2 :]
                self.whole = not chunk
                self.chunks += [chunk] if chunk else []
            self.body = b"".join(self.chunks)

    def header(self, name):
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return dict(line.split(": ", 1) for line in lines).get(name)


@pytest.mark.parametrize(
    ("words", "chunks", "end", "whole"),
    [
        ("chunks=5", 8, "eof", True),
        ("close_before_head", 0, "eof", True),
        ("reset_before_head", 0, "reset", True),
        ("stall_before_head", 0, "silent", True),
        ("stall_after_head", 0, "silent", False),
        *((f"cut={at}", at, "eof", False) for at in (0, 4)),
        *((f"reset={at}", at, "reset", False) for at in (0, 4)),
        *((f"stall={at}", at, "silent", False) for at in (0, 4)),
        *((f"clean_end={at}", at, "eof", True) for at in (0, 4)),
        ("stall=1000 chunks=3", 6, "silent", False),
        ("error_event=2", 3, "eof", True),
        ("no_done chunks=3", 5, "eof", True),
        ("batch=100 chunks=3", 1, "eof", True),
    ],
)
def test_how_a_stream_ends(upstream, words, chunks, end, whole):
    received = Received(upstream, f"ms=0 {words}")
    assert (len(received.chunks), received.end, received.whole) == (chunks, end, whole)
    assert (received.head == b"") is words.endswith("before_head")
    assert (DONE in received.body) is (words.startswith(("chunks", "batch", "stall=1000")))


@pytest.mark.parametrize(
    ("words", "size", "end"),
    [
        *((f"cut={at}", at, "eof") for at in (0, 50)),
        ("reset=50", 50, "reset"),
        ("stall=50", 50, "silent"),
        ("clean_end=50", 50, "eof"),
    ],
)
def test_how_a_plain_answer_ends(upstream, words, size, end):
    received = Received(upstream, words, stream=False)
    assert (len(received.body), received.end) == (size, end)
    promised = received.header("content-length")
    assert promised is None if words.startswith("clean") else int(promised) > 100


@pytest.mark.parametrize("stream", [True, False])
def test_pace(upstream, stream):
    assert Received(upstream, "first_ms=200 ms=0", stream=stream).seconds >= 0.2
    words = "ms=40 chunks=3" if stream else "ms=10 slow_body"
    assert Received(upstream, words, stream=stream).seconds >= 0.2


def test_how_bytes_travel(upstream):
    split = Received(upstream, "split=7 ms=0 chunks=3")
    assert max(map(len, split.chunks)) == 7
    assert split.body.endswith(DONE)
    crlf = Received(upstream, "crlf ms=0").body
    assert crlf.count(b"\n") == crlf.count(b"\r\n") > 5
    cr = Received(upstream, "cr ms=0").body
    assert b"\n" not in cr and cr.count(b"\r\r") > 5
    comments = Received(upstream, "comments chunks=2 ms=0")
    assert comments.body.count(b": keep-alive\n\n") == len(comments.chunks)
    zipped = Received(upstream, "gzip ms=0 chunks=3")
    assert zipped.header("content-encoding") == "gzip"
    assert gzip.decompress(zipped.body).endswith(DONE)
    garbage = Received(upstream, "garbage=1 ms=0").body.split(b"\n\n")[1]
    with pytest.raises(ValueError):
        json.loads(garbage.removeprefix(b"data: "))


def test_sizes(upstream):
    bomb = Received(upstream, "gzip_bomb ms=0")
    assert len(bomb.body) < 5_000_000
    assert len(gzip.decompress(bomb.body)) > 250 * 1024 * 1024
    assert len(Received(upstream, "big_headers=200 ms=0").head) > 200_000
    long = Received(upstream, "wrong_length ms=0")
    assert int(long.header("content-length")) == len(long.body) + 1000
    flood = Received(upstream, "flood=20")
    assert 20 * 1024 * 1024 < len(flood.body) < 32 * 1024 * 1024
    assert flood.body.endswith(DONE)


@pytest.mark.parametrize(
    ("words", "status", "kind", "body"),
    [
        ("body=html", 503, "text/html", None),
        ("body=text", 503, "text/plain", b"Sorry"),
        ("body=empty", 503, "application/json", b""),
        ("body=array", 503, "application/json", None),
        ("body=detail", 503, "application/json", b'{"detail":"Sorry"}'),
        ("body=message", 503, "application/json", b'{"message":"Sorry"}'),
        ("body=error_text", 503, "application/json", b'{"error":"Sorry"}'),
        ("html200", 200, "text/html", None),
        ("empty200", 200, "application/json", b""),
        ("json200", 200, "application/json", b'{"object":"unexpected","ok":true}'),
        ("error200", 200, "application/json", None),
        ("redirect", 302, "text/html", None),
    ],
)
def test_errors_and_wrong_answers(upstream, words, status, kind, body):
    sent = f"status=503 message=Sorry {words}" if status == 503 else words
    received = Received(upstream, sent)
    assert int(received.head.split(b" ")[1]) == status
    assert received.header("content-type").startswith(kind)
    assert body is None or received.body == body


@pytest.mark.parametrize(
    ("words", "elements", "closed"),
    [
        ("chunks=9 error_event=2", 3, True),
        ("chunks=9 error_event=0", 1, True),
        ("chunks=9 clean_end=2", 2, False),
        ("chunks=2 no_done", 2, False),
        ("chunks=2 comments", 2, True),
        ("chunks=2 crlf ping", 2, True),
        ("chunks=2 batch=9", 2, True),
        ("chunks=2 split=3", 2, True),
    ],
)
def test_a_stream_as_a_json_array(upstream, words, elements, closed):
    url = f"{upstream.url}/v1beta/models/demo-large:streamGenerateContent"
    body = {"contents": [{"parts": [{"text": f"[[demo ms=0 {words}]] hi"}]}]}
    answer = httpx2.post(url, json=body, headers=GOOGLE_KEY)
    assert answer.headers["content-type"] == "application/json"
    assert answer.text.endswith("]") is closed
    array = json.loads(answer.text + ("" if closed else "]"))
    assert len(array) == elements
    assert ("error" in array[-1]) is ("error_event" in words)


# The log, and the process.


def test_the_log(upstream):
    upstream.reset()
    for data in (request_bytes("chunks=2 ms=0"), request_bytes("explode")):
        with connect(upstream) as sock:
            sock.sendall(data)
            read_all(sock)
    good, refused = upstream.log()
    names = ("n", "family", "model", "path", "stream", "status", "finished", "chunks_sent")
    assert [good[name] for name in names] == [
        *(1, "chat_completions", "demo-large", CHAT),
        *(True, 200, True, 5),
    ]
    assert (good["gone_at_ms"], good["fault"]) == (None, None)
    assert good["headers"]["authorization"] == "Bearer sk-up"
    assert abs(good["at_ms"] - time.time() * 1000) < 10_000
    assert (refused["status"], refused["family"]) == (400, "chat_completions")


@pytest.mark.parametrize("words", ["ms=60000", "stall_before_head", "stall=2 ms=0", "flood=4096"])
@pytest.mark.parametrize("leave", ["close", "reset", "shut"])
def test_a_client_that_leaves_is_noticed_at_once(upstream, words, leave):
    upstream.reset()
    with connect(upstream) as sock:
        sock.sendall(request_bytes(words))
        wait_for(upstream.log)
        time.sleep(0.1)
        [entry] = upstream.log()
        assert entry["gone_at_ms"] is None
        left_ms = time.time() * 1000
        if leave == "shut":
            sock.shutdown(socket.SHUT_WR)
        elif leave == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        if leave != "shut":
            sock.close()
        gone_ms = wait_for(lambda: upstream.log()[0]["gone_at_ms"])
    assert -5 <= gone_ms - left_ms < 50
    assert upstream.log()[0]["finished"] is False
    wait_for(lambda: upstream.stats()["streams"] == 0)


def test_the_log_file_has_its_line_before_the_answer(tmp_path):
    path = tmp_path / "log.ndjson"
    with ScriptedUpstream(log_file=path) as upstream, connect(upstream) as sock:
        sock.sendall(request_bytes("stall_before_head"))
        wait_for(lambda: path.read_text().endswith("\n"))
        upstream.process.kill()
        [line] = path.read_text().splitlines()
        assert json.loads(line)["model"] == "demo-large"


def test_samples_are_served_byte_for_byte(tmp_path):
    (tmp_path / "chat_completions").mkdir()
    sample = b'data: {"odd" : "spacing"}\n\n: note\n\ndata: {"b":1}\r\n\r\ndata: tail'
    (tmp_path / "chat_completions" / "text.sse").write_bytes(sample)
    (tmp_path / "chat_completions" / "error_429_quota.json").write_bytes(b'{"error": {}}')
    (tmp_path / "secret.json").write_bytes(b"{}")
    with ScriptedUpstream(samples=tmp_path) as upstream:
        received = Received(upstream, "sample=text ms=0")
        assert (received.body, len(received.chunks)) == (sample, 4)
        assert len(Received(upstream, "sample=text cut=2 ms=0").chunks) == 2
        error = Received(upstream, "sample=error_429_quota")
        assert (error.head.split(b" ")[1], error.body) == (b"429", b'{"error": {}}')
        for name in ("none", "../secret.json", "/etc/passwd", "Text"):
            assert Received(upstream, f"sample={name}").head.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("how", [None, signal.SIGTERM])
def test_it_ends_with_its_parent_or_by_a_signal(how):
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.vendor", "--port=0"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(process.stdout.readline().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stalled:
            stalled.sendall(request_bytes("stall_after_head"))
            stalled.recv(10)
            if how is None:
                process.stdin.close()
            else:
                process.send_signal(how)
            assert process.wait(5) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def test_a_port_that_is_taken_is_an_error_at_once(upstream):
    with pytest.raises(RuntimeError):
        ScriptedUpstream(port=upstream.port)
