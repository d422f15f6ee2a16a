"""Tests of vendor behaviour that no other test would notice: bad bytes, heads and directives are
refused, and faults that leave an answer whole are played."""

import gzip
import json
import socket

import httpx2
import pytest

from tests.support.upstream import ScriptedUpstream
from tests.vendor.directives import Script, ScriptError, read_script
from tests.vendor.family import Refusal
from tests.vendor.fields import decode_object

CHAT, TALK, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
GENERATE = "/v1beta/models/demo-large:generateContent"
BEARER = {"authorization": "Bearer sk-up"}
X_API_KEY = {"x-api-key": "sk-up", "anthropic-version": "2023-06-01"}
GOOGLE_KEY = {"x-goog-api-key": "sk-up"}
PLAIN = {"content-type": "text/plain"}


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


# Directives of a script.


@pytest.mark.parametrize(
    ("prompt", "model", "script"),
    [
        ('[[demo text="one \\n [two]" cut=3]] hi', "m", Script(text="one \n [two]", cut=3)),
        ("[[demo ms=1]] then [[demo crlf]]", "script.ms=5.cut=3", Script(ms=1, crlf=True, cut=3)),
    ],
)
def test_scripts(prompt, model, script):
    assert read_script(prompt, model) == script


@pytest.mark.parametrize(
    ("prompt", "model", "word"),
    [
        ("[[demo ms=5 explode=1]]", "m", "explode"),
        ("[[demo !]]", "m", "!"),
        ("", "script.explode", "explode"),
        *((f"[[demo {word}]]", "m", "ms") for word in ("ms", "ms=fast", "ms=-1")),
        ("[[demo gzip=1]]", "m", "gzip"),
        ("[[demo usage=much]]", "m", "usage"),
        *((f"[[demo tokens={counts}]]", "m", "tokens") for counts in ("1,2,3", "10,8,3,5,0")),
    ],
)
def test_a_wrong_word_is_named(prompt, model, word):
    with pytest.raises(ScriptError, match=f"'{word}'"):
        read_script(prompt, model)


# Bytes and heads that are refused.

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET /v1/models HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET v1/models HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (GET + b"\r\n", 400),
        (GET + b"host : x\r\n\r\n", 400),
        (GET + b"host: x\r\nfolded: a\r\n b\r\n\r\n", 400),
        (HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n{}", 400),
        (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n", 501),
        (CHUNKED + b"zz\r\n", 400),
        (CHUNKED + b"2\r\n{}x\r\n", 400),
    ],
)
def test_bytes_that_are_no_request(upstream, data, status):
    upstream.reset()
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=10) as sock:
        sock.sendall(data)
        assert sock.recv(1000).startswith(b"HTTP/1.1 %d " % status)
    [entry] = upstream.log()
    assert entry["fault"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"a":NaN}', b'{"a":1,"a":2}', b'{"a":"\xff"}', b"[" * 100_000]
)
def test_bodies_that_are_no_strict_json_object(body):
    with pytest.raises(Refusal):
        decode_object(body)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        *(
            ("POST", CHAT, {"authorization": key}, 401)
            for key in ("", "sk-up", "Basic sk-up", "Bearer sk-bad1")
        ),
        ("GET", f"{RESPONSES}/r", {}, 401),
        *(
            ("POST", TALK, {"anthropic-version": "2023-06-01", **credential}, 401)
            for credential in (
                {"x-api-key": ""},
                {"x-api-key": "sk-bad1"},
                {"authorization": "sk-up", "x-api-key": "sk-up"},
            )
        ),
        ("POST", TALK, {"x-api-key": "sk-up"}, 400),
        ("POST", TALK, {**X_API_KEY, "anthropic-version": "2024-01-01"}, 400),
        *(("POST", GENERATE, key, 403) for key in ({"x-goog-api-key": ""}, X_API_KEY)),
        ("POST", GENERATE, {"x-goog-api-key": "sk-bad1"}, 400),
        ("POST", f"{GENERATE}?key=sk-bad1", {}, 400),
        ("POST", f"{GENERATE}?beta=true", GOOGLE_KEY, 400),
        ("GET", f"{RESPONSES}/compact", BEARER, 405),
        ("POST", f"{RESPONSES}/resp_1", BEARER, 405),
        ("GET", f"{RESPONSES}/resp_1", BEARER, 404),
        ("POST", "/v1/nothing", BEARER, 404),
        ("POST", "/v1beta/models/demo-large:predict", GOOGLE_KEY, 404),
        ("GET", "/v1beta/models?limit=1", GOOGLE_KEY, 400),
        ("POST", CHAT, BEARER | PLAIN, 415),
        ("POST", TALK, X_API_KEY | PLAIN, 400),
    ],
)
def test_requests_that_are_refused_by_their_head(upstream, method, path, headers, status):
    body = {"json": {}} if method == "POST" else {}
    answer = httpx2.request(method, upstream.url + path, headers=headers, **body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


# Faults that leave the answer whole.


@pytest.fixture
def stream(upstream):
    """Return a function that makes a call with these directives and returns its answer and raw
    chunks."""

    def call(words):
        text = f"[[demo ms=0 chunks=3 {words}]]"
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
        url = upstream.url + CHAT
        with httpx2.stream("POST", url, json=body, headers=BEARER) as answer:
            return answer, list(answer.iter_raw())

    return call


def test_how_bytes_travel(stream):
    _, pieces = stream("split=7")
    assert max(map(len, pieces)) == 7
    _, pieces = stream("crlf")
    assert b"".join(pieces).count(b"\n") == b"".join(pieces).count(b"\r\n") > 5
    _, pieces = stream("comments")
    assert b"".join(pieces).count(b": keep-alive\n\n") > 3
    _, pieces = stream("empty_data")
    assert b"".join(pieces).count(b"data:\n\n") > 3
    answer, pieces = stream("no_type other_form")
    assert "content-type" not in answer.headers and b"".join(pieces).startswith(b"{")
    answer, pieces = stream("gzip")
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(b"".join(pieces)).endswith(b"data: [DONE]\n\n")
    _, pieces = stream("garbage=1")
    with pytest.raises(ValueError):
        json.loads(b"".join(pieces).split(b"\n\n")[1].removeprefix(b"data: "))


def test_errors_that_are_no_json(stream):
    answer, pieces = stream("status=503 message=Sorry body=html")
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")
    assert b"Sorry" in b"".join(pieces)
