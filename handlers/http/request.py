"""Request heads, and the parser that divides a client's bytes into pieces of requests.

httptools (llhttp, strict) parses. This module adds what it does not check: the size of a head, its
mandatory headers, and requests for another protocol. No socket, no clock: the pieces are passed to
a Taker, handlers.http.connection.
"""

import re
from functools import lru_cache
from typing import Any, Protocol

import httptools
from tornado import httputil

HEAD_MAX_BYTES = 65536
HOST_MAX_CHARS = 512  # twice the longest name; hosts are cached
# For a whole body, including trailers that arrive in pieces. No known client sends any.
CHUNK_EXTENSIONS_MAX_BYTES = 4096

# The pieces of a request. BROKEN: malformed, with the reason.
HEAD, BODY, END, BROKEN = range(4)
_HEAD_TOO_LARGE = "The request head is larger than 64 KiB."
_EXTENSIONS_TOO_LARGE = "The chunk extensions of the body are larger than 4 KiB in all; send none."
_EXTENSION = re.compile(rb"\n[0-9A-Fa-f]+(;[^\r\n]*)")
_LINE = re.compile(rb"\A[^\r\n]*")
_NO_HOST = "A request has exactly one Host header."
_MALFORMED_HOST = "The Host header is not the name or address of a host, with or without a port."
_LINE_ENDS_BYTES = 4  # two line ends of a chunk: after its size and after its data
# A name or an address, with or without a port (RFC 3986 §3.2.2, §3.2.3); no userinfo, no blanks.
_HOST = re.compile(r"(?:[\w.~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.%\w-]+\])(?::[0-9]{0,5})?", re.ASCII)


class Taker(Protocol):
    """The receiver of the pieces: (HEAD, Request), (BODY, bytes), (END, None)."""

    def take(self, kind: int, value: Any) -> None: ...


class Request(httputil.HTTPServerRequest):
    """The part of Tornado's request that handlers use."""

    keep_alive: bool

    def __init__(self, connection: Taker, method: str, uri: str, headers: dict[str, str]) -> None:
        self.connection = connection  # type: ignore[assignment]
        self.method = method
        self.headers = headers  # type: ignore[assignment]
        # Clients that use this server as a proxy send an absolute URI.
        target = uri if uri[:1] == "/" else "/" + uri.partition("://")[2].partition("/")[2]
        self.path, _, self.query = target.partition("?")

    def announces_body(self) -> bool:
        """Return whether a body follows the head."""
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def expects_continue(self) -> bool:
        """Return whether the client waits for 100 Continue before it sends the body."""
        if "expect" not in self.headers or self.version != "HTTP/1.1":
            return False
        return self.announces_body() and self.headers["expect"].lower() == "100-continue"


class ChunkExtensions:
    """A count of the bytes of extensions in the size lines of a chunked body.

    The parser does not report them. They are the received bytes minus data, sizes and line ends. If
    the bytes also contain the head or the end of the body, the extensions are searched for.
    """

    __slots__ = (
        "_before_bytes", "_chunk_bytes", "_data", "_in_chunk", "_in_line", "_only_body",
        "_rest_bytes",
    )  # fmt: skip

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data  # the bytes being parsed
        self._only_body = False
        self._before_bytes = 0  # counted in earlier bytes
        self._rest_bytes = 0
        self._chunk_bytes = 0  # the size of the present chunk's data
        self._in_chunk = False  # after its size line
        self._in_line = False  # the bytes begin in a size line

    def feed(self, data: bytes | memoryview) -> None:
        """Start to count in more bytes of the body, which are parsed next."""
        self._in_line = not self._in_chunk
        self._before_bytes = self.counted_bytes()
        self._data, self._rest_bytes, self._only_body = data, len(data), True

    def body(self, size_bytes: int) -> None:
        """Subtract the data of the body."""
        self._rest_bytes -= size_bytes
        self._chunk_bytes += size_bytes

    def chunk_began(self) -> None:
        """Record the end of a size line."""
        self._in_chunk = True

    def chunk_ended(self) -> None:
        """Record the end of a chunk."""
        self._in_chunk = False
        self._rest_bytes -= len(f"{self._chunk_bytes:x}") + _LINE_ENDS_BYTES
        self._chunk_bytes = 0

    def counted_bytes(self, *, ended: bool = False) -> int:
        """Return the bytes of extensions so far. `ended`: another request may follow the body."""
        if self._only_body:
            counted = self._before_bytes + self._rest_bytes
            if not ended or counted <= CHUNK_EXTENSIONS_MAX_BYTES:
                return counted
        extensions = _EXTENSION.findall(self._data)
        if self._in_line:
            extensions += _LINE.findall(self._data)
        return self._before_bytes + sum(map(len, extensions))


class RequestReader:
    """The callbacks of httptools. They assemble request heads and pass on the pieces of
    requests."""

    def __init__(self, connection: Taker) -> None:
        self._connection = connection
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._fields: dict[str, str] = {}  # names in lower case; repeated ones are joined by commas
        self._head_bytes = 0
        self._unseen_bytes = 0  # received since the last piece was passed on
        self._body_header = b""  # framing of the body of an upgrade request
        self._fed: bytes | memoryview = b""  # the bytes being parsed
        self._extensions: ChunkExtensions | None = None  # for a chunked body that is still arriving

    def feed(self, data: bytes | memoryview) -> None:
        """Parse bytes of the client."""
        self._unseen_bytes += len(data)
        self._fed = data
        if self._extensions is not None:
            self._extensions.feed(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser assumes that another protocol follows. This server supports none, so the
            # body is parsed as usual, after a head that is made for the parser.
            head = b"POST / HTTP/1.1\r\n%b\r\n\r\n" % self._body_header
            self.feed(head + data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            raise
        except httptools.HttpParserError as error:
            self._connection.take(BROKEN, f"The request is not valid HTTP/1.1: {error}.")
        self._fed = b""  # so that an open stream does not keep the bytes of its request
        if self._unseen_bytes > HEAD_MAX_BYTES:
            self._connection.take(BROKEN, _HEAD_TOO_LARGE)
        elif self._extensions is not None:
            self._check(self._extensions.counted_bytes())

    def _check(self, extension_bytes: int) -> None:
        if extension_bytes > CHUNK_EXTENSIONS_MAX_BYTES:
            self._connection.take(BROKEN, _EXTENSIONS_TOO_LARGE)

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
        if "transfer-encoding" in fields:
            self._extensions = ChunkExtensions(self._fed)
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
        if self._extensions is not None:
            self._extensions.body(len(body))
        self._connection.take(BODY, body)

    def on_chunk_header(self) -> None:
        if self._extensions is not None:
            self._extensions.chunk_began()

    def on_chunk_complete(self) -> None:
        if self._extensions is not None:
            self._extensions.chunk_ended()

    def on_message_complete(self) -> None:
        self._unseen_bytes = 0
        self._fields.clear()  # trailers must not get into the next head
        self._head_bytes = 0
        if self._extensions is not None:
            self._check(self._extensions.counted_bytes(ended=True))
            self._extensions = None
        if not self._body_header:
            self._connection.take(END, None)


def head_fault(request: Request) -> str:
    """Return the fault of a parsed head; empty if it has none (RFC 9112 §2.3, §3.2, §6.1)."""
    if request.version not in ("HTTP/1.1", "HTTP/1.0"):
        return "The request line has no HTTP version that is spoken here (1.1, 1.0)."
    headers = request.headers
    if "transfer-encoding" in headers:
        if request.version == "HTTP/1.0":
            return "A request of HTTP/1.0 has no transfer-encoding; send its content-length."
        if headers["transfer-encoding"].lower() != "chunked":
            return "The only transfer-encoding of a request is chunked."
    host = headers.get("host")
    if host is None:
        return _NO_HOST if request.version == "HTTP/1.1" else ""
    return _host_fault(host) if len(host) <= HOST_MAX_CHARS else _MALFORMED_HOST


@lru_cache(maxsize=256)
def _host_fault(host: str) -> str:
    # Two Host lines are joined by a comma, which no host name contains.
    if "," in host:
        return _NO_HOST
    return "" if _HOST.fullmatch(host) else _MALFORMED_HOST
