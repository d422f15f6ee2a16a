"""Listening sockets of the supervisor. Standard library only.

One SO_REUSEPORT socket for each worker slot spreads connections evenly. But the option alone would
let a second gateway share the port unnoticed. So the first socket is bound without it, which the
kernel refuses if another process has the port, and gets the option afterwards so that the others
can join.

A socket is closed to clients by shutdown(2), which holds for the descriptors of all processes: a
hung worker cannot close its own. The socket stays bound, and listen(2) opens it again for all.
"""

import errno
import socket
from collections.abc import Sequence
from typing import Any

from commands.process.node import PortTaken, StartError

BACKLOG_CONNECTIONS = 1024

_Address = tuple[socket.AddressFamily, Any]  # what bind() takes depends on the family


def bind(section: str, host: str, port: int, count: int = 1) -> list[socket.socket]:
    """Return `count` listening sockets on one address. Raises StartError, which names the setting
    section.port."""
    address = _resolve(section, host, port)
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(_bound(address, shared=bool(sockets)))
            if count > 1:
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sockets[-1].listen(BACKLOG_CONNECTIONS)
    except OSError as error:
        for listener in sockets:
            listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(section, host, port) from None
        raise StartError(_reason(section, host, port, error)) from None
    return sockets


def _resolve(section: str, host: str, port: int) -> _Address:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StartError(f"{section}.host {host}: {reason}") from None
    return addresses[0][0], addresses[0][4]


def _bound(address: _Address, *, shared: bool) -> socket.socket:
    family, where = address
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # connections of an earlier gateway that are still closing must not block the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setblocking(False)
        listener.bind(where)
    except OSError:
        listener.close()
        raise
    return listener


def _reason(section: str, host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EACCES:
        return f"{section}.port {port}: this user may not use it (ports below 1024 are reserved)"
    return f"{section}.host {host}, {section}.port {port}: {error.strerror}"


def shut(listener: socket.socket) -> None:
    """Refuse connections, including those in the queue, until `reopen`."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:  # it is shut already
            raise


def reopen(listener: socket.socket) -> None:
    """Listen again after `shut`. Raises OSError if another program listens there now."""
    listener.listen(BACKLOG_CONNECTIONS)


def close_all(sockets: Sequence[socket.socket]) -> None:
    for listener in sockets:
        listener.close()
