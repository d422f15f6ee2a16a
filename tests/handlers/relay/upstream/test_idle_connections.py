"""Surplus bytes after an answer reach no other call, over real sockets."""

import asyncio
import contextlib
import time

import pytest

from handlers.relay.upstream import idle_connections as module
from handlers.relay.upstream.client import UpstreamError
from store.catalog.catalog import Route
from tests.handlers.relay.upstream.scripts import echo, failure
from tests.support import surplus
from tests.support.certificates import Authority
from tests.support.served import until
from tests.support.surplus import SurplusVendor

FOR_S = 0.1
CALLS_MIN = 50  # however slow the machine is
LONG_FOR_S = 10.0


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def vendor(authority):
    """Return vendor: vendor(tls, *forms) returns a running SurplusVendor."""
    with contextlib.ExitStack() as stack:

        def start(tls, *forms, **options):
            context = authority.server_context() if tls else None
            running = SurplusVendor(forms, context, **options)
            stack.callback(running.close)
            return running

        yield start


@pytest.fixture
def ask(client, authority, request_to, collect):
    """Return ask: `await ask(vendor, mark)` returns the answer's body, also that of a stream."""
    route = Route(ca_file=str(authority.ca_file))

    async def send(upstream, mark, size=0, **changes):
        body = b'{"model":"m","mark":"%b","pad":"%b"}' % (mark, b"x" * size)
        way = route if upstream.url.startswith("https") else None
        exchange = client.start(
            request_to(upstream.url + "/v1/test", body=body, route=way, **changes)
        )
        await asyncio.wait_for(exchange.head, 10)
        if not exchange.streaming:
            return exchange.body
        sink = collect(exchange)
        assert await asyncio.wait_for(sink.ended, 10) is None
        return sink.data

    return send


async def alternate(ask, upstream, seconds, callers=1, pause_s=0.0, **changes):
    """Run callers that make one call after the other, for at least this time; return the number of
    calls."""
    ends_s = time.monotonic() + seconds
    calls = 0

    async def caller(number):
        nonlocal calls
        while time.monotonic() < ends_s or calls < CALLS_MIN:
            calls += 1
            mark = b"<%d-%d>" % (number, calls)
            assert await ask(upstream, mark, **changes) == mark
            await asyncio.sleep(pause_s)
            if pause_s:
                await until(lambda: not upstream.sending)

    await asyncio.gather(*[caller(number) for number in range(callers)])
    return calls


# A write after a last chunk is noticed only if it has arrived before the next request, which waits
# for it.
PAUSES_S = {surplus.chunked_and_a_write: 0.005, surplus.stream_and_more: 0.005}


@pytest.mark.parametrize("callers", [1, 4])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("form", [*surplus.FORMS, surplus.stream_and_more])
@pytest.mark.parametrize("for_s", [FOR_S, pytest.param(LONG_FOR_S, marks=pytest.mark.long)])
async def test_no_call_gets_the_bytes_of_another(ask, vendor, form, tls, callers, for_s):
    stream = form is surplus.stream_and_more
    pause_s = PAUSES_S.get(form, 0.0)
    await alternate(ask, vendor(tls, form), for_s, callers, pause_s, stream=stream)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_vendor_that_is_mostly_proper(ask, client, vendor, tls, caplog):
    forms = [form for other in surplus.FORMS for form in (surplus.proper, surplus.proper, other)]
    upstream = vendor(tls, *forms)
    await alternate(ask, upstream, 2 * FOR_S, callers=3, pause_s=0.03)
    assert client.idle_connections.surplus > 0
    assert "each connection serves one call until" in caplog.text


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("callers", [1, 4])
async def test_a_proper_vendor_sees_one_connection_a_caller(ask, client, vendor, tls, callers):
    upstream = vendor(tls, surplus.proper)
    # Gives the vendor's thread time: under TLS an answer in the turn of its request is suspect.
    calls = await alternate(ask, upstream, FOR_S, callers, pause_s=0.001)
    assert upstream.requests == calls + client.repeated
    assert upstream.connections == callers + client.repeated
    assert client.repeated == client.idle_connections.surplus
    assert client.repeated == 0 or tls


async def test_an_idle_connection_that_becomes_readable_is_closed_at_once(
    client, serve, request_to
):
    seen = asyncio.get_running_loop().create_future()

    async def script(peer, head, body):
        await peer.answer(body)
        await until(lambda: client.idle_connections.connections)
        await peer.answer(b"nobody asked")
        seen.set_result(await peer.reader.read())
        peer.closing = True

    upstream = await serve(script)
    await client.start(request_to(upstream.url)).head
    assert await asyncio.wait_for(seen, 2) == b""
    assert (client.idle_connections.surplus, client.idle_connections.connections) == (1, 0)


@pytest.mark.parametrize("size", [0, 3_000_000])
@pytest.mark.parametrize(
    "form",
    [surplus.same_write_as_the_body, surplus.one_byte, surplus.half_a_line, surplus.half_a_head],
)
async def test_what_tls_hides_costs_the_connection_and_not_the_call(
    ask, client, vendor, caplog, form, size
):
    upstream = vendor(True, form)
    for number in range(6):
        mark = b"<%d>" % number
        assert await ask(upstream, mark, size) == mark
    # After these the vendor counts as one for which each connection serves one call.
    assert client.repeated == client.idle_connections.surplus == module.SURPLUS_WEIGHT_MAX
    assert upstream.connections == 6
    told = [r.getMessage() for r in caplog.records if r.name == "sluice.relay"]
    assert len(told) == 2 and all("; the request was sent again" in line for line in told)
    assert "(1 such connections so far)" in told[0]
    assert "each connection serves one call" in told[1]


async def test_a_request_is_sent_again_once_only(ask, client, vendor):
    def spoilt(send, body):
        send(b"not HTTP at all\r\n")

    upstream = vendor(True, surplus.one_byte, spoilt, spoilt)
    assert await ask(upstream, b"<0>") == b"<0>"
    with pytest.raises(UpstreamError) as caught:
        await ask(upstream, b"<1>")
    assert (caught.value.kind, client.repeated) == ("protocol", 1)


async def test_a_caught_vendor_is_trusted_again_after_a_while(
    monkeypatch, client, serve, request_to
):
    monkeypatch.setattr(module, "DISTRUST_S", 0)

    async def script(peer, head, body):
        await peer.answer(body)
        if len(upstream.requests) == 1:
            await until(lambda: client.idle_connections.connections)
            await peer.answer(b"nobody asked")

    upstream = await serve(script)
    await client.start(request_to(upstream.url)).head
    await until(lambda: client.idle_connections.surplus)
    client.idle_connections.sweep()
    for _ in range(8):
        await client.start(request_to(upstream.url)).head
    assert (client.idle_connections.surplus, upstream.connections) == (1, 2)


async def test_a_word_before_the_end_of_a_long_idle_connection_is_no_surplus(
    pass_s, client, serve, request_to
):
    """Some vendors send a 408 when they close a connection that has been idle for a while."""
    go = asyncio.Event()

    async def script(peer, head, body):
        await peer.answer(body)
        await go.wait()
        await peer.answer(b"", "408 Request Timeout", ["Connection: close"])
        peer.closing = True

    upstream = await serve(script)
    await client.start(request_to(upstream.url)).head
    await pass_s(module.SURPLUS_WITHIN_S + 1)
    go.set()
    await until(lambda: client.idle_connections.connections == 0)
    assert client.idle_connections.surplus == 0
    exchange = client.start(request_to(upstream.url))
    await exchange.head
    assert exchange.status == 200


async def test_only_new_connections_rest(ask, vendor):
    upstream = vendor(False, surplus.proper)
    times_s = []
    for number in range(12):
        begun = time.monotonic()
        await ask(upstream, b"<%d>" % number)
        times_s.append(time.monotonic() - begun)
    rested = [took >= module.REST_S * 0.9 for took in times_s]
    assert rested[1 : 1 + module.RESTS] == [True] * module.RESTS
    assert min(times_s[1 + module.RESTS :]) < module.REST_S / 2


async def test_cancel_while_a_connection_rests(client, serve, request_to):
    upstream = await serve(echo)
    await client.start(request_to(upstream.url)).head
    exchange = client.start(request_to(upstream.url))
    exchange.cancel()
    assert exchange.head.cancelled() and client.idle_connections.connections == 1
    await asyncio.sleep(2 * module.REST_S)
    assert len(upstream.requests) == 1
    await client.start(request_to(upstream.url)).head
    assert (upstream.connections, len(upstream.requests)) == (1, 2)


async def test_close_while_a_connection_rests(client, serve, request_to):
    upstream = await serve(echo)
    await client.start(request_to(upstream.url)).head
    exchange = client.start(request_to(upstream.url))
    client.close()
    assert (await failure(exchange)).kind == "reset_before_head"


async def test_methods_share_a_connection(client, serve, request_to):
    async def script(peer, head, body):
        await peer.answer(head.partition(b" ")[0] + body)

    upstream = await serve(script)
    for method, body in (("POST", b"1"), ("GET", None), ("DELETE", None), ("POST", b"2")):
        exchange = client.start(request_to(upstream.url, method=method, body=body))
        await exchange.head
        assert exchange.body == method.encode() + (body or b"")
    assert upstream.connections == 1


async def test_idle_connections_end(monkeypatch, pass_s, client, serve, request_to):
    monkeypatch.setattr(module, "IDLE_S", 3)
    upstream = await serve(echo)
    await client.start(request_to(upstream.url)).head
    await pass_s(3)
    assert (client.idle_connections.connections, client.idle_connections.spare) == (1, 0)
    await pass_s(1)
    assert (client.idle_connections.connections, client.idle_connections.spare) == (0, 1)
