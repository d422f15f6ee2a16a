"""The server of the ops port: HTTP/1.1 on the supervisor's loop, and the check of Host and token.

Standard library and conf only. A web page can point its own host name at this machine (DNS
rebinding). Its requests then come from the inside and carry that name as Host, so only the
machine's own names are answered. Load balancers ask for liveness and readiness by any address they
know, and these two answers contain nothing secret.
"""

import hmac
import ipaddress
import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from conf.values import is_loopback

OPEN_PATHS = frozenset({"/livez", "/readyz"})

Refusal = tuple[HTTPStatus, dict[str, object]]


class Guard(NamedTuple):
    """The hosts that are accepted besides loopback and the address that the request came to
    (`names`), and the Bearer token that all paths but OPEN_PATHS need; empty: none."""

    names: frozenset[str]
    token: str = ""

    def refusal(self, path: str, fields: Sequence[str], came_to: str) -> Refusal | None:
        """Return the refusal of a request, or None if it may be answered. `fields`: header
        lines."""
        if path in OPEN_PATHS:
            return None
        hosts = _values(fields, "host")
        if len(hosts) != 1 or not self._is_ours(_name_of(hosts[0]), came_to):
            remedy = "this name is not served here; add it to ops.hosts, or use the address"
            return HTTPStatus.FORBIDDEN, {"error": remedy}
        if self.token and not self._is_token(_values(fields, "authorization")):
            return HTTPStatus.UNAUTHORIZED, {"error": "Authorization: Bearer TOKEN (ops.token)"}
        return None

    def _is_ours(self, name: str, came_to: str) -> bool:
        return is_loopback(name) or name in self.names or _address(name) == _address(came_to) != ""

    def _is_token(self, headers: Sequence[str]) -> bool:
        scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        same = hmac.compare_digest(token.strip().encode("latin-1"), self.token.encode())
        return scheme.lower() == "bearer" and same


def _values(fields: Sequence[str], name: str) -> list[str]:
    """Return the values of a header from all its lines."""
    parts = (field.partition(":") for field in fields)
    return [value.strip() for key, _, value in parts if key.lower() == name]


def _name_of(host: str) -> str:
    """Return the host of a Host header: lower case, without port, brackets and trailing dot."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _address(text: str) -> str:
    """Return an IP address in canonical form, an IPv4-mapped IPv6 address as IPv4. Empty for other
    text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)


MAX_HEAD_BYTES = 16384
MAX_CONNECTIONS = 64
CONNECTION_S = 5.0
MAX_BODY_BYTES = 1024
READING = ("GET", "HEAD")
LINGER_S = 1.0


class Text(NamedTuple):
    """An answer that is not JSON."""

    content_type: str
    body: bytes


Answer = tuple[HTTPStatus, Mapping[str, object] | Text]
Routes = Mapping[tuple[str, str], Callable[[bytes], Answer]]
"""(method, path) -> the function that answers; its argument is the body of a PUT, else empty."""


class OpsServer:
    """A server of (method, path) -> answer on a listening socket, until `close`; the guard decides
    which requests are answered."""

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
        """Drop the connections that are over their time."""
        for connection in [connection for connection in self._open if connection.deadline <= now]:
            self._drop(connection)

    def close(self) -> None:
        """Stop accepting and answering."""
        self._selector.unregister(self._listener)
        self._listener.close()
        for connection in list(self._open):
            self._drop(connection)

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # the client has disconnected, or there are no descriptors left
        if len(self._open) >= MAX_CONNECTIONS:
            # Drop the oldest, those without a reply first: silent clients must not block others.
            self._drop(
                min(
                    self._open, key=lambda connection: (bool(connection.reply), connection.deadline)
                )
            )
        peer.setblocking(False)
        connection = _Connection(peer, time.monotonic() + CONNECTION_S)
        self._open.add(connection)
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._serve(connection))

    def _serve(self, connection: "_Connection") -> None:
        try:
            if connection.reply:
                connection.write()
            elif (request := connection.read()) is not None:
                head, body = request
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
        methods = [method for method, route in self._routes if route == path]
        if not methods:
            return HTTPStatus.NOT_FOUND, {"error": f"nothing at {path[:200]}"}
        # a page in a browser on this machine could send a POST here, which has its Origin
        if method not in READING and any(field.lower().startswith("origin:") for field in fields):
            return HTTPStatus.FORBIDDEN, {"error": "not for browsers"}
        route = self._routes.get(("GET" if method == "HEAD" else method, path))
        if route is None:
            allowed = ", ".join(methods)
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": f"use {allowed}"}
        return route(body)


class _Connection:
    """One client: reads a request head, writes a reply, then waits briefly for the client
    to close."""

    def __init__(self, peer: socket.socket, deadline: float) -> None:
        self.peer = peer
        self.came_to: str = peer.getsockname()[0]
        self.deadline = deadline
        self.reply = b""
        self.ended = False
        self._taken = b""
        self._answered = False

    def read(self) -> tuple[bytes, bytes] | None:
        """Return, once, the head without its blank line and the body of a PUT. None if it is not
        complete yet or has been answered."""
        chunk = self.peer.recv(MAX_HEAD_BYTES)
        if not chunk:
            self.ended = True
            return None
        if self._answered:
            return None  # a body that is not read; closing before its end would reset the reply
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
        """Send as much as the socket takes. After the last byte shut the sending side and
        linger."""
        self.reply = self.reply[self.peer.send(self.reply) :]
        if not self.reply:
            self.peer.shutdown(socket.SHUT_WR)
            self.deadline = min(self.deadline, time.monotonic() + LINGER_S)


def _body_bytes(head: bytes) -> int:
    """Return the number of body bytes to wait for; only a PUT has a body."""
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
