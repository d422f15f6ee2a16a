"""The upstream client: pycurl on Tornado's loop, made for a relay. The only file that knows pycurl.

Belongs here: one multi handle driven by a private epoll set, its options, sockets and timers, what
its errors mean. Does not belong here: what an exchange does with its bytes (upstream_exchange.py),
retries, what an error means to a client. Imported by handlers.relay and by the command that
composes the relay.

Facts behind the shape, each seen in a run with libcurl 8.23:

- Inside a callback libcurl refuses most calls, and an exception in the socket or timer callback
  aborts all transfers: so callbacks only append, and work is done after `socket_action` returned.
- The loop watches one descriptor, the epoll set, whatever libcurl opens and closes: no registration
  with the loop for each request, and a reused descriptor number cannot confuse it.
- `remove_handle` in the middle of a transfer closes an HTTP/1 connection at once: that is cancel.
- Names are resolved in libcurl's threads; only `close()` waits for those that still run.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import deque
from typing import Any, cast

import pycurl
from tornado.curl_httpclient import CurlAsyncHTTPClient
from tornado.ioloop import IOLoop
from tornado.log import app_log
from tornado.platform.asyncio import BaseAsyncIOLoop

from handlers.relay.upstream_exchange import HEAD_MAX_BYTES, Exchange, RequestBody
from handlers.relay.upstream_request import (
    AnswerHead,
    UpstreamError,
    UpstreamErrorKind,
    UpstreamRequest,
    encode_header_lines,
    is_public,
    names_public,
)
from store.catalog import Route

__all__ = ["Exchange", "UpstreamClient", "UpstreamError", "UpstreamErrorKind", "UpstreamRequest"]

FETCH_CLIENTS = 4  # parallel `fetch()` calls: probes
HANDLES_MAX = 256  # easy handles kept for reuse
CONNECTIONS_MAX = 1_000  # idle connections kept; libcurl's own default shrinks in quiet times
CONNECTION_LIFETIME_S = 300  # so that changes of DNS are followed
CA_FILE_KEPT_S = 60  # libcurl keeps what it has read for a day otherwise
KEEP_ALIVE_IDLE_S = 60
UPLOAD_BUFFER_BYTES = 16_384  # libcurl's minimum; it stays with the transfer to its end
UPLOAD_BUFFER_LARGE_BYTES = 65_536
SWEEP_INTERVAL_S = 1.0
SOCKETS_PER_TURN = 42  # room for them is taken in one of Python's small blocks, not by malloc

# Of libcurl, not named by pycurl.
_SUPPRESS_CONNECT_HEADERS = 265
_CA_CACHE_TIMEOUT = 321
_E_PROXY = 97

_ENGINE_HEADER_LINES = [b"Expect:", b"Accept-Encoding: identity"]
_USER_AGENT = "sluice"

_EPOLL_MASKS = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}


def _action_of(events: int) -> int:
    action = 0
    if events & (select.EPOLLIN | select.EPOLLHUP):
        action |= pycurl.CSELECT_IN
    if events & select.EPOLLOUT:
        action |= pycurl.CSELECT_OUT
    if events & select.EPOLLERR:
        action |= pycurl.CSELECT_ERR
    return action


# Indexed by what epoll reports: a look-up costs less than three tests for each event.
_ACTIONS = tuple(_action_of(events) for events in range(32))

_ERROR_KINDS: dict[int, UpstreamErrorKind] = {
    pycurl.E_COULDNT_RESOLVE_HOST: "connect",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_COULDNT_RESOLVE_PROXY: "connect",
    _E_PROXY: "connect",
    # No limit is set for the whole transfer, so this can only be the connection's.
    pycurl.E_OPERATION_TIMEDOUT: "timeout_connect",
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CERTPROBLEM: "tls",
    pycurl.E_SSL_CIPHER: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "ca_file",
    pycurl.E_SSL_ISSUER_ERROR: "tls",
    pycurl.E_SSL_INVALIDCERTSTATUS: "tls",
}
_BROKEN_CONNECTION_ERRORS = frozenset(
    {
        *(pycurl.E_GOT_NOTHING, pycurl.E_RECV_ERROR, pycurl.E_SEND_ERROR, pycurl.E_PARTIAL_FILE),
        pycurl.E_SEND_FAIL_REWIND,  # `rewind` has said no
    }
)


def _error_of(exchange: Exchange, code: int, message: str) -> UpstreamError:
    if code in _BROKEN_CONNECTION_ERRORS and len(exchange.raw_head) <= HEAD_MAX_BYTES:
        has_head = AnswerHead(exchange.raw_head).complete
        return UpstreamError("truncated" if has_head else "reset_before_head", message)
    return UpstreamError(_ERROR_KINDS.get(code, "protocol"), message)


def _let_go(_: bytes) -> None:
    """Stands for the `write` of an exchange that is over."""


class _Handle:
    """A handle of libcurl, what it sends from and puts head lines into, and what `_configure` has
    set last. All of it serves one exchange after the other."""

    __slots__ = ("body", "configured", "curl", "head_lines", "once", "setopt")

    def __init__(self) -> None:
        self.body = RequestBody()
        self.head_lines: list[bytes] = []
        self.curl = _make_curl()
        self.setopt = setopt = self.curl.setopt  # pycurl is slow at giving its methods
        setopt(pycurl.HEADERFUNCTION, self.head_lines.append)  # no Python for each line
        setopt(pycurl.READFUNCTION, self.body.read)
        # For the second sending when a kept connection turns out to be dead.
        setopt(pycurl.SEEKFUNCTION, self.body.rewind)
        self.configured: tuple[object, ...] = ()
        self.once = False  # for one exchange alone


def _make_curl() -> Any:
    """With all that is the same for every request: to set it anew takes 3 us."""
    curl = pycurl.Curl()
    setopt = curl.setopt
    setopt(pycurl.USERAGENT, _USER_AGENT)
    setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
    setopt(pycurl.PROXY, "")  # empty, not absent: the environment's are not asked
    setopt(pycurl.NOPROXY, "")  # the same
    setopt(pycurl.NOSIGNAL, 1)
    setopt(pycurl.MAXLIFETIME_CONN, CONNECTION_LIFETIME_S)
    setopt(pycurl.TCP_KEEPALIVE, 1)
    setopt(pycurl.TCP_KEEPIDLE, KEEP_ALIVE_IDLE_S)
    return curl


def _configure(handle: _Handle, request: UpstreamRequest, exchange: Exchange) -> None:
    """Tell libcurl about a request. ValueError for lines or methods that cannot be sent."""
    setopt = handle.setopt
    body = request.body
    # A larger one makes a large upload some 10 % cheaper, but stays as long as the stream.
    large = body is not None and len(body) > UPLOAD_BUFFER_BYTES and not request.stream
    wanted = (request.method, request.url, request.connect_timeout_s, large, request.headers)
    # A kept handle mostly had the same: to set these anew takes 2 us.
    if handle.configured != wanted:
        if request.method not in (("GET", "DELETE") if body is None else ("POST",)):
            raise ValueError("a GET or DELETE without a body or a POST with one, nothing else")
        if not request.url.isascii():
            raise ValueError("a URL must be ASCII")
        setopt(pycurl.HTTPHEADER, encode_header_lines(request.headers) + _ENGINE_HEADER_LINES)
        setopt(pycurl.URL, request.url)
        # 0 would be libcurl's default of five minutes.
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(request.connect_timeout_s * 1000)))
        buffer_bytes = UPLOAD_BUFFER_LARGE_BYTES if large else UPLOAD_BUFFER_BYTES
        setopt(pycurl.UPLOAD_BUFFERSIZE, buffer_bytes)
        if body is None:
            setopt(pycurl.CUSTOMREQUEST, request.method)
            handle.once = True
        else:
            setopt(pycurl.POST, 1)
        handle.configured = wanted
    setopt(pycurl.WRITEFUNCTION, exchange.write)
    if body is not None:
        setopt(pycurl.POSTFIELDSIZE, len(body))
        handle.body.fill(body)


class _Duplicated(socket.socket):
    """pycurl takes a duplicate; this one is closed as soon as that was taken."""

    def __del__(self) -> None:
        self.close()


def _open_public_socket(purpose: int, address: Any) -> Any:
    """OPENSOCKETFUNCTION: a socket for a public address, none for any other."""
    return _open_socket(purpose, address) if is_public(address.addr[0]) else pycurl.SOCKET_BAD


def _open_socket(purpose: int, address: Any) -> Any:
    return _Duplicated(address.family, address.socktype, address.protocol)


def _open_none(purpose: int, address: Any) -> Any:
    return pycurl.SOCKET_BAD


class UpstreamClient(CurlAsyncHTTPClient):
    """Starts exchanges; `fetch()` of Tornado's client works beside them on the same multi handle.

    To be made and used in one loop, with force_instance=True. `allow_private` False: no connection
    to loopback, private, link-local and other addresses that are not the internet's.
    """

    def initialize(self, allow_private: bool = True) -> None:  # type: ignore[override]
        self._allow_private = allow_private
        self.loop: asyncio.AbstractEventLoop = cast(BaseAsyncIOLoop, IOLoop.current()).asyncio_loop
        self.tick = 0
        self.dirty: deque[Exchange] = deque()
        self.hold_back: int = pycurl.WRITEFUNC_PAUSE
        self._closing = False
        self._epoll = select.epoll()
        self._parked: set[int] = set()  # sockets that libcurl is not interested in now
        self._exchanges: dict[Any, Exchange] = {}
        self._idle_handles: list[_Handle] = []
        self._flushing = False
        self._wishes: deque[int] = deque(maxlen=1)  # libcurl's last for a timer, in ms
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0  # when it fires
        super().initialize(max_clients=FETCH_CLIENTS)
        self._socket_action = self._multi.socket_action  # as with the handles' methods
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._wishes.append)
        self._multi.setopt(pycurl.M_MAXCONNECTS, CONNECTIONS_MAX)
        # The environment's (SSL_CERT_FILE) or OpenSSL's own places: the wheel's libcurl was built
        # elsewhere and does not know this system's.
        trust = ssl.get_default_verify_paths()
        self._ca_file, self._ca_dir = trust.cafile, trust.capath
        self.loop.add_reader(self._epoll.fileno(), self._drain)
        self._sweeper = self.loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    def close(self) -> None:
        """Fail what runs and close every connection. May wait for a silent name server."""
        if self._closing:
            return
        self._closing = True
        for exchange in list(self._exchanges.values()):
            kind: UpstreamErrorKind = "truncated" if exchange.streaming else "reset_before_head"
            exchange.fail(kind, "the upstream client was closed")
        self._sweeper.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.loop.remove_reader(self._epoll.fileno())
        for handle in self._idle_handles:
            handle.curl.close()
        super().close()
        self._epoll.close()

    def start(self, request: UpstreamRequest) -> Exchange:
        """Begin at once, without waiting. ValueError for lines or methods that cannot be sent."""
        if self._closing:
            raise RuntimeError("the upstream client is closed")
        # Kept handles are those of POSTs and stay so.
        reusing = self._idle_handles and request.body is not None and request.route is None
        handle = self._idle_handles.pop() if reusing else self._new_handle()
        exchange = Exchange(self, handle, request)
        _configure(handle, request, exchange)
        if request.route is not None:
            self._take_route(handle, request.route, request.url)
        self._exchanges[handle.curl] = exchange
        self._multi.add_handle(handle.curl)  # asks for a turn: it gets one right here
        self._act()
        return exchange

    def _new_handle(self) -> _Handle:
        handle = _Handle()
        curl = handle.curl
        if not self._allow_private:
            # Asked for each new connection, with the address that the name was resolved to.
            curl.setopt(pycurl.OPENSOCKETFUNCTION, _open_public_socket)
        if self._ca_file is not None:
            curl.setopt(pycurl.CAINFO, self._ca_file)
        if self._ca_dir is not None:
            curl.setopt(pycurl.CAPATH, self._ca_dir)
        return handle

    def _take_route(self, handle: _Handle, route: Route, url: str) -> None:
        """A new handle goes another way. libcurl keeps connections of other ways apart."""
        # What it sets, a login for one, must not reach another channel's request.
        handle.once = True
        curl = handle.curl
        setopt = curl.setopt
        if route.ca_file is not None:
            setopt(pycurl.CAINFO, route.ca_file)
            curl.unsetopt(pycurl.CAPATH)
            setopt(_CA_CACHE_TIMEOUT, CA_FILE_KEPT_S)
        if route.proxy is None:
            return
        scheme, _, rest = route.proxy.partition("://")
        # Always the proxy resolves the upstream's name.
        setopt(pycurl.PROXY, f"socks5h://{rest}" if scheme == "socks5" else route.proxy)
        setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        if scheme == "https":
            ca_file = route.ca_file or self._ca_file
            if ca_file is not None:
                setopt(pycurl.PROXY_CAINFO, ca_file)
            if self._ca_dir is not None and route.ca_file is None:
                setopt(pycurl.PROXY_CAPATH, self._ca_dir)
        if not self._allow_private:
            # The proxy itself may be private; what it resolves cannot be seen from here.
            if names_public(url):
                setopt(pycurl.OPENSOCKETFUNCTION, _open_socket)
            else:
                setopt(pycurl.OPENSOCKETFUNCTION, _open_none)
                setopt(pycurl.FRESH_CONNECT, 1)  # a kept one leads to wherever the proxy is asked

    # For exchanges.

    def flush_dirty(self) -> None:
        """Let those act that took something; until none is left, however often that leads here."""
        if self._flushing:
            return
        self._flushing = True
        dirty = self.dirty
        try:
            while dirty:
                dirty.popleft().flush()
        finally:
            self._flushing = False
            if dirty:  # a sink raised: the others shall not wait for the next event
                self.loop.call_soon(self.flush_dirty)

    def set_reading(self, exchange: Exchange, reading: bool) -> None:
        """Let libcurl read the exchange's socket or not; nothing when it is done with it."""
        if exchange.handle is not None:
            try:
                exchange.handle.curl.pause(pycurl.PAUSE_CONT if reading else pycurl.PAUSE_RECV)
            except pycurl.error:
                pass  # the transfer has failed meanwhile: libcurl reports that by itself
            if self._wishes:
                self._set_timeout(self._wishes.pop())

    def release(self, exchange: Exchange) -> None:
        """Take the exchange from libcurl, whatever it does with it just now. Idempotent."""
        handle = exchange.handle
        if handle is None:
            return
        curl = handle.curl
        exchange.handle = exchange.source = None
        handle.body.close()
        self._exchanges.pop(curl, None)
        self._multi.remove_handle(curl)
        if self._wishes:
            self._set_timeout(self._wishes.pop())
        if handle.once or len(self._idle_handles) >= HANDLES_MAX or self._closing:
            curl.close()
            return
        # It leads to the exchange with all its bytes; of the others little is left.
        handle.setopt(pycurl.WRITEFUNCTION, _let_go)
        self._idle_handles.append(handle)

    # Called by libcurl: it must neither raise nor call it.

    def _handle_socket(self, event: int, fd: int, multi: Any, data: Any) -> None:
        """Without interest a socket stays in the set until it tells something: most are idle for a
        moment between two requests."""
        mask = _EPOLL_MASKS.get(event)
        if mask is None:
            self._parked.add(fd)
            return
        self._parked.discard(fd)
        try:
            self._epoll.modify(fd, mask)
        except FileNotFoundError:  # new, or closed and opened again in between
            self._watch(fd, mask)
        except OSError as error:
            app_log.error("cannot watch an upstream socket: %s", error)

    def _watch(self, fd: int, mask: int) -> None:
        try:
            self._epoll.register(fd, mask)
        except OSError as error:
            app_log.error("cannot watch an upstream socket: %s", error)

    def _forget(self, fd: int) -> None:
        """Nobody is interested in what an idle socket has to tell: mostly that it was closed."""
        self._parked.discard(fd)
        try:
            self._epoll.unregister(fd)
        except FileNotFoundError:
            pass  # closed already

    def _set_timeout(self, msecs: int) -> None:
        """One loop timer at most: when it fires, libcurl is asked for a later wish."""
        if msecs < 0 or self._closing:
            return
        due = self.loop.time() + msecs / 1000
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.loop.call_at(due, self._on_timer)

    # The loop's callbacks, and what follows each turn of libcurl.

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._act()
        finally:
            # Where it finds nothing due it does not wish again; and its clock is not the loop's.
            msecs = -1 if self._closing else self._multi.timeout()
            if msecs >= 0:
                self._set_timeout(max(1, msecs))

    def _drain(self) -> None:
        """Sockets are ready: libcurl's turn for each, then ours for all."""
        running = -1
        try:
            for fd, events in self._epoll.poll(0, SOCKETS_PER_TURN):
                if fd in self._parked:
                    self._forget(fd)
                else:
                    running = self._socket_action(fd, _ACTIONS[events])[1]
        except pycurl.error as error:
            app_log.error("libcurl: %s", error)
        self._after_action(running)

    def _act(self) -> None:
        """libcurl's turn for what is due without a socket."""
        running = -1
        try:
            running = self._socket_action(pycurl.SOCKET_TIMEOUT, 0)[1]
        except pycurl.error as error:
            app_log.error("libcurl: %s", error)
        self._after_action(running)

    def _after_action(self, running: int) -> None:
        try:
            if self.dirty:
                self.flush_dirty()
        finally:  # a sink that raises must not hide the end of other exchanges
            if running + len(self._free_list) != len(self._exchanges) + FETCH_CLIENTS:
                self._finish_pending_requests()
            if self._wishes:
                self._set_timeout(self._wishes.pop())

    def _finish_pending_requests(self) -> None:
        ended: list[tuple[Exchange, UpstreamError | None]] = []
        left = 1
        while left:
            left, done, failed = self._multi.info_read()
            for curl in done:
                exchange = self._exchanges.get(curl)
                if exchange is not None:
                    ended.append((exchange, None))
                else:  # one of fetch()
                    self._finish(curl)
            for curl, code, message in failed:
                exchange = self._exchanges.get(curl)
                if exchange is not None:
                    ended.append((exchange, _error_of(exchange, code, message)))
                else:
                    self._finish(curl, code, message)
        # Only now: a callback may cancel another one of these, and its handle be used again.
        for exchange, error in ended:
            if exchange.handle is not None:
                self.release(exchange)
                exchange.complete(error)
        if self._requests:
            self._process_queue()

    def _sweep(self) -> None:
        self._sweeper = self.loop.call_later(SWEEP_INTERVAL_S, self._sweep)
        self.tick += 1
        for exchange in list(self._exchanges.values()):
            exchange.sweep(self.tick)
