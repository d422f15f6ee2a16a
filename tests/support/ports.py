"""Ports for servers that tests start, from a range that the system gives to nobody else."""

import itertools
import os
import random
import socket

HOST = "127.0.0.1"
# Below the ports of outgoing connections on Linux: otherwise one of them, of any process, could
# take a port before its server does, or while a test has that server stopped.
FIRST, LAST = 16_000, 32_000


def _of_this_process() -> range:
    """Return a range of ports for this process alone; otherwise two processes of a test run could
    pick the same port before either has a server there."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    each = (LAST - FIRST) // processes
    return range(FIRST + number * each, FIRST + (number + 1) * each)


# Each run starts at another port, and gives no port twice in a row.
_ports = itertools.cycle(_of_this_process())
next(itertools.islice(_ports, random.randrange(len(_of_this_process())), None))


def free_port() -> int:
    """Return a port that nobody listens on now."""
    for port in _ports:
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("a cycle does not end")
