"""The server of the relay port on real sockets; tests drive the clock of its sweep."""

import asyncio
import errno
import os
import socket
from unittest.mock import patch

import pytest

from commands.process import listeners
from handlers.http.connection import LINGER_S, LONG_LINGER_S
from handlers.http.server import CLOSED_PAUSE_S, DRAIN_IDLE_S
from handlers.relay.upstream.idle_connections import RESERVED_DESCRIPTORS, max_connections
from tests.support.client import encode_head
from tests.support.ports import free_port
from tests.support.served import (
    HOST,
    Echo,
    Peer,
    acting,
    bound,
    held,
    peer_of,
    serving,
    turns,
    until,
)

# ---- accepting -----------------------------------------------------------------------------------


async def test_it_listens_on_several_sockets():
    async with serving() as served:
        second = bound()
        served.server.listen_on(second)
        peer = Peer()
        served.peers.append(peer)
        await peer.connect(second.getsockname()[1])
        assert (await peer.ask("GET", "/livez")).status == 200
        assert (await served.ask("GET", "/livez")).status == 200


async def test_more_connections_come_at_once_than_one_turn_takes():
    async with serving() as served:
        peers = [await served.peer() for _ in range(300)]
        await until(lambda: served.server.connections == 300)
        assert (await peers[-1].ask("GET", "/livez")).status == 200


async def test_a_client_that_is_gone_before_it_is_accepted():
    async with serving() as served:
        peer = Peer()
        peer.socket.setblocking(True)
        peer.socket.connect((HOST, served.port))
        peer.leave(reset=True)
        await turns(50)
        assert (await served.ask("GET", "/livez")).status == 200


async def test_every_answer_says_when_and_who():
    async with serving() as served:
        headers = (await served.ask("GET", "/livez")).headers
        assert (headers["server"], headers["date"]) == ("sluice", served.server.date)
        assert headers["date"].endswith("GMT")


class Starved(socket.socket):
    """A listener in a process without free descriptors, as long as `starved` is set."""

    starved = False
    tries = 0

    def accept(self):
        if type(self).starved:
            type(self).tries += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


@pytest.fixture
def starved():
    Starved.starved, Starved.tries = True, 0
    return Starved


async def test_out_of_descriptors_it_rests_until_the_next_sweep(starved):
    async with serving(listener=bound(starved)) as served:
        peer = await served.peer(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: starved.tries)
        assert await peer.is_silent(0.05)
        assert starved.tries == 1  # no busy loop
        await served.pass_s(1)
        await until(lambda: starved.tries == 2)
        starved.starved = False
        await served.pass_s(1)
        assert (await peer.answer()).status == 200
        told = served.errors.take()
        assert len(told) == 2 and all("cannot accept" in line for line in told)


async def test_a_socket_that_the_supervisor_has_closed_is_taken_up_again():
    (listener,) = listeners.bind("server", HOST, free_port())
    async with serving(listener=listener) as served:
        listeners.shut(listener)
        await asyncio.sleep(3 * CLOSED_PAUSE_S)
        assert not served.errors.take()
        listeners.reopen(listener)
        peer = await served.peer(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await peer.answer()).status == 200


async def test_some_descriptors_are_kept_for_store_and_journal():
    with patch("resource.getrlimit", lambda _: (RESERVED_DESCRIPTORS + 9, 4096)):
        most = max_connections()
        async with serving() as served:
            peers = [await served.peer() for _ in range(most + 2)]
            await until(lambda: served.errors.records)
            await served.pass_s(1)
            await until(lambda: served.server.connections == most == 3)
            await served.pass_s(1)
            assert served.server.connections == most
            assert all("the limit of descriptors allows" in line for line in served.errors.take())
            peers[0].close()
            await until(lambda: served.server.connections == most - 1)
            await served.pass_s(1)
            await until(lambda: served.server.connections == most)
            served.errors.take()


async def test_a_connection_that_fails_at_its_start_is_logged(monkeypatch):
    async with serving() as served:

        async def fail(factory, accepted):
            accepted.close()
            raise OSError("no transport")

        with monkeypatch.context() as broken:
            broken.setattr(asyncio.get_running_loop(), "connect_accepted_socket", fail)
            peer = await served.peer()
            with pytest.raises(EOFError):
                await peer.fill()
        await until(lambda: served.errors.records)
        assert served.errors.take() == ["a connection failed at its start: no transport"]
        assert (await served.ask("GET", "/livez")).status == 200


async def test_the_first_head_has_its_time():
    async with serving(header_timeout_s=5) as served:
        idle, slow = await served.peer(), await served.peer(b"GET /livez HTTP/1.1\r\n")
        await until(lambda: served.server.connections == 2)
        for _ in range(5):
            await slow.send(b"X: y\r\n")  # does not extend its time
            await served.pass_s(1)
        assert await idle.is_silent() and await slow.is_silent()
        await served.pass_s(1)
        assert await idle.rest() == b"" and await slow.rest() == b""
        assert served.server.connections == 0


async def test_who_connects_before_the_first_sweep_has_as_much_time_as_others():
    async with serving(header_timeout_s=5, body_timeout_s=5, routes={"/echo": Echo}) as served:
        loop = asyncio.get_running_loop()
        idle = await served.peer()
        sending = await served.peer(encode_head("POST", "/echo", {"Content-Length": "2"}), b"a")
        await until(lambda: served.waiting_bodies)
        served.server.sweep(int(loop.time()) + 1)
        served.site.bodies.sweep(int(loop.time()) + 1)
        assert await idle.is_silent() and await sending.is_silent()
        await sending.send(b"b")
        assert (await sending.answer()).body.endswith(b"ab")


async def test_a_kept_connection_has_another_time():
    async with peer_of(None, header_timeout_s=2, keepalive_timeout_s=10) as peer:
        for _ in range(3):
            assert (await peer.ask("GET", "/livez")).status == 200
            await peer.served.pass_s(10)
        assert await peer.is_silent()
        await peer.served.pass_s(1)
        assert await peer.rest() == b""


async def test_a_running_request_is_not_idle():
    handler = held()
    options = {"header_timeout_s": 1, "keepalive_timeout_s": 1}
    async with peer_of({"/held": handler}, **options) as peer:
        await peer.request("POST", "/held", body=b"{}")
        await until(lambda: handler.seen and handler.seen[0].events == ["complete"])
        await peer.served.pass_s(3600)
        assert await peer.is_silent()
        handler.seen[0].go.set_result(None)
        assert (await peer.answer()).body == b"held"
        await peer.served.pass_s(1)
        assert await peer.is_silent()
        await peer.served.pass_s(1)
        assert await peer.rest() == b""


def oversized(size=99999):
    return encode_head("POST", "/livez", {"Content-Length": str(size)})


@pytest.mark.parametrize(("sent", "draining", "lingers_s"), [
    (oversized(), False, LONG_LINGER_S),
    (oversized(), True, LINGER_S),
    (b"GET /livez HTTP/3.0\r\n", False, LINGER_S),
])  # fmt: skip
async def test_an_answered_client_that_goes_on_sending_is_closed(sent, draining, lingers_s):
    async with peer_of(None, sent, max_body_bytes=1024) as peer:
        assert (await peer.answer()).status in (400, 405)
        served = peer.served
        if draining:
            served.server.drain()
        for _ in range(lingers_s):
            await peer.send(b"more")
            await served.pass_s(1)
            assert served.server.connections == 1
        await served.pass_s(1)
        await until(lambda: served.server.connections == 0)


async def test_only_some_may_go_on_sending_for_long():
    with patch("handlers.http.server.LONG_LINGERS_MAX", 2):
        async with serving(max_body_bytes=1024) as served:
            peers = [await served.peer(oversized()) for _ in range(3)]
            for peer in peers:
                await peer.answer()
            await served.pass_s(LINGER_S + 1)
            await until(lambda: served.server.connections == 2)
            assert await peers[2].rest() == b""  # the third one had the usual time
            peers[0].leave()
            await until(lambda: served.server.connections == 1)
            last = await served.peer(oversized())
            await last.answer()
            await served.pass_s(LINGER_S + 1)
            await turns()
            assert served.server.connections == 2


LARGE_BYTES = 2 << 20


def reading_slowly():
    """Yield a peer of a server whose answer is larger than all buffers."""
    handler = acting(lambda handler, body: handler.respond(b"x" * LARGE_BYTES))
    listener = bound(send_bytes=16384)
    return peer_of(
        {"/large": handler}, receive_bytes=4096, listener=listener, keepalive_timeout_s=10
    )


async def test_a_closed_connection_does_not_wait_for_ever_for_its_client_to_read():
    async with reading_slowly() as peer:
        served = peer.served
        await peer.request("GET", "/large", {"Connection": "close"})
        assert (await peer.head()).status == 200
        (connection,) = served.server._connections
        for _ in range(3):  # the client reads, slowly
            await served.pass_s(9)
            await peer.exactly(LARGE_BYTES // 5)
            assert served.server.connections == 1
        before = None
        while before != (before := connection.unsent_bytes):  # noqa: ASYNC110 - the kernel's part
            await asyncio.sleep(0.05)
        await served.pass_s(1)
        await served.pass_s(10)
        assert served.server.connections == 1
        await served.pass_s(1)
        await until(lambda: served.server.connections == 0)
        with pytest.raises((ConnectionResetError, EOFError)):
            await peer.exactly(LARGE_BYTES)


async def test_a_closed_connection_sends_all_when_its_client_reads():
    async with reading_slowly() as peer:
        await peer.request("GET", "/large")
        await peer.served.pass_s(11)
        await peer.served.pass_s(11)
        assert len((await peer.answer()).body) == LARGE_BYTES
        assert await peer.rest() == b""


def connected(port):
    """Return a peer whose connection is in the kernel's queue: the server has not seen it yet."""
    peer = Peer()
    peer.socket.setblocking(True)
    peer.socket.connect((HOST, port))
    peer.socket.setblocking(False)
    return peer


async def test_drain_serves_who_waits_in_the_queue_and_refuses_others():
    async with serving() as served:
        queued = [connected(served.port) for _ in range(3)]
        served.peers += queued
        served.server.drain()
        # Otherwise the worker would end before they were served.
        assert served.server.connections == 3
        with pytest.raises(ConnectionRefusedError):
            await served.peer()
        for peer in queued:
            answer = await peer.ask("GET", "/livez")
            assert answer.status == 200
            assert answer.headers["connection"] == "close"


async def test_drain_gives_kept_connections_two_seconds_after_their_last_byte():
    async with serving() as served:
        idle, busy, fresh = await served.peer(), await served.peer(), await served.peer()
        assert "connection" not in (await idle.ask("GET", "/livez")).headers
        assert "connection" not in (await busy.ask("GET", "/livez")).headers
        await served.pass_s(30)
        served.server.drain()
        await served.pass_s(1)
        answer = await busy.ask("GET", "/livez")
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await served.pass_s(DRAIN_IDLE_S - 1)
        assert await idle.is_silent() and await fresh.is_silent()
        await served.pass_s(1)
        assert await idle.rest() == b"" and await fresh.rest() == b""
        # Another request of a proxy that has not read the "close" yet:
        assert (await busy.ask("GET", "/livez")).status == 200
        await served.pass_s(DRAIN_IDLE_S)
        assert await busy.is_silent()
        await served.pass_s(1)
        assert await busy.rest() == b""


async def test_drain_lets_a_running_request_end():
    handler = held()
    async with peer_of({"/held": handler}) as peer:
        await peer.request("POST", "/held", body=b"{}")
        await until(lambda: handler.seen and handler.seen[0].events)
        peer.served.server.drain()
        await peer.served.pass_s(600)
        handler.seen[0].go.set_result(None)
        answer = await peer.answer()
        assert (answer.body, answer.headers["connection"]) == (b"held", "close")
        await peer.served.pass_s(DRAIN_IDLE_S + 1)
        assert await peer.rest() == b""


async def test_drain_while_there_are_no_descriptors_closes_the_listener(starved):
    async with serving(listener=bound(starved)) as served:
        resting = connected(served.port)
        served.peers.append(resting)
        await until(lambda: starved.tries)
        served.server.drain()
        with pytest.raises(ConnectionRefusedError):
            await served.peer()
        await served.pass_s(1)
        with pytest.raises(ConnectionRefusedError):
            await served.peer()
        assert len(served.errors.take()) == 2


async def test_drain_closes_every_listener_though_accepting_fails(starved):
    async with serving() as served:
        ports = [served.port]
        for _ in range(2):
            listener = bound(starved)
            ports.append(listener.getsockname()[1])
            served.server.listen_on(listener)
        served.server.drain()
        for port in ports:
            served.port = port
            with pytest.raises(ConnectionRefusedError):
                await served.peer()
        assert len(served.errors.take()) == 2
