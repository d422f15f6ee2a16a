"""docs/money.md: its tables match the code, its worked examples are correct."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from adapters.registry import FAMILIES
from handlers.relay import settle
from handlers.relay.call import Attempt, Delivery
from handlers.relay.routing.plan import Candidate
from store.catalog.catalog import Model, Snapshot
from store.values.meters import METERS, MILLION
from store.values.pricing import (
    CONDITIONS,
    Prices,
    conditional_rate,
    format_money,
    parse_multiplier,
    parse_price,
    plain_rate,
)
from tests.handlers.relay.calls import CHANNEL, NATIVE, a_call

PAGE = (Path(__file__).parent.parent / "docs/money.md").read_text()


def table(heading):
    """Return the cells of the rows of the first table below a heading."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row[1:-1].split(" | ")] for row in rows[2:]]


def test_every_meter_has_its_row():
    rows = {row[0].strip("`"): row[1:3] for row in table("Meters")}
    assert list(rows) == list(METERS)
    for name, (unit, chain) in rows.items():
        meter = METERS[name]
        assert ("unpriced" in chain) == meter.unpriced, name
        assert (unit == "million tokens") == (meter.unit == MILLION), name
        if meter.falls_to is None:
            assert chain.startswith(("needed", "free")), name
        else:
            assert chain.startswith(f"as `{meter.falls_to}`"), name
    assert [row[0].strip("`") for row in table("Rates")] == list(CONDITIONS)


ANSWERS = {
    "chat_completions": {"choices": [{"message": {"content": "Tea."}}]},
    "responses": {"status": "completed", "output": []},
    "messages": {"type": "message", "content": []},
    "generate_content": {"candidates": [{"content": {"parts": []}}]},
}
EXAMPLES = table("Worked examples")


def price_table(text):
    return {name: parse_price(price) for name, price in map(str.split, text.split(", "))}


def model_prices(text):
    """Return the prices in a cell of the table, and other models by name."""
    plain_text, *parts = text.split("; ")
    plain, rates, models = plain_rate(price_table(plain_text)), [], {}
    for part in parts:
        name, _, prices = part.partition(": ")
        kind, word = name.split()
        if kind == "model":
            own = Prices(plain_rate(price_table(prices)))
            models[word] = Model(word, None, None, False, 0, ((0, own),))
            continue
        when = ((kind, int(word) if kind == "input_over" else word),)
        factor = re.fullmatch(r"factor (\S+)", prices)
        rates.append(
            conditional_rate(
                plain, when, parse_multiplier(factor[1]) if factor else price_table(prices)
            )
        )
    return Prices(plain, tuple(rates)), models


@pytest.mark.parametrize(("family", "prices", "report", "cost"), EXAMPLES)
def test_a_worked_example_comes_out(family, prices, report, cost):
    plain, models = model_prices(prices)
    body = json.dumps({**ANSWERS[family], **json.loads(report.strip("`"))}).encode()
    side = FAMILIES[family].upstream
    answer = side.read_answer(body, "m", "m", side.operations["generate"])
    delivery = Delivery(True, True, answer.usage, answer.reported, served=answer.served)
    call = a_call(
        family, prices=plain, attempt=Attempt(Candidate(CHANNEL, 0), NATIVE),
        snapshot=Snapshot(1, {}, models, ()),
    )  # fmt: skip
    bill = settle.bill_of(call, delivery, settle.Counts(answer.usage, "reported"))
    assert Decimal(format_money(bill.cost_nanos)) == Decimal(cost)


def test_all_examples_are_run():
    assert len(EXAMPLES) == 9
