"""Booking batches, on both databases."""

import pytest

from store.calls.booking import OffsetMoved, account_charges, apply_records
from store.db.database import transaction
from store.money.books import verify
from store.money.ledger import charges_id
from store.money.wallet import Movement, credit, ledger, show
from store.values.errors import Conflict
from store.values.ids import new_ulid
from store.values.usage_record import Charge
from tests.support.stores import balances, count, pairs, select
from tests.support.usage_records import DAY_MS, MONDAY_MS, charged
from tests.support.users import add_user


@pytest.fixture(autouse=True)
def right_books(database):
    yield
    assert verify(database) == []


def charges_of(db, user):
    """Return the lines of charges in a ledger: amount, balance afterwards, time."""
    lines = [line for line in ledger(db, user) if line.kind == "charges"]
    return [(line.amount_nanos, line.balance_after_nanos, line.at_ms) for line in lines]


def test_a_batch_changes_records_wallets_ledger_and_offset_together(database, users, book):
    alice, bob = users["alice"], users["bob"]
    credit(database, "alice", Movement(1000, "paid"))
    records = [charged(alice, 100), charged(bob, 5), charged(alice, 30), charged(bob, 0)]
    assert book(records, 0, 400) == {alice: 0, bob: 0}
    assert account_charges(records) == {alice: 130, bob: 5}
    assert balances(database) == {alice: 870, bob: -5}
    assert count(database, "usage_records") == 4
    (charges,) = (line for line in ledger(database, "alice") if line.kind == "charges")
    assert (charges.amount_nanos, charges.balance_after_nanos) == (-130, 870)
    assert charges.idempotency_id == charges_id(alice, 20260105) == f"charges:{alice}:20260105"


def test_the_day_line_grows_and_shows_the_balance_after_the_last_charge(database, users, book):
    alice = users["alice"]
    credit(database, "alice", Movement(1000, "paid"))
    book([charged(alice, 100)], 0, 1, MONDAY_MS + 1_000)
    credit(database, "alice", Movement(500, "more"))
    book([charged(alice, 7)], 1, 2, MONDAY_MS + 9_000)
    assert charges_of(database, "alice") == [(-107, 1393, MONDAY_MS + 9_000)]
    assert show(database, "alice").balance_nanos == 1393
    assert len(ledger(database, "alice")) == 3


def test_the_day_is_that_of_the_call_not_of_the_booking(database, users, book):
    alice = users["alice"]
    booked_ms = MONDAY_MS + DAY_MS
    book([charged(alice, 3, booked_ms), charged(alice, 2, MONDAY_MS - 1)], 0, 1, booked_ms)
    assert charges_of(database, "alice") == [(-2, -2, booked_ms), (-3, -5, booked_ms)]


def test_a_batch_that_was_applied_is_not_applied_again(database, users, book):
    records = [charged(users["alice"], 100)]
    book(records, 0, 400)
    with pytest.raises(OffsetMoved):
        book(records, 0, 400)
    assert balances(database)[users["alice"]] == -100
    assert count(database, "usage_records") == 1


def test_a_duplicate_undoes_the_whole_batch(database, users, book):
    again = charged(users["alice"], 100)
    book([again], 0, 400)
    with pytest.raises(Conflict):
        book([charged(users["alice"], 1), again], 400, 800)
    assert balances(database)[users["alice"]] == -100
    assert count(database, "usage_records") == 1
    book([charged(users["alice"], 1)], 400, 800)


def test_nobody_pays_for_a_removed_user(database, users, book):
    gone = new_ulid()
    book([charged(gone, 9), charged(users["bob"], 1)], 0, 1)
    assert balances(database) == {users["alice"]: 0, users["bob"]: -1}
    assert count(database, "usage_records") == 2


def test_other_payers_do_not_touch_the_wallet(database, users, book):
    split = (Charge("subscription:gold", 60, "S:month:20260101"), Charge("wallet", 40))
    limits = {"limit_account": "K:never:0", "user_limit_account": "U:day:20260101"}
    book([charged(users["alice"], 100, charges=split, **limits)], 0, 1)
    spent = pairs(database, "quotas", "account", "spent")
    assert spent == {"S:month:20260101": 60, **dict.fromkeys(limits.values(), 100)}
    assert balances(database)[users["alice"]] == -40


def test_many_users_in_one_batch(database, book):
    ids = [add_user(database, f"user-{number}") for number in range(700)]
    book([charged(user_id, 1 + number) for number, user_id in enumerate(ids)], 0, 1)
    assert balances(database) == {user_id: -1 - number for number, user_id in enumerate(ids)}


def test_texts_of_any_kind_survive(database, users, book):
    text = "100 % ? \x00 'quoted' \"double\" \\ 語 😀 %s"
    book([charged(users["alice"], 1, error_message=text, user_agent=text)], 0, 1)
    query = 'SELECT "error_message", "user_agent" FROM "usage_records"'
    assert select(database, query) == [(text, text)]


def test_records_can_be_booked_without_a_journal(database, users):
    left = transaction(
        database, lambda: apply_records(database, [charged(users["bob"], 4)], MONDAY_MS)
    )
    assert left == {users["bob"]: 0}
    assert balances(database)[users["bob"]] == -4
    assert transaction(database, lambda: apply_records(database, [], MONDAY_MS)) == {}
