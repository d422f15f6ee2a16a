"""Limits of the Hub for clients that have not signed in: connections, bodies, time."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.hub.access import account
from handlers.hub.http import connection, server
from handlers.hub.http import request as request_limits
from handlers.hub.web import base
from store.hub import tokens
from tests.handlers.hub.browser import Browser
from tests.support.client import wait_until
from tests.support.ports import HOST

PATIENCE_S = 20
PROXY = {"trusted_proxies": ("127.0.0.0/8",)}
WHOLE = b"GET /static/sluice.css HTTP/1.1\r\nHost: h\r\n\r\n"
BEGUN = b"POST /sign-in HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n%b\r\na=1"


@pytest.fixture
def opened(hub):
    """Return opened(text, from_ip): a connection on which this text was sent."""
    clients = []

    def connect(text=b"", from_ip=HOST):
        client = socket.create_connection((HOST, hub.port), PATIENCE_S, (from_ip, 0))
        clients.append(client)
        client.sendall(text)
        return client

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def hub(serve, request):
    """Return the Hub with settings that a test may choose."""
    return serve(**getattr(request, "param", {}))


def until(condition):
    assert wait_until(condition, PATIENCE_S)


def is_closed(client):
    """Return True if the other side has closed a connection on which nothing more comes."""
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def answer(client):
    """Return everything received until the end."""
    received = b""
    try:
        while piece := client.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


# ---- connections ---------------------------------------------------------------------------------


def test_beyond_its_limit_an_address_loses_the_connection_that_waited_longest(
    hub, monkeypatch, opened
):
    monkeypatch.setattr(server, "CONNECTIONS_OF_ADDRESS_MAX", 3)
    held = [opened(b"GET / HTTP/1.1\r\n")]
    until(lambda: hub.server.connections == 1)
    hub.server.sweep(hub.server.now_s + 1)  # the first one has waited longer than the others
    held += [opened(b"GET / HTTP/1.1\r\n") for _ in range(3)]
    until(lambda: is_closed(held[0]))
    assert not any(map(is_closed, held[1:]))
    assert Browser(hub.port).get("/sign-in").status == 200


def test_the_limit_in_all_closes_one_of_the_address_that_has_most(hub, monkeypatch, opened):
    hub.server._max = 4
    other = opened(from_ip="127.0.0.2")
    until(lambda: hub.server.connections == 1)
    held = [opened() for _ in range(8)]
    until(lambda: sum(map(is_closed, held)) == 5)
    assert not is_closed(other)


@pytest.mark.parametrize("hub", [{"server": PROXY}], indirect=True)
def test_a_proxy_has_no_limit_but_each_address_behind_it(hub, monkeypatch, opened):
    monkeypatch.setattr(server, "CONNECTIONS_OF_ADDRESS_MAX", 2)
    idle = [opened() for _ in range(4)]
    one = BEGUN % b"X-Forwarded-For: 198.51.100.7\r\n"
    another = BEGUN % b"X-Forwarded-For: 203.0.113.9\r\n"
    busy = [opened(one), opened(one), opened(another)]
    until(lambda: len(hub.server._held.get(server.PROXY, ())) == 4 and len(hub.server._held) == 3)
    busy.append(opened(one))
    until(lambda: is_closed(busy[0]) or is_closed(busy[1]))
    assert not any(map(is_closed, [*idle, busy[2], busy[3]]))


@pytest.mark.parametrize(
    ("hub", "sent", "status"),
    [
        ({"server": {"header_timeout_s": 1}}, b"GET / HTTP/1.1\r\n", b""),
        ({"server": {"body_timeout_s": 1}}, BEGUN % b"", b"HTTP/1.1 408 "),
        pytest.param(
            {"server": {"keepalive_timeout_s": 1}}, WHOLE, b"HTTP/1.1 200 ", marks=pytest.mark.long
        ),
    ],
    indirect=["hub"],
)
def test_times_are_the_relays(hub, sent, status, opened):
    assert answer(opened(sent)).startswith(status)


def test_a_client_that_takes_nothing_of_an_answer_is_dropped(monkeypatch, opened):
    monkeypatch.setattr(connection, "SEND_PATIENCE_S", 0)
    client = opened()
    with pytest.raises(OSError, match=r"reset|pipe"):
        while True:
            client.sendall(WHOLE * 100)


# ---- bodies --------------------------------------------------------------------------------------


def post(opened, size, headers=b"", path=b"/api/tokens"):
    """Return the status of a request with a body of this size. The body is sent only if no answer
    comes before."""
    fields = b"Host: h\r\nContent-Length: %d\r\nConnection: close\r\n%b\r\n" % (size, headers)
    client = opened(b"POST %b HTTP/1.1\r\n" % path + fields)
    client.settimeout(0.5)
    try:
        early = client.recv(100)
    except TimeoutError:
        client.settimeout(PATIENCE_S)
        client.sendall(b" " * size)
        early = client.recv(100)
    return int(early.split()[1])


def test_more_than_64_kib_is_read_of_a_session_or_a_token_alone(alice, db, opened):
    _, token = tokens.create(db, "alice", ["keys"], name="t", actor="alice")
    session = f"Cookie: sluice_session={alice.cookies['sluice_session']}\r\n".encode()
    forged = b"Cookie: sluice_session=made-up\r\n"
    bearer = f"Authorization: Bearer {token}\r\n".encode()
    assert post(opened, 65536) == 403  # read, then refused because the form's token is missing
    assert [post(opened, 65537), post(opened, 65537, forged)] == [413, 413]
    assert [post(opened, 65537, session), post(opened, 65537, bearer)] == [403, 400]
    assert post(opened, (1 << 20) + 1, bearer) == 413
    chunk = b"10001\r\n" + b" " * 65537 + b"\r\n0\r\n\r\n"
    for who, status in ((b"", b"413"), (bearer, b"400")):
        fields = b"Host: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n%b\r\n" % who
        client = opened(b"POST /api/tokens HTTP/1.1\r\n" + fields + chunk)
        assert answer(client).split()[1] == status


def test_bytes_of_bodies_are_limited_for_an_address_and_in_all(hub, monkeypatch, opened):
    monkeypatch.setattr(request_limits, "HELD_OF_HOLDER_BYTES", 100_000)
    text = b"POST /sign-in HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n" + b"a" * 59_999
    first = opened(text)
    until(lambda: hub.server.held.total == 59_999)
    refused = answer(opened(text))
    assert refused.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in refused
    first.close()
    until(lambda: hub.server.held.total == 0)
    assert not hub.server.held._by_holder


# ---- answers on these connections ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "has_length", "has_body"),
    [
        (b"GET /sign-in HTTP/1.1", True, True),
        (b"HEAD /static/sluice.css HTTP/1.1", True, False),
        (b"GET /static/sluice.css HTTP/1.0", True, True),
        (b"GET /sign-in HTTP/9.9", True, True),
    ],
)
def test_an_answer_is_framed_as_its_request_wants_it(request_line, has_length, has_body, opened):
    received = answer(opened(request_line + b"\r\nHost: h\r\nConnection: close\r\n\r\n"))
    head, _, body = received.partition(b"\r\n\r\n")
    assert (b"\r\nContent-Length: " in head) == has_length
    assert bool(body) == has_body
    assert head.count(b"\r\nDate: ") == 1 and b"\r\nServer:" not in head


def test_one_connection_takes_requests_and_nothing_unchanged_is_sent_again(
    hub, browser, opened, monkeypatch
):
    last = b"GET /sign-in HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    received = answer(opened(WHOLE * 2 + last))
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3 and received.endswith(b"</html>\n")
    tag = browser.get("/static/sluice.css").headers["ETag"]
    again = browser.get("/static/sluice.css", **{"If-None-Match": tag})
    assert again.status == 304 and again.text == "" and "Content-Length" not in again.headers
    monkeypatch.setattr(hub.server.app, "find_handler", lambda request: 1 / 0)
    assert browser.get("/sign-in").status == 500


# ---- languages -----------------------------------------------------------------------------------


def test_the_languages_of_a_browser_are_read_once_and_no_further_than_a_few(browser, monkeypatch):
    read = []
    preferred = base.preferred_language
    counting = lambda cookie, text: read.append(text) or preferred("", text)  # noqa: E731
    monkeypatch.setattr(base, "preferred_language", counting)
    accepted = "xx," * 15_000 + "zh"
    assert '<html lang="en"' in browser.get("/sign-in", **{"Accept-Language": accepted}).text
    assert [len(text) for text in read] == [base.ACCEPT_LANGUAGE_CHARS]


# ---- threads -------------------------------------------------------------------------------------


def test_slow_requests_of_one_user_do_not_hold_up_another(alice, boss, monkeypatch):
    show, held, arrived = account.wallet.show, threading.Event(), threading.Semaphore(0)

    def slow(db, user):
        if user == "alice":
            arrived.release()
            held.wait(PATIENCE_S)
        return show(db, user)

    monkeypatch.setattr(account.wallet, "show", slow)
    with ThreadPoolExecutor(24) as pool:
        for _ in range(24):
            pool.submit(alice.get, "/api/me")
        try:
            assert arrived.acquire(timeout=PATIENCE_S)
            assert boss.get("/api/me").json["user"] == "boss" and not held.is_set()
        finally:
            held.set()
