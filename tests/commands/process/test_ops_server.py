"""The HTTP server of the ops port: clients of every kind, and their rights."""

import contextlib
import http.client
import json
import selectors
import socket
import threading
import time
from http import HTTPStatus

import pytest

from commands.process import ops_server
from commands.process.ops_server import Guard, OpsServer


@pytest.fixture
def port():
    """Yield the port of a running server with /a (GET) and /b (POST); its loop is in a thread."""
    selector = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    big = {"text": "x" * 3_000_000}
    server = OpsServer(
        selector,
        listener,
        {
            ("GET", "/a"): lambda body: (HTTPStatus.OK, {"a": 1}),
            ("POST", "/b"): lambda body: (HTTPStatus.SERVICE_UNAVAILABLE, {"b": 2}),
            ("GET", "/big"): lambda body: (HTTPStatus.OK, big),
        },
        lambda: Guard(frozenset()),
    )
    ended = threading.Event()

    def loop():
        while not ended.is_set():
            for key, _ in selector.select(0.02):
                key.data()
            server.sweep(time.monotonic())

    thread = threading.Thread(target=loop)
    thread.start()
    yield listener.getsockname()[1]
    ended.set()
    thread.join()
    server.close()
    selector.close()


def call(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response, response.read()


def raw(port, request: bytes, timeout_s=5.0) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as client:
        client.sendall(request)
        text = b""
        while chunk := client.recv(65536):
            text += chunk
        return text


def test_answers(port):
    response, body = call(port, "GET", "/a?verbose")
    assert (response.status, json.loads(body)) == (200, {"a": 1})
    assert response.getheader("Content-Type") == "application/json"
    assert response.getheader("Connection") == "close"
    length = response.getheader("Content-Length")
    response, body = call(port, "HEAD", "/a")
    assert (response.status, body, response.getheader("Content-Length")) == (200, b"", length)
    response, body = call(port, "POST", "/b", b"ignored" * 1000)
    assert (response.status, json.loads(body)) == (503, {"b": 2})
    assert len(json.loads(call(port, "GET", "/big")[1])["text"]) == 3_000_000


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("POST", "/a", 405), ("GET", "/b", 405), ("DELETE", "/a", 405)],
)
def test_faults_are_json(port, method, path, status):
    response, body = call(port, method, path)
    assert response.status == status
    assert json.loads(body)["error"]


def test_browsers_cannot_post(port):
    assert call(port, "POST", "/b", headers={"origin": "http://x"})[0].status == 403
    assert call(port, "GET", "/a", headers={"origin": "http://x"})[0].status == 200


@pytest.mark.parametrize("request_bytes", [b"\r\n\r\n", b"GET /a\r\n\r\n", b"\x16\x03\x01\r\n\r\n"])
def test_not_http(port, request_bytes):
    assert raw(port, request_bytes).startswith(b"HTTP/1.1 400 ")


def test_head_in_pieces(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        for byte in b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n":
            client.sendall(bytes([byte]))
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")


def test_large_heads_are_dropped(port):
    try:
        text = raw(port, b"GET /a HTTP/1.1\r\nX: " + b"x" * 3 * ops_server.MAX_HEAD_BYTES)
    except ConnectionError:
        text = b""
    assert text == b""


def test_stuck_clients_hold_nothing(port, monkeypatch):
    monkeypatch.setattr(ops_server, "CONNECTION_S", 0.3)
    stuck = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
    stuck[0].sendall(b"GET /a HT")
    assert call(port, "GET", "/a")[0].status == 200
    for client in stuck:
        client.settimeout(2)
        assert client.recv(10) == b""
        client.close()


def test_clients_are_counted(port, monkeypatch):
    monkeypatch.setattr(ops_server, "MAX_CONNECTIONS", 2)
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    time.sleep(0.1)
    assert call(port, "GET", "/a")[0].status == 200
    held[0].settimeout(2)
    assert held[0].recv(1) == b""  # the one that had been silent longest
    held[1].sendall(b"GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    held[1].settimeout(2)
    assert held[1].recv(12) == b"HTTP/1.1 200"
    for client in held:
        client.close()


def test_a_foreign_name_gets_nothing(port):
    for method, path in (("GET", "/a"), ("POST", "/b"), ("GET", "/none")):
        response, body = call(port, method, path, headers={"Host": "rebound.example"})
        assert response.status == 403 and b"ops.hosts" in body
    assert raw(port, b"GET /a HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")


TOKEN = "s3cret-token"


def status(guard, *fields, path="/status", came_to="127.0.0.1"):
    refusal = guard.refusal(path, fields, came_to)
    return None if refusal is None else refusal[0]


@pytest.mark.parametrize("host", [
    "localhost", "LOCALHOST:9000", "localhost.", "127.0.0.1", "127.0.0.1:9000", "127.8.8.8",
    "[::1]", "[::1]:9000", "gateway.internal", "Gateway.Internal:9000", "gateway.internal.",
])  # fmt: skip
def test_names_of_ours_are_answered(host):
    assert status(Guard(frozenset({"gateway.internal"})), f"Host: {host}") is None


@pytest.mark.parametrize("fields", [
    [], ["Host:"], ["Host: evil.example"], ["Host: evil.example:9000"], ["host: [::2]"],
    ["Host: localhost.evil.example"], ["Host: 127.0.0.1.evil.example"], ["Host: 10.0.0.7"],
    ["Host: localhost", "Host: evil.example"], ["Host: localhost", "host: localhost"],
])  # fmt: skip
def test_other_names_are_not(fields):
    guard = Guard(frozenset({"gateway.internal"}))
    assert status(guard, *fields) == HTTPStatus.FORBIDDEN
    for path in ("/livez", "/readyz"):
        assert status(guard, *fields, path=path) is None


def test_the_address_that_was_asked_is_its_own():
    guard = Guard(frozenset({"0.0.0.0"}), TOKEN)
    bearer = f"Authorization: Bearer {TOKEN}"
    assert status(guard, "Host: 10.0.0.7:9000", bearer, came_to="10.0.0.7") is None
    assert status(guard, "Host: 10.0.0.7:9000", bearer, came_to="::ffff:10.0.0.7") is None
    assert status(guard, "Host: 10.0.0.8", bearer, came_to="10.0.0.7") == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    "value",
    [
        *(None, "Bearer", "Bearer ", "Bearer wrong", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x"),
        *("Bearer \xff\xfe", f"Bearer {TOKEN}\nauthorization: Bearer x"),
    ],
)
def test_all_but_health_needs_the_token(value):
    guard = Guard(frozenset(), TOKEN)
    fields = [] if value is None else f"Authorization: {value}".split("\n")
    for path in ("/status", "/drain", "/metrics", "/nothing"):
        assert status(guard, "Host: localhost", *fields, path=path) == HTTPStatus.UNAUTHORIZED
    for path in ("/livez", "/readyz"):
        assert status(guard, "Host: localhost", *fields, path=path) is None
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert status(guard, "Host: localhost", f"Authorization: {scheme} {TOKEN}") is None
