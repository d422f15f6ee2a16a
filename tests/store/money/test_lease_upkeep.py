"""Leases without an owner are found, and those of a lost machine can be released."""

import asyncio

import pytest

from store.db import database as database_module
from store.db.audit import AuditFilter, entries
from store.db.nodes import note_seen
from store.money.accounts import payment_of
from store.money.books import NODE_ALIVE_MS, NODE_SILENT_MS, Released, release_node, verify
from store.money.wallet import Movement, credit, show
from store.values.errors import NotFound, Refused
from store.values.ids import now_ms
from tests.store.processes import Process, key_of
from tests.support.stores import change
from tests.support.users import add_user


@pytest.fixture
def alice(database):
    user_id = add_user(database, "alice")
    credit(database, "alice", Movement(1000, "paid"))
    return user_id


@pytest.fixture
def payment(alice):
    return payment_of(key_of(alice), now_ms())


@pytest.fixture
def lender(database, payment):
    """Return a process of node web-1 that has leased 625 of alice's 1000."""
    process = Process(database)
    note_seen(database, "web-1")
    asyncio.run(process.hold(payment, 500))
    assert show(database, "alice").leased_nanos == 625
    return process


def silent_for(db, ms):
    change(db, 'UPDATE "nodes" SET "seen_ms" = ?', now_ms() - ms)


def test_a_lease_of_a_living_node_is_right_and_of_a_silent_one_told_with_the_remedy(
    database, lender
):
    for minutes in (None, -1):
        if minutes:
            silent_for(database, NODE_SILENT_MS + minutes * 60_000)
        assert verify(database) == []
    silent_for(database, NODE_SILENT_MS + 60_000)
    (fault,) = verify(database)
    assert "0.000000625" in fault and "books release-node web-1" in fault


@pytest.mark.parametrize(
    ("change_it", "message"),
    [
        ('UPDATE "journals" SET "finished_ms" = 1', "was closed without giving it back"),
        ('DELETE FROM "journals"', "there is no journal"),
        ('UPDATE "leases" SET "amount" = -1', "has spent more than it had"),
    ],
)
def test_leases_without_an_owner_are_told(database, lender, change_it, message):
    change(database, change_it)
    (fault,) = verify(database)
    assert message in fault


def test_a_lost_node_is_released_once_and_audited(database, lender):
    silent_for(database, NODE_ALIVE_MS + 1000)
    assert release_node(database, "web-1", "operator") == Released(1, 625)
    assert show(database, "alice").leased_nanos == 0 and verify(database) == []
    assert release_node(database, "web-1") == Released(0, 0)
    [act] = entries(database, 9, AuditFilter(actor="operator"))
    assert (act["action"], act["kind"], act["name"]) == ("release", "node", "web-1")
    assert act["before"] == {"leases": 1, "amount": "0.000000625"}


def test_a_living_or_unknown_node_is_not_released(database, lender):
    with pytest.raises(Refused, match="stop it first"):
        release_node(database, "web-1")
    with pytest.raises(NotFound, match="web-9"):
        release_node(database, "web-9")
    assert show(database, "alice").leased_nanos == 625


def test_a_node_that_comes_back_is_booked_without_its_lease(database, lender, alice, payment):
    silent_for(database, NODE_ALIVE_MS + 1000)

    lender.end(asyncio.run(lender.hold(payment, 100)), 80, alice)
    release_node(database, "web-1")
    lender.book()
    assert lender.lease(alice) == 0
    view = show(database, "alice")
    assert (view.balance_nanos, view.leased_nanos) == (920, 0)
    assert verify(database) == []


@pytest.mark.databases("mariadb")  # SQLite serves one machine
def test_the_clock_of_a_machine_makes_no_node_silent(database, lender, monkeypatch):
    """First the reporting machine's clock is wrong, then that of the judging one."""
    for wrong_ms in (-NODE_SILENT_MS * 2, NODE_SILENT_MS * 2):
        with monkeypatch.context() as patched:
            patched.setattr(
                database_module, "now_ms", lambda wrong_ms=wrong_ms: now_ms() + wrong_ms
            )
            note_seen(database, "web-1")
        assert verify(database) == []
        with pytest.raises(Refused, match="stop it first"):
            release_node(database, "web-1")
