"""Clocks that a test can set: a callable one, and Debian's faketime for processes."""

import re
import subprocess
import tempfile
from pathlib import Path

from tests.support import leash
from tests.support.programs import program

SHARED_MEMORY = Path("/dev/shm")


class HandClock:
    """A clock of any unit; it stands still until a test moves `now`."""

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
    """A file that sets the time of processes started with `environment`; the monotonic clock is
    not changed. In Python processes faketime makes each thread switch take 0.3 s, so use
    `light_environment` for Python processes with much work: it changes their `time.time` only."""

    def __init__(self) -> None:
        # Outside pytest's own folder, which mariadbd's user may not read.
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-clock-"))
        leash.drop(str(self._folder))
        self._folder.chmod(0o755)
        _remove_left_memory()
        command = [program("faketime"), "-m", "-f", "+0", "sh", "-c", "echo $LD_PRELOAD"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        (self._folder / "sitecustomize.py").write_text(
            _SHIFT.format(path=str(self._folder / "offset"))
        )
        self.light_environment = {"PYTHONPATH": str(self._folder)}
        self.set_by(0)
        self.environment = {
            "LD_PRELOAD": done.stdout.strip(),
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / "offset"),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # File times stay those of the disk.
            "NO_FAKE_STAT": "1",
        }

    def set_by(self, seconds: float) -> None:
        """Set the clock this far ahead of the real one, or behind it if negative."""
        # Replaced in one step: a process that reads meanwhile must not find an empty file.
        (self._folder / "next").write_text(f"{seconds:+.3f}")
        (self._folder / "next").rename(self._folder / "offset")


def _remove_left_memory() -> None:
    """Remove what killed processes of faketime left: another one with such an id cannot start."""
    for path in SHARED_MEMORY.iterdir():
        match = re.fullmatch(r"(?:sem\.faketime_sem|faketime_shm)_(\d+)", path.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            path.unlink(missing_ok=True)
