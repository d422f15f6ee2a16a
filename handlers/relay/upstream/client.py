"""The upstream client: pycurl on Tornado's loop, made for a relay.

Belongs here: one multi handle driven by a private epoll set, its options, sockets and timers, its
errors, and the single resend of a request that was answered with another call's bytes. Does not
belong here: the handling of an exchange's bytes (exchange.py), handles and the choice of the next
one (handle.py, idle_connections.py), retries, the meaning of an error to a client (errors.py).
Imported by the relay and by the command that composes it.

Facts behind this design, each seen in a run with libcurl 8.23:

- Inside a callback libcurl refuses most calls, and an exception in the socket or timer callback
  aborts all transfers. So callbacks only append, and work is done after `socket_action` returned.
- The loop watches one descriptor, the epoll set, whatever libcurl opens and closes. So requests
  need no registration with the loop, and a reused descriptor number cannot confuse it.
- `remove_handle` in the middle of a transfer closes an HTTP/1 connection at once. That is used to
  cancel.
- Names are resolved in libcurl's threads. Only `close()` waits for those that still run.
- Under TLS, libcurl and OpenSSL may buffer bytes that came with the previous answer. Neither the
  socket nor an option of libcurl shows them. They are read in the turn that sends the request.
"""

from __future__ import annotations

import asyncio
import os
import select
import ssl
from collections import deque
from typing import Any, cast

import pycurl
from tornado.curl_httpclient import CurlAsyncHTTPClient
from tornado.ioloop import IOLoop
from tornado.log import app_log
from tornado.platform.asyncio import BaseAsyncIOLoop

from handlers.relay.upstream.exchange import HEAD_MAX_BYTES, Exchange
from handlers.relay.upstream.handle import Destination, Handle, origin_of
from handlers.relay.upstream.idle_connections import CONNECTIONS_MAX, RESTS, IdleConnections
from handlers.relay.upstream.request import (
    AnswerHead,
    UpstreamError,
    UpstreamErrorKind,
    UpstreamRequest,
)

__all__ = ["Exchange", "UpstreamClient", "UpstreamError", "UpstreamErrorKind", "UpstreamRequest"]

FETCH_CLIENTS = 4  # parallel `fetch()` calls
SWEEP_INTERVAL_S = 1.0
SOCKETS_PER_TURN = 64  # bounds one turn of the loop

# Error codes of libcurl that pycurl does not name.
_E_PROXY = 97
_E_WEIRD_SERVER_REPLY = 8

_WRITE_FUNCTION, _ACTIVE_SOCKET = pycurl.WRITEFUNCTION, pycurl.ACTIVESOCKET

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


# Indexed by epoll's events: a look-up costs less than three tests for each event.
_ACTIONS = tuple(_action_of(events) for events in range(32))

_ERROR_KINDS: dict[int, UpstreamErrorKind] = {
    pycurl.E_COULDNT_RESOLVE_HOST: "connect",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_COULDNT_RESOLVE_PROXY: "connect",
    _E_PROXY: "connect",
    # No limit is set for the whole transfer, so this can only be the connection's time-out.
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
        pycurl.E_SEND_FAIL_REWIND,  # `rewind` refused
    }
)
# The errors of libcurl if the first line is not HTTP.
_NO_HTTP_ERRORS = frozenset({pycurl.E_UNSUPPORTED_PROTOCOL, _E_WEIRD_SERVER_REPLY})


def _error_of(exchange: Exchange, code: int, message: str) -> UpstreamError:
    if code in _BROKEN_CONNECTION_ERRORS and len(exchange.raw_head) <= HEAD_MAX_BYTES:
        has_head = AnswerHead(exchange.raw_head).complete
        return UpstreamError("truncated" if has_head else "reset_before_head", message)
    if code == pycurl.E_COULDNT_CONNECT and exchange.handle is not None:
        # libcurl reports only that it could not connect; the system has the reason.
        number = exchange.handle.curl.getinfo(pycurl.OS_ERRNO)
        if number:
            message = f"{os.strerror(number)}: {message}"
    return UpstreamError(_ERROR_KINDS.get(code, "protocol"), message)


def _is_undecided(exchange: Exchange, code: int) -> bool:
    """Return whether the bytes may belong to the previous call on the same connection."""
    if code not in _NO_HTTP_ERRORS or exchange.repeated:
        return False
    return bool(exchange.handle.reused) and not exchange.answered


def _discard(_: bytes) -> None:
    """Replace the `write` of an exchange that is over."""


class UpstreamClient(CurlAsyncHTTPClient):
    """The client that starts exchanges. `fetch()` of Tornado's client works beside them on the same
    multi handle. To be made and used in one loop, with force_instance=True. `allow_private` False:
    no connection to loopback, private, link-local and other addresses that are not public."""

    def initialize(self, allow_private: bool = True) -> None:  # type: ignore[override]
        self._allow_private = allow_private
        self.loop: asyncio.AbstractEventLoop = cast(BaseAsyncIOLoop, IOLoop.current()).asyncio_loop
        self.tick = self.turn = 0
        self.dirty: deque[Exchange] = deque()
        self.hold_back: int = pycurl.WRITEFUNC_PAUSE
        self._closing = False
        self._epoll = select.epoll()
        self._idle: set[int] = set()  # sockets that libcurl does not wait for now
        self._exchanges: dict[Any, Exchange] = {}
        self._resting: dict[Exchange, asyncio.TimerHandle] = {}  # not sent yet
        self.idle_connections = IdleConnections()
        self.repeated = 0  # requests sent again because the bytes belonged to another call
        self._flushing = False
        self._timeouts: deque[int] = deque(maxlen=1)  # the last one libcurl requested, in ms
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0  # when it fires
        super().initialize(max_clients=FETCH_CLIENTS)
        self._socket_action = self._multi.socket_action  # method look-ups are slow in pycurl
        self._add_handle = self._multi.add_handle
        self._remove_handle = self._multi.remove_handle
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._timeouts.append)
        self._multi.setopt(pycurl.M_MAXCONNECTS, CONNECTIONS_MAX)
        # The paths of the environment (SSL_CERT_FILE) or OpenSSL: the wheel's libcurl was built
        # elsewhere and does not know this system's.
        trust = ssl.get_default_verify_paths()
        self._ca_file, self._ca_dir = trust.cafile, trust.capath
        self.loop.add_reader(self._epoll.fileno(), self._drain)
        self._sweeper = self.loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    def close(self) -> None:
        """Fail all running exchanges and close every connection. May wait for a silent name
        server."""
        if self._closing:
            return
        self._closing = True
        for exchange in (*self._exchanges.values(), *self._resting):
            kind: UpstreamErrorKind = "truncated" if exchange.streaming else "reset_before_head"
            exchange.fail(kind, "the upstream client was closed")
        self._sweeper.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.loop.remove_reader(self._epoll.fileno())
        self.idle_connections.close()
        super().close()
        self._epoll.close()

    def start(self, request: UpstreamRequest) -> Exchange:
        """Start an exchange without waiting. Raises ValueError for header lines or methods that
        cannot be sent."""
        if self._closing:
            raise RuntimeError("the upstream client is closed")
        route = request.route
        origin = origin_of(request.url)
        destination = origin if route is None else (origin, route)
        handle = self.idle_connections.take(destination) or self._new_handle(request, destination)
        exchange = Exchange(self, handle, request)
        try:
            handle.configure(request, exchange)
        except ValueError:
            handle.close()
            raise
        if handle.rests >= RESTS or not self._must_rest(exchange, handle):
            self._begin(exchange, handle)
        return exchange

    def _must_rest(self, exchange: Exchange, handle: Handle) -> bool:
        """Delay the request if its connection is new and has not rested long enough. Return whether
        it is delayed."""
        rest_s = self.idle_connections.remaining_rest_s(handle) if handle.fd >= 0 else 0.0
        if rest_s == 0.0:
            return False
        self._resting[exchange] = self.loop.call_later(rest_s, self._begin_rested, exchange)
        return True

    def _begin_rested(self, exchange: Exchange) -> None:
        del self._resting[exchange]
        handle: Handle = exchange.handle
        self.idle_connections.close_if_readable(handle)
        self._begin(exchange, handle)

    def _begin(self, exchange: Exchange, handle: Handle) -> None:
        self._exchanges[handle.curl] = exchange
        self._add_handle(handle.curl)  # requests a turn, which `_act` gives
        if handle.tls and handle.fd >= 0:
            self._act_before_body(exchange, handle)
        self._act()

    def _new_handle(self, request: UpstreamRequest, destination: Destination) -> Handle:
        handle = self.idle_connections.take_spare(destination) or self._make_handle(request)
        handle.assign(request, destination, self.idle_connections.pool_of(destination))
        return handle

    def _make_handle(self, request: UpstreamRequest) -> Handle:
        handle = Handle()
        ca_file, ca_dir = self._ca_file, self._ca_dir
        handle.trust(ca_file, ca_dir)
        if not self._allow_private:
            handle.refuse_private_addresses()
        if request.route is not None:
            handle.set_route(request.route, request.url, self._allow_private, ca_file, ca_dir)
        return handle

    # For exchanges.

    def flush_dirty(self) -> None:
        """Let exchanges process the bytes they took, until none is left. Safe to re-enter."""
        if self._flushing:
            return
        self._flushing = True
        dirty = self.dirty
        try:
            while dirty:
                dirty.popleft().flush()
        finally:
            self._flushing = False
            if dirty:  # a sink raised; the other exchanges must not wait for the next event
                self.loop.call_soon(self.flush_dirty)

    def sent_bytes(self, exchange: Exchange) -> int:
        """Return how many bytes of the request's body were written to the connection; 0 if the
        exchange is over."""
        handle = exchange.handle
        return 0 if handle is None else int(handle.curl.getinfo(pycurl.SIZE_UPLOAD_T))

    def set_reading(self, exchange: Exchange, reading: bool) -> None:
        """Resume or pause the exchange's socket. Does nothing if libcurl is done with it."""
        if exchange.handle is not None:
            try:
                exchange.handle.curl.pause(pycurl.PAUSE_CONT if reading else pycurl.PAUSE_RECV)
            except pycurl.error:
                pass  # the transfer failed meanwhile, which libcurl reports by itself
            if self._timeouts:
                self._set_timeout(self._timeouts.pop())

    def release(self, exchange: Exchange) -> None:
        """Remove the exchange from libcurl, in any state. Idempotent."""
        handle = exchange.handle
        if handle is None:
            return
        exchange.handle = exchange.source = None
        handle.source.close()
        if self._resting and exchange in self._resting:
            self._resting.pop(exchange).cancel()
        else:
            self._exchanges.pop(handle.curl, None)
            self._remove_handle(handle.curl)
            if self._timeouts:
                self._set_timeout(self._timeouts.pop())
        if self._closing:
            handle.close()
            return
        # The callback would keep the exchange and its bytes alive.
        handle.setopt(_WRITE_FUNCTION, _discard)
        self.idle_connections.put(handle, handle.getinfo(_ACTIVE_SOCKET))

    # Called by libcurl: it must neither raise nor call libcurl.

    def _handle_socket(self, event: int, fd: int, multi: Any, data: Any) -> None:
        """Watch a socket. A socket that libcurl no longer waits for stays in the epoll set until
        its next event, since most are idle only briefly between two requests."""
        mask = _EPOLL_MASKS.get(event)
        if mask is None:
            self._idle.add(fd)
            return
        self._idle.discard(fd)
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

    def _on_idle_socket(self, fd: int, events: int) -> None:
        """Close the connection of an idle socket that has an event, since its answer is over."""
        try:
            if events == select.EPOLLOUT:  # it is still watched for EPOLLOUT from the last request
                self._epoll.modify(fd, select.EPOLLIN)
                return
            self._epoll.unregister(fd)
        except FileNotFoundError:
            pass  # closed already
        self._idle.discard(fd)
        self.idle_connections.close_readable(fd)

    def _set_timeout(self, msecs: int) -> None:
        """Set the loop's timer, of which there is at most one. When it fires, libcurl is asked for
        its next timeout."""
        if msecs < 0 or self._closing:
            return
        due = self.loop.time() + msecs / 1000
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.loop.call_at(due, self._on_timer)

    # The loop's callbacks, and the work after each turn of libcurl.

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._act()
        finally:
            # libcurl does not request a timer again if nothing was due, as may happen because its
            # clock is not the loop's.
            msecs = -1 if self._closing else self._multi.timeout()
            if msecs >= 0:
                self._set_timeout(max(1, msecs))

    def _drain(self) -> None:
        """Give libcurl a turn for each ready socket, then process the results of all."""
        self.turn += 1
        running = -1
        try:
            for fd, events in self._epoll.poll(0, SOCKETS_PER_TURN):
                if fd in self._idle:
                    self._on_idle_socket(fd, events)
                else:
                    running = self._socket_action(fd, _ACTIONS[events])[1]
        except pycurl.error as error:
            app_log.error("libcurl: %s", error)
        self._after_action(running)

    def _act(self) -> None:
        """Give libcurl a turn for work that is due without a socket event."""
        running = -1
        try:
            running = self._socket_action(pycurl.SOCKET_TIMEOUT, 0)[1]
        except pycurl.error as error:
            app_log.error("libcurl: %s", error)
        self._after_action(running)

    def _act_before_body(self, exchange: Exchange, handle: Handle) -> None:
        """Send the request head on a kept connection under TLS and hold the body back. Bytes that
        libcurl reads in this turn arrived before the request."""
        handle.holding = True
        try:
            self._socket_action(pycurl.SOCKET_TIMEOUT, 0)
        except pycurl.error as error:
            app_log.error("libcurl: %s", error)
        handle.holding = False
        if exchange.head_lines and handle.reused:
            self._resend(exchange, "an answer came before its request was sent")
        elif exchange.source is not None:
            self.set_reading(exchange, True)  # sends the body as well

    def _resend(self, exchange: Exchange, why: str) -> None:
        """Send the request again on a new connection, invisibly to the caller, since the bytes on
        this one do not answer it."""
        handle: Handle = exchange.handle
        self._remove_handle(handle.curl)
        handle.drop()
        if exchange in self.dirty:
            self.dirty.remove(exchange)
        exchange.restart()
        self.repeated += 1
        self.idle_connections.record_surplus(
            handle.destination, f"{why}; the request was sent again", certain=False
        )
        self._add_handle(handle.curl)

    def _after_action(self, running: int) -> None:
        try:
            if self.dirty:
                self.flush_dirty()
        finally:  # a sink that raises must not hide the end of other exchanges
            if running + len(self._free_list) != len(self._exchanges) + FETCH_CLIENTS:
                self._finish_pending_requests()
            if self._timeouts:
                self._set_timeout(self._timeouts.pop())

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
                if exchange is not None and _is_undecided(exchange, code):
                    self._resend(exchange, message)
                elif exchange is not None:
                    ended.append((exchange, _error_of(exchange, code, message)))
                else:
                    self._finish(curl, code, message)
        # Only now, because a callback may cancel another of these exchanges, whose handle may then
        # be reused.
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
        self.idle_connections.sweep()
