"""Rounds of the alerts: messages are sent once by one of many processes, and by another if that
one dies."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from store.alerts import destinations, outbox, rules
from store.alerts.outbox import CLAIM_MS, Result
from store.alerts.rules import GATEWAY
from store.db.database import transaction
from store.db.tables.alerts import AlertMessage
from store.db.tables.system import UpkeepRow
from store.money import wallet
from store.money.wallet import Movement
from store.upkeep import alerts as rounds_module
from store.upkeep import lease
from store.upkeep.alerts import AlertRounds
from tests.support.client import wait_until

ROOT = Path(__file__).resolve().parents[3]
HOOK = {"name": "ops", "kind": "webhook", "address": "https://hooks.example.com/sluice"}


@pytest.fixture
def hook(database, cipher, users):
    """Create a rule that fires for two users, with one destination."""
    place, _ = destinations.create(database, GATEWAY, HOOK, cipher, "nadia")
    for name in users:
        wallet.credit(database, name, Movement(1, "a nano", actor="nadia"))
    fields = {"kind": "balance", "destinations": [place]}
    rules.create(database, GATEWAY, fields, "nadia")
    return place


def make_rounds(database, owner, send):
    return AlertRounds(database, owner, "web-1", send, currency="USD", stopping=lambda: False)


def due(database):
    """Make the next round due now, whoever has the lease."""
    row = UpkeepRow.update(next_ms=0, until_ms=0, owner="").where(UpkeepRow.name == "alerts")
    transaction(database, lambda: row.execute(database))


def statuses(database):
    return sorted(message.status for message in outbox.listed(database, GATEWAY, 10))


def test_two_processes_send_each_message_once(hook, database):
    """The second process takes over the lease while the first one sends."""
    sent, sending, go_on = [], threading.Event(), threading.Event()

    def send(db, message):
        sent.append(message.id)
        if not sending.is_set():
            sending.set()
            go_on.wait(20)
        return Result(ok=True, took_ms=1)

    def begin():
        make_rounds(database, "A", send).look()
        database.close()

    first = threading.Thread(target=begin)
    first.start()
    assert sending.wait(20)
    due(database)
    make_rounds(database, "B", send).look()
    assert statuses(database) == ["sent", "waiting"], "the claim of the first one holds"
    go_on.set()
    first.join()
    assert len(sent) == len(set(sent)) == 2 and statuses(database) == ["sent", "sent"]


def test_a_round_is_that_of_one_process_and_ends_its_lease(hook, database):
    make_rounds(database, "A", lambda db, message: Result(ok=True)).look()
    assert lease.last_end(database, lease.ALERTS) is not None
    assert lease.state(database).ended_ms is None, "the upkeep has a lease of its own"
    assert not lease.take(database, "B", "web-2", lease.ALERTS), "it is not due yet"


@pytest.mark.databases("sqlite")
def test_a_destination_that_fails_is_passed_by(hook, database, cipher):
    other, _ = destinations.create(database, GATEWAY, HOOK | {"name": "two"}, cipher, "nadia")
    rule = rules.listed(database, GATEWAY)[0]
    rules.change(database, GATEWAY, rule.id, {"destinations": [hook, other]}, "nadia")
    tried = []

    def send(db, message):
        tried.append(message.destination_id)
        return Result(ok=message.destination_id == other, text="down")

    make_rounds(database, "A", send).look()
    assert sorted(tried) == sorted([hook, other, other])


@pytest.mark.databases("sqlite")
def test_who_loses_the_lease_stops(hook, database, monkeypatch):
    def send(db, message):
        due(database)  # another process may take it
        assert lease.take(database, "B", "web-2", lease.ALERTS)
        return Result(ok=True)

    make_rounds(database, "A", send).look()
    assert statuses(database) == ["sent", "waiting"]


SENDER = """
    import sys, time
    from store.alerts.outbox import Result
    from store.db.database import open_database
    from store.upkeep.alerts import AlertRounds

    def send(db, message):
        print(message.id, flush=True)  # it has arrived
        time.sleep(60)

    db = open_database(sys.argv[1])
    AlertRounds(db, "dead", "web-1", send, currency="USD", stopping=lambda: False).look()
"""


def test_what_a_killed_process_was_sending_is_sent_by_the_next_by_the_same_id(
    hook, database, database_url
):
    command = [sys.executable, "-c", textwrap.dedent(SENDER), database_url]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    arrived = [process.stdout.readline().strip()]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    def send(db, message):
        arrived.append(message.id)
        return Result(ok=True)

    due(database)  # the dead process's lease has expired
    make_rounds(database, "next", send).look()
    assert len(arrived) == 2 and arrived[0] != arrived[1], "the claim still holds"
    before = AlertMessage.claimed_ms - CLAIM_MS - 1
    query = AlertMessage.update(claimed_ms=before).where(AlertMessage.claimed_ms > 0)
    transaction(database, lambda: query.execute(database))
    due(database)
    make_rounds(database, "next", send).look()
    assert arrived[2] == arrived[0] and len(arrived) == 3
    assert statuses(database) == ["sent", "sent"], "one was lost"


@pytest.mark.databases("sqlite")
def test_a_round_ends_while_messages_wait(hook, database, monkeypatch):
    monkeypatch.setattr(rounds_module, "ROUND_S", 0.0)
    make_rounds(database, "A", lambda db, message: Result(ok=True)).look()
    assert statuses(database) == ["waiting", "waiting"]
    assert wait_until(lambda: lease.last_end(database, lease.ALERTS))
