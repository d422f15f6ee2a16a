"""A forward proxy for tests: HTTP (absolute form and CONNECT) and SOCKS5.

It resolves every name to its one target and records what was requested.
"""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import ssl
import threading
import time

HOST = "127.0.0.1"
PATIENCE_S = 20


class Proxy:
    """A proxy. `goal`: the port that everything leads to; `login`: the "user:password" that it
    requires."""

    def __init__(
        self, goal: int, login: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.goal = goal
        self.login = login
        self.connections = 0
        self.asked: list[str] = []  # "CONNECT host:port", "GET http://…", "SOCKS host:port"
        self.heads: list[bytes] = []
        self._tls = tls
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError, EOFError):
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            first = _exactly(client, 1)
            goal = self._socks(client) if first == b"\x05" else self._http(client, first)
            if goal is not None:
                with goal:
                    _join(client, goal)
        client.close()

    def _connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.goal), timeout=PATIENCE_S)

    def _http(self, client: socket.socket, head: bytes) -> socket.socket | None:
        while not head.endswith(b"\r\n\r\n"):
            head += _exactly(client, 1)
        self.heads.append(head)
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        self.asked.append(f"{method} {target}")
        if self.login is not None:
            wanted = b"Proxy-Authorization: Basic " + base64.b64encode(self.login.encode())
            if wanted not in head:
                client.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
                return None
        goal = self._connect()
        if method == "CONNECT":
            client.sendall(b"HTTP/1.1 200 Connection established\r\nX-Of-The-Proxy: 1\r\n\r\n")
        else:
            path = "/" + target.split("/", 3)[3]
            goal.sendall(head.replace(target.encode(), path.encode(), 1))
        return goal

    def _socks(self, client: socket.socket) -> socket.socket | None:
        methods = _exactly(client, _exactly(client, 1)[0])
        method = 0 if self.login is None else 2
        if method not in methods:
            client.sendall(b"\x05\xff")
            return None
        client.sendall(bytes((5, method)))
        if self.login is not None:
            _exactly(client, 1)
            user, password = (_exactly(client, _exactly(client, 1)[0]) for _ in range(2))
            right = f"{user.decode()}:{password.decode()}" == self.login
            client.sendall(bytes((1, not right)))
            if not right:
                return None
        # Type 3 is a name; an address would mean that the client resolved the name itself.
        assert _exactly(client, 4)[3] == 3
        host = _exactly(client, _exactly(client, 1)[0]).decode()
        port = int.from_bytes(_exactly(client, 2), "big")
        self.asked.append(f"SOCKS {host}:{port}")
        goal = self._connect()
        client.sendall(b"\x05\x00\x00\x01" + bytes(6))
        return goal


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _join(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes both ways until one side ends."""
    ways = {one: other, other: one}
    while True:
        waiting = [peer for peer in ways if isinstance(peer, ssl.SSLSocket) and peer.pending()]
        ready = waiting or select.select(list(ways), [], [], PATIENCE_S)[0]
        if not ready:
            return
        for peer in ready:
            data = peer.recv(65536)
            if not data:
                return
            ways[peer].sendall(data)


class Switch(Proxy):
    """A port that forwards to another one; like a DNS name, a change of `goal` does not affect
    open connections."""

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), self._connect() as goal:
            client.settimeout(PATIENCE_S)
            _join(client, goal)


class Breakable(Switch):
    """A Switch that can be cut: nothing gets through, as in a network that drops packets. Each
    connection takes `delay_s` to establish."""

    def __init__(self, goal: int, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._whole = threading.Event()
        self._whole.set()
        super().__init__(goal)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def _serve(self, client: socket.socket) -> None:
        time.sleep(self._delay_s)
        self._whole.wait()
        with client, contextlib.suppress(OSError), self._connect() as goal:
            ways = {client: goal, goal: client}
            while True:
                ready = select.select(list(ways), [], [])[0]
                self._whole.wait()
                for peer in ready:
                    data = peer.recv(65536)
                    if not data:
                        return
                    ways[peer].sendall(data)
