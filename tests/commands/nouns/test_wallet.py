"""`wallet`: show, credit, debit, refund, ledger."""

import json

import pytest

from store.calls.booking import apply_records
from store.db.database import transaction
from store.money.wallet import find_owner
from tests.commands.conftest import record


@pytest.fixture
def call(filled):
    """Book a call of alice; return its record."""
    with filled.store() as db:
        owner = find_owner(db, "alice")
        made = record(1, user_id=owner.id, user=owner.name)
        transaction(db, lambda: apply_records(db, [made], 1))
    return made


def test_a_wallet_and_its_ledger_are_shown(filled):
    of_alice = ("--user", "alice")
    amounts = {"balance": "10", "held": "0", "leased": "0"}
    shown = filled.json("wallet", "show", *of_alice)
    assert shown == {"user": "alice", "currency": "USD", **amounts}
    assert "balance   10\n" in filled.ok("wallet", "show", *of_alice)
    filled.ok("wallet", "debit", *of_alice, "--amount", "0.000000001", "--reason", "fee")
    lines = filled.json("wallet", "ledger", *of_alice)
    fields = ["at", "kind", "amount", "balance_after", "reference", "reason"]
    assert [list(line) for line in lines] == [fields] * 2
    assert [line["amount"] for line in lines] == ["10", "-0.000000001"]
    assert (lines[1]["balance_after"], lines[1]["reason"]) == ("9.999999999", "fee")
    assert "9.999999999" in filled.ok("wallet", "ledger", *of_alice)
    for verb in ("show", "ledger"):
        assert 'did you mean "alice"' in filled.refused("wallet", verb, "--user", "alise")


def test_what_was_booked_before_is_said(filled):
    words = ("wallet", "credit", "--user", "alice", "--amount", "5", "--reason", "x", "--id", "i-1")
    first = filled.run(*words, "--json")
    assert (first.code, first.err) == (0, "")
    second = filled.run(*words, "--json")
    assert (second.code, second.out) == (0, first.out)
    assert f"i-1 was already booked at {json.loads(first.out)['at']}" in second.err
    text = filled.refused(*("6" if word == "5" else word for word in words))
    assert 'the id i-1 is that of a credit of 5, reason "x"; ' in text


def test_what_is_no_amount_is_wrong_usage(filled):
    args = ("--user=alice", "--amount=1e3", "--reason=r")
    assert "--amount" in filled.misused("wallet", "credit", *args)


def test_a_call_is_refunded_once(filled, call):
    refund = ("wallet", "refund", "--call", call.id)
    first = filled.json(*refund, "--reason", "vendor was wrong")
    expected = {"user": "alice", "kind": "refund", "amount": "0.000000006", "balance_after": "10"}
    expected |= {"at": first["at"], "reference": call.id, "reason": "vendor was wrong"}
    assert first == expected
    ended = filled.run(*refund, "--json")
    assert (ended.code, json.loads(ended.out)) == (0, first)
    assert f"already refunded at {first['at']}: nothing changed" in ended.err
    assert "10" in filled.ok(*refund) and filled.ok("books", "verify")


def test_a_part_of_a_call_is_refunded(filled, call):
    refund = ("wallet", "refund", "--call", call.id)
    part = (*refund, "--amount", "0.000000004", "--id", "p-1")
    assert [filled.json(*part)["amount"] for _ in range(2)] == ["0.000000004"] * 2
    assert "only 0.000000002 of the 0.000000006" in filled.refused(*refund, "--amount=0.000000003")
    assert filled.json(*refund)["amount"] == "0.000000002"
    shown = filled.ok("usage", "show", call.id)
    assert shown.count("refunded 0.000000004") == shown.count("refunded 0.000000002") == 1
