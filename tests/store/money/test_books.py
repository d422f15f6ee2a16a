"""The verification of the books, on both databases."""

from store.db.nodes import note_seen
from store.db.partitions import prune
from store.money import books as books_module
from store.money.books import verify
from store.money.wallet import Movement, credit
from tests.support.stores import balances, change, insert
from tests.support.usage_records import DAY_MS, MONDAY_MS, BookedJournal, charged


def test_verify_sees_a_wrong_balance(database, users, book):
    book([charged(users["alice"], 100)], 0, 1)
    change(database, 'UPDATE "wallets" SET "balance" = -99 WHERE "user_id" = ?', users["alice"])
    (fault,) = verify(database)
    assert "wallet of alice" in fault and "-0.000000099" in fault and "-0.0000001" in fault


def test_verify_sees_a_ledger_line_without_its_records(database, users, book):
    alice, bob = users["alice"], users["bob"]
    book([charged(alice, 100), charged(bob, 7)], 0, 1)
    change(database, 'DELETE FROM "usage_records" WHERE "user_id" = ?', bob)
    (fault,) = verify(database)
    assert "20260105" in fault and "have no records" in fault and "0.000000007" in fault


def test_verify_sees_records_that_are_not_in_the_ledger(database, users, book):
    alice = users["alice"]
    book([charged(alice, 100)], 0, 1)
    change(database, 'UPDATE "usage_records" SET "charges" = ?', '[{"to":"wallet","amount":"0.5"}]')
    faults = verify(database)
    assert any("charges line of 20260105" in fault and "0.5" in fault for fault in faults)


def test_verify_leaves_pruned_days_alone(database, users, book):
    alice = users["alice"]
    book([charged(alice, 100), charged(alice, 50, MONDAY_MS + DAY_MS)], 0, 1)
    change(database, 'DELETE FROM "usage_records" WHERE "day" = 20260105')
    assert verify(database) == []


def test_what_comes_late_for_a_pruned_day_is_no_fault(database, users, book):
    alice = users["alice"]
    book([charged(alice, 100), charged(alice, 50, MONDAY_MS + DAY_MS)], 0, 1)
    prune(database, 20260106)
    book([charged(alice, 7)], 1, 2)
    assert verify(database) == []
    assert balances(database)[alice] == -157


def test_verify_goes_through_pages_and_days(database, users, monkeypatch, book):
    monkeypatch.setattr(books_module, "PAGE_ROWS", 3)
    for turn in range(4):
        records = [
            charged(user_id, 1 + number, MONDAY_MS + turn * DAY_MS)
            for number in range(5)
            for user_id in users.values()
        ]
        book(records, turn, turn + 1)
    assert verify(database) == []
    change(database, 'DELETE FROM "usage_records" WHERE "day" = 20260107 AND "cost_nanos" = 5')
    assert len(verify(database)) == 2


def test_verify_sees_money_lent_beyond_a_balance(database, users):
    credit(database, "alice", Movement(1000, "paid"))
    note_seen(database, "web-1")
    for amount in (600, 400):
        row = {"account": users["alice"], "amount": amount, "held": 0}
        insert(database, "leases", journal_id=BookedJournal(database).id, **row)
    assert verify(database) == []
    change(database, 'UPDATE "leases" SET "amount" = 401 WHERE "amount" = 400')
    want = "wallet of alice: gateways were lent 0.000001001 of a balance of 0.000001"
    assert verify(database) == [want]
