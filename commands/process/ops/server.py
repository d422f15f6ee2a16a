"""The ops port: a very small HTTP server inside the supervisor's own loop.

Why not http.server: with what it imports (email, ssl) it doubles the memory of the supervisor (7 MB
measured), and its threads would have to be guarded. What is needed here is a request line, the
short body of a PUT, and an answer; every connection has a deadline, so a stuck client holds
nothing.
"""

import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from commands.process.ops.guard import Guard

MAX_HEAD_BYTES = 16384
MAX_CONNECTIONS = 64
CONNECTION_S = 5.0
MAX_BODY_BYTES = 1024
READING = ("GET", "HEAD")
LINGER_S = 1.0


class Text(NamedTuple):
    """An answer that is no JSON."""

    content_type: str
    body: bytes


Answer = tuple[HTTPStatus, Mapping[str, object] | Text]
Routes = Mapping[tuple[str, str], Callable[[bytes], Answer]]
"""(method, path) -> what answers, given the body of a PUT, else nothing."""


class OpsServer:
    """Serves (method, path) -> answer on one listening socket until `close`, to whom the guard of
    the moment lets in."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        routes: Routes,
        guard: Callable[[], Guard],
    ) -> None:
        self._selector = selector
        self._listener = listener
        self._routes = routes
        self._guard = guard
        self._open: set[_Connection] = set()
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def sweep(self, now: float) -> None:
        """Drop the connections whose time is over."""
        for connection in [one for one in self._open if one.deadline <= now]:
            self._drop(connection)

    def close(self) -> None:
        """Finish: nothing is accepted or answered any more."""
        self._selector.unregister(self._listener)
        self._listener.close()
        for connection in list(self._open):
            self._drop(connection)

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # the client has gone again, or there are no descriptors left
        if len(self._open) >= MAX_CONNECTIONS:
            # The newest is served: whoever sends nothing keeps nobody from asking.
            self._drop(min(self._open, key=lambda one: (bool(one.reply), one.deadline)))
        peer.setblocking(False)
        connection = _Connection(peer, time.monotonic() + CONNECTION_S)
        self._open.add(connection)
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._serve(connection))

    def _serve(self, connection: "_Connection") -> None:
        try:
            if connection.reply:
                connection.write()
            elif (asked := connection.read()) is not None:
                head, body = asked
                connection.answer(_encode(head, self._answer(head, body, connection.came_to)))
                connection.write()
        except BlockingIOError:
            pass
        except OSError:
            connection.ended = True
        if connection.ended:
            self._drop(connection)
        elif connection.reply:
            self._watch(connection, selectors.EVENT_WRITE)
        else:
            self._watch(connection, selectors.EVENT_READ)

    def _watch(self, connection: "_Connection", events: int) -> None:
        key = self._selector.get_key(connection.peer)
        if key.events != events:
            self._selector.modify(connection.peer, events, key.data)

    def _drop(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        self._selector.unregister(connection.peer)
        connection.peer.close()

    def _answer(self, head: bytes, body: bytes, came_to: str) -> Answer:
        request_line, *fields = head.decode("latin-1").split("\r\n")
        parts = request_line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return HTTPStatus.BAD_REQUEST, {"error": "not an HTTP/1.1 request"}
        method, path = parts[0], parts[1].partition("?")[0]
        if refusal := self._guard().refusal(path, fields, came_to):
            return refusal
        methods = [known for known, route in self._routes if route == path]
        if not methods:
            return HTTPStatus.NOT_FOUND, {"error": f"nothing at {path[:200]}"}
        # a page in a browser on this machine could send a POST here, and would say its Origin
        if method not in READING and any(field.lower().startswith("origin:") for field in fields):
            return HTTPStatus.FORBIDDEN, {"error": "not for browsers"}
        route = self._routes.get(("GET" if method == "HEAD" else method, path))
        if route is None:
            allowed = ", ".join(methods)
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": f"use {allowed}"}
        return route(body)


class _Connection:
    """One client: reads a head, writes a reply, then waits a moment for the client to close."""

    def __init__(self, peer: socket.socket, deadline: float) -> None:
        self.peer = peer
        self.came_to: str = peer.getsockname()[0]
        self.deadline = deadline
        self.reply = b""
        self.ended = False
        self._taken = b""
        self._answered = False

    def read(self) -> tuple[bytes, bytes] | None:
        """Once: the head without its blank line, and the body of a PUT. None: not whole yet, or
        answered already."""
        chunk = self.peer.recv(MAX_HEAD_BYTES)
        if not chunk:
            self.ended = True
            return None
        if self._answered:
            return None  # a body nobody reads; closing over it would reset the reply
        self._taken += chunk
        head, end, body = self._taken.partition(b"\r\n\r\n")
        if not end:
            self.ended = len(self._taken) > MAX_HEAD_BYTES
            return None
        missing = _body_bytes(head) - len(body)
        return None if missing > 0 else (head, body)

    def answer(self, reply: bytes) -> None:
        self.reply = reply
        self._answered = True

    def write(self) -> None:
        """Send what goes; after the last byte say so and linger."""
        self.reply = self.reply[self.peer.send(self.reply) :]
        if not self.reply:
            self.peer.shutdown(socket.SHUT_WR)
            self.deadline = min(self.deadline, time.monotonic() + LINGER_S)


def _body_bytes(head: bytes) -> int:
    """How much of a body to wait for: that of a PUT, bodies of others are not read."""
    if not head.startswith(b"PUT "):
        return 0
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return min(int(value), MAX_BODY_BYTES)
    return 0


def _encode(head: bytes, answer: Answer) -> bytes:
    status, document = answer
    if isinstance(document, Text):
        content_type, body = document
    else:
        content_type, body = "application/json", json.dumps(document).encode() + b"\n"
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status == HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    reply = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return reply if head.startswith(b"HEAD ") else reply + body
