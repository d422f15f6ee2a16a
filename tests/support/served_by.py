"""Which channel serves a call."""

import contextlib
import json
import os
from pathlib import Path


def who_serves(gateway, connection):
    """The worker that has the other end of a connection."""
    port = connection.socket.getsockname()[1]
    # The kernel may list a connection twice while others come and go; one that ends has inode 0.
    [inode] = {
        fields[9]
        for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines())
        if fields[1].endswith(f":{gateway.port:04X}") and fields[2].endswith(f":{port:04X}")
    } - {"0"}
    for pid in gateway.worker_pids():
        folder = f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{name}") == f"socket:[{inode}]":
                    return pid
    return None


def gateway_calls(gateway):
    status, _, body = gateway.call("GET", "/status", port=gateway.ops_port)
    assert status == 200
    return json.loads(body)["calls"]
