"""A gateway under a service manager: what it tells it from its start to its end."""

import contextlib
import socket

from tests.support.gateway import Gateway

PATIENCE_S = 20


def test_ready_beating_and_stopping(tmp_path):
    gateway = Gateway(tmp_path / "node")
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        gateway.env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        lines = []

        def until(line):
            while line not in lines:
                lines.append(manager.recv(4096).decode())

        try:
            gateway.launch()
            until("READY=1")
            assert gateway.ready()
            lines.clear()
            until("WATCHDOG=1")
            assert gateway.stop() == 0
            until("STOPPING=1")
        finally:
            gateway.close()
