"""The workers that serve given connections, and the number of running calls."""

import contextlib
import json
import os
from pathlib import Path


def who_serves(gateway, *connections):
    """Return the workers that have the other ends of connections; None for a connection that no
    worker has."""
    here, there = f":{gateway.port:04X}", {}
    for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()):
        # The kernel may list a connection twice while others come and go; one that ends has inode
        # 0.
        if fields[1].endswith(here) and fields[9] != "0":
            there[int(fields[2].rpartition(":")[2], 16)] = f"socket:[{fields[9]}]"
    owners = {name: pid for pid in gateway.worker_pids() for name in _open_files(pid)}
    return [owners.get(there[one.socket.getsockname()[1]]) for one in connections]


def _open_files(pid):
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            yield os.readlink(f"{folder}/{name}")


def gateway_calls(gateway):
    status, _, body = gateway.call("GET", "/status", port=gateway.ops_port)
    assert status == 200
    return json.loads(body)["calls"]
