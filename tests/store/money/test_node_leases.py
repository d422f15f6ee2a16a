"""The accounts that a node's workers tell each other, over one memory file."""

import os
import subprocess
import sys

import pytest

from store.db.tables.fields import MARK
from store.money import node_leases
from store.money.accounts import Account
from store.money.node_leases import ENTRIES, READ_MAX, VALID_S, NodeLeases
from store.values.ids import new_ulid
from store.values.texts import MAX_NAME_CHARS
from tests.support.gateway import ROOT


def account(number=0):
    return Account(f"user-{number}", "wallet", f"user-{number}", "wallet")


@pytest.fixture
def file():
    made = os.memfd_create("test-leases")
    yield made
    os.close(made)


@pytest.fixture
def worker(file):
    """Return a function that makes a worker of the node."""
    return lambda: NodeLeases(file, new_ulid())


def test_workers_learn_each_others_accounts_once(worker):
    first, second, third = worker(), worker(), worker()
    first.note(account(1), 100)
    first.note(account(1), 200)
    second.note(account(2), 300)
    assert first.exchange() == {}
    assert second.exchange() == {account(1): 200}
    assert third.exchange() == {account(1): 200, account(2): 300}
    assert first.exchange() == {account(2): 300}
    assert [one.exchange() for one in (first, second, third)] == [{}, {}, {}]


def test_a_new_worker_learns_what_was_published_lately(worker, clock, monkeypatch):
    monkeypatch.setattr(node_leases.time, "monotonic", clock)
    first = worker()
    first.note(account(1), 1)
    first.exchange()
    clock.now += VALID_S
    first.note(account(2), 2)
    first.exchange()
    clock.now += 1
    assert worker().exchange() == {account(2): 2}


def test_a_worker_reads_in_steps_and_skips_what_was_overwritten(worker):
    first, second = worker(), worker()
    for numbers in (range(ENTRIES), range(ENTRIES, 2 * ENTRIES)):
        for number in numbers:
            first.note(account(number), number + 1)
        first.exchange()
    read = [second.exchange() for _ in range(ENTRIES // READ_MAX)]
    assert {len(one) for one in read} == {READ_MAX}
    assert {a: n for one in read for a, n in one.items()} == {
        account(n): n + 1 for n in range(ENTRIES, 2 * ENTRIES)
    }
    assert second.exchange() == {}


def test_the_longest_account_fits(worker):
    first, second = worker(), worker()
    plan = "\N{GRINNING FACE}" * MAX_NAME_CHARS
    longest = Account("S" * MARK, "subscription", new_ulid(), f"subscription:{plan}", 2**53)
    first.note(longest, 2**63 - 1)
    first.exchange()
    assert second.exchange() == {longest: 2**63 - 1}


def test_processes_that_publish_at_once_lose_nothing(file):
    children, each = 4, 200
    go = file_of_go, start = os.pipe()
    script = f"""
import os, time
from store.money.accounts import Account
from store.money.node_leases import NodeLeases
from store.values.ids import new_ulid
own = NodeLeases({file}, new_ulid())
os.read({file_of_go}, 1)
for number in range({each}):
    name = f"{{os.getpid()}}-{{number}}"
    own.note(Account(name, "wallet", name, "wallet"), 1)
    own.exchange()
while own._noted:  # another had the lock
    time.sleep(0.001)
    own.exchange()
"""
    command = [sys.executable, "-c", script]
    processes = [
        subprocess.Popen(command, cwd=ROOT, pass_fds=(file, file_of_go)) for _ in range(children)
    ]
    os.write(start, bytes(children))
    assert [process.wait(60) for process in processes] == [0] * children
    for descriptor in go:
        os.close(descriptor)
    reader, read = NodeLeases(file, new_ulid()), {}
    while more := reader.exchange():
        read |= more
    names = {f"{process.pid}-{number}" for process in processes for number in range(each)}
    assert {one.id for one in read} == names
