"""Ports for servers that tests start: of a range from which the system gives none to others."""

import itertools
import os
import random
import socket

HOST = "127.0.0.1"
# Below the ports of outgoing connections on Linux: else one of these, of any process, could take a
# port before its server does, or while a test has that server stopped.
FIRST, LAST = 16_000, 32_000


def _of_this_process() -> range:
    """Ports that no other process of the same test run gives: else two could give one before either
    has a server there."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    each = (LAST - FIRST) // processes
    return range(FIRST + number * each, FIRST + (number + 1) * each)


# Each run begins somewhere else, and gives no port twice in a row.
_ports = itertools.cycle(_of_this_process())
next(itertools.islice(_ports, random.randrange(len(_of_this_process())), None))


def free_port() -> int:
    """A port that nobody listens on now."""
    for port in _ports:
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("a cycle does not end")
