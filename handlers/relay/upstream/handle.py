"""A handle of libcurl, the one connection it keeps and the options of its request.

Belongs here: options of libcurl's easy handles, routes, the check of addresses to connect to. Does
not belong here: when a handle runs (client.py), which one is used next (idle_connections.py).

Each handle has its own pool for its connection (a libcurl share), so that the gateway chooses which
connection serves a request, and can close one. libcurl would take any connection it finds, and
since 8.22 does not check for waiting bytes if it checked within the last second (ADR 0012).
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import pycurl

from handlers.relay.upstream.exchange import Exchange
from handlers.relay.upstream.request import (
    BodySource,
    RequestBody,
    UpstreamRequest,
    encode_header_lines,
    is_public,
    leads_to_public,
)
from handlers.relay.upstream.spool import SpooledSource
from store.catalog.catalog import Route

CONNECTION_LIFETIME_S = 300  # so that changes of DNS are followed
CA_FILE_CACHE_S = 60  # otherwise libcurl caches the file for a day
KEEP_ALIVE_IDLE_S = 60
UPLOAD_BUFFER_BYTES = 16_384  # libcurl's minimum; allocated until the transfer ends
UPLOAD_BUFFER_LARGE_BYTES = 65_536

# Options of libcurl that pycurl does not name.
_SUPPRESS_CONNECT_HEADERS = 265
_CA_CACHE_TIMEOUT = 321

_ENGINE_HEADER_LINES = [b"Expect:", b"Accept-Encoding: identity"]
_USER_AGENT = "sluice"
_READABLE = select.POLLIN | select.POLLRDHUP

Destination = str | tuple[str, Route]  # an origin, and the route to it


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, which must have a path."""
    return url[: url.find("/", 8)]  # the first slash after https://


def public_text(destination: Destination) -> str:
    """Return the part of a destination that may be logged, since routes hold logins."""
    return destination if isinstance(destination, str) else destination[0]


def _never_ready(timeout_ms: int) -> list[tuple[int, int]]:
    return []


class Handle:
    """A handle of libcurl, its connection, the request's body, the answer's head lines and the
    options set last. They serve one exchange after the other, at one destination. `fd` is the
    socket of the idle connection, -1 without one. `rests`: how often the connection was left idle
    for a while before it was reused."""

    __slots__ = ("_configured", "_polled_fd", "_share", "body", "curl", "destination", "fd",
                 "getinfo", "head_lines", "holding", "idle_since_s", "idle_since_tick", "pool",
                 "ready", "rests", "setopt", "source", "tls")  # fmt: skip

    def __init__(self) -> None:
        self.body = RequestBody()
        self.source: BodySource = self.body  # of the current request
        self.head_lines: list[bytes] = []
        self.curl = make_curl()
        self.setopt = setopt = self.curl.setopt  # looking up methods is slow in pycurl
        self.getinfo = self.curl.getinfo
        setopt(pycurl.HEADERFUNCTION, self.head_lines.append)  # no Python code for each line
        setopt(pycurl.READFUNCTION, self.body.read)
        self.holding = False  # the body of a request is held back
        # For the second send if a kept connection turns out to be dead.
        setopt(pycurl.SEEKFUNCTION, self.body.rewind)
        self._configured: tuple[object, ...] = ()
        self._share = _make_share()
        setopt(pycurl.SHARE, self._share)
        self.destination: Destination = ""
        self.tls = False  # TLS may buffer bytes that the socket does not show
        self.fd = -1
        self._polled_fd = -1
        self.ready: Callable[[int], list[tuple[int, int]]] = _never_ready
        self.pool: deque[Handle] = deque()  # holds the handle between two requests
        self.idle_since_tick = 0
        self.idle_since_s = 0.0  # set for a new connection only
        self.rests = 0

    def assign(
        self, request: UpstreamRequest, destination: Destination, pool: deque[Handle]
    ) -> None:
        """Set the destination of a handle without a connection."""
        route = request.route
        proxy = None if route is None else route.proxy
        self.destination, self.pool = destination, pool
        self.tls = request.url.startswith("https") or bool(proxy and proxy.startswith("https"))
        self.setopt(pycurl.READFUNCTION, self._read if self.tls else self.body.read)

    def _read(self, size: int) -> Any:
        """Serve as READFUNCTION under TLS. Gives no body while surplus bytes of the last answer are
        looked for."""
        return pycurl.READFUNC_PAUSE if self.holding else self.source.read(size)

    def configure(self, request: UpstreamRequest, exchange: Exchange) -> None:
        """Set libcurl's options for a request. Raises ValueError for header lines or methods that
        cannot be sent."""
        setopt = self.setopt
        body = request.body
        # A larger buffer makes a large upload some 10 % cheaper, but is kept as long as a stream.
        large = body is not None and len(body) > UPLOAD_BUFFER_BYTES and not request.stream
        options = (request.method, request.url, request.connect_timeout_s, large, request.headers)
        # A kept handle usually has the same options already.
        if self._configured != options:
            self._configured = ()
            self._set(request, UPLOAD_BUFFER_LARGE_BYTES if large else UPLOAD_BUFFER_BYTES)
            self._configured = options
        setopt(pycurl.WRITEFUNCTION, exchange.write)
        if body is not None:
            setopt(pycurl.POSTFIELDSIZE, len(body))
            if isinstance(body, bytes):
                self.body.fill(body)
                if self.source is not self.body:
                    self._read_from(self.body)
            else:
                exchange.source = source = SpooledSource(body)
                self._read_from(source)

    def _read_from(self, source: BodySource) -> None:
        """Make libcurl read the bodies of requests from another source."""
        self.source = source
        self.setopt(pycurl.READFUNCTION, self._read if self.tls else source.read)
        self.setopt(pycurl.SEEKFUNCTION, source.rewind)

    def _set(self, request: UpstreamRequest, buffer_bytes: int) -> None:
        setopt = self.setopt
        if request.method not in (("GET", "DELETE") if request.body is None else ("POST",)):
            raise ValueError("a GET or DELETE without a body or a POST with one, nothing else")
        if not request.url.isascii():
            raise ValueError("a URL must be ASCII")
        setopt(pycurl.HTTPHEADER, encode_header_lines(request.headers) + _ENGINE_HEADER_LINES)
        setopt(pycurl.URL, request.url)
        # 0 would be libcurl's default of five minutes.
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(request.connect_timeout_s * 1000)))
        setopt(pycurl.UPLOAD_BUFFERSIZE, buffer_bytes)
        if request.body is None:
            setopt(pycurl.HTTPGET, 1)
            setopt(pycurl.CUSTOMREQUEST, request.method)
        else:
            self.curl.unsetopt(pycurl.CUSTOMREQUEST)
            setopt(pycurl.POST, 1)

    def trust(self, ca_file: str | None, ca_dir: str | None) -> None:
        if ca_file is not None:
            self.setopt(pycurl.CAINFO, ca_file)
        if ca_dir is not None:
            self.setopt(pycurl.CAPATH, ca_dir)

    def refuse_private_addresses(self) -> None:
        """Connect to public addresses only."""
        # libcurl calls it for each new connection, with the resolved address.
        self.setopt(pycurl.OPENSOCKETFUNCTION, open_public_socket)

    def set_route(
        self, route: Route, url: str, allow_private: bool, ca_file: str | None, ca_dir: str | None
    ) -> None:
        """Set the route of a new handle. `ca_file`, `ca_dir`: the system's CA certificates."""
        setopt = self.setopt
        if route.ca_file is not None:
            setopt(pycurl.CAINFO, route.ca_file)
            self.curl.unsetopt(pycurl.CAPATH)
            setopt(_CA_CACHE_TIMEOUT, CA_FILE_CACHE_S)
        if route.proxy is None:
            return
        scheme, _, rest = route.proxy.partition("://")
        # The proxy always resolves the upstream's name.
        setopt(pycurl.PROXY, f"socks5h://{rest}" if scheme == "socks5" else route.proxy)
        setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        if scheme == "https":
            proxy_ca_file = route.ca_file or ca_file
            if proxy_ca_file is not None:
                setopt(pycurl.PROXY_CAINFO, proxy_ca_file)
            if ca_dir is not None and route.ca_file is None:
                setopt(pycurl.PROXY_CAPATH, ca_dir)
        if not allow_private:
            # The operator's proxy may be private. The addresses that it resolves are not visible
            # here.
            to_proxy = open_public_socket if route.guarded else _open_socket
            setopt(pycurl.OPENSOCKETFUNCTION, to_proxy if leads_to_public(url) else _open_none)

    def watch(self, fd: int) -> None:
        """Poll the socket of a new connection from now on."""
        self.fd, self.rests = fd, 0
        if fd != self._polled_fd:
            poll = select.poll()
            poll.register(fd, _READABLE)
            self.ready, self._polled_fd = poll.poll, fd

    @property
    def reused(self) -> bool:
        """Return whether the last transfer was sent on a kept connection."""
        return self.fd >= 0 and self.getinfo(pycurl.NUM_CONNECTS) == 0

    def drop(self) -> None:
        """Close the connection at once. libcurl must be done with the handle."""
        self.curl.unsetopt(pycurl.SHARE)
        self._share.close()
        self._share = _make_share()
        self.setopt(pycurl.SHARE, self._share)
        self.fd, self.rests = -1, 0

    def close(self) -> None:
        self.curl.close()
        self._share.close()


def _make_share() -> Any:
    share = pycurl.CurlShare()
    share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_CONNECT)
    return share


def make_curl() -> Any:
    """Make a handle with the options that are the same for every request."""
    curl = pycurl.Curl()
    setopt = curl.setopt
    setopt(pycurl.USERAGENT, _USER_AGENT)
    setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
    setopt(pycurl.PROXY, "")  # empty, not absent, so that the environment's proxies are ignored
    setopt(pycurl.NOPROXY, "")  # the same
    setopt(pycurl.NOSIGNAL, 1)
    setopt(pycurl.MAXLIFETIME_CONN, CONNECTION_LIFETIME_S)
    setopt(pycurl.TCP_KEEPALIVE, 1)
    setopt(pycurl.TCP_KEEPIDLE, KEEP_ALIVE_IDLE_S)
    return curl


class _Duplicated(socket.socket):
    """A socket that is closed as soon as pycurl has duplicated it."""

    def __del__(self) -> None:
        self.close()


def open_public_socket(purpose: int, address: Any, refused: list[str] | None = None) -> Any:
    """Serve as OPENSOCKETFUNCTION: open a socket for a public address. Any other address is refused
    and added to `refused`."""
    if is_public(address.addr[0]):
        return _open_socket(purpose, address)
    if refused is not None:
        refused.append(address.addr[0])
    return pycurl.SOCKET_BAD


def _open_socket(purpose: int, address: Any) -> Any:
    return _Duplicated(address.family, address.socktype, address.protocol)


def _open_none(purpose: int, address: Any) -> Any:
    return pycurl.SOCKET_BAD
