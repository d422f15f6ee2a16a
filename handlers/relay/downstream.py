"""The client's side of one call: head, bytes, end, back-pressure.

The relay's only view of the client's connection.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

Header = tuple[str, str]


class Connection(Protocol):
    """A client's connection. `send` and `start` return whether there is room for more."""

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
    """The writer of one answer to one client. No method raises if the client has left. `write`
    sends more of a started stream. If `start` or `write` returns False, pause until the
    connection's `on_drained` is called. `base`: headers of every answer, such as the request id. A
    dropped connection does not end its body, so that the client sees a truncated answer."""

    __slots__ = ("_base", "connection", "write")

    def __init__(self, connection: Connection, base: tuple[Header, ...]) -> None:
        self._base = base
        self.connection = connection
        # The connection's own method, which saves a call for every event of every stream.
        self.write: Callable[[bytes], bool] = connection.send

    def add_headers(self, headers: tuple[Header, ...]) -> None:
        """Add headers to the answer, of any kind."""
        self._base += headers

    def send(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a whole answer."""
        self.connection.answer(status, (*self._base, *headers), body)

    def start(self, status: int, headers: Sequence[Header], first: bytes) -> bool:
        """Send the head of a stream and its first bytes in one write."""
        return self.connection.start(status, (*self._base, *headers), first)
