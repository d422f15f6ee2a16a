"""One request as it arrives: its body within the limits, then Tornado's handler.

Unauthenticated clients may send SMALL_BODY_BYTES. For a larger body, the session or token is looked
up before the body is read.
"""

import asyncio
import json
import logging
from collections import Counter
from http import HTTPStatus
from typing import Protocol, cast

from tornado import httputil
from tornado.web import Application

from handlers.http.request import Request
from handlers.hub.http.connection import HubConnection
from handlers.hub.web.base import SESSION_COOKIE, bearer_of
from handlers.hub.web.cross_site import is_served
from handlers.hub.web.site import Busy, Site
from store.hub import sessions, tokens
from store.values.errors import StoreUnavailable

log = logging.getLogger("sluice.hub")

SMALL_BODY_BYTES = 65536  # without a session or a token
LARGE_BODY_BYTES = 1 << 20  # with a session or a token
HELD_MAX_BYTES = 32 << 20  # of all bodies being received or answered
HELD_OF_HOLDER_BYTES = HELD_MAX_BYTES // 4  # of one address or one user
RETRY_AFTER_S = 1  # after a body for which there was no memory

_REASONS = {
    HTTPStatus.BAD_REQUEST: "the request is malformed",
    HTTPStatus.FORBIDDEN: "this name is not served here: use the address of hub.public_url",
    HTTPStatus.REQUEST_TIMEOUT: "the body did not arrive in time",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the body is too large",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal error",
    HTTPStatus.SERVICE_UNAVAILABLE: "too much is being sent; try again in a second",
}


class HeldBytes:
    """Bytes of bodies in memory, in total and by holder."""

    def __init__(self) -> None:
        self.total = 0
        self._by_holder: Counter[str] = Counter()

    def take(self, holder: str, size: int) -> bool:
        """Count bytes. False: they would exceed a limit."""
        own = self._by_holder[holder] + size
        if own > HELD_OF_HOLDER_BYTES or self.total + size > HELD_MAX_BYTES:
            return False
        self._by_holder[holder] = own
        self.total += size
        return True

    def give_back(self, holder: str, size: int) -> None:
        """Uncount bytes."""
        self.total -= size
        self._by_holder[holder] -= size
        if not self._by_holder[holder]:
            del self._by_holder[holder]


class RequestServer(Protocol):
    """The server, as its requests see it."""

    site: Site
    app: Application
    held: HeldBytes
    now_s: int

    def begin(self, connection: HubConnection, request: Request) -> None: ...

    def ended(self, connection: HubConnection) -> None: ...


class HubRequest:
    """A request of the Hub, fed by its connection."""

    def __init__(self, server: RequestServer, request: Request) -> None:
        self._server = server
        self._request = request
        self._connection = cast(HubConnection, request.connection)
        self._body = bytearray()
        self._limit_bytes = SMALL_BODY_BYTES
        self._holder = ""
        self._held_bytes = 0
        self._admitting: asyncio.Task[None] | None = None  # the loop's reference is weak
        self._over = False

    # ---- for the connection ----------------------------------------------------------------------

    def headers_received(self) -> "asyncio.Future[None] | None":
        """Process the request head. Return a future if the body has to wait for it."""
        request, connection = self._request, self._connection
        self._server.begin(connection, request)
        self._holder = connection.holder
        if connection.closed:  # the connections exceeded a limit
            self._over = True
            return None
        hub = self._server.site.settings.hub
        if not is_served(request.headers.get("host", ""), request.path, hub.public_url):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif request.announces_body():
            connection.body_began_s, connection.authenticated = self._server.now_s, False
            if "transfer-encoding" in request.headers or self._announced() > SMALL_BODY_BYTES:
                return self._look_up()
        return None

    def data_received(self, chunk: bytes) -> None:
        """Receive a chunk of the body."""
        if self._over:
            return
        size = len(chunk)
        if len(self._body) + size > self._limit_bytes:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif not self._server.held.take(self._holder, size):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            self._held_bytes += size
            self._body += chunk

    def finish(self) -> None:
        """Run the handler, now that the body is complete."""
        self._connection.body_began_s = None
        if self._over:
            return
        try:
            delegate = self._server.app.find_handler(self._tornado_request())
            delegate.data_received(bytes(self._body))
            self._body.clear()
            delegate.finish()
        except httputil.HTTPInputError:
            self._refuse(HTTPStatus.BAD_REQUEST)
        except Exception:
            log.exception("a request failed before its handler ran")
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR)

    def expire(self) -> None:
        """Refuse a body that did not arrive in time."""
        self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def on_connection_close(self) -> None:
        """Release the body. Called when the client disconnects or the request was answered.
        Idempotent."""
        self._over = True
        self._connection.body_began_s = None
        self._body.clear()
        held, self._held_bytes = self._held_bytes, 0
        if held:
            self._server.held.give_back(self._holder, held)
        self._server.ended(self._connection)
        self._connection.left()

    def _announced(self) -> int:
        length = self._request.headers.get("content-length", "0")
        return int(length) if length.isdigit() and len(length) < 20 else LARGE_BODY_BYTES + 1

    def _look_up(self) -> "asyncio.Future[None] | None":
        """Start to authenticate the sender of a body that may be large."""
        headers, announced = self._request.headers, self._announced()
        token = bearer_of(headers.get("authorization", ""))
        cookie = httputil.parse_cookie(headers.get("cookie", "")).get(SESSION_COOKIE, "")
        if announced <= LARGE_BODY_BYTES and (token or cookie):
            self._admitting = asyncio.create_task(self._admit(token, cookie))
        elif announced > SMALL_BODY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return self._admitting

    async def _admit(self, token: str, cookie: str) -> None:
        """Raise the limit if the session or token is valid."""
        try:
            user_id = await self._user_id(token, cookie)
        except (StoreUnavailable, Busy):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        if self._over:
            return
        if user_id is not None:
            self._limit_bytes, self._holder = LARGE_BODY_BYTES, user_id
            self._connection.authenticated = True
        elif self._announced() > SMALL_BODY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    async def _user_id(self, token: str, cookie: str) -> str | None:
        site, party = self._server.site, self._connection.holder
        if token:
            use = await site.store_for(party, tokens.find, token)
            return None if use is None else use.user_id
        session = await site.store_for(party, sessions.find, cookie, used=False)
        return None if session is None else session.user_id

    def _tornado_request(self) -> httputil.HTTPServerRequest:
        request = self._request
        uri = f"{request.path}?{request.query}" if request.query else request.path
        method = str(request.method)
        return httputil.HTTPServerRequest(
            headers=httputil.HTTPHeaders(request.headers),
            connection=self._connection,
            start_line=httputil.RequestStartLine(method, uri, request.version),
        )

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer before a handler has run."""
        if self._over:
            return
        self._over = True
        reason = _REASONS[status]
        fields = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            fields.append(("Retry-After", str(RETRY_AFTER_S)))
        if self._request.path.startswith("/api/"):
            fields[0] = ("Content-Type", "application/json; charset=utf-8")
            error = {"code": status.name.lower(), "message": reason, "field": None}
            reason = json.dumps({"error": error})
        self._connection.answer(status, fields, reason.encode())
