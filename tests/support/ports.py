"""Ports for servers that tests start: of a range from which the system gives none to others."""

import itertools
import random
import socket

HOST = "127.0.0.1"
# Below the ports of outgoing connections on Linux: else one of these, of any process, could take a
# port before its server does, or while a test has that server stopped.
FIRST, LAST = 16_000, 32_000
# Each process begins somewhere else, and gives no port twice in a row.
_ports = itertools.cycle(range(FIRST, LAST))
next(itertools.islice(_ports, random.randrange(LAST - FIRST), None))


def free_port() -> int:
    """A port that nobody listens on now."""
    for port in _ports:
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("a cycle does not end")
