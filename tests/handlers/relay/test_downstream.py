"""The client's side of a call: the common parts of every answer."""

from handlers.relay.downstream import Downstream
from tests.handlers.relay.rig import Connection

BASE = (("x-request-id", "id"), ("request-id", "id"))
LEVELS = (("x-ratelimit-limit-requests", "1"),)
HEADERS = (("Content-Type", "text/event-stream"),)


def test_answers_and_streams_have_the_headers_of_every_answer():
    connection = Connection()
    downstream = Downstream(connection, BASE)
    downstream.send(404, HEADERS, b"{}")
    downstream.add_headers(LEVELS)
    assert downstream.start(200, HEADERS, b"one") and downstream.write(b"two")
    connection.room = False
    assert not downstream.start(200, HEADERS, b"") and not downstream.write(b"more")
    assert connection.sent[:3] == [
        ("answer", 404, BASE + HEADERS, b"{}"),
        ("start", 200, BASE + LEVELS + HEADERS, b"one"),
        ("send", b"two"),
    ]
