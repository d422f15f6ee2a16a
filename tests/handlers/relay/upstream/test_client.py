"""The upstream client over real sockets: requests, connections, errors, cancel."""

import asyncio
import select
import socket
import time

import pycurl
import pytest

from handlers.relay.upstream import handle as handle_module
from handlers.relay.upstream.client import UpstreamClient
from tests.handlers.relay.upstream import scripts
from tests.support.certificates import Authority
from tests.support.served import until

# Requests


async def test_plain_answer(ask):
    headers = ["Content-Type: application/json", "X-Request-Id:  abc "]
    exchange, upstream = await ask(
        scripts.answering(b'{"id":1}', headers=headers), body=b"x" * 40_000
    )
    assert (exchange.status, exchange.streaming, exchange.body) == (200, False, b'{"id":1}')
    assert exchange.content_type == "application/json"
    assert exchange.header("x-request-ID") == "abc"
    assert exchange.header("x-request") is None
    [(head, body)] = upstream.requests
    assert body == b"x" * 40_000
    first, *lines = head.decode().split("\r\n")
    assert first == "POST /v1/test HTTP/1.1"
    assert {
        "Authorization: Bearer upstream-key", "Accept-Encoding: identity",
        "Content-Length: 40000", "User-Agent: sluice",
    } <= set(lines)  # fmt: skip
    assert not any(line.lower().startswith("expect") for line in lines)


@pytest.mark.parametrize(("changes", "part"), [
    ({"method": "GET", "body": None, "headers": ["A: b"]}, b"GET /v1/test HTTP/1.1\r\n"),
    ({"body": b""}, b"\r\nContent-Length: 0\r\n"),
    ({"headers": ["X-Name: Zoë"]}, b"X-Name: Zo\xeb\r\n"),
])  # fmt: skip
async def test_other_requests(ask, changes, part):
    exchange, upstream = await ask(scripts.echo, **changes)
    assert exchange.status == 200 and part in upstream.requests[0][0]


@pytest.mark.parametrize("changes", [
    {"headers": ["A: b\r\nEvil: 1"]},
    {"headers": ["A: b\nEvil: 1"]},
    {"headers": ["A: b\rEvil: 1"]},
    {"headers": ["A: b\0"]},
    {"headers": ["A: \u20ac"]},
    {"method": "HEAD"},
    {"method": "GET"},
    {"body": None},
    {"url": "http://127.0.0.1/\u20ac"},
])  # fmt: skip
async def test_what_cannot_be_sent_is_refused(client, serve, request_to, changes):
    upstream = await serve(scripts.echo)
    with pytest.raises(ValueError):
        client.start(request_to(**({"url": upstream.url} | changes)))
    await client.start(request_to(upstream.url)).head
    assert len(upstream.requests) == 1


async def test_redirects_are_not_followed(ask):
    script = scripts.answering(b"moved", "302 Found", ["Location: /elsewhere"])
    exchange, upstream = await ask(script, stream=True)
    assert (exchange.status, exchange.body) == (302, b"moved")
    assert len(upstream.requests) == 1


async def test_proxies_of_the_environment_are_ignored(monkeypatch, ask):
    for name in ("http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    exchange, _ = await ask(scripts.echo)
    assert exchange.status == 200


@pytest.mark.parametrize(("url", "kind"), [
    ("ftp://127.0.0.1/x", "protocol"),
    ("file:///etc/hosts", "protocol"),
    ("gopher://127.0.0.1/", "protocol"),
    ("http://nowhere.invalid/", "connect"),
])  # fmt: skip
async def test_only_names_that_resolve_and_only_http_and_https(client, request_to, url, kind):
    assert (await scripts.failure(client.start(request_to(url)))).kind == kind


async def test_request_is_sent_again_when_a_kept_connection_is_dead(client, serve, request_to):
    async def script(peer, head, body):
        if upstream.connections == 1 and len(upstream.requests) == 2:
            peer.closing = True  # has read the request, and closes without sending anything
        else:
            await peer.answer(body)

    upstream = await serve(script)
    await client.start(request_to(upstream.url)).head
    large = bytes(range(256)) * 4096
    exchange = client.start(request_to(upstream.url, body=large))
    await exchange.head
    assert exchange.body == large
    assert [body for _, body in upstream.requests[1:]] == [large, large]
    assert upstream.connections == 2


async def test_connection_refused(client, request_to):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        exchange = client.start(request_to(f"http://127.0.0.1:{port}/"))
        error = await scripts.failure(exchange)
    assert error.kind == "connect"
    assert exchange.status == 0


@pytest.fixture
def careful_client(io_loop):
    """Yield a client that connects only to public addresses."""

    async def build():
        return UpstreamClient(force_instance=True, allow_private=False)

    client = io_loop.run_sync(build)
    yield client
    client.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
async def test_private_addresses_are_refused_when_they_are_not_allowed(
    careful_client, serve, request_to, host
):
    upstream = await serve(scripts.echo)
    url = upstream.url.replace("127.0.0.1", host)
    assert (await scripts.failure(careful_client.start(request_to(url)))).kind == "connect"
    assert upstream.connections == 0


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "[fd00:ec2::254]", "[fe80::1]", "127.0.0.1"]
)
async def test_a_name_that_leads_to_a_private_address_is_refused(
    monkeypatch, careful_client, serve, request_to, address
):
    upstream = await serve(scripts.echo)
    scripts.resolve(monkeypatch, f"metadata.test:{scripts.port_of(upstream)}", address)
    url = upstream.url.replace("127.0.0.1", "metadata.test")
    error = await scripts.failure(careful_client.start(request_to(url, connect_timeout_s=3)))
    assert error.kind == "connect"
    assert upstream.connections == 0


async def test_a_name_is_judged_again_for_each_connection(
    monkeypatch, careful_client, serve, request_to
):
    """The address that is connected to is checked, not an earlier resolution of the name."""
    monkeypatch.setattr(handle_module, "is_public", lambda address: address == "127.0.0.1")
    upstream = await serve(scripts.answering(headers=["Connection: close"]))
    url = upstream.url.replace("127.0.0.1", "rebound.test")
    scripts.resolve(monkeypatch, f"rebound.test:{scripts.port_of(upstream)}", "127.0.0.1")
    await careful_client.start(request_to(url)).head
    scripts.resolve(monkeypatch, f"rebound.test:{scripts.port_of(upstream)}", "127.0.0.2")
    careful_client.idle_connections.close()  # so that the next one uses the new entry
    assert (await scripts.failure(careful_client.start(request_to(url)))).kind == "connect"
    assert upstream.connections == 1


async def test_connecting_takes_too_long(client, request_to, full_backlog):
    begun = time.monotonic()
    error = await scripts.failure(client.start(request_to(full_backlog, connect_timeout_s=0.1)))
    assert error.kind == "timeout_connect"
    assert 0.08 < time.monotonic() - begun < 1.5


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


async def test_tls_with_a_certificate_of_the_systems_store(
    monkeypatch, authority, serve, request_to
):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    client = UpstreamClient(force_instance=True)
    upstream = await serve(scripts.echo, ssl=authority.server_context())
    exchange = client.start(request_to(upstream.url))
    await exchange.head
    assert exchange.body == b'{"model":"m"}'
    scripts.resolve(monkeypatch, f"other.test:{scripts.port_of(upstream)}", "127.0.0.1")
    other_name = upstream.url.replace("127.0.0.1", "other.test")
    assert (await scripts.failure(client.start(request_to(other_name)))).kind == "tls"
    client.close()


async def test_tls_to_a_plain_port(client, serve, request_to):
    async def garbage(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    error = await scripts.failure(client.start(request_to(f"https://127.0.0.1:{port}/")))
    assert error.kind == "tls"
    server.close()


_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", _CONTINUE])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_connection_ends_before_the_head(start, stream, sent, how):
    exchange, _ = await start(scripts.sending(sent, how), stream=stream)
    assert (await scripts.failure(exchange)).kind == "reset_before_head"
    assert exchange.status == 0


@pytest.mark.parametrize("sent", [
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"\x15\x03\x01\x00\x02\x02\x46",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 abc\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nno colon here\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nab",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: 2\r\n\r\nab",
])  # fmt: skip
async def test_answer_that_is_no_http(fail, sent):
    assert await fail(scripts.sending(sent)) == "protocol"


def filled(lines):
    return [f"X-Filler-{n}: {'x' * 3000}" for n in range(lines)]


@pytest.mark.parametrize("lines", [30, 400])
async def test_head_is_bounded(fail, lines):
    assert await fail(scripts.answering(headers=filled(lines))) == "protocol"


async def test_head_that_never_ends_is_bounded(pass_s, start):
    lines = "\r\n".join(["HTTP/1.1 200 OK", *filled(30)])
    exchange, _ = await start(scripts.sending(lines.encode(), "hang"))
    await until(lambda: len(exchange.raw_head) > 80_000)
    await pass_s(1)
    assert (await scripts.failure(exchange)).kind == "protocol"


async def test_large_head_within_the_bound(ask):
    exchange, _ = await ask(scripts.answering(headers=filled(20)))
    assert exchange.header("x-filler-19") == "x" * 3000


async def test_descriptor_that_was_closed_and_used_again(client, caplog):
    """libcurl may close a socket and get the same number again without a notice."""
    ours, theirs = socket.socketpair()
    fd = ours.fileno()
    client._handle_socket(pycurl.POLL_IN, fd, None, None)
    ours.close()
    again, other = socket.socketpair()
    assert fd in (again.fileno(), other.fileno())
    client._handle_socket(pycurl.POLL_OUT, fd, None, None)
    assert client._epoll.poll(0) == [(fd, select.EPOLLOUT)]
    client._handle_socket(pycurl.POLL_REMOVE, fd, None, None)
    client._handle_socket(pycurl.POLL_REMOVE, fd, None, None)
    client._drain()  # its last notices are processed here
    assert client._epoll.poll(0) == []
    for sock in (theirs, again, other):
        sock.close()
    client._handle_socket(pycurl.POLL_IN, fd, None, None)  # must not raise into libcurl
    assert "cannot watch" in caplog.text
    caplog.clear()


async def cpu_of(seconds):
    """Return the CPU time that this process uses in this many seconds."""
    begun = time.process_time()
    await asyncio.sleep(seconds)
    return time.process_time() - begun


async def test_hang_up_of_a_paused_stream_does_not_spin(open_stream, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(scripts.EVENT)
        await asyncio.sleep(0.02)
        peer.reset()

    exchange, _ = await open_stream(script)
    sink = collect(exchange, capacity_bytes=1)
    assert await cpu_of(0.2) < 0.1
    sink.drain()
    assert (await sink.ended).kind == "truncated"


async def test_idle_client_does_nothing(ask):
    await ask(scripts.echo)
    assert await cpu_of(0.2) < 0.1
