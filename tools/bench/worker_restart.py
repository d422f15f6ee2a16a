"""Time until a node with one worker answers again after a kill of that worker, beside busy loops.

    python -m tools.bench.worker_restart --rounds 10 --busy 2

The loops run from the kill to the first answer only. Code that is not compiled (`make venv`) is
compiled at each start where its folder cannot be written, as under the unit.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.client import exchange
from tests.support.gateway import Gateway

SETTLE_S = 6.0  # more than 5 s: earlier deaths are followed by a pause
PATIENCE_S = 60.0
TRY_AGAIN_S = 0.01


def main() -> None:
    """Print each round's seconds, their median and the CPU of a new worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--busy", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(Path(folder) / "node", {"server.workers": 1})
        try:
            gateway.start()
            with _busy(options.busy) as loops:
                rounds = [_round(gateway, loops) for _ in range(options.rounds)]
        finally:
            gateway.close()
    lines = [
        "back after " + " ".join(f"{seconds:.2f}" for seconds, _ in rounds) + " s",
        f"median {statistics.median(seconds for seconds, _ in rounds):.2f} s",
        f"CPU of a new worker {statistics.median(cpu for _, cpu in rounds):.2f} s",
        f"load average {os.getloadavg()[0]:.1f}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


@contextmanager
def _busy(count: int) -> Iterator[list[int]]:
    argv = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(argv) for _ in range(count)]
    try:
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _round(gateway: Gateway, loops: list[int]) -> tuple[float, float]:
    """Return the seconds from SIGKILL to the first answer, and the new worker's CPU until then."""
    _signal(loops, signal.SIGSTOP)
    time.sleep(SETTLE_S)
    (pid,) = gateway.worker_pids()
    _signal(loops, signal.SIGCONT)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while not _answers(gateway.port):
        time.sleep(TRY_AGAIN_S)
    took_s = time.monotonic() - began
    (fresh,) = gateway.worker_pids()
    fields = Path(f"/proc/{fresh}/stat").read_text().rpartition(")")[2].split()
    return took_s, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def _answers(port: int) -> bool:
    try:
        exchange(port, "GET", "/v1/models", patience_s=PATIENCE_S)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
