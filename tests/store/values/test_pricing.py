"""Money arithmetic: exact, rounded up once, refused beyond its limits."""

import decimal
import random
from decimal import Decimal
from fractions import Fraction
from math import ceil
from types import SimpleNamespace

import pytest

from store.calls.usage_queries import fault_of
from store.catalog.catalog import load_snapshot
from store.values.errors import Refused
from store.values.ids import now_ms, ulid
from store.values.pricing import (
    MAX_BIGINT,
    PRICE_NAMES,
    AmountError,
    Prices,
    affordable_tokens,
    bound_nanos,
    cost_nanos,
    format_money,
    format_multiplier,
    parse_money,
    parse_multiplier,
    parse_price,
    prices_from_json,
    prices_from_text,
)
from store.values.usage_record import SPARSE_COLUMNS, Charge, columns_of, to_public
from tests.support.usage_records import usage_record

pytestmark = pytest.mark.databases("sqlite")

FREE = Prices(0, 0, 0, 0, 0, 0, 0)


COUNT_OF_PRICE = {name: f"{name}_tokens" for name in PRICE_NAMES if name != "call"}
MILLION = 10**6


def tokens_of(*counts):
    """Counts in the order of their prices; those that are left out are 0."""
    padded = [*counts, *[0] * (len(COUNT_OF_PRICE) - len(counts))]
    return SimpleNamespace(**dict(zip(COUNT_OF_PRICE.values(), padded, strict=True)))


def test_each_count_has_its_own_price():
    prices = Prices(1, 10, 100, 1_000, 10_000, 100_000, 7)
    tokens = tokens_of(*(number * MILLION for number in range(1, 7)))
    assert cost_nanos(tokens, prices, MILLION) == 654_321 + 7


@pytest.mark.parametrize(
    ("counts", "multiplier_ppm", "nanos"),
    [
        ([1], MILLION, 1),
        # Two counts of half a nano make one nano, not two.
        ([500_000, 500_000], MILLION, 1),
        ([500_000, 500_001], MILLION, 2),
        ([], MILLION, 0),
        ([MILLION], 1, 1),
    ],
)
def test_cost_is_rounded_up_once_and_never_down(counts, multiplier_ppm, nanos):
    one_nano = Prices(1, 1, 0, 0, 0, 0, 0)
    assert cost_nanos(tokens_of(*counts), one_nano, multiplier_ppm) == nanos


def test_cost_is_exact_for_random_calls():
    rng = random.Random(1)
    for _ in range(2_000):
        prices = Prices(*(rng.choice((0, rng.randrange(10**12))) for _ in PRICE_NAMES))
        tokens = tokens_of(*(rng.randrange(10**7) for _ in range(6)))
        ppm = rng.randrange(10**8)
        parts = [getattr(tokens, c) * getattr(prices, p) for p, c in COUNT_OF_PRICE.items()]
        exact = (Fraction(sum(parts), MILLION) + prices.call) * Fraction(ppm, MILLION)
        assert cost_nanos(tokens, prices, ppm) == ceil(exact)


def recorded(tokens, prices, ppm):
    """The row of a call that was charged to the wallet, and what the public sees of it."""
    cost = cost_nanos(tokens, prices, ppm)
    record = usage_record(
        **{"id": ulid(0, bytes(10)), "started_ms": 0, "usage_source": "reported"},
        **{"prices": prices.json, "multiplier_ppm": ppm, "cost_nanos": cost},
        **{"charges": (Charge("wallet", cost),)} | vars(tokens),
    )
    columns = columns_of([record], 0)
    row = SPARSE_COLUMNS | {name: values[0] for name, values in columns.items()}
    return row, to_public(row)


def exact_cost(public):
    """The cost by the public fields alone, in decimal arithmetic that rounds once, up."""
    with decimal.localcontext(decimal.Context(prec=200)) as context:
        context.traps[decimal.Inexact] = True
        prices = {name: Decimal(text) for name, text in public["prices"].items()}
        cost = prices["call"]
        for name, count in COUNT_OF_PRICE.items():
            cost += public[count] * prices[name] / 10**6
        cost *= Decimal(public["multiplier"])
        context.traps[decimal.Inexact] = False
        return cost.quantize(Decimal("1e-9"), decimal.ROUND_CEILING)


def random_price(rng):
    """Any number of digits up to 12, a third of them 0."""
    return rng.choice((0, rng.randrange(10 ** rng.randint(1, 12)), rng.randrange(10**4)))


def test_the_public_record_says_exactly_what_was_charged():
    rng = random.Random(3)
    for _ in range(2_000):
        prices = Prices(*(random_price(rng) for _ in PRICE_NAMES))
        tokens = tokens_of(*(rng.randrange(10 ** rng.randint(1, 7)) for _ in range(6)))
        row, public = recorded(tokens, prices, rng.randrange(10 ** rng.randint(1, 8)))
        assert Decimal(public["cost"]) == exact_cost(public)
        assert public["charges"] == [{"to": "wallet", "amount": public["cost"]}]
        assert fault_of(row) is None


@pytest.mark.parametrize("name", PRICE_NAMES)
def test_every_kind_is_charged_and_recorded(name):
    given = dict.fromkeys(PRICE_NAMES, 3 * 10**9)
    prices = Prices(**given)
    dearer = Prices(**{**given, name: given[name] + 10**9})
    tokens = tokens_of(*([2_000_000] * 6))
    times = 1 if name == "call" else 2
    assert cost_nanos(tokens, dearer, 10**6) - cost_nanos(tokens, prices, 10**6) == times * 10**9
    row, public = recorded(tokens, dearer, 1_500_000)
    assert public["prices"] == {**dict.fromkeys(PRICE_NAMES, "3"), name: "4"}
    assert public["multiplier"] == "1.5"
    assert Decimal(public["cost"]) == exact_cost(public)
    # A record with another price, or another count, does not fit its cost.
    assert "recomputed" in fault_of({**row, "prices": prices.json})
    if name != "call":
        assert "recomputed" in fault_of({**row, COUNT_OF_PRICE[name]: 1_999_999})


def test_a_new_price_never_changes_the_past(editor, applied, database, cipher):
    def model():
        return load_snapshot(database, cipher).models["gpt-4.1"]

    before = model()
    changed = {"price.cache_write_1h": "3.2", "price.call": "0.01"}
    assert editor.change("model", "gpt-4.1", changed).changes
    after = model()
    assert after.prices[:-1] == before.prices
    new_ms, new = after.prices[-1]
    old_ms, old = before.prices[-1]
    assert old_ms < new_ms
    assert after.prices_at(old_ms) == after.prices_at(new_ms - 1) == old
    assert after.prices_at(max(new_ms, now_ms())) == new
    assert (new.cache_write_1h, new.call) == (3_200_000_000, 10_000_000)
    assert (new.input, new.cache_read, new.cache_write) == (old.input, old.cache_read, old.input)


def test_a_model_is_free_on_purpose_only(editor, applied, read, database, cipher):
    with pytest.raises(Refused, match="price"):
        editor.apply(read('[[model]]\nname = "none"\n'))
    with pytest.raises(Refused, match="price"):
        editor.apply(read('[[model]]\nname = "none"\n[model.price]\ncall = "0"\n'))
    document = '[[model]]\nname = "free"\n[model.price]\ninput = "0"\noutput = "0"\n'
    editor.apply(read(document))
    models = load_snapshot(database, cipher).models
    assert "none" not in models and models["free"].prices[0][1] == FREE
    assert cost_nanos(tokens_of(*([10**9] * 6)), FREE, 10**6) == 0
    assert bound_nanos(10**9, 10**9, FREE, 10**6) == 0


@pytest.mark.parametrize("dear", COUNT_OF_PRICE)
def test_a_bound_is_the_cost_of_the_dearest_kinds(dear):
    prices = Prices(**{**dict.fromkeys(PRICE_NAMES, 1), dear: 50, "call": 3})
    inputs, outputs = (1, 100) if dear in ("output", "reasoning") else (50, 2)
    bound = bound_nanos(MILLION, 2 * MILLION, prices, 2 * MILLION)
    assert bound == 2 * (inputs + outputs + 3)


def test_no_mix_of_kinds_costs_more_than_the_bound():
    rng = random.Random(2)
    for _ in range(500):
        prices = Prices(*(rng.randrange(10**12) for _ in PRICE_NAMES))
        tokens = tokens_of(*(rng.randrange(10**7) for _ in range(6)))
        outputs = tokens.output_tokens + tokens.reasoning_tokens
        inputs = tokens.input_tokens + tokens.cache_read_tokens
        inputs += tokens.cache_write_tokens + tokens.cache_write_1h_tokens
        bound = bound_nanos(inputs, outputs, prices, 1_500_000)
        assert cost_nanos(tokens, prices, 1_500_000) <= bound


def test_how_many_tokens_an_amount_pays_for():
    prices, ppm = Prices(0, 3 * 10**9, 0, 0, 0, 0, 0), 1_500_000
    for nanos in (0, 1, 4499, 4500, 10**9):
        tokens = affordable_tokens(nanos, prices.output, ppm)
        assert (
            bound_nanos(0, tokens, prices, ppm) <= nanos < bound_nanos(0, tokens + 1, prices, ppm)
        )
    assert affordable_tokens(-4500, prices.output, ppm) == -1
    assert affordable_tokens(0, 0, ppm) == affordable_tokens(5, 7, 0) == MAX_BIGINT


def test_overflow_and_negative_counts_are_errors():
    dear = Prices(MAX_BIGINT, 0, 0, 0, 0, 0, 0)
    assert cost_nanos(tokens_of(10**6), dear, 10**6) == MAX_BIGINT
    with pytest.raises(OverflowError):
        cost_nanos(tokens_of(10**6 + 1), dear, 10**6)
    with pytest.raises(OverflowError):
        bound_nanos(MAX_BIGINT, 0, Prices(2 * 10**6, 0, 0, 0, 0, 0, 0), 10**6)
    with pytest.raises(ValueError, match="negative"):
        cost_nanos(tokens_of(-(10**6)), dear, 10**6)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("1", 10**9),
        ("12.50", 12_500_000_000),
        ("0.000000001", 1),
        ("007.1", 7_100_000_000),
        ("9223372036.854775807", MAX_BIGINT),
    ],
)
def test_money_is_read_exactly(text, nanos):
    assert parse_money(text) == nanos
    assert parse_price(text) == nanos
    assert parse_money(format_money(nanos)) == nanos


NO_AMOUNTS = ["", "-", "--1", "+1", ".5", "5.", "1e3", "1,5", " 1", "1 ", "1_0", "NaN", "٣"]


@pytest.mark.parametrize("text", [*NO_AMOUNTS, "1.2.3", "0x", "1\n"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(AmountError, match="no amount"):
        parse_money(text)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_money, "0.0000000010", "more than 9 decimals"),
        (parse_multiplier, "1.0000001", "more than 6 decimals"),
        (parse_money, "9223372036.854775808", "too large"),
        (parse_price, "9" * 5_000, "no price"),
        (parse_price, "-1.5", r"price -1\.5 must not be negative"),
    ],
    ids=["fine", "finer", "large", "larger", "negative"],
)
def test_too_fine_and_too_large_are_refused(parse, text, message):
    with pytest.raises(AmountError, match=message):
        parse(text)


def test_formats_are_canonical():
    texts = [format_money(n) for n in (0, 10**9, 2_500_000_000, 1, -1, -(10**10), 10**18)]
    assert texts == ["0", "1", "2.5", "0.000000001", "-0.000000001", "-10", "1000000000"]
    assert format_multiplier(parse_multiplier("1.50")) == "1.5"
    assert format_multiplier(1) == "0.000001"


def test_prices_survive_their_texts():
    prices = Prices(2 * 10**9, 8 * 10**9, 5 * 10**8, 1, 2, 3, 4)
    assert prices.json.startswith('{"input":"2","output":"8","cache_read":"0.5",')
    assert prices.text.startswith("2 8 0.5 0.000000001 ")
    assert prices_from_json(prices.json) == prices_from_text(prices.text) == prices


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((prices_from_text, text) for text in ("", "2 8", FREE.text + " 0", FREE.text + "x")),
        *((prices_from_json, text) for text in ("", "[]", '{"input":"1"}', FREE.text)),
        (prices_from_text, FREE.json),
        (prices_from_json, FREE.json.replace('"0"', "0")),
    ],
)
def test_broken_texts_of_prices_are_refused(read, text):
    with pytest.raises(AmountError):
        read(text)


def test_prices_must_fit():
    with pytest.raises(AmountError, match="price input"):
        Prices(-1, 0, 0, 0, 0, 0, 0)
    with pytest.raises(AmountError, match="price call"):
        Prices(0, 0, 0, 0, 0, 0, MAX_BIGINT + 1)
