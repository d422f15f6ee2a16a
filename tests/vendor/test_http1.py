"""Strict HTTP/1.1: what is read, and what is refused, over real sockets."""

import json
import socket
import time

import pytest

from tests.support.upstream import ScriptedUpstream

BODY = b'{"model":"m","messages":[{"role":"user","content":"[[demo chunks=1]] hi"}]}'
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-up\r\n"
    b"content-type: application/json\r\n"
)
LENGTH = b"content-length: %d\r\n" % len(BODY)


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


def exchange(upstream, data, *more):
    """Sends the pieces, and reads until the vendor closes."""
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as sock:
        for piece in (data, *more):
            sock.sendall(piece)
        received = b""
        while part := sock.recv(65536):
            received += part
    return received


CLOSE = b"connection: close\r\n"


def test_content_length(upstream):
    answer = exchange(upstream, HEAD + CLOSE + LENGTH + b"\r\n" + BODY)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close" in answer
    body = answer.partition(b"\r\n\r\n")[2]
    assert json.loads(body)["choices"][0]["message"]["content"] == "0 "


def test_chunked_in_odd_pieces(upstream):
    chunks = b"%x;note=1\r\n%s\r\n%X\r\n%s\r\n0\r\nx-trailer: 1\r\n\r\n" % (
        10,
        BODY[:10],
        len(BODY) - 10,
        BODY[10:],
    )
    head = HEAD + CLOSE + b"transfer-encoding: chunked\r\n\r\n"
    upstream.reset()
    answer = exchange(upstream, *(bytes([byte]) for byte in head + chunks))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert upstream.log()[0]["body"] == BODY.decode()


def test_a_connection_is_used_again_and_pipelined(upstream):
    upstream.reset()
    first = HEAD + LENGTH + b"\r\n" + BODY
    last = HEAD + CLOSE + LENGTH + b"\r\n" + BODY
    answer = exchange(upstream, first + first + last)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answer.count(b"connection: keep-alive") == 2
    assert len({entry["connection"] for entry in upstream.log()}) == 1


def test_expect_is_answered_before_the_body(upstream):
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as sock:
        sock.sendall(HEAD + CLOSE + LENGTH + b"expect: 100-continue\r\n\r\n")
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(BODY)
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /v1/models\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.0\r\nhost: x\r\n\r\n", 400),
        (b"GET v1/models HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nhost : x\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nfolded: a\r\n b\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nnul: a\x00b\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nbare: a\nb: c\r\n\r\n", 400),
        (HEAD + LENGTH + b"transfer-encoding: chunked\r\n\r\n", 400),
        (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n{}", 400),
        (HEAD + b"content-length: -1\r\n\r\n", 400),
        (HEAD + b"content-length: 99999999999\r\n\r\n", 413),
        (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n", 501),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}x\r\n", 400),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n2\n{}", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_request_is_refused_and_logged(upstream, data, status):
    upstream.reset()
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as sock:
        sock.sendall(data)
        if b"2\n{}" in data:
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1000) == b""
        else:
            assert sock.recv(1000).startswith(b"HTTP/1.1 %d " % status)
    [entry] = upstream.log()
    assert entry["fault"]
    assert not entry["stream"]


def test_a_client_that_leaves_in_its_body_is_logged(upstream):
    upstream.reset()
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as sock:
        sock.sendall(HEAD + LENGTH + b"\r\n" + BODY[:20])
    while not (log := upstream.log()):
        time.sleep(0.01)
    assert log[0]["fault"] == "the body is not complete"
    assert log[0]["gone_at_ms"] >= log[0]["at_ms"] - 50
