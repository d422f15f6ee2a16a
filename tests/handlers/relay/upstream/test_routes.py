"""Upstreams behind a proxy, or with certificates of a private authority, over real sockets."""

import contextlib
from dataclasses import replace

import pytest

from handlers.relay.upstream import handle as handle_module
from handlers.relay.upstream.client import UpstreamClient
from store.catalog.catalog import Route
from tests.handlers.relay.upstream.scripts import (
    answering,
    echo,
    failure,
    port_of,
    resolve,
    streaming,
)
from tests.support.certificates import Authority
from tests.support.proxy import Proxy

LOGIN = "sluice:p%40ss"  # in its spelling in URLs


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def proxy_to():
    """Return proxy_to(upstream), which returns a running Proxy."""
    with contextlib.ExitStack() as stack:
        yield lambda upstream, *options: stack.enter_context(Proxy(port_of(upstream), *options))


def named(upstream):
    """Return the upstream's URL with a name that only a proxy can resolve."""
    return upstream.url.replace("127.0.0.1", "upstream.test")


@pytest.fixture
def behind(serve, proxy_to, authority):
    """Return behind: `await behind(scheme)` returns (upstream, proxy with a login, the right
    route)."""

    async def begin(scheme="http", script=echo, tls=False, login=LOGIN):
        upstream = await serve(script, **({"ssl": authority.server_context()} if tls else {}))
        proxy = proxy_to(upstream, "sluice:p@ss")
        ca_file = str(authority.ca_file) if tls else None
        user = f"{login}@" if login else ""
        return upstream, proxy, Route(f"{scheme}://{user}127.0.0.1:{proxy.port}", ca_file)

    return begin


@pytest.mark.parametrize(("scheme", "tls"), [("http", False), ("socks5", False), ("socks5", True)])
async def test_an_upstream_is_asked_through_the_proxy(client, request_to, behind, scheme, tls):
    upstream, proxy, route = await behind(scheme, tls=tls)
    exchange = client.start(request_to(named(upstream), route=route))
    await exchange.head
    assert (exchange.status, exchange.body) == (200, b'{"model":"m"}')
    url = named(upstream)
    assert proxy.asked == [f"POST {url}" if scheme == "http" else f"SOCKS {url.split('/')[2]}"]
    assert scheme != "http" or b"Authorization: Bearer upstream-key" in proxy.heads[0]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tls_upstream_is_asked_through_a_tunnel(client, request_to, behind, stream):
    own = ["X-Of-The-Upstream: 1"]
    script = streaming(b"data: 1\n\n", headers=own) if stream else answering(headers=own)
    upstream, proxy, route = await behind("http", script, tls=True)
    exchange = client.start(request_to(named(upstream), route=route, stream=stream))
    await exchange.head
    assert (exchange.status, exchange.streaming) == (200, stream)
    # From the upstream's head, not the proxy's.
    assert exchange.header("x-of-the-proxy") is None
    assert exchange.header("x-of-the-upstream") == "1"
    assert proxy.asked == [f"CONNECT {named(upstream).split('/')[2]}"]
    # The proxy does not see the upstream's headers, nor the upstream the proxy's.
    assert b"upstream-key" not in proxy.heads[0]
    assert b"roxy-" not in upstream.requests[0][0]


async def test_a_proxy_that_speaks_tls(client, serve, request_to, proxy_to, authority):
    upstream = await serve(echo)
    proxy = proxy_to(upstream, None, authority.server_context())
    url = f"https://localhost:{proxy.port}"
    exchange = client.start(request_to(named(upstream), route=Route(url, str(authority.ca_file))))
    await exchange.head
    assert exchange.status == 200
    distrusting = client.start(request_to(named(upstream), route=Route(url)))
    assert (await failure(distrusting)).kind == "tls"
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("login", ["", "sluice:wrong"])
async def test_a_login_that_is_refused(client, request_to, behind, scheme, login):
    upstream, _, route = await behind(scheme, tls=True, login=login)
    exchange = client.start(request_to(named(upstream), route=route))
    error = await failure(exchange)
    assert error.kind == "connect" and "wrong" not in str(error)
    assert (exchange.status, upstream.connections) == (0, 0)


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "http://nowhere.invalid:3128"])
async def test_a_proxy_that_is_not_there(client, serve, request_to, proxy):
    upstream = await serve(echo)
    exchange = client.start(request_to(upstream.url, route=Route(proxy)))
    assert (await failure(exchange)).kind == "connect"
    assert upstream.connections == 0


async def test_the_environment_takes_no_upstream_from_its_proxy(
    monkeypatch, client, serve, request_to, proxy_to
):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")
    upstream = await serve(echo)
    proxy = proxy_to(upstream)
    route = Route(f"http://127.0.0.1:{proxy.port}")
    await client.start(request_to(upstream.url, route=route)).head
    assert proxy.connections == 1


async def test_connections_are_kept_for_their_own_route_alone(client, request_to, behind):
    """One channel's login does not open connections for another channel."""
    upstream, proxy, right = await behind(tls=True)
    for _ in range(3):
        await client.start(request_to(named(upstream), route=right)).head
    assert (proxy.connections, upstream.connections) == (1, 1)
    for login in ("", "another:p%40ss@"):
        other = replace(right, proxy=f"http://{login}127.0.0.1:{proxy.port}")
        error = await failure(client.start(request_to(named(upstream), route=other)))
        assert error.kind == "connect"
    assert upstream.connections == 1
    # Without the proxy: the same certificate, but another connection.
    await client.start(request_to(upstream.url, route=replace(right, proxy=None))).head
    assert (proxy.connections, upstream.connections) == (3, 2)


async def test_handles_of_routes_serve_no_other(client, request_to, behind):
    upstream, proxy, route = await behind()
    await client.start(request_to(upstream.url, route=route)).head
    await client.start(request_to(upstream.url)).head
    assert len(proxy.asked) == 1 and len(upstream.requests) == 2
    assert b"roxy-" not in upstream.requests[1][0]
    # A handle is not kept if its connection is not.
    nowhere = Route("http://127.0.0.1:9")
    await failure(client.start(request_to(upstream.url, route=nowhere)))
    assert (client.idle_connections.spare, client.idle_connections.connections) == (0, 2)


async def test_certificates_of_a_private_authority(client, serve, request_to, authority, tmp_path):
    upstream = await serve(echo, ssl=authority.server_context())
    other = Authority(tmp_path, "other")
    route = Route(ca_file=str(authority.ca_file))
    await client.start(request_to(upstream.url, route=route)).head
    # A kept connection is not used for channels that trust another authority.
    for stranger in (None, Route(ca_file=str(other.ca_file))):
        assert (await failure(client.start(request_to(upstream.url, route=stranger)))).kind == "tls"
    await client.start(request_to(upstream.url, route=route)).head
    assert len(upstream.requests) == 2


async def test_only_the_file_is_trusted_and_names_are_checked(
    monkeypatch, client, serve, request_to, authority, tmp_path
):
    other = Authority(tmp_path, "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    trusting = UpstreamClient(force_instance=True)
    upstream = await serve(echo, ssl=authority.server_context())
    await trusting.start(request_to(upstream.url)).head
    route = Route(ca_file=str(other.ca_file))
    assert (await failure(trusting.start(request_to(upstream.url, route=route)))).kind == "tls"
    trusting.close()
    resolve(monkeypatch, f"wrong.test:{port_of(upstream)}", "127.0.0.1")
    wrong_name = upstream.url.replace("127.0.0.1", "wrong.test")
    route = Route(ca_file=str(authority.ca_file))
    assert (await failure(client.start(request_to(wrong_name, route=route)))).kind == "tls"


async def test_a_file_that_is_gone_or_changed(
    monkeypatch, client, serve, request_to, authority, tmp_path
):
    monkeypatch.setattr(handle_module, "CA_FILE_CACHE_S", 0)
    script = answering(headers=["Connection: close"])
    upstream = await serve(script, ssl=authority.server_context())
    route = Route(ca_file=str(authority.ca_file))
    await client.start(request_to(upstream.url, route=route)).head
    authority.ca_file.unlink()
    error = await failure(client.start(request_to(upstream.url, route=route)))
    assert error.kind == "ca_file" and str(authority.ca_file) in error.detail
    renewed = Authority(tmp_path, "renewed")
    authority.ca_file.write_bytes(renewed.ca_file.read_bytes())
    other = await serve(script, ssl=renewed.server_context())
    await client.start(request_to(other.url, route=route)).head


async def test_a_private_proxy_may_lead_to_the_internet_alone(
    monkeypatch, serve, request_to, proxy_to
):
    client = UpstreamClient(force_instance=True, allow_private=False)
    upstream = await serve(echo)
    proxy = proxy_to(upstream)
    route = Route(f"http://127.0.0.1:{proxy.port}")
    await client.start(request_to(named(upstream), route=route)).head
    for host in ("127.0.0.1", "127.1", "0x7f000001", "[::1]", "169.254.169.254"):
        url = named(upstream).replace("upstream.test", host)
        assert (await failure(client.start(request_to(url, route=route)))).kind == "connect"
    assert len(proxy.asked) == len(upstream.requests) == 1
    client.close()


async def test_a_guarded_proxy_is_at_no_private_address(serve, request_to, proxy_to):
    upstream = await serve(echo)
    proxy = proxy_to(upstream)
    route = Route(f"http://localhost:{proxy.port}", guarded=True)
    for allow_private in (False, True):
        client = UpstreamClient(force_instance=True, allow_private=allow_private)
        exchange = client.start(request_to(named(upstream), route=route))
        if allow_private:
            await exchange.head
        else:
            assert (await failure(exchange)).kind == "connect"
    assert proxy.connections == 1
