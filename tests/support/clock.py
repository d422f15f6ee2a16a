"""Clocks that a test may set: one to call, and Debian's faketime around processes."""

import subprocess
from pathlib import Path

from tests.support.programs import program


class HandClock:
    """A clock of any unit that stands still until a test moves `now`."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


_SHIFT = """\
import time

now, now_ns, monotonic, last = time.time, time.time_ns, time.monotonic, [-1.0, 0.0]

def ahead():
    if monotonic() > last[0] + 0.2:
        with open({path!r}) as file:
            last[:] = monotonic(), float(file.read())
    return last[1]

time.time = lambda: now() + ahead()
time.time_ns = lambda: now_ns() + int(ahead() * 1e9)
"""


class FakeClock:
    """`environment` of the processes that go by it; the monotonic clock stays as it is. In Python
    faketime makes each change of threads last 0.3 s; `light_environment` is of Python's that have
    much to do, and moves their `time.time` only."""

    def __init__(self, folder: Path) -> None:
        command = [program("faketime"), "-m", "-f", "+0", "sh", "-c", "echo $LD_PRELOAD"]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        self._folder = folder
        (folder / "shifted").mkdir()
        shift = _SHIFT.format(path=str(folder / "offset"))
        (folder / "shifted" / "sitecustomize.py").write_text(shift)
        self.light_environment = {"PYTHONPATH": str(folder / "shifted")}
        self.set_by(0)
        self.environment = {
            "LD_PRELOAD": said.stdout.strip(),
            "FAKETIME_TIMESTAMP_FILE": str(folder / "offset"),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Times of files are the disk's own.
            "NO_FAKE_STAT": "1",
        }

    def set_by(self, seconds: float) -> None:
        """Sets the clock so far ahead of the true one, or behind it."""
        # In one step: a process that reads meanwhile must not find an empty file.
        (self._folder / "next").write_text(f"{seconds:+.3f}")
        (self._folder / "next").rename(self._folder / "offset")
