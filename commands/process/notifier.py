"""State reports to systemd by its datagram protocol, sd_notify(3). A unit of Type=notify waits for
READY=1, and restarts a gateway that stops sending WATCHDOG=1.

Nothing is sent without NOTIFY_SOCKET in the environment or if nothing listens there: a service
manager that ended must not end the gateway.
"""

import os
import socket
from collections.abc import MutableMapping

MAX_STATUS_CHARS = 200
_US = 1_000_000


class Notifier:
    """The service manager of this process, if any. Its variables are removed from the environment,
    because they are not meant for the processes started here."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        # "@" stands for the NUL byte of an abstract socket, which is not a file
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._interval_s = _interval_s(environ)
        self._beat_at = 0.0
        self._ready = False
        self._last_status = ""

    def tend(self, now: float, not_ready_because: str | None) -> None:
        """Report that the loop turns, and once that the gateway is ready. Called at every turn."""
        if not self._address:
            return
        if not self._ready:
            self._ready = not_ready_because is None
            self._report_status("serving" if self._ready else f"starting: {not_ready_because}")
            if self._ready:
                self._send("READY=1")
        if self._interval_s and now >= self._beat_at:
            self._beat_at = now + self._interval_s
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        self._ready = True  # no READY=1 from now on
        self._send("STOPPING=1")
        self._report_status("draining: running calls finish")

    def _report_status(self, text: str) -> None:
        line = " ".join(text.split())[:MAX_STATUS_CHARS]
        if line != self._last_status:
            self._last_status = line
            self._send(f"STATUS={line}")

    def _send(self, line: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(line.encode("utf-8", "replace"), self._address)
        except OSError:
            pass  # no listener, or its queue is full: the next report replaces this one


def _interval_s(environ: MutableMapping[str, str]) -> float:
    """Return half of systemd's watchdog time-out in seconds; 0 without a watchdog."""
    text, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
    if not text.isascii() or not text.isdecimal() or pid not in ("", str(os.getpid())):
        return 0.0
    return int(text) / _US / 2
