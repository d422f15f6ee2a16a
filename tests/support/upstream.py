"""The tests' vendor as a process: the upstream of a gateway under test."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "wire"
START_TIMEOUT_S = 30
END_TIMEOUT_S = 10
PID_BYTES_MAX = 32


class VendorProcess:
    """A vendor process, forked from the one process that has imported the SDKs."""

    _channel: ClassVar[socket.socket | None] = None

    def __init__(self, arguments: list[str]) -> None:
        channel = self._server()
        stdin, our_stdin = os.pipe()
        our_stdout, stdout = os.pipe()
        socket.send_fds(channel, [json.dumps(arguments).encode()], [stdin, stdout])
        os.close(stdin)
        os.close(stdout)
        self.stdin, self.stdout = os.fdopen(our_stdin, "wb"), os.fdopen(our_stdout)
        self.pid = int(channel.recv(PID_BYTES_MAX))
        try:
            self._ended: int | None = os.pidfd_open(self.pid)
        except ProcessLookupError:  # it has ended already
            self._ended = None

    def kill(self) -> None:
        if self._ended is not None:
            signal.pidfd_send_signal(self._ended, signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; return False if it does not come in time."""
        if self._ended is not None:
            if not select.select([self._ended], [], [], timeout_s)[0]:
                return False
            os.close(self._ended)
            self._ended = None
        return True

    @classmethod
    def _server(cls) -> socket.socket:
        if cls._channel is None:
            cls._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", "tests.vendor", f"--fork={theirs.fileno()}"]
            # It ends with the socket, and so with this process; Ctrl-C does not stop it.
            forker = subprocess.Popen(
                command, cwd=ROOT, pass_fds=[theirs.fileno()], start_new_session=True
            )
            theirs.close()
            atexit.register(forker.wait)
            atexit.register(cls._channel.close)  # runs before forker.wait
        return cls._channel


class ScriptedUpstream:
    """A vendor on a free port (or the given one); ended by `close` or `with`."""

    def __init__(
        self, samples: Path | None = None, log_file: Path | None = None, port: int = 0
    ) -> None:
        arguments = [f"--port={port}"]
        if samples is None and SAMPLES.is_dir():
            samples = SAMPLES
        if samples is not None:
            arguments.append(f"--samples={samples}")
        if log_file is not None:
            arguments.append(f"--log={log_file}")
        self.process = VendorProcess(arguments)
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        self.url = self.process.stdout.readline().strip() if readable else ""
        if not self.url:
            self.close()
            raise RuntimeError("the scripted upstream did not start; its reason is on stderr")
        self.port = int(self.url.rpartition(":")[2])

    def log(self) -> list[dict[str, Any]]:
        """Return the requests that reached the vendor since its start or the last reset, oldest
        first."""
        return [json.loads(line) for line in self._ask("GET", "/__log").splitlines()]

    def stats(self) -> dict[str, int]:
        """Return the numbers of open `connections` and `streams`."""
        answer: dict[str, int] = json.loads(self._ask("GET", "/__stats"))
        return answer

    def reset(self) -> None:
        self._ask("POST", "/__reset")

    def close(self) -> None:
        self.process.stdin.close()
        if not self.process.wait(END_TIMEOUT_S):
            self.process.kill()
            self.process.wait(END_TIMEOUT_S)
        self.process.stdout.close()

    def __enter__(self) -> ScriptedUpstream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("connection", "close")
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body


HOST = "127.0.0.1"
PATIENCE_S = 20
CONTENT_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)")
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class Peer:
    """The upstream's end of a connection whose request has been read."""

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self.socket = connection
        self.request = request

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class RawUpstream:
    """An upstream whose every byte the test sends itself: `accept` returns the next request.

    With `answer`, each request gets these bytes, or the result of this function of the request,
    and the connection ends.
    """

    def __init__(
        self,
        answer: bytes | Callable[[bytes], bytes] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._listener = socket.create_server((HOST, 0))
        self._listener.settimeout(PATIENCE_S)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://{HOST}:{self.port}"
        self._closed = False
        if answer is not None:
            threading.Thread(target=self._answer_all, args=(answer,), daemon=True).start()

    def accept(self) -> Peer:
        """Accept the next connection and read its request."""
        connection, _ = self._listener.accept()
        try:
            connection.settimeout(PATIENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            return Peer(connection, read_request(connection))
        except OSError:
            connection.close()
            raise

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _answer_all(self, answer: bytes | Callable[[bytes], bytes]) -> None:
        while not self._closed:
            try:
                peer = self.accept()
                peer.send(answer(peer.request) if callable(answer) else answer)
                peer.close()
            except OSError:
                continue

    def __enter__(self) -> RawUpstream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_request(connection: socket.socket) -> bytes:
    """Return the bytes of the next request. Raises ConnectionError if the gateway sends none."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = CONTENT_LENGTH.search(head)
    parts, missing = [body], (int(length[1]) if length else 0) - len(body)
    while missing > 0:
        parts.append(_received(connection))
        missing -= len(parts[-1])
    return b"".join((head, b"\r\n\r\n", *parts))


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the gateway closed the connection")
    return data
