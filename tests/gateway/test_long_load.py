"""Mixed load with faults for a long time: memory and descriptors stay flat, the books are exact.

The faults: vendors that fail or cut answers, clients that disconnect, a database that is frozen or
killed, a reload of a bad configuration. Nothing here replaces a worker, because the test measures
its memory.
"""

import contextlib
import os
import signal
import statistics
import threading
import time
from pathlib import Path

import pytest

from tests.support.client import Closed, Connection, wait_until
from tests.support.dialects import ALL
from tests.support.load import (
    GOOD_PROMPTS,
    PROMPTS,
    Load,
    Manner,
    check_books,
    gateway_before,
    names_in,
    send,
)
from tests.support.upstream import ScriptedUpstream

SECONDS = 600
SAMPLE_S = 1.0
MEMORY_GROWS_MAX = 1.1  # last third compared to middle third
DESCRIPTORS_MORE = 16
LEAVERS = 3
FROZEN_S = 3
MANNER = Manner(callers=12, prompts=PROMPTS, rest_s=0.02, patience_s=60)


def memory_bytes(pid):
    """Return the private memory of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if "Private" in line)


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Watch:
    """A thread that samples memory and descriptors of processes until it is stopped."""

    def __init__(self, pids):
        self.memory, self.files = [], []
        self._pids = pids
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._over.wait(SAMPLE_S):
            self.memory.append(sum(map(memory_bytes, self._pids)))
            self.files.append(sum(map(descriptors, self._pids)))

    def stop(self):
        self._over.set()
        self._thread.join()


def good(seen):
    """Return True if a call's request has a good end."""
    number = int(seen.name.rpartition("-")[2])
    return PROMPTS[number % len(PROMPTS)] in GOOD_PROMPTS


def third(values, number):
    size = len(values) // 3
    return values[number * size : (number + 1) * size]


class Leavers:
    """Clients that start a stream and disconnect in the middle of it."""

    def __init__(self, port):
        self._port = port
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(LEAVERS)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        count = 0
        while not self._over.wait(0.2):
            count += 1
            family = ALL[count % len(ALL)]
            with contextlib.suppress(OSError, Closed), Connection(self._port) as connection:
                script = "[[demo ms=20 chunks=200]]"
                send(connection, family, f"call-left{number}-{count}", script, stream=True)
                connection.read_head()
                connection.read_chunk()

    def stop(self):
        self._over.set()
        for thread in self._threads:
            thread.join()


def disturb(gateway, database, until_s):
    """Cause one of the faults in turn, a few times a minute."""
    turn = 0
    while time.monotonic() < until_s:
        pause_s = min(20.0, max(2.0, (until_s - time.monotonic()) / 4))
        time.sleep(pause_s)
        if turn % 3 == 0:
            database.freeze()
            time.sleep(FROZEN_S)
            database.thaw()
        elif turn % 3 == 1:
            database.kill()
            time.sleep(1)
            database.restore()
        else:
            text = gateway.config.read_text()
            gateway.config.write_text("[server]\nprot = 1\n")
            gateway.process.send_signal(signal.SIGHUP)
            time.sleep(1)
            gateway.config.write_text(text)
        turn += 1
    return turn


@pytest.mark.long
def test_nothing_grows_and_the_books_are_exact(breakable_mariadb, tmp_path):
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as vendor:
        url = breakable_mariadb.fresh_url(user="gateway")
        settings = {"server.workers": 2, "store.url": url}
        gateway = gateway_before(vendor, tmp_path / "node", settings)
        try:
            gateway.start()
            idle_files = sum(map(descriptors, gateway.pids()))
            pids = gateway.pids()
            watch, load = Watch(pids), Load(gateway.port, "long", MANNER)
            leavers = Leavers(gateway.port)
            turns = disturb(gateway, breakable_mariadb, time.monotonic() + SECONDS)
            watch.stop()
            load.stop()
            leavers.stop()
            assert gateway.pids() == pids, "a process was replaced"
            assert wait_until(
                lambda: sum(map(descriptors, pids)) <= idle_files + DESCRIPTORS_MORE * len(pids), 90
            )
            assert {good(seen) for seen in load.not_served()} == {False}
            check_books(gateway, names_in(tmp_path / "vendor.log"), [load], within_s=120)
            middle, last = (third(watch.memory, number) for number in (1, 2))
            growth = statistics.fmean(last) / statistics.fmean(middle)
            print(
                f"{len(load.seen)} calls in {SECONDS} s, {turns} faults of the machine,"
                f" {len(load.not_served())} calls not served; memory"
                f" {statistics.fmean(middle) / 2**20:.1f} MiB in the middle third, x {growth:.3f}"
                f" in the last; descriptors {max(third(watch.files, 1))}, then"
                f" {max(third(watch.files, 2))}; load average {os.getloadavg()[0]:.1f}"
            )
            assert growth <= MEMORY_GROWS_MAX
            assert max(third(watch.files, 2)) <= max(third(watch.files, 1)) + DESCRIPTORS_MORE
            assert "Traceback" not in gateway.log()
        finally:
            gateway.close()
