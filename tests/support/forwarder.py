"""A TCP forwarder to a local port; a test can cut, freeze and slow down each connection."""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

from tests.support.ports import HOST

PIECE_BYTES = 65536


class Way:
    """One forwarded connection; `port`: the client's port; `delay_s`: the delay of each chunk."""

    def __init__(self, client, goal):
        self.delay_s = 0
        self.port = client.getpeername()[1]
        self._ends = client, socket.create_connection((HOST, goal))
        self._open = threading.Event()
        for source, target in (self._ends, self._ends[::-1]):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._open.wait()
                time.sleep(self.delay_s)
                target.sendall(data)
        self.cut()

    def cut(self):
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def freeze(self):
        self._open.clear()

    def thaw(self):
        self._open.set()


class Forwarder:
    """A context manager that forwards to `goal`; `ways` are its connections in order of arrival.
    `fate` returns "pass", "cut" or "freeze" for a new connection, by the client's port."""

    def __init__(self, goal):
        self.goal, self.ways, self.fate = goal, [], lambda port: "pass"
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for way in self.ways:
            way.thaw()
            way.cut()

    def _listen(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                fate = self.fate(client.getpeername()[1])
                if fate == "cut":
                    client.close()
                    continue
                way = Way(client, self.goal)
                if fate == "pass":
                    way.thaw()
                self.ways.append(way)


def process_of(pids, local_port, remote_port):
    """Return the process that has the end of a connection, by its ports; None before it is
    accepted."""
    ends = [f"{int.from_bytes(socket.inet_aton(HOST), 'little'):08X}:{port:04X}"
            for port in (local_port, remote_port)]  # fmt: skip
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == ends:
            mark = f"socket:[{fields[9]}]"
            return next((pid for pid in pids if mark in _files(pid)), None)
    return None


def _files(pid):
    """Return what each descriptor of a process refers to."""
    targets = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # may be closed meanwhile
            targets.append(os.readlink(entry))
    return targets
