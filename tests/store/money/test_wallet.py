"""Credits, debits and refunds on both databases: exact, once, and never below zero."""

from functools import partial

import pytest

from store.db.audit import entries
from store.money import wallet as wallet_module
from store.money.books import verify
from store.money.ledger import Line
from store.money.wallet import (
    Movement,
    RefundOrder,
    credit,
    debit,
    find_owner,
    ledger,
    refunds_of,
    show,
)
from store.money.wallet import refund as refund_by_order
from store.values.errors import Conflict, NotFound, OutcomeUnknown, Refused, StoreUnavailable
from store.values.pricing import MAX_BIGINT
from store.values.usage_record import Charge
from tests.support.stores import at_once, balances, change
from tests.support.usage_records import store, usage_record
from tests.support.users import add_user


def book_call(db, user, *charges):
    """Book a call of that user; return its id."""
    cost = sum(charge.amount_nanos for charge in charges)
    user_id = find_owner(db, user).id
    call = usage_record(user_id=user_id, user=user, cost_nanos=cost, charges=charges)
    store(db, [call], 1)
    return call.id


def refund(db, call_id, amount=None, **fields):
    return refund_by_order(db, call_id, RefundOrder(amount, **fields))


def rich(nanos=5, **fields):
    return Movement(nanos, "paid", **fields)


@pytest.fixture
def db(database, users):
    return database


def acts_of(db, action):
    return [
        (act["actor"], act["kind"], act["name"], act["before"], act["after"])
        for act in entries(db, 10)
        if act["action"] == action
    ]


def test_credit_and_debit_are_lines_of_the_ledger(db, users):
    first = credit(db, "alice", rich(10**10))
    second = debit(db, "alice", Movement(3 * 10**9, "taken back", reference="invoice 7"))
    alice = users["alice"]
    assert first == Line(
        *(first.id, alice, "credit", 10**10, 10**10, None, first.idempotency_id, "paid"),
        first.at_ms,
    )
    assert second == Line(
        *(second.id, alice, "debit", -3 * 10**9, 7 * 10**9, "invoice 7", second.idempotency_id),
        *("taken back", second.at_ms),
    )
    assert ledger(db, "alice") == [first, second]
    assert show(db, "alice") == wallet_module.View("alice", 7 * 10**9, 0, 0)
    assert show(db, "bob").balance_nanos == 0
    assert verify(db) == []
    [(_, kind, name, before, after)] = acts_of(db, "debit")
    assert (kind, name, before, after["balance"]) == ("wallet", "alice", {"balance": "10"}, "7")
    assert [act[1:3] for act in acts_of(db, "credit")] == [("wallet", "alice")]


def test_the_same_id_counts_once(db):
    movement = rich(idempotency_id="payment-1")
    line = credit(db, "alice", movement)
    credit(db, "alice", Movement(1, "more"))
    assert credit(db, "alice", movement) == line
    assert show(db, "alice").balance_nanos == 6
    assert len(entries(db, 10)) == 2


@pytest.mark.parametrize(
    ("move", "user", "amount", "reason"),
    [
        (credit, "alice", 6, "paid"),
        (credit, "alice", 5, "other"),
        (debit, "alice", 5, "paid"),
        (credit, "bob", 5, "paid"),
    ],
)
def test_the_same_id_for_something_else_is_refused(db, users, move, user, amount, reason):
    credit(db, "alice", rich(idempotency_id="payment-1"))
    with pytest.raises(Refused, match="payment-1"):
        move(db, user, Movement(amount, reason, idempotency_id="payment-1"))
    assert balances(db) == {users["alice"]: 5, users["bob"]: 0}


def test_a_debit_takes_no_more_than_there_is(db):
    credit(db, "alice", rich())
    with pytest.raises(Refused, match=r"^only 0\.000000005 is free, less .* 0\.000000006$"):
        debit(db, "alice", Movement(6, "all"))
    debit(db, "alice", Movement(5, "all"))
    assert show(db, "alice").balance_nanos == 0
    book_call(db, "alice", Charge("wallet", 5))
    with pytest.raises(Refused, match="only 0 is free"):  # nor from a wallet below zero
        debit(db, "alice", Movement(1, "all"))


@pytest.mark.databases("sqlite")
def test_what_cannot_be_is_refused_with_all_faults(db):
    with pytest.raises(Refused) as refused:
        credit(db, "alice", Movement(0, "", idempotency_id="charges:x"))
    assert len(refused.value.faults) == 3
    bad = [Movement(-1, "x"), Movement(MAX_BIGINT + 1, "x"), Movement(1, "x" * 1001)]
    bad_ids = ("", "x" * 129, "a\nb", "refund:1", "redeem:1")
    for movement in (*bad, *(rich(idempotency_id=bad_id) for bad_id in bad_ids)):
        with pytest.raises(Refused):
            credit(db, "alice", movement)
    credit(db, "alice", Movement(MAX_BIGINT, "much"))
    with pytest.raises(Refused, match="too large"):
        credit(db, "alice", Movement(1, "more"))


@pytest.mark.databases("sqlite")
def test_unknown_users_and_missing_wallets(db):
    add_user(db, "carol", wallet=False)
    with pytest.raises(NotFound, match="carol"):
        refund(db, book_call(db, "carol", Charge("wallet", 5)))
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
    line = done.line
    assert (done.user, done.again) == ("alice", False)
    assert (line.kind, line.amount_nanos, line.balance_after_nanos) == ("refund", 5, 10)
    assert (line.reference, line.reason) == (call_id, f"refund of call {call_id}")
    assert line in ledger(db, "alice")
    assert show(db, "alice").balance_nanos == 10
    assert verify(db) == []
    [(*act, before, after)] = acts_of(db, "refund")
    assert act == ["olga", "wallet", "alice"]
    assert (before, after["reference"]) == ({"balance": "0.000000005"}, call_id)


def test_a_call_is_refunded_once(db):
    call_id = book_call(db, "alice", Charge("wallet", 5))
    first = refund(db, call_id, reason="the vendor was wrong")
    acts = len(entries(db, 10))
    for reason in ("the vendor was wrong", "another reason", None):
        again = refund(db, call_id, reason=reason)
        assert again.again and again.line == first.line and again.user == "alice"
    assert show(db, "alice").balance_nanos == 0
    assert len(entries(db, 10)) == acts
    assert verify(db) == []


def test_parts_of_a_call_are_refunded_up_to_what_the_wallet_paid(db):
    call_id = book_call(db, "alice", Charge("subscription:monthly", 20), Charge("wallet", 10))
    assert [refund(db, call_id, 3).line.amount_nanos for _ in range(2)] == [3, 3]
    first = refund(db, call_id, 2, idempotency_id="part-1")
    again = refund(db, call_id, 2, idempotency_id="part-1")
    assert (again.again, again.line) == (True, first.line)
    with pytest.raises(Refused, match=r"part-1 is that of a refund of 0\.000000002"):
        refund(db, call_id, 1, idempotency_id="part-1")
    with pytest.raises(Refused, match=r"only 0\.000000002 of the 0\.00000001 that .* is left"):
        refund(db, call_id, 3)
    rest = refund(db, call_id)
    assert (rest.again, rest.line.amount_nanos) == (False, 2)
    assert refund(db, call_id).again
    with pytest.raises(Refused, match="nothing that"):
        refund(db, call_id, 1)
    amounts = [line.amount_nanos for line in refunds_of(db, call_id)]
    assert amounts == [3, 3, 2, 2] and refunds_of(db, call_id[:-1]) == []
    assert [act[4]["reference"] for act in acts_of(db, "refund")] == [call_id] * 4
    assert show(db, "alice").balance_nanos == 0 and verify(db) == []


@pytest.mark.parametrize("parts", [(4, 6), (1, 2, 7)])
def test_a_call_refunded_in_parts_alone_has_nothing_left(db, parts):
    call_id = book_call(db, "alice", Charge("wallet", 10))
    lines = [refund(db, call_id, part).line for part in parts]
    assert refund(db, call_id) == wallet_module.Refund("alice", lines[-1], again=True)


def test_parallel_refunds_never_exceed_the_charge(db):
    call_id = book_call(db, "alice", Charge("wallet", 10))
    amounts = [4, 3, 4, None, 3, None]
    works = [partial(refund, db, call_id, amount) for amount in amounts]
    for done, amount in zip(at_once(db, *works), amounts, strict=True):
        assert isinstance(done, Refused) if amount and isinstance(done, Exception) else done.line
    assert sum(line.amount_nanos for line in refunds_of(db, call_id)) == 10
    assert show(db, "alice").balance_nanos == 0 and verify(db) == []


def test_a_refund_is_known_when_record_and_user_are_gone(db):
    call_id = book_call(db, "alice", Charge("wallet", 5))
    first = refund(db, call_id)
    for table in ("usage_records", "users"):
        change(db, f'DELETE FROM "{table}"')
    assert refund(db, call_id).line == first.line
    assert refund(db, call_id).user == first.line.user_id


@pytest.mark.parametrize("charges", [(), (Charge("subscription:monthly", 2),)])
def test_what_cost_the_wallet_nothing_is_not_refunded(db, charges):
    call_id = book_call(db, "alice", *charges)
    with pytest.raises(Refused, match=f"{call_id} charged no wallet"):
        refund(db, call_id)
    assert ledger(db, "alice") == []


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("call_id", ["", "x", "0" * 25, "7" + "Z" * 25, "0" * 26, "a" * 26])
def test_an_unknown_call_is_not_refunded(db, call_id):
    with pytest.raises(NotFound, match=f"call.*{call_id}|{call_id}.*call"):
        refund(db, call_id)


def test_a_refund_that_cannot_be_is_refused(db):
    call_id = book_call(db, "alice", Charge("wallet", 5))
    for reason in ("", "x" * 1001):
        with pytest.raises(Refused, match="reason"):
            refund(db, call_id, reason=reason)
    for wrong in (partial(refund, amount=0), partial(refund, amount=1, idempotency_id="refund:1")):
        with pytest.raises(Refused, match=r"greater than 0|gateway's own"):
            wrong(db, call_id)
    credit(db, "alice", Movement(MAX_BIGINT, "much"))
    credit(db, "alice", Movement(5, "more"))
    with pytest.raises(Refused, match="too large"):
        refund(db, call_id)
    change(db, 'DELETE FROM "users" WHERE "name" = ?', "alice")
    with pytest.raises(NotFound, match=f"alice of the call {call_id} has been removed"):
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


def replies(monkeypatch, *errors, booked=False):
    """Make the first transactions fail with these errors; `booked`: after they were committed."""
    real, waiting = wallet_module.transaction, list(errors)

    def transact(db, work):
        if waiting and not booked:
            raise waiting.pop(0)
        result = real(db, work)
        if waiting:
            raise waiting.pop(0)
        return result

    monkeypatch.setattr(wallet_module, "transaction", transact)
    monkeypatch.setattr(wallet_module, "COMMIT_PAUSE_S", 0)


LOST = OutcomeUnknown("lost during commit")


@pytest.mark.parametrize("booked", [True, False])
@pytest.mark.parametrize(("own_id", "amount"), [(None, None), ("payment-1", 5)])
def test_a_lost_reply_to_the_commit_counts_once(db, monkeypatch, booked, own_id, amount):
    call_id = book_call(db, "bob", Charge("wallet", 5))
    replies(monkeypatch, LOST, booked=booked)
    line = credit(db, "alice", rich(idempotency_id=own_id))
    assert line.balance_after_nanos == 5
    assert ledger(db, "alice") == [line]
    replies(monkeypatch, LOST, booked=booked)
    assert not refund(db, call_id, amount).again
    assert [show(db, name).balance_nanos for name in ("alice", "bob")] == [5, 0]


def test_when_it_stays_unknown_it_says_so(db, monkeypatch):
    replies(monkeypatch, LOST, *[StoreUnavailable("away")] * 9)
    with pytest.raises(OutcomeUnknown, match="ledger"):
        credit(db, "alice", rich())


def test_a_race_for_the_same_id_is_looked_at_again(db, monkeypatch):
    replies(monkeypatch, Conflict("idempotency_id"))
    assert credit(db, "alice", rich(idempotency_id="p")).amount_nanos == 5
    replies(monkeypatch, StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable, match="away"):
        credit(db, "alice", rich())
    assert len(ledger(db, "alice")) == 1
    replies(monkeypatch, *[Conflict("idempotency_id")] * 3)
    with pytest.raises(Refused, match="again and again"):
        credit(db, "alice", rich(idempotency_id="q"))
