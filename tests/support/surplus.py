"""A vendor that sends more than its answers: real sockets, plain or TLS, one thread a connection.

Each request carries a mark, `<mark>`, which the answer repeats. `forms` lists, in turn, how an
answer is framed and what follows it.
"""

import itertools
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable

from tests.support.upstream import read_request

HOST = "127.0.0.1"
LATER_S = 0.003
MARK = re.compile(rb"<[0-9a-z-]+>")

Send = Callable[[bytes], None]


def whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def chunked(body: bytes, content_type: bytes = b"application/json") -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\n\r\n" % (content_type, len(body), body)
    )


def proper(send: Send, body: bytes) -> None:
    send(whole(body))


def same_write(send: Send, body: bytes) -> None:
    send(whole(body) + whole(body))


def same_write_as_the_body(send: Send, body: bytes) -> None:
    """Send the surplus with the body. libcurl reads no more than the Content-Length; with TLS the
    rest of the record stays unread."""
    head, _, _ = whole(body).partition(b"\r\n\r\n")
    send(head + b"\r\n\r\n")
    time.sleep(LATER_S)
    send(body + whole(body))


def write_of_its_own(send: Send, body: bytes) -> None:
    send(whole(body))
    send(whole(body))


def later(send: Send, body: bytes) -> None:
    send(whole(body))
    time.sleep(LATER_S)
    send(whole(body))


def chunked_and_more(send: Send, body: bytes) -> None:
    send(chunked(body) + chunked(body))


def chunked_and_a_write(send: Send, body: bytes) -> None:
    send(chunked(body))
    send(whole(body))


def stream_and_more(send: Send, body: bytes) -> None:
    send(chunked(body, b"text/event-stream"))
    send(chunked(body, b"text/event-stream"))


def length_too_short(send: Send, body: bytes) -> None:
    """Send a Content-Length that is too short; it covers the mark, only blanks are cut off."""
    head, _, _ = whole(body).partition(b"\r\n\r\n")
    send(head + b"\r\n\r\n")
    time.sleep(LATER_S)
    send(body + b"   \r\n")


def one_byte(send: Send, body: bytes) -> None:
    same_record(send, body, b"x")


def half_a_line(send: Send, body: bytes) -> None:
    same_record(send, body, b"HTTP/1.1 20")


def half_a_head(send: Send, body: bytes) -> None:
    same_record(send, body, b"HTTP/1.1 200 OK\r\nContent-Le")


def same_record(send: Send, body: bytes, surplus: bytes) -> None:
    head, _, _ = whole(body).partition(b"\r\n\r\n")
    send(head + b"\r\n\r\n")
    time.sleep(LATER_S)
    send(body + surplus)


FORMS = (
    same_write,
    same_write_as_the_body,
    write_of_its_own,
    later,
    chunked_and_more,
    chunked_and_a_write,
    length_too_short,
    one_byte,
    half_a_line,
    half_a_head,
)


class SurplusVendor:
    """A vendor that answers requests with `answer(mark)` in `forms`, one after the other."""

    def __init__(
        self,
        forms: Iterable[Callable[[Send, bytes], None]],
        context: ssl.SSLContext | None = None,
        answer: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._forms = itertools.cycle(forms)
        self._context = context
        self._answer = answer
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, 0), backlog=256)
        self.connections = self.requests = 0
        self.sending = 0  # answers not yet sent completely
        self.port = int(self._listener.getsockname()[1])
        self.url = f"{'http' if context is None else 'https'}://{HOST}:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection:
                self._answer_all(connection)
        except OSError:  # the gateway has closed it, as it should
            connection.close()

    def _answer_all(self, connection: socket.socket) -> None:
        while True:
            request = read_request(connection)
            with self._lock:
                self.requests += 1
                self.sending += 1
                form = next(self._forms)
            mark = MARK.search(request)
            try:
                form(connection.sendall, self._answer(mark.group() if mark else b"<none>"))
            finally:
                with self._lock:
                    self.sending -= 1
