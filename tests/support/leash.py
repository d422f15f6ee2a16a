"""A watchdog that ends everything tests started, however the tests end.

`Popen` is subprocess.Popen in a session of its own, which is reported to the watchdog. The
watchdog is this file run as a program: when its standard input ends, because the test process is
gone, it kills all processes of these sessions. A parent-death signal would not do: mariadbd loses
it when it changes its user.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

END_S = 10


class Popen(subprocess.Popen):
    """A process whose session is killed when this process has died."""

    def __init__(self, argv: list[str], **options: Any) -> None:
        super().__init__(argv, **{**options, "start_new_session": True})
        _tell(f"{self.pid} {_started_at(self.pid)}")


def drop(folder: str) -> None:
    """Remove a folder when this process has died."""
    _tell(folder)


_watchdog: subprocess.Popen[str] | None = None


def _tell(line: str) -> None:
    global _watchdog
    if _watchdog is None:
        _watchdog = subprocess.Popen(
            [sys.executable, "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # not stopped by Ctrl-C
        )
        atexit.register(_watchdog.communicate)
    assert _watchdog.stdin is not None
    _watchdog.stdin.write(line + "\n")
    _watchdog.stdin.flush()


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _started_at(pid: int) -> str:
    fields = _stat(pid)
    return fields[19] if fields else ""


def _members(sessions: dict[int, str]) -> list[int]:
    """Return the living processes of the sessions; skip a number that another process has now."""
    gone = {pid for pid, began in sessions.items() if _started_at(pid) not in ("", began)}
    found = []
    for entry in os.listdir("/proc"):
        fields = _stat(int(entry)) if entry.isdigit() else []
        if fields and fields[0] != "Z" and int(fields[3]) in sessions.keys() - gone:
            found.append(int(entry))
    return found


def main() -> None:
    """Read sessions and folders until the end of input, then kill and remove them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions: dict[int, str] = {}
    folders = []
    for line in sys.stdin:
        if line.startswith("/"):
            folders.append(line.rstrip("\n"))
        else:
            pid, _, began = line.strip().partition(" ")
            sessions[int(pid)] = began
    deadline = time.monotonic() + END_S
    while (left := _members(sessions)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
