"""The upstream client over real sockets: requests, connections, errors, cancel."""

import asyncio
import datetime
import ipaddress
import select
import socket
import ssl
import time

import pycurl
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from handlers.relay.upstream import handle as handle_module
from handlers.relay.upstream.client import UpstreamClient, UpstreamError


async def echo(peer, head, body):
    await peer.answer(body)


async def failure(exchange):
    with pytest.raises(UpstreamError) as caught:
        await asyncio.wait_for(exchange.head, 10)
    return caught.value


# Requests


async def test_plain_answer(client, serve, request_to):
    async def script(peer, head, body):
        await peer.answer(
            b'{"id":1}', headers=["Content-Type: application/json", "X-Request-Id:  abc "]
        )

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, body=b"x" * 40_000))
    await exchange.head
    assert (exchange.status, exchange.streaming, exchange.body) == (200, False, b'{"id":1}')
    assert exchange.content_type == "application/json"
    assert exchange.header("x-request-ID") == "abc"
    assert exchange.header("x-request") is None
    [(head, body)] = upstream.requests
    assert body == b"x" * 40_000
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/test HTTP/1.1"
    assert "Authorization: Bearer upstream-key" in lines
    assert "Accept-Encoding: identity" in lines
    assert "Content-Length: 40000" in lines
    assert "User-Agent: sluice" in lines
    assert not any(line.lower().startswith("expect") for line in lines)


async def test_get(client, serve, request_to):
    upstream = await serve(echo)
    exchange = client.start(request_to(upstream.url, method="GET", body=None, headers=["A: b"]))
    await exchange.head
    assert exchange.status == 200
    assert upstream.requests[0][0].startswith(b"GET /v1/test HTTP/1.1\r\n")


async def test_empty_body_is_sent_as_one(client, serve, request_to):
    upstream = await serve(echo)
    await client.start(request_to(upstream.url, body=b"")).head
    assert b"\r\nContent-Length: 0\r\n" in upstream.requests[0][0]


async def test_latin_1_header(client, serve, request_to):
    upstream = await serve(echo)
    await client.start(request_to(upstream.url, headers=["X-Name: Zoë"])).head
    assert b"X-Name: Zo\xeb\r\n" in upstream.requests[0][0]


@pytest.mark.parametrize(
    "changes",
    [
        {"headers": ["A: b\r\nEvil: 1"]},
        {"headers": ["A: b\nEvil: 1"]},
        {"headers": ["A: b\rEvil: 1"]},
        {"headers": ["A: b\0"]},
        {"headers": ["A: \u20ac"]},
        {"method": "HEAD"},
        {"method": "GET"},
        {"body": None},
        {"url": "http://127.0.0.1/\u20ac"},
    ],
)
async def test_what_cannot_be_sent_is_refused(client, serve, request_to, changes):
    upstream = await serve(echo)
    with pytest.raises(ValueError):
        client.start(request_to(**({"url": upstream.url} | changes)))
    await client.start(request_to(upstream.url)).head
    assert len(upstream.requests) == 1


async def test_redirects_are_not_followed(client, serve, request_to):
    async def script(peer, head, body):
        await peer.answer(b"moved", "302 Found", ["Location: /elsewhere"])

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, stream=True))
    await exchange.head
    assert (exchange.status, exchange.body) == (302, b"moved")
    assert len(upstream.requests) == 1


async def test_proxies_of_the_environment_are_ignored(monkeypatch, client, serve, request_to):
    for name in ("http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    upstream = await serve(echo)
    exchange = client.start(request_to(upstream.url))
    await exchange.head
    assert exchange.status == 200


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "file:///etc/hosts", "gopher://127.0.0.1/"])
async def test_only_http_and_https(client, request_to, url):
    error = await failure(client.start(request_to(url)))
    assert error.kind == "protocol"


# Connections


async def test_connections_are_kept(client, serve, request_to):
    upstream = await serve(echo)
    for number in range(20):
        exchange = client.start(request_to(upstream.url, body=b"%d" % number))
        await exchange.head
        assert exchange.body == b"%d" % number
    assert (upstream.connections, len(upstream.requests)) == (1, 20)


async def test_request_is_sent_again_when_a_kept_connection_is_dead(client, serve, request_to):
    async def script(peer, head, body):
        if upstream.connections == 1 and len(upstream.requests) == 2:
            peer.closing = True  # has read the request, and closes without a byte
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
        error = await failure(exchange)
    assert error.kind == "connect"
    assert exchange.status == 0


@pytest.fixture
def careful_client(io_loop):
    """A client that connects to the internet alone."""

    async def build():
        return UpstreamClient(force_instance=True, allow_private=False)

    client = io_loop.run_sync(build)
    yield client
    client.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
async def test_private_addresses_are_refused_when_they_are_not_allowed(
    careful_client, serve, request_to, host
):
    upstream = await serve(echo)
    url = upstream.url.replace("127.0.0.1", host)
    assert (await failure(careful_client.start(request_to(url)))).kind == "connect"
    assert upstream.connections == 0


def resolve(monkeypatch, name, *addresses):
    """libcurl finds these addresses for a name and a port, as if a name server had said so."""
    make = handle_module._make_curl

    def make_with_entries():
        curl = make()
        curl.setopt(pycurl.RESOLVE, [f"-{name}", f"{name}:{','.join(addresses)}"])
        return curl

    monkeypatch.setattr(handle_module, "_make_curl", make_with_entries)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "[fd00:ec2::254]", "[fe80::1]", "127.0.0.1"]
)
async def test_a_name_that_leads_to_a_private_address_is_refused(
    monkeypatch, careful_client, serve, request_to, address
):
    upstream = await serve(echo)
    port = upstream.url.rpartition(":")[2].partition("/")[0]
    resolve(monkeypatch, f"metadata.test:{port}", address)
    url = upstream.url.replace("127.0.0.1", "metadata.test")
    error = await failure(careful_client.start(request_to(url, connect_timeout_s=3)))
    assert error.kind == "connect"
    assert upstream.connections == 0


async def test_a_name_is_judged_again_for_each_connection(
    monkeypatch, careful_client, serve, request_to
):
    """What is judged is the address that is connected to, not what the name meant before."""
    monkeypatch.setattr(handle_module, "is_public", lambda address: address == "127.0.0.1")

    async def script(peer, head, body):
        await peer.answer(body, headers=["Connection: close"])

    upstream = await serve(script)
    port = upstream.url.rpartition(":")[2].partition("/")[0]
    url = upstream.url.replace("127.0.0.1", "rebound.test")
    resolve(monkeypatch, f"rebound.test:{port}", "127.0.0.1")
    await careful_client.start(request_to(url)).head
    resolve(monkeypatch, f"rebound.test:{port}", "127.0.0.2")
    careful_client.idle_connections.close()  # the next one shall take the new entry
    assert (await failure(careful_client.start(request_to(url)))).kind == "connect"
    assert upstream.connections == 1


async def test_name_does_not_resolve(client, request_to):
    error = await failure(client.start(request_to("http://nowhere.invalid/")))
    assert error.kind == "connect"


async def test_connecting_takes_too_long(client, request_to, full_backlog):
    begun = time.monotonic()
    error = await failure(client.start(request_to(full_backlog, connect_timeout_s=0.3)))
    assert error.kind == "timeout_connect"
    assert 0.25 < time.monotonic() - begun < 1.5


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Paths of a self-signed certificate for 127.0.0.1 and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "upstream")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    certificate_path, key_path = folder / "certificate.pem", folder / "key.pem"
    certificate_path.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_path, key_path


@pytest.fixture
def server_tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


async def test_tls_with_a_certificate_of_the_systems_store(
    monkeypatch, certificate, server_tls, serve, request_to
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    client = UpstreamClient(force_instance=True)
    upstream = await serve(echo, ssl=server_tls)
    exchange = client.start(request_to(upstream.url))
    await exchange.head
    assert exchange.body == b'{"model":"m"}'
    other_name = upstream.url.replace("127.0.0.1", "localhost")
    assert (await failure(client.start(request_to(other_name)))).kind == "tls"
    client.close()


async def test_tls_with_an_unknown_certificate(client, server_tls, serve, request_to):
    upstream = await serve(echo, ssl=server_tls)
    error = await failure(client.start(request_to(upstream.url)))
    assert error.kind == "tls"
    assert upstream.requests == []


async def test_tls_to_a_plain_port(client, serve, request_to):
    async def garbage(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    error = await failure(client.start(request_to(f"https://127.0.0.1:{port}/")))
    assert error.kind == "tls"
    server.close()


# Broken answers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_connection_ends_before_the_head(client, serve, request_to, stream, sent, how):
    async def script(peer, head, body):
        await peer.send(sent)
        await asyncio.sleep(0.02)
        peer.closing = True
        if how == "reset":
            peer.reset()

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, stream=stream))
    error = await failure(exchange)
    assert error.kind == "reset_before_head"
    assert exchange.status == 0


async def test_continue_and_nothing_more_is_no_head(client, serve, request_to):
    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.closing = True

    upstream = await serve(script)
    assert (await failure(client.start(request_to(upstream.url)))).kind == "reset_before_head"


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: 2\r\n\r\nab",
    ],
)
async def test_answer_that_is_no_http(client, serve, request_to, sent):
    async def script(peer, head, body):
        await peer.send(sent)
        peer.closing = True

    upstream = await serve(script)
    assert (await failure(client.start(request_to(upstream.url)))).kind == "protocol"


@pytest.mark.parametrize("lines", [30, 400])
async def test_head_is_bounded(client, serve, request_to, lines):
    async def script(peer, head, body):
        await peer.answer(headers=[f"X-Filler-{n}: {'x' * 3000}" for n in range(lines)])

    upstream = await serve(script)
    assert (await failure(client.start(request_to(upstream.url)))).kind == "protocol"


async def test_head_that_never_ends_is_bounded(fast_seconds, client, serve, request_to):
    async def script(peer, head, body):
        await peer.send(b"HTTP/1.1 200 OK\r\n" + b"X-Filler: %b\r\n" % (b"x" * 3000) * 30)
        await peer.wait_closed_by_client()

    upstream = await serve(script)
    assert (await failure(client.start(request_to(upstream.url)))).kind == "protocol"


async def test_large_head_within_the_bound(client, serve, request_to):
    async def script(peer, head, body):
        await peer.answer(headers=[f"X-Filler-{n}: {'x' * 3000}" for n in range(20)])

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url))
    await exchange.head
    assert exchange.header("x-filler-19") == "x" * 3000


# Sockets


async def test_descriptor_that_was_closed_and_used_again(client, caplog):
    """libcurl may close a socket and get the same number again without telling."""
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
    client._drain()  # what it still tells is the last that is heard of it
    assert client._epoll.poll(0) == []
    for sock in (theirs, again, other):
        sock.close()
    client._handle_socket(pycurl.POLL_IN, fd, None, None)  # must not raise into libcurl
    assert "cannot watch" in caplog.text
    caplog.clear()


async def test_hang_up_of_a_paused_stream_does_not_spin(client, serve, request_to, collect):
    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(b"data: 1\n\n")
        await asyncio.sleep(0.02)
        peer.reset()

    upstream = await serve(script)
    exchange = client.start(request_to(upstream.url, stream=True))
    await exchange.head
    sink = collect(exchange, capacity_bytes=1)
    begun = time.process_time()
    await asyncio.sleep(0.4)
    assert time.process_time() - begun < 0.2
    sink.drain()
    assert (await sink.ended).kind == "truncated"


async def test_idle_client_does_nothing(client, serve, request_to):
    upstream = await serve(echo)
    await client.start(request_to(upstream.url)).head
    begun = time.process_time()
    await asyncio.sleep(0.4)
    assert time.process_time() - begun < 0.2
