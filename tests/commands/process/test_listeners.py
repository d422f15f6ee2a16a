"""Listening sockets: one address for many slots, but for one gateway only."""

import socket

import pytest

from commands.process import listeners
from commands.process.node import StartError


@pytest.fixture
def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def bind():
    made = []

    def run(*args):
        made.extend(listeners.bind(*args))
        return made

    yield run
    listeners.close_all(made)


def test_every_slot_gets_connections(bind, port):
    sockets = bind("server", "127.0.0.1", port, 3)
    accepted = set()
    for _ in range(200):
        client = socket.create_connection(("127.0.0.1", port))
        for number, one in enumerate(sockets):
            try:
                one.accept()[0].close()
                accepted.add(number)
            except BlockingIOError:
                pass
        client.close()
    assert accepted == {0, 1, 2}


@pytest.mark.parametrize(("first", "second"), [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_a_second_gateway_is_refused(bind, port, first, second):
    bind("server", "127.0.0.1", port, first)
    with pytest.raises(StartError, match=f"server.port {port} on 127.0.0.1 is in use"):
        listeners.bind("server", "127.0.0.1", port, second)


def test_the_port_is_free_again_after_close(bind, port):
    client = None
    for one in bind("server", "127.0.0.1", port, 2):
        client = client or socket.create_connection(("127.0.0.1", port))
        try:
            one.accept()[0].close()  # our side closes first: TIME_WAIT stays behind
        except BlockingIOError:
            pass
    listeners.close_all(bind("ops", "127.0.0.1", 0))
    client.close()
    assert bind("server", "127.0.0.1", port, 2)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1", "a" * 64 + ".example"])
def test_hosts_that_are_not_ours(host, port):
    with pytest.raises(StartError, match=f"server.host {host}"):
        listeners.bind("server", host, port)


def test_ipv6(bind, port):
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    try:
        bind("server", "::1", port, 2)
    except StartError as error:
        pytest.skip(str(error))
    socket.create_connection(("::1", port)).close()
