"""The client's side of one call: head, bytes, end, back-pressure.

All that the relay sees of the client's connection.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

Header = tuple[str, str]


class Connection(Protocol):
    """A client's connection; `send` and `start` return whether there is room for more."""

    on_drained: Callable[[], None] | None

    @property
    def full(self) -> bool: ...

    @property
    def closed(self) -> bool: ...

    @property
    def head_sent(self) -> bool: ...

    @property
    def unsent_bytes(self) -> int: ...

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None: ...

    def start(self, status: int, headers: Sequence[Header], first: bytes) -> bool: ...

    def send(self, data: bytes) -> bool: ...

    def finish(self, data: bytes) -> None: ...

    def drop(self) -> None: ...


class Downstream:
    """Writes one answer to one client. Nothing raises when the client is gone.

    `write` sends more of a started stream. When `start` or `write` returns False, pause until the
    callback of `when_drained`. `base`: the headers of every answer, the request id for one.
    """

    __slots__ = ("_base", "_connection", "write")

    def __init__(self, connection: Connection, base: tuple[Header, ...]) -> None:
        self._connection = connection
        self._base = base
        # The connection's own method: one call less for every event of every stream.
        self.write: Callable[[bytes], bool] = connection.send

    def add_headers(self, headers: tuple[Header, ...]) -> None:
        """Add headers to the answer, whichever it is."""
        self._base += headers

    @property
    def blocked(self) -> bool:
        """Return whether the client has to read before more is written."""
        return self._connection.full

    def when_drained(self, callback: Callable[[], None]) -> None:
        """Have `callback` called each time there is room again after a pause."""
        self._connection.on_drained = callback

    @property
    def gone(self) -> bool:
        """Return whether the client's connection is closed."""
        return self._connection.closed

    @property
    def head_sent(self) -> bool:
        """Return whether the head of the answer was sent."""
        return self._connection.head_sent

    @property
    def unsent_bytes(self) -> int:
        """Return how much the client has not read yet, as far as the gateway knows."""
        return self._connection.unsent_bytes

    def send(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a whole answer."""
        self._connection.answer(status, (*self._base, *headers), body)

    def start(self, status: int, headers: Sequence[Header], first: bytes) -> bool:
        """Send the head of a stream and its first bytes in one write."""
        return self._connection.start(status, (*self._base, *headers), first)

    def finish(self, data: bytes) -> None:
        """Send the last bytes and ends the body properly."""
        self._connection.finish(data)

    def drop(self) -> None:
        """Close the connection without ending the body: the client sees a truncated answer."""
        self._connection.drop()
