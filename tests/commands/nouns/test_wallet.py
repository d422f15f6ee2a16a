"""`wallet`: show, credit, debit, refund, ledger."""

import json

import pytest

from store.calls.booking import apply_records
from store.db.database import transaction
from store.money.wallet import find_owner
from tests.commands.conftest import record


def wallet(filled, user="alice"):
    return filled.json("wallet", "show", "--user", user)


def move(filled, verb, amount, *more):
    return filled.json("wallet", verb, "--user", "alice", "--amount", amount, *more)


@pytest.fixture
def call(filled):
    """A call of alice in the books; its record."""
    with filled.store() as db:
        owner = find_owner(db, "alice")
        made = record(1, user_id=owner.id, user=owner.name)
        transaction(db, lambda: apply_records(db, [made], 1))
    return made


def test_a_wallet_is_shown(filled):
    amounts = {"balance": "10", "held": "0", "leased": "0"}
    assert wallet(filled) == {"user": "alice", "currency": "USD", **amounts}
    assert "balance   10\n" in filled.ok("wallet", "show", "--user", "alice")


def test_what_was_booked_before_is_said(filled):
    words = ("wallet", "credit", "--user", "alice", "--amount", "5", "--reason", "x", "--id", "i-1")
    first = filled.run(*words, "--json")
    assert (first.code, first.err) == (0, "")
    second = filled.run(*words, "--json")
    assert (second.code, second.out) == (0, first.out)
    assert f"i-1 was booked before, at {json.loads(first.out)['at']}" in second.err
    text = filled.refused(*("6" if word == "5" else word for word in words))
    assert 'the id i-1 is that of a credit of 5, reason "x"; ' in text


def test_ledger_lines_add_up(filled):
    move(filled, "credit", "2.5", "--reason", "gift", "--id", "gift-1")
    move(filled, "debit", "0.000000001", "--reason", "fee")
    lines = filled.json("wallet", "ledger", "--user", "alice")
    fields = ["at", "kind", "amount", "balance_after", "reference", "reason"]
    assert [list(line) for line in lines] == [fields] * 3
    shown = [(line["kind"], line["amount"], line["balance_after"]) for line in lines]
    assert shown == [
        ("credit", "10", "10"),
        ("credit", "2.5", "12.5"),
        ("debit", "-0.000000001", "12.499999999"),
    ]
    assert (lines[1]["reference"], lines[1]["reason"]) == ("gift-1", "gift")
    assert wallet(filled)["balance"] == "12.499999999"
    assert "gift-1" in filled.ok("wallet", "ledger", "--user", "alice")


def test_what_is_no_amount_is_wrong_usage(filled):
    for amount in ("1e3", "-1", "", "1.0000000001", "ten"):
        args = ("--user=alice", f"--amount={amount}", "--reason=r")
        assert "--amount" in filled.misused("wallet", "credit", *args)


def test_a_call_is_refunded_once(filled, call):
    assert call.cost_nanos == 6
    assert wallet(filled)["balance"] == "9.999999994"
    first = filled.json("wallet", "refund", "--call", call.id, "--reason", "vendor was wrong")
    assert list(first) == [
        *("user", "at", "kind", "amount", "balance_after", "reference", "reason")
    ]
    assert (first["user"], first["kind"], first["amount"]) == ("alice", "refund", "0.000000006")
    assert (first["reference"], first["reason"]) == (call.id, "vendor was wrong")
    ended = filled.run("wallet", "refund", "--call", call.id, "--json")
    assert (ended.code, json.loads(ended.out)) == (0, first)
    assert f"refunded before, at {first['at']}: nothing is changed" in ended.err
    assert wallet(filled)["balance"] == "10"
    assert "10" in filled.ok("wallet", "refund", "--call", call.id)
    assert filled.ok("books", "verify")


def test_a_misspelt_user_is_answered_with_the_nearest(filled):
    for verb in ("show", "ledger"):
        assert 'did you mean "alice"' in filled.refused("wallet", verb, "--user", "alise")
