"""SQLite busy or full while calls run: they are served, and booked afterwards."""

import contextlib
import sqlite3
import time

import pytest

from tests.support.load import (
    GOOD_PROMPTS,
    Load,
    Manner,
    catch_up_s,
    check_books,
    gateway_before,
    names_in,
)
from tests.support.upstream import ScriptedUpstream

BUSY_S = 8  # longer than a writer waits for the lock
FULL_S = 3
BOOKED_WITHIN_S = 100
STEADY = Manner(callers=8, prompts=GOOD_PROMPTS, rest_s=0.05)
BLOCK = b"x" * 65536


class Node:
    """A gateway of two workers whose SQLite file is in a folder of its own."""

    def __init__(self, disk, vendor, folder):
        self.file = disk / "sluice.db"
        self.url = f"sqlite:///{self.file}"
        self.vendor_log = folder / "vendor.log"
        settings = {"server.workers": 2, "store.url": self.url}
        self.gateway = gateway_before(vendor, folder / "node", settings)

    def load(self, tag):
        self.gateway.start()
        load = Load(self.gateway.port, tag, STEADY)
        load.wait_for(40)
        return load

    def check(self, load):
        names = {seen.name for seen in list(load.seen)}
        took_s = catch_up_s(self.url, names, BOOKED_WITHIN_S)
        load.stop()
        print(f"{len(names)} calls were in the books {took_s:.1f} s later")
        assert load.not_served() == []
        assert "Traceback" not in self.gateway.log()
        check_books(self.gateway, names_in(self.vendor_log), [load])


@pytest.fixture
def node_on(tmp_path):
    with (
        ScriptedUpstream(log_file=tmp_path / "vendor.log") as vendor,
        contextlib.ExitStack() as end,
    ):

        def make(disk):
            node = Node(disk, vendor, tmp_path)
            end.callback(node.gateway.close)
            return node

        yield make


def test_calls_are_served_while_another_process_holds_sqlite(node_on, tmp_path):
    node = node_on(tmp_path)
    load = node.load("busy")
    with contextlib.closing(sqlite3.connect(node.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        count = "SELECT COUNT(*) FROM usage_records"
        before = other.execute(count).fetchone()
        time.sleep(BUSY_S)
        assert other.execute(count).fetchone() == before, "somebody wrote"
        other.execute("ROLLBACK")
    node.check(load)


def test_calls_are_served_while_the_disk_of_sqlite_is_full(node_on, small_disk):
    node = node_on(small_disk)
    load = node.load("full")
    filler = fill(small_disk)
    deadline = time.monotonic() + 30
    while (
        f"the store is unavailable: {node.file}: database or disk is full" not in node.gateway.log()
    ):
        assert time.monotonic() < deadline, "the disk did not get full"
        time.sleep(0.1)
    time.sleep(FULL_S)
    filler.unlink()
    node.check(load)


def fill(folder):
    """Fills the file system of a folder to the last page; the file that does it."""
    path = folder / "filler"
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as filler:
        while True:
            filler.write(BLOCK)
    return path
