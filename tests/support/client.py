"""A client that sees everything: a connection's bytes, how an answer is framed, how it ends."""

import json
import re
import socket
import struct
import time
from dataclasses import dataclass, field

HOST = "127.0.0.1"
PATIENCE_S = 20
BEAT = b": keep-alive\n"  # the gateway's heartbeat in the OpenAI families; sent before an event
EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
READ_BYTES = 65536


class Closed(Exception):
    """The error of a connection that the other side has closed."""


@dataclass
class Answer:
    """One answer; `whole` is true if its body ended as its framing promised."""

    status: int
    head: bytes
    headers: dict[str, str]
    pieces: list[bytes] = field(default_factory=list)
    whole: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def call_id(self) -> str:
        return self.headers["x-request-id"]


class Connection:
    """One raw connection to the gateway."""

    def __init__(self, port, source=None, receive_bytes=None, patience_s=PATIENCE_S):
        self.socket = socket.socket()
        self.socket.settimeout(patience_s)
        if source is not None:
            self.socket.bind((source, 0))
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._buffer = b""
        try:
            self.socket.connect((HOST, port))
        except OSError:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Close with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def request(self, method, path, headers=None, body=None, version="1.1"):
        """Send a request; its length is correct unless the headers say otherwise."""
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        self.send(encode_head(method, path, headers, data, version) + (data or b""))

    def read_head(self):
        """Read the head of the next answer; an interim 100 counts as an answer."""
        return parse_head(self._until(b"\r\n\r\n"))

    def read_chunk(self):
        """Read the next chunk's data; b"" for the last one. Raises Closed when the connection
        ends."""
        size = int(self._until(b"\r\n").partition(b";")[0], 16)
        data = self._exactly(size)
        assert self._exactly(2) == b"\r\n"
        return data

    def read(self, method="POST"):
        """Read a whole answer, however it ends."""
        answer = self.read_head()
        try:
            self.read_body(answer, method)
        except (Closed, ConnectionError):
            pass
        return answer

    def read_body(self, answer, method="POST"):
        if method == "HEAD" or answer.status in (100, 204, 304):
            answer.whole = True
        elif answer.headers.get("transfer-encoding") == "chunked":
            while data := self.read_chunk():
                answer.pieces.append(data)
            answer.whole = True
        elif "content-length" in answer.headers:
            answer.pieces.append(self._exactly(int(answer.headers["content-length"])))
            answer.whole = True
        else:
            self.rest(answer)

    def rest(self, answer):
        """Read everything until the connection ends (a body without framing)."""
        try:
            while True:
                if not self._buffer:
                    self._fill()
                answer.pieces.append(self._buffer)
                self._buffer = b""
        except Closed:
            answer.whole = True

    def until_closed(self):
        """Read until the connection ends, by FIN or RST. Raises TimeoutError if it stays open."""
        try:
            while True:
                self._fill()
        except (Closed, ConnectionError):
            return self._buffer

    def _until(self, mark):
        while mark not in self._buffer:
            self._fill()
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def _exactly(self, size):
        while len(self._buffer) < size:
            self._fill()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _fill(self):
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise Closed
        self._buffer += data


def parse_head(head):
    """Return an answer with status and headers but no body yet; no header may appear twice."""
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in filter(None, lines):
        name, _, value = line.partition(":")
        assert name.lower() not in headers, f"{name} twice in {head!r}"
        headers[name.lower()] = value.strip()
    return Answer(int(status.split()[1]), head, headers)


def encode_head(method, path, headers=None, data=None, version="1.1"):
    sent = {"Host": "gateway.test", **(headers or {})}
    names = {name.lower() for name in sent}
    if data is not None:
        if "content-type" not in names:
            sent["Content-Type"] = "application/json"
        if not names & {"content-length", "transfer-encoding"}:
            sent["Content-Length"] = str(len(data))
    lines = [f"{method} {path} HTTP/{version}"]
    lines += [f"{name}: {value}" for name, value in sent.items() if value is not None]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def exchange(port, method, path, headers=None, body=None, patience_s=PATIENCE_S):
    """Send one request on a connection of its own; return the answer."""
    with Connection(port, patience_s=patience_s) as connection:
        connection.request(method, path, {"Connection": "close", **(headers or {})}, body)
        return connection.read(method)


def events(body):
    """Split a stream into events, each with its terminator, and one-line heartbeats. The last item
    is whatever follows the last terminator."""
    found, start = [], 0
    for match in EVENT_END.finditer(body):
        while body.startswith(BEAT, start) and body[start + len(BEAT)] not in b"\r\n":
            found.append(BEAT)
            start += len(BEAT)
        found.append(body[start : match.end()])
        start = match.end()
    if start < len(body):
        found.append(body[start:])
    return found


def data_of(event):
    """Return an event's decoded data: None if it has none, "[DONE]" as text."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    if not lines:
        return None
    data = b"\n".join(lines)
    return "[DONE]" if data == b"[DONE]" else json.loads(data)


def wait_until(condition, seconds=20, step_s=0.02):
    """Return the first true value of `condition`, or its last value at the timeout."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(step_s)
    return found
