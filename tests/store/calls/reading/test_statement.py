"""The statement of a month equals the ledger: over random ledgers, each month starts where the one
before ended, and the last one ends at the balance."""

import random

import pytest

from store.calls.reading.statement import (
    csv_rows,
    month_after,
    month_at,
    parse_month,
    public,
    statement_of,
)
from store.db.database import transaction
from store.money import ledger, wallet
from store.money.ledger import Line
from store.values.ids import DAY_MS, HOUR_MS, day_at, new_ulid
from store.values.pricing import parse_money
from tests.support.usage_records import charged, store

MARCH = 1_772_323_200_000  # 2026-03-01T00:00:00Z
KINDS = ("credit", "redeem", "debit", "refund")


@pytest.fixture
def alice(applied, database):
    return wallet.find_owner(database, "alice").id


def random_ledger(database, user_id, seed):
    """Write movements and charges of four months; charges are booked up to a day later."""
    chance = random.Random(seed)
    balance = wallet.show(database, "alice").balance_nanos
    at_ms = MARCH
    for _ in range(60):
        at_ms += chance.randrange(HOUR_MS, 4 * DAY_MS)
        amount = chance.randrange(1, 10**10)
        if chance.random() < 0.5:
            day = day_at(at_ms - chance.choice((0, DAY_MS)))
            charge = {(user_id, day): amount}
            transaction(database, lambda c=charge, t=at_ms: ledger.charge_wallets(database, c, t))
            balance -= amount
        else:
            kind = chance.choice(KINDS)
            signed = -amount if kind == "debit" else amount
            balance += signed
            line = Line(new_ulid(), user_id, kind, signed, balance, None, None, kind, at_ms)
            transaction(database, lambda one=line: ledger.add_line(database, one))
    return month_at(at_ms)


def month_of(line):
    day = ledger.charged_day(line)
    return day // 100 if day is not None else month_at(line.at_ms)


@pytest.mark.parametrize("seed", range(5))
def test_months_follow_each_other_and_end_at_the_balance(database, alice, seed):
    last = random_ledger(database, alice, seed)
    lines = ledger.lines_of(database, alice)
    first = min(map(month_of, lines))
    balance, month = 0, first
    while month <= max(last, month_at(lines[-1].at_ms)):
        sheet = statement_of(database, alice, "alice", month)
        assert sheet.opening_nanos == balance, month
        own = [line for line in lines if month_of(line) == month]
        charges = sum(-line.amount_nanos for line in own if line.kind == ledger.CHARGES)
        refunds = sum(line.amount_nanos for line in own if line.kind == "refund")
        assert (sheet.charged_nanos, sheet.refunded_nanos) == (charges, refunds)
        assert len(sheet.lines) + len(sheet.refunds) == sum(
            line.kind != ledger.CHARGES for line in own
        )
        balance += sum(line.amount_nanos for line in own)
        assert sheet.closing_nanos == balance
        rows = csv_rows(sheet)
        amounts = [parse_signed(row["amount"]) for row in rows if row["entry"] != "cost"]
        assert sum(amounts[:-1]) == amounts[-1] == balance, "the rows of CSV add up"
        month = month_after(month)
    assert balance == wallet.show(database, "alice").balance_nanos


def parse_signed(text):
    return -parse_money(text[1:]) if text.startswith("-") else parse_money(text)


def test_models_and_plans_are_of_the_calls(database, alice):
    records = [
        charged(alice, 10**8, MARCH + DAY_MS, user="alice", model="a"),
        charged(alice, 3 * 10**8, MARCH + DAY_MS, user="alice", model="b"),
        charged(alice, 10**8, MARCH + 40 * DAY_MS, user="alice", model="a"),
    ]
    store(database, records, MARCH + 41 * DAY_MS)
    sheet = statement_of(database, alice, "alice", 2026_03)
    assert [(one.model, one.calls, one.cost_nanos) for one in sheet.models] == [
        ("b", 1, 3 * 10**8),
        ("a", 1, 10**8),
    ]
    assert (sheet.cost_nanos, sheet.charged_nanos, sheet.plans_nanos) == (4 * 10**8, 4 * 10**8, 0)
    assert public(sheet, "USD")["charges"] == "-0.4"


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "2026-1", "26-01", "٢٠٢٦-٠١", "1999-12"])
def test_what_is_no_month(text):
    with pytest.raises(ValueError, match="must be a month"):
        parse_month(text)


def test_months_are_counted_over_years():
    assert [month_after(2026_12), month_after(2026_01, -1)] == [2027_01, 2025_12]
