"""A request as it is read: its head, and the parser that cuts a client's bytes into pieces.

httptools (llhttp, strict) parses; here is what it does not decide: the bound of a head, what a head
must have, what a request that asks for another protocol becomes. No socket, no clock: the pieces go
to whoever takes them, which is handlers.connection.
"""

from typing import Any, Protocol

import httptools
from tornado import httputil

HEAD_MAX_BYTES = 65536

# Pieces of a request; BROKEN stands for what is none, with the reason.
HEAD, BODY, END, BROKEN = range(4)
_HEAD_TOO_LARGE = "The request head is larger than 64 KiB."


class Taker(Protocol):
    """Whoever takes the pieces: (HEAD, Request), (BODY, bytes), (END, None)."""

    def take(self, kind: int, value: Any) -> None: ...


class Request(httputil.HTTPServerRequest):
    """What Tornado's handlers look at; made without what this gateway never asks for."""

    keep_alive: bool

    def __init__(self, connection: Taker, method: str, uri: str, headers: dict[str, str]) -> None:
        self.connection = connection  # type: ignore[assignment]
        self.method = method
        self.headers = headers  # type: ignore[assignment]
        # Clients that take this for a proxy name a whole address.
        target = uri if uri[:1] == "/" else "/" + uri.partition("://")[2].partition("/")[2]
        self.path, _, self.query = target.partition("?")

    def announces_body(self) -> bool:
        """Whether a body follows the head."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def expects_continue(self) -> bool:
        """The client waits for a word of ours before it sends the body."""
        if "expect" not in self.headers or self.version != "HTTP/1.1":
            return False
        return self.announces_body() and self.headers["expect"].lower() == "100-continue"


class RequestReader:
    """What httptools calls: puts heads together and hands the pieces of requests on."""

    def __init__(self, connection: Taker) -> None:
        self._connection = connection
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._fields: dict[str, str] = {}  # by names in lower case; repeated ones with commas
        self._head_bytes = 0
        self._unseen_bytes = 0  # that came since a piece was handed on
        self._body_header = b""  # of a request that asks for another protocol

    def feed(self, data: bytes | memoryview) -> None:
        """Takes bytes of the client."""
        self._unseen_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser takes what follows for another protocol. None is spoken here, so the
            # request is one like any other: its body is read, behind a head made for that.
            head = b"POST / HTTP/1.1\r\n%b\r\n\r\n" % self._body_header
            self.feed(head + data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            raise
        except httptools.HttpParserError as error:
            self._connection.take(BROKEN, f"The request is not valid HTTP/1.1: {error}.")
        if self._unseen_bytes > HEAD_MAX_BYTES:
            self._connection.take(BROKEN, _HEAD_TOO_LARGE)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        fields, field, text = self._fields, name.decode().lower(), value.decode("latin-1")
        fields[field] = f"{fields[field]},{text.strip()}" if field in fields else text.strip()

    def on_headers_complete(self) -> None:
        url, fields, head_bytes = self._url, self._fields, self._head_bytes
        self._url, self._fields = b"", {}
        self._unseen_bytes = self._head_bytes = 0
        if self._body_header:
            self._body_header = b""
        elif len(url) + head_bytes > HEAD_MAX_BYTES:
            self._connection.take(BROKEN, _HEAD_TOO_LARGE)
        else:
            self._hand_on_head(url, fields)

    def _hand_on_head(self, url: bytes, headers: dict[str, str]) -> None:
        parser = self._parser
        method = parser.get_method().decode("latin-1")
        request = Request(self._connection, method, url.decode("latin-1"), headers)
        request.version = "HTTP/" + parser.get_http_version()
        request.keep_alive = parser.should_keep_alive()
        if parser.should_upgrade():
            request.keep_alive = False
            length = headers.get("content-length", "0")
            chunked = "transfer-encoding" in headers
            header = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
            self._body_header = header.encode("latin-1")
        self._connection.take(HEAD, request)

    def on_body(self, body: bytes) -> None:
        self._unseen_bytes = 0
        self._connection.take(BODY, body)

    def on_message_complete(self) -> None:
        self._unseen_bytes = 0
        self._fields.clear()  # trailers; they must not get into the next head
        self._head_bytes = 0
        if not self._body_header:
            self._connection.take(END, None)


def head_fault(request: Request) -> str:
    """Why a head that parses is no request all the same (RFC 9112 §2.3, §3.2, §6.1); else empty."""
    if request.version not in ("HTTP/1.1", "HTTP/1.0"):
        return "The request line has no HTTP version that is spoken here (1.1, 1.0)."
    headers = request.headers
    if "transfer-encoding" in headers and headers["transfer-encoding"].lower() != "chunked":
        return "The only transfer-encoding of a request is chunked."
    # Two Host lines would stand joined here, and no host's name has a comma.
    host = headers.get("host")
    if (host is None and request.version == "HTTP/1.1") or "," in (host or ""):
        return "A request has exactly one Host header."
    return ""
