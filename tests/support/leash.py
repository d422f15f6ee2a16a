"""What tests start ends with them, however they end: a watchdog kills what the dead left behind.

`Popen` is that of subprocess in a session of its own, which the watchdog is told. It is this file
as a program: when its standard input ends, so when the test process is gone, it kills all processes
of these sessions. A parent-death signal would not do: mariadbd loses it when it changes its user.
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
    """A process whose session is killed when this one has died."""

    def __init__(self, argv: list[str], **options: Any) -> None:
        super().__init__(argv, **{**options, "start_new_session": True})
        _tell(f"{self.pid} {_started_at(self.pid)}")


def drop(folder: str) -> None:
    """Have a folder removed when this process has died."""
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
            start_new_session=True,  # Ctrl-C is not for it
        )
        atexit.register(_watchdog.communicate)
    assert _watchdog.stdin is not None
    _watchdog.stdin.write(line + "\n")
    _watchdog.stdin.flush()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; none of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _started_at(pid: int) -> str:
    fields = _stat(pid)
    return fields[19] if fields else ""


def _members(sessions: dict[int, str]) -> list[int]:
    """Living processes of the sessions; a number that went to somebody else is left alone."""
    gone = {pid for pid, began in sessions.items() if _started_at(pid) not in ("", began)}
    found = []
    for entry in os.listdir("/proc"):
        fields = _stat(int(entry)) if entry.isdigit() else []
        if fields and fields[0] != "Z" and int(fields[3]) in sessions.keys() - gone:
            found.append(int(entry))
    return found


def main() -> None:
    """Read sessions and folders until the end of input, then end them."""
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
