"""Credits, debits and refunds on both databases: exact, once, and never below zero."""

from functools import partial

import pytest

from store.db.audit import entries
from store.db.database import execute, transaction
from store.money import wallet as wallet_module
from store.money.books import verify
from store.money.wallet import Movement, credit, debit, find_owner, ledger, refund, show
from store.values.errors import (
    Conflict,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreUnavailable,
)
from store.values.pricing import MAX_BIGINT
from store.values.usage_record import Charge
from tests.support.stores import at_once
from tests.support.usage_records import store, usage_record
from tests.support.users import add_user


def book_call(db, user, *charges):
    """A call of that user in the books; its id."""
    cost = sum(charge.amount_nanos for charge in charges)
    user_id = find_owner(db, user).id
    call = usage_record(user_id=user_id, user=user, cost_nanos=cost, charges=charges)
    store(db, [call], 1)
    return call.id


@pytest.fixture
def db(database):
    add_user(database, "alice")
    add_user(database, "bob")
    return database


def test_credit_and_debit_are_lines_of_the_ledger(db):
    first = credit(db, "alice", Movement(10**10, "paid"))
    second = debit(db, "alice", Movement(3 * 10**9, "taken back", reference="invoice 7"))
    assert (first.kind, first.amount_nanos) == ("credit", 10**10)
    assert first.balance_after_nanos == 10**10
    assert (second.amount_nanos, second.balance_after_nanos) == (-3 * 10**9, 7 * 10**9)
    assert ledger(db, "alice") == [first, second]
    assert show(db, "alice") == wallet_module.View("alice", 7 * 10**9, 0, 0)
    assert show(db, "bob").balance_nanos == 0
    assert verify(db) == []
    acts = entries(db, 10)
    assert {(act["action"], act["kind"], act["name"]) for act in acts} == {
        ("debit", "wallet", "alice"),
        ("credit", "wallet", "alice"),
    }
    taken = next(act for act in acts if act["action"] == "debit")
    assert taken["before"] == {"balance": "10"}
    assert taken["after"]["balance"] == "7"


def test_the_same_id_counts_once(db):
    movement = Movement(5, "paid", idempotency_id="payment-1")
    line = credit(db, "alice", movement)
    credit(db, "alice", Movement(1, "more"))
    assert credit(db, "alice", movement) == line
    assert show(db, "alice").balance_nanos == 6
    assert len(entries(db, 10)) == 2


@pytest.mark.parametrize("change", ["amount", "reason", "kind", "user"])
def test_the_same_id_for_something_else_is_refused(db, change):
    credit(db, "alice", Movement(5, "paid", idempotency_id="payment-1"))
    amount = 6 if change == "amount" else 5
    reason = "other" if change == "reason" else "paid"
    move = debit if change == "kind" else credit
    user = "bob" if change == "user" else "alice"
    with pytest.raises(Refused, match="payment-1"):
        move(db, user, Movement(amount, reason, idempotency_id="payment-1"))
    assert show(db, "alice").balance_nanos == 5
    assert show(db, "bob").balance_nanos == 0


def test_a_debit_takes_no_more_than_there_is(db):
    credit(db, "alice", Movement(5, "paid"))
    with pytest.raises(Refused, match=r"^only 0\.000000005 is free, less .* 0\.000000006$"):
        debit(db, "alice", Movement(6, "all"))
    debit(db, "alice", Movement(5, "all"))
    assert show(db, "alice").balance_nanos == 0


def test_of_a_wallet_below_zero_nothing_is_free(db):
    book_call(db, "alice", Charge("wallet", 5))
    with pytest.raises(Refused, match="only 0 is free"):
        debit(db, "alice", Movement(1, "all"))


def test_what_cannot_be_is_refused_with_all_faults(db):
    with pytest.raises(Refused) as refused:
        credit(db, "alice", Movement(0, "", idempotency_id="charges:x"))
    assert len(refused.value.faults) == 3
    for bad in (Movement(-1, "x"), Movement(MAX_BIGINT + 1, "x"), Movement(1, "x" * 1001)):
        with pytest.raises(Refused):
            credit(db, "alice", bad)
    for bad_id in ("", "x" * 129, "a\nb", "refund:1", "redeem:1"):
        with pytest.raises(Refused):
            credit(db, "alice", Movement(1, "x", idempotency_id=bad_id))
    credit(db, "alice", Movement(MAX_BIGINT, "much"))
    with pytest.raises(Refused, match="too large"):
        credit(db, "alice", Movement(1, "more"))


def test_unknown_users_and_missing_wallets(db):
    add_user(db, "carol", wallet=False)
    for name in ("nobody", "carol"):
        for ask in (show, lambda db, user: credit(db, user, Movement(1, "x"))):
            with pytest.raises(NotFound, match=name):
                ask(db, name)
    with pytest.raises(NotFound):
        ledger(db, "nobody")


def test_a_refund_gives_back_what_the_wallet_paid(db):
    credit(db, "alice", Movement(10, "paid"))
    call_id = book_call(db, "alice", Charge("subscription:monthly", 2), Charge("wallet", 5))
    assert show(db, "alice").balance_nanos == 5
    done = refund(db, call_id, actor="olga")
    assert (done.user, done.again) == ("alice", False)
    line = done.line
    assert (line.kind, line.amount_nanos, line.balance_after_nanos) == ("refund", 5, 10)
    assert (line.reference, line.reason) == (call_id, f"refund of call {call_id}")
    assert line in ledger(db, "alice")
    assert show(db, "alice").balance_nanos == 10
    assert verify(db) == []
    act = next(act for act in entries(db, 10) if act["action"] == "refund")
    assert (act["actor"], act["kind"], act["name"]) == ("olga", "wallet", "alice")
    assert act["before"] == {"balance": "0.000000005"}
    assert act["after"]["reference"] == call_id


def test_a_call_is_refunded_once(db):
    call_id = book_call(db, "alice", Charge("wallet", 5))
    first = refund(db, call_id, "the vendor was wrong")
    acts = len(entries(db, 10))
    for reason in ("the vendor was wrong", "another reason", None):
        again = refund(db, call_id, reason)
        assert again.again and again.line == first.line and again.user == "alice"
    assert show(db, "alice").balance_nanos == 0
    assert len(entries(db, 10)) == acts
    assert verify(db) == []


def test_a_refund_is_known_when_record_and_user_are_gone(db):
    call_id = book_call(db, "alice", Charge("wallet", 5))
    first = refund(db, call_id)
    for table in ("usage_records", "users"):
        transaction(db, lambda table=table: execute(db, f'DELETE FROM "{table}"'))
    assert refund(db, call_id).line == first.line
    assert refund(db, call_id).user == first.line.user_id


@pytest.mark.parametrize("charges", [(), (Charge("subscription:monthly", 2),)])
def test_what_cost_the_wallet_nothing_is_not_refunded(db, charges):
    call_id = book_call(db, "alice", *charges)
    with pytest.raises(Refused, match=f"{call_id} took nothing"):
        refund(db, call_id)
    assert ledger(db, "alice") == []


@pytest.mark.parametrize("call_id", ["", "x", "0" * 25, "7" + "Z" * 25, "0" * 26, "a" * 26])
def test_an_unknown_call_is_not_refunded(db, call_id):
    with pytest.raises(NotFound, match=f"call.*{call_id}|{call_id}.*call"):
        refund(db, call_id)


def test_a_refund_that_cannot_be_is_refused(db):
    call_id = book_call(db, "alice", Charge("wallet", 5))
    for reason in ("", "x" * 1001):
        with pytest.raises(Refused, match="reason"):
            refund(db, call_id, reason)
    credit(db, "alice", Movement(MAX_BIGINT, "much"))
    credit(db, "alice", Movement(5, "more"))
    with pytest.raises(Refused, match="too large"):
        refund(db, call_id)
    delete = 'DELETE FROM "users" WHERE "name" = ?'
    transaction(db, lambda: execute(db, delete, ("alice",)))
    with pytest.raises(NotFound, match=f"alice of the call {call_id} has been removed"):
        refund(db, call_id)


def test_a_refund_needs_a_wallet(db):
    add_user(db, "carol", wallet=False)
    call_id = book_call(db, "carol", Charge("wallet", 5))
    with pytest.raises(NotFound, match="carol"):
        refund(db, call_id)


def test_parallel_credits_are_all_counted_and_the_same_id_once(db):
    def work(number):
        for turn in range(5):
            credit(db, "alice", Movement(100 + number, f"{number}-{turn}"))
            credit(db, "alice", Movement(7, "once", idempotency_id=f"same-{turn}"))

    assert at_once(db, *(partial(work, number) for number in range(4))) == [None] * 4
    assert show(db, "alice").balance_nanos == 5 * (400 + 6) + 5 * 7
    assert len(ledger(db, "alice")) == 25
    assert verify(db) == []


def lose_commit(monkeypatch, *, booked, then_away=False):
    """The first transaction ends with a lost reply, booked or not."""
    real = wallet_module.transaction
    tries = []

    def transact(db, work):
        tries.append(work)
        if len(tries) == 1:
            if booked:
                real(db, work)
            raise OutcomeUnknown("lost during commit")
        if then_away:
            raise StoreUnavailable("away")
        return real(db, work)

    monkeypatch.setattr(wallet_module, "transaction", transact)
    monkeypatch.setattr(wallet_module, "COMMIT_PAUSE_S", 0)


@pytest.mark.parametrize("booked", [True, False])
@pytest.mark.parametrize("own_id", [None, "payment-1"])
def test_a_lost_reply_to_the_commit_counts_once(db, monkeypatch, booked, own_id):
    lose_commit(monkeypatch, booked=booked)
    line = credit(db, "alice", Movement(5, "paid", idempotency_id=own_id))
    assert line.balance_after_nanos == 5
    assert ledger(db, "alice") == [line]
    assert show(db, "alice").balance_nanos == 5


@pytest.mark.parametrize("booked", [True, False])
def test_a_refund_whose_commit_was_lost_counts_once(db, monkeypatch, booked):
    call_id = book_call(db, "alice", Charge("wallet", 5))
    lose_commit(monkeypatch, booked=booked)
    done = refund(db, call_id)
    assert not done.again
    assert show(db, "alice").balance_nanos == 0


def test_when_it_stays_unknown_it_says_so(db, monkeypatch):
    lose_commit(monkeypatch, booked=True, then_away=True)
    with pytest.raises(OutcomeUnknown, match="ledger"):
        credit(db, "alice", Movement(5, "paid"))


def fail_transactions(monkeypatch, *errors):
    real = wallet_module.transaction
    waiting = list(errors)

    def transact(db, work):
        if waiting:
            raise waiting.pop(0)
        return real(db, work)

    monkeypatch.setattr(wallet_module, "transaction", transact)
    monkeypatch.setattr(wallet_module, "COMMIT_PAUSE_S", 0)


def test_a_race_for_the_same_id_is_looked_at_again(db, monkeypatch):
    fail_transactions(monkeypatch, Conflict("idempotency_id"))
    assert credit(db, "alice", Movement(5, "paid", idempotency_id="p")).amount_nanos == 5
    fail_transactions(monkeypatch, StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable, match="away"):
        credit(db, "alice", Movement(5, "paid"))
    assert len(ledger(db, "alice")) == 1
    fail_transactions(monkeypatch, *[Conflict("idempotency_id")] * 3)
    with pytest.raises(Refused, match="again and again"):
        credit(db, "alice", Movement(5, "paid", idempotency_id="q"))
