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


_SLEEP = """\
import threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds)  # by no clock that is set
"""


class FakeClock:
    """`environment` of the processes that go by it: only the wall clock is another one. faketime
    0.9.10 has clock_nanosleep by the monotonic clock fail then, so Python's do without it."""

    def __init__(self, folder: Path) -> None:
        command = [program("faketime"), "-m", "-f", "+0", "sh", "-c", "echo $LD_PRELOAD"]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        self._folder = folder
        (folder / "faked").mkdir()
        (folder / "faked" / "sitecustomize.py").write_text(_SLEEP)
        self.set_by(0)
        self.environment = {
            "LD_PRELOAD": said.stdout.strip(),
            "FAKETIME_TIMESTAMP_FILE": str(folder / "offset"),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": str(folder / "faked"),
            # Times of files are the disk's own.
            "NO_FAKE_STAT": "1",
        }

    def set_by(self, seconds: float) -> None:
        """Sets the clock so far ahead of the true one, or behind it."""
        # In one step: a process that reads meanwhile must not find an empty file.
        (self._folder / "next").write_text(f"{seconds:+.3f}")
        (self._folder / "next").rename(self._folder / "offset")
