"""Booking batches and proving the books, on both databases."""

import pytest

from store.db.database import execute, snapshot_read, transaction
from store.db.partitions import prune
from store.money import books as books_module
from store.money.books import (
    Batch,
    OffsetMoved,
    account_charges,
    apply_batch,
    apply_records,
    charges_id,
    verify,
)
from store.money.wallet import Movement, credit, ledger, show
from store.values.errors import Conflict
from store.values.ids import new_ulid, ulid
from store.values.usage_record import Charge, UsageRecord
from tests.support.users import add_user

MONDAY_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z
DAY_MS = 86_400_000
JOURNAL = new_ulid()


@pytest.fixture
def db(database):
    insert = 'INSERT INTO "journals" ("id", "node", "offset", "opened_ms") VALUES (?, ?, 0, 0)'
    transaction(database, lambda: execute(database, insert, (JOURNAL, "web-1")))
    return database


@pytest.fixture
def users(db):
    return {name: add_user(db, name) for name in ("alice", "bob")}


serial = iter(range(10**6))


def record(user_id, cost, at_ms=MONDAY_MS, **fields):
    names = ("key_name", "group", "endpoint", "family", "user")
    call_id = ulid(at_ms, next(serial).to_bytes(10))
    charges = (Charge("wallet", cost),) if cost else ()
    facts = {"cost_nanos": cost, "charges": charges, "key_id": new_ulid(), "user_id": user_id}
    return UsageRecord(
        id=call_id, started_ms=at_ms, **dict.fromkeys(names, "x"), **(facts | fields)
    )


def book(db, records, old, new, at_ms=MONDAY_MS):
    batch = Batch(JOURNAL, old, new, records)
    return transaction(db, lambda: apply_batch(db, batch, at_ms))


def change(db, text, *parameters):
    assert transaction(db, lambda: execute(db, text, parameters)).rowcount > 0


def count(db):
    query = 'SELECT COUNT(*) FROM "usage_records"'
    return snapshot_read(db, lambda: execute(db, query).fetchone())[0]


def balances(db):
    query = 'SELECT "user_id", "balance" FROM "wallets"'
    return dict(snapshot_read(db, lambda: execute(db, query).fetchall()))


def test_a_batch_changes_records_wallets_ledger_and_offset_together(db, users):
    alice, bob = users["alice"], users["bob"]
    credit(db, "alice", Movement(1000, "paid"))
    records = [record(alice, 100), record(bob, 5), record(alice, 30), record(bob, 0)]
    assert book(db, records, 0, 400) == {alice: 0, bob: 0}
    assert account_charges(records) == {alice: 130, bob: 5}
    assert balances(db) == {alice: 870, bob: -5}
    assert count(db) == 4
    (charges,) = (line for line in ledger(db, "alice") if line.kind == "charges")
    assert (charges.amount_nanos, charges.balance_after_nanos) == (-130, 870)
    assert charges.idempotency_id == charges_id(alice, 20260105) == f"charges:{alice}:20260105"
    assert verify(db) == []


def test_the_day_line_grows_and_shows_the_balance_after_the_last_charge(db, users):
    alice = users["alice"]
    credit(db, "alice", Movement(1000, "paid"))
    book(db, [record(alice, 100)], 0, 1, MONDAY_MS + 1_000)
    credit(db, "alice", Movement(500, "more"))
    book(db, [record(alice, 7)], 1, 2, MONDAY_MS + 9_000)
    lines = {line.kind: line for line in ledger(db, "alice") if line.kind == "charges"}
    assert lines["charges"].amount_nanos == -107
    assert lines["charges"].balance_after_nanos == 1393 == show(db, "alice").balance_nanos
    assert lines["charges"].at_ms == MONDAY_MS + 9_000
    assert len(ledger(db, "alice")) == 3
    assert verify(db) == []


def test_the_day_is_that_of_the_call_not_of_the_booking(db, users):
    alice = users["alice"]
    records = [record(alice, 3, MONDAY_MS + DAY_MS), record(alice, 2, MONDAY_MS - 1)]
    book(db, records, 0, 1, MONDAY_MS + DAY_MS)
    lines = [line for line in ledger(db, "alice") if line.kind == "charges"]
    assert [(line.amount_nanos, line.balance_after_nanos) for line in lines] == [(-2, -2), (-3, -5)]
    assert verify(db) == []


def test_a_batch_that_was_applied_is_not_applied_again(db, users):
    records = [record(users["alice"], 100)]
    book(db, records, 0, 400)
    with pytest.raises(OffsetMoved):
        book(db, records, 0, 400)
    assert balances(db)[users["alice"]] == -100
    assert count(db) == 1


def test_a_duplicate_undoes_the_whole_batch(db, users):
    again = record(users["alice"], 100)
    book(db, [again], 0, 400)
    with pytest.raises(Conflict):
        book(db, [record(users["alice"], 1), again], 400, 800)
    assert balances(db)[users["alice"]] == -100
    assert count(db) == 1
    book(db, [record(users["alice"], 1)], 400, 800)
    assert verify(db) == []


def test_nobody_pays_for_a_removed_user(db, users):
    gone = new_ulid()
    book(db, [record(gone, 9), record(users["bob"], 1)], 0, 1)
    assert balances(db) == {users["alice"]: 0, users["bob"]: -1}
    assert count(db) == 2
    assert verify(db) == []


def test_other_payers_do_not_touch_the_wallet(db, users):
    split = (Charge("subscription:gold", 60, "S:month:20260101"), Charge("wallet", 40))
    book(db, [record(users["alice"], 100, charges=split, limit_account="K:never:0")], 0, 1)
    quotas = 'SELECT "account", "spent" FROM "quotas"'
    found = dict(snapshot_read(db, lambda: execute(db, quotas).fetchall()))
    assert found == {"S:month:20260101": 60, "K:never:0": 100}
    assert balances(db)[users["alice"]] == -40
    assert verify(db) == []


def test_many_users_in_one_batch(db):
    ids = [add_user(db, f"user-{number}") for number in range(700)]
    records = [record(user_id, 1 + number) for number, user_id in enumerate(ids)]
    book(db, records, 0, 1)
    assert balances(db) == {user_id: -1 - number for number, user_id in enumerate(ids)}
    assert verify(db) == []


def test_texts_of_any_kind_survive(db, users):
    text = "100 % ? \x00 'quoted' \"double\" \\ 語 😀 %s"
    book(db, [record(users["alice"], 1, error_message=text, user_agent=text)], 0, 1)
    query = 'SELECT "error_message", "user_agent" FROM "usage_records"'
    assert snapshot_read(db, lambda: tuple(execute(db, query).fetchone())) == (text, text)


def test_verify_sees_a_wrong_balance(db, users):
    book(db, [record(users["alice"], 100)], 0, 1)
    change(db, 'UPDATE "wallets" SET "balance" = -99 WHERE "user_id" = ?', users["alice"])
    (fault,) = verify(db)
    assert "wallet of alice" in fault and "-0.000000099" in fault and "-0.0000001" in fault


def test_verify_sees_a_ledger_line_without_its_records(db, users):
    alice, bob = users["alice"], users["bob"]
    book(db, [record(alice, 100), record(bob, 7)], 0, 1)
    change(db, 'DELETE FROM "usage_records" WHERE "user_id" = ?', bob)
    (fault,) = verify(db)
    assert "20260105" in fault and "have no records" in fault and "0.000000007" in fault


def test_verify_sees_records_that_are_not_in_the_ledger(db, users):
    alice = users["alice"]
    book(db, [record(alice, 100)], 0, 1)
    change(db, 'UPDATE "usage_records" SET "charges" = ?', '[{"to":"wallet","amount":"0.5"}]')
    faults = verify(db)
    assert any("charges line of 20260105" in fault and "0.5" in fault for fault in faults)


def test_verify_leaves_pruned_days_alone(db, users):
    alice = users["alice"]
    book(db, [record(alice, 100), record(alice, 50, MONDAY_MS + DAY_MS)], 0, 1)
    change(db, 'DELETE FROM "usage_records" WHERE "day" = 20260105')
    assert verify(db) == []


def test_what_comes_late_for_a_pruned_day_is_no_fault(db, users):
    alice = users["alice"]
    book(db, [record(alice, 100), record(alice, 50, MONDAY_MS + DAY_MS)], 0, 1)
    prune(db, 20260106)
    book(db, [record(alice, 7)], 1, 2)
    assert verify(db) == []
    assert balances(db)[alice] == -157


def test_verify_goes_through_pages_and_days(db, users, monkeypatch):
    monkeypatch.setattr(books_module, "PAGE_ROWS", 3)
    for turn in range(4):
        records = [
            record(user_id, 1 + number, MONDAY_MS + turn * DAY_MS)
            for number in range(5)
            for user_id in users.values()
        ]
        book(db, records, turn, turn + 1)
    assert verify(db) == []
    change(db, 'DELETE FROM "usage_records" WHERE "day" = 20260107 AND "cost_nanos" = 5')
    assert len(verify(db)) == 2


def test_records_can_be_booked_without_a_journal(db, users):
    left = transaction(db, lambda: apply_records(db, [record(users["bob"], 4)], MONDAY_MS))
    assert left == {users["bob"]: 0}
    assert balances(db)[users["bob"]] == -4
    assert transaction(db, lambda: apply_records(db, [], MONDAY_MS)) == {}
