"""The client's side of a call, over a connection that is played."""

import pytest

from handlers.relay.downstream import Downstream
from tests.handlers.relay.rig import Connection

BASE = (("x-request-id", "id"), ("request-id", "id"))
HEADERS = (("Content-Type", "text/event-stream"),)


@pytest.fixture
def connection():
    return Connection()


@pytest.fixture
def downstream(connection):
    return Downstream(connection, BASE)


def test_a_whole_answer_has_the_headers_of_every_answer(connection, downstream):
    downstream.send(404, HEADERS, b"{}")
    assert connection.sent == [("answer", 404, BASE + HEADERS, b"{}")]


def test_a_stream(connection, downstream):
    assert not downstream.head_sent
    assert downstream.start(200, HEADERS, b"one")
    assert downstream.head_sent
    assert downstream.write(b"two")
    downstream.finish(b"three")
    assert connection.sent == [
        ("start", 200, BASE + HEADERS, b"one"),
        ("send", b"two"),
        ("finish", b"three"),
    ]
    assert not downstream.blocked


@pytest.mark.parametrize("at_start", [True, False])
def test_a_full_buffer_blocks_until_it_has_drained(connection, downstream, at_start):
    drained = []
    downstream.when_drained(lambda: drained.append(downstream.blocked))
    connection.room = not at_start
    assert downstream.start(200, HEADERS, b"") is not at_start
    connection.room = False
    assert not downstream.write(b"more")
    assert downstream.blocked and not drained
    connection.room = True
    connection.on_drained()
    assert drained == [False] and not downstream.blocked
    assert downstream.write(b"more")


def test_it_tells_what_the_client_has_not_taken_and_when_it_is_gone(connection, downstream):
    assert (downstream.unsent_bytes, downstream.gone) == (0, False)
    connection.unsent_bytes, connection.closed = 70_000, True
    assert (downstream.unsent_bytes, downstream.gone) == (70_000, True)
    downstream.start(200, HEADERS, b"")
    downstream.drop()
    assert connection.sent[-1] == ("drop",)
