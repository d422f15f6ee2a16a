"""The Hub's server: the relay's server, with Tornado's handlers and limits for unauthenticated
clients.

The number of connections is limited per address, and in total so that enough file descriptors
remain for the store and the log. At a limit, a new connection replaces the one that has waited
longest for bytes. Behind a trusted proxy, connections count for the address that the proxy reports,
from a request's head to the end of its answer.
"""

import resource
from collections.abc import Sequence
from http import HTTPStatus

from tornado.web import Application

from handlers.client_address import client_address
from handlers.http.connection import ClientConnection, Header
from handlers.http.request import Request
from handlers.http.server import Server
from handlers.hub.http.connection import HubConnection
from handlers.hub.http.request import HeldBytes, HubRequest
from handlers.hub.web.site import Site
from handlers.hub.web.throttle import host_of

CONNECTIONS_MAX = 2048
CONNECTIONS_OF_ADDRESS_MAX = 256
KEPT_DESCRIPTORS = 256  # reserved for the store's connections, the log, test calls, files
CONNECTIONS_MIN = 64  # even if the limit of descriptors is lower
PROXY = "a trusted proxy"  # the holder of a proxy's connections between requests


class HubServer(Server):
    """Serves the Hub's application."""

    def __init__(self, site: Site, app: Application) -> None:
        super().__init__(site.settings.server, lambda request: HubRequest(self, request))
        self.site, self.app = site, app
        self.held = HeldBytes()
        # By address. Within an address, the connection that has waited longest for a request is
        # first.
        self._held: dict[str, dict[HubConnection, None]] = {}
        self._max = connections_max()

    # ---- for connections -------------------------------------------------------------------------

    def connect(self) -> ClientConnection:
        return HubConnection(self, self._settings.stream_buffer_bytes)

    def malformed(
        self, message: str, request: Request | None
    ) -> tuple[int, Sequence[Header], bytes]:
        fields = (("Content-Type", "text/plain; charset=utf-8"),)
        return HTTPStatus.BAD_REQUEST, fields, message.encode()

    def opened(self, connection: ClientConnection) -> None:
        assert isinstance(connection, HubConnection)
        super().opened(connection)
        proxy = self.site.trusts(connection.peer)
        self._hold(connection, PROXY if proxy else host_of(connection.peer))
        if len(self._connections) > self._max:
            holder = max(self._held, key=lambda name: len(self._held[name]))
            self._make_room(connection, holder)

    def closed(self, connection: ClientConnection) -> None:
        assert isinstance(connection, HubConnection)
        super().closed(connection)
        self._let_go(connection)

    def begin(self, connection: HubConnection, request: Request) -> None:
        """Count the connection for the client that a trusted proxy reports."""
        if connection.holder == PROXY:
            forwarded = request.headers.get("x-forwarded-for")
            client = client_address(connection.peer, forwarded, self.site.trusted)
            self._hold(connection, host_of(client))

    def ended(self, connection: HubConnection) -> None:
        """Count the connection for its peer again after its request has ended."""
        if connection in self._connections:
            proxy = self.site.trusts(connection.peer)
            self._hold(connection, PROXY if proxy else connection.holder)

    def _hold(self, connection: HubConnection, holder: str) -> None:
        """Count a connection for an address. At the address's limit, close one."""
        self._let_go(connection)
        connection.holder = holder
        held = self._held.setdefault(holder, {})
        held[connection] = None
        if holder != PROXY and len(held) > CONNECTIONS_OF_ADDRESS_MAX:
            self._make_room(connection, holder)

    def _let_go(self, connection: HubConnection) -> None:
        held = self._held.get(connection.holder, {})
        held.pop(connection, None)
        if not held:
            self._held.pop(connection.holder, None)

    def _make_room(self, newest: HubConnection, holder: str) -> None:
        """Drop the connection of an address that has waited longest for bytes, or the newest if all
        are being answered."""
        waiting = (held for held in self._held[holder] if held.idle_since_s is not None)
        oldest = next(waiting, newest)
        self.closed(oldest)  # no longer counted
        oldest.drop()

    # ---- for the process -------------------------------------------------------------------------

    def sweep(self, now_s: int) -> None:
        super().sweep(now_s)
        for connection in list(self._connections):
            assert isinstance(connection, HubConnection)
            connection.sweep(now_s, self._settings.body_timeout_s)


def connections_max() -> int:
    """Return the maximum number of connections under the limit of file descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, descriptors - KEPT_DESCRIPTORS))
