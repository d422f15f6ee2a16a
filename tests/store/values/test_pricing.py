"""Money arithmetic: exact, rounded up once, refused beyond its limits; the choice of a rate."""

import decimal
import random
from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest

from store.calls.usage_queries import cost_lines, fault_of
from store.catalog.catalog import load_snapshot
from store.values.errors import Refused
from store.values.ids import now_ms, ulid
from store.values.meters import METERS, MILLION, TOKEN_METERS, USE_METERS
from store.values.pricing import (
    FRACTIONS_PER_NANO,
    MAX_BIGINT,
    AmountError,
    Prices,
    affordable_tokens,
    conditional_rate,
    cost_nanos,
    format_fractions,
    format_money,
    format_multiplier,
    parse_fractions,
    parse_money,
    parse_multiplier,
    parse_price,
    plain_rate,
    rate_of_text,
    rounded_up,
)
from store.values.usage import SIDES, Extras, OtherUsage, Served, Usage, more_counts
from store.values.usage_record import COLUMNS, Charge, OtherCost, Receipt, columns_of, to_public
from tests.support.prices import rate_of
from tests.support.usage_records import usage_record

pytestmark = pytest.mark.databases("sqlite")

FREE = plain_rate({"input": 0, "output": 0})
PLAIN = plain_rate({"input": 2 * 10**9, "output": 8 * 10**9, "cache_read": 5 * 10**8})
FLEX = (("tier", "flex"),)


def usage_of(counts):
    """Return a usage of counts by meter."""
    more = {name: count for name, count in counts.items() if name not in SIDES}
    return Usage(*(counts.get(name, 0) for name in SIDES), more_counts(more))


def random_price(rng):
    """Return a random price with up to 12 digits; a third of them are 0."""
    return rng.choice((0, rng.randrange(10 ** rng.randint(1, 12)), rng.randrange(10**4)))


def random_rate(rng):
    """Return a rate with any meters priced: the plain one, one with a factor, or one with prices
    of its own."""
    names = ["input", "output", *rng.sample([*METERS][2:], rng.randrange(12))]
    plain = plain_rate({name: random_price(rng) for name in METERS if name in names})
    kind = rng.randrange(3)
    if kind == 0:
        return plain
    return conditional_rate(plain, FLEX, rng.randrange(10**7) if kind == 1 else plain.prices)


def random_counts(rng):
    names = rng.sample([name for name in METERS if name != "call"], rng.randrange(1, 12))
    most = {name: 7 if name in TOKEN_METERS else 2 for name in names}
    counts = {name: rng.randrange(1, 10 ** rng.randint(1, digits)) for name, digits in most.items()}
    return {name: counts[name] for name in METERS if name in counts}


def exact_cost(rate, counts):
    """Return the cost in nanos as a fraction, before the multiplier."""
    parts = {**counts, "call": 1}
    return sum(
        Fraction(count * rate.prices.get(name, 0), METERS[name].unit * rate.scale)
        for name, count in parts.items()
    )


@pytest.mark.parametrize("name", METERS)
def test_every_meter_has_its_own_price(name):
    prices = dict.fromkeys(METERS, 3 * 10**9)
    dearer = plain_rate({**prices, name: 4 * 10**9})
    count = 1 if name == "call" else 2 * METERS[name].unit
    counts = {} if name == "call" else {name: count}
    difference = cost_nanos(usage_of(counts), dearer, MILLION) - cost_nanos(
        usage_of(counts), plain_rate(prices), MILLION
    )
    assert difference == (1 if name == "call" else 2) * 10**9
    row, public = recorded(counts, dearer, 1_500_000)
    assert public["meters"] == counts
    assert public["prices"] == {
        **dict.fromkeys(counts, "4"),
        "call": "4" if name == "call" else "3",
    }
    assert fault_of(row) is None
    # A record with another price does not match its cost.
    assert "recomputed" in fault_of({**row, "prices": row["prices"].replace("4", "5")})


@pytest.mark.parametrize("name", METERS)
def test_a_meter_without_a_price_falls_to_the_next_of_its_chain(name):
    rate, chain = PLAIN, {"cache_write_1h": 2, "cache_read_audio": 0.5, "reasoning": 8}
    expected = {"input": 2, "output": 8, "cache_read": 0.5, "cache_write": 2} | chain
    expected |= dict.fromkeys(("input_audio", "input_image", "input_video"), 2)
    expected |= dict.fromkeys(("output_audio", "output_image"), 8)
    assert rate.fractions(name) == expected.get(name, 0) * 10**9 * FRACTIONS_PER_NANO // MILLION


@pytest.mark.parametrize(
    ("counts", "multiplier_ppm", "nanos"),
    [
        ([1], MILLION, 1),
        # Two counts of half a nano add up to one nano, not two.
        ([500_000, 500_000], MILLION, 1),
        ([500_000, 500_001], MILLION, 2),
        ([], MILLION, 0),
        ([MILLION], 1, 1),
    ],
)
def test_cost_is_rounded_up_once_and_never_down(counts, multiplier_ppm, nanos):
    assert cost_nanos(Usage(*counts), rate_of(1, 1, 0, 0, 0, 0, 0), multiplier_ppm) == nanos


def test_cost_is_exact_for_random_calls():
    rng = random.Random(1)
    for _ in range(2_000):
        rate, counts, ppm = random_rate(rng), random_counts(rng), rng.randrange(10**7)
        others = rng.choice((0, rng.randrange(10**25)))
        exact = (exact_cost(rate, counts) + Fraction(others, FRACTIONS_PER_NANO)) * Fraction(
            ppm, MILLION
        )
        assert cost_nanos(usage_of(counts), rate, ppm, others) == ceil(exact)


def recorded(counts, rate, ppm, others=()):
    """Return the row of a call that was charged to the wallet, and its public form."""
    usage, beside = usage_of(counts), sum(parse_fractions(other.cost) for other in others)
    cost = cost_nanos(usage, rate, ppm, beside)
    record = usage_record(
        **{"id": ulid(0, bytes(10)), "started_ms": 0, "usage_source": "reported"},
        **{"prices": "input=1 output=1", "multiplier_ppm": ppm, "cost_nanos": cost},
        charges=(Charge("wallet", cost),),
        receipt=Receipt(rate.text, other_models=others),
    )
    record.usage = usage
    columns = columns_of([record], 0)
    row = dict.fromkeys(COLUMNS) | dict.fromkeys(("cache_write_tokens", "cache_write_1h_tokens"), 0)
    row |= {name: values[0] for name, values in columns.items()}
    return row, to_public(row)


def cost_of_public(public):
    """Return the cost from the public fields alone, in decimal arithmetic that rounds up once."""
    with decimal.localcontext(decimal.Context(prec=200)) as context:
        context.traps[decimal.Inexact] = True
        prices = {name: Decimal(text) for name, text in public["prices"].items()}
        cost = prices.get("call", Decimal(0))
        for name, count in public["meters"].items():
            cost += count * prices[name] / METERS[name].unit
        cost += sum(Decimal(other["cost"]) for other in public["other_models"])
        cost *= Decimal(public["multiplier"])
        context.traps[decimal.Inexact] = False
        return cost.quantize(Decimal("1e-9"), decimal.ROUND_CEILING)


def test_the_public_record_has_all_that_the_charge_follows_from():
    rng = random.Random(3)
    for number in range(2_000):
        others = (OtherCost("m", Usage(1), format_fractions(rng.randrange(10**24))),)
        ppm = rng.randrange(10 ** rng.randint(1, 7))
        rate, counts = random_rate(rng), random_counts(rng)
        row, public = recorded(counts, rate, ppm, others[: number % 2])
        assert Decimal(public["cost"]) == cost_of_public(public)
        assert public["charges"] == [{"to": "wallet", "amount": public["cost"]}]
        assert public["meters"] == counts and public["rate"] == dict(rate.when)
        assert fault_of(row) is None
        lines = sum(Decimal(line["amount"]) for line in cost_lines(row))
        assert lines == Decimal(format_fractions(rate.cost(usage_of(counts)))) + sum(
            Decimal(other.cost) for other in others[: number % 2]
        )


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
    changed_prices = {"cache_write_1h": 3_200_000_000, "call": 10_000_000}
    assert new.plain.prices == {**old.plain.prices, **changed_prices}


def test_a_model_is_free_on_purpose_only(editor, applied, read, database, cipher):
    with pytest.raises(Refused, match="price"):
        editor.apply(read('[[model]]\nname = "none"\n'))
    with pytest.raises(Refused, match="price"):
        editor.apply(read('[[model]]\nname = "none"\n[model.price]\ncall = "0"\n'))
    document = '[[model]]\nname = "free"\n[model.price]\ninput = "0"\noutput = "0"\n'
    editor.apply(read(document))
    models = load_snapshot(database, cipher).models
    assert "none" not in models and models["free"].prices[0][1].plain.prices == FREE.prices | {
        "call": 0
    }
    assert cost_nanos(Usage(*([10**9] * 6)), FREE, 10**6) == 0
    assert FREE.bound(10**9, 10**9) == 0


def test_a_bound_covers_every_mix_of_kinds():
    rng = random.Random(2)
    media = ("input_audio", "input_image", "input_video", "cache_read_audio", "output_image")
    for _ in range(1_000):
        rate = random_rate(rng)
        names = rng.sample((*SIDES, *media), 5)
        usage = usage_of({name: rng.randrange(10**7) for name in names})
        assert rate.cost(usage) <= rate.bound(usage.inputs, usage.outputs, media)
        if not usage.more:
            assert rate.cost(usage) <= rate.bound(usage.inputs, usage.outputs)


@pytest.mark.parametrize("dear", SIDES)
def test_a_bound_is_the_cost_of_the_dearest_kind(dear):
    rate = plain_rate({**dict.fromkeys(SIDES, 1), dear: 50, "call": 3})
    inputs, outputs = (1, 100) if dear in ("output", "reasoning") else (50, 2)
    assert rounded_up(rate.bound(MILLION, 2 * MILLION), 2 * MILLION) == 2 * (inputs + outputs + 3)


def test_how_many_tokens_an_amount_pays_for():
    rate, ppm = rate_of(0, 3 * 10**9, 0, 0, 0, 0, 0), 1_500_000
    each = rate.dearest_output
    for nanos in (0, 1, 4499, 4500, 10**9):
        tokens = affordable_tokens(nanos, each, ppm)
        assert rounded_up(tokens * each, ppm) <= nanos < rounded_up((tokens + 1) * each, ppm)
    assert affordable_tokens(-4500, each, ppm) == -1
    assert affordable_tokens(0, 0, ppm) == affordable_tokens(5, 7, 0) == MAX_BIGINT


def test_overflow_and_negative_counts_are_errors():
    dear = rate_of(MAX_BIGINT, 0, 0, 0, 0, 0, 0)
    assert cost_nanos(Usage(10**6), dear, 10**6) == MAX_BIGINT
    with pytest.raises(OverflowError):
        cost_nanos(Usage(10**6 + 1), dear, 10**6)
    with pytest.raises(ValueError, match="negative"):
        cost_nanos(Usage(-(10**6)), dear, 10**6)


def whole(when, input_, output):
    """Return a rate with prices of its own beside PLAIN."""
    return conditional_rate(PLAIN, tuple(when.items()), {"input": input_, "output": output})


FAST, US = {"speed": "fast"}, {"geo": "us"}
PRIORITY, OVER = {"tier": "priority"}, {"input_over": 200}
BOTH = Served("priority", "fast", "us")


@pytest.mark.parametrize(
    ("rates", "usage", "served", "chosen"),
    [
        pytest.param([PRIORITY], Usage(1), Served("default"), {}, id="none meets"),
        pytest.param([PRIORITY], Usage(1), BOTH, PRIORITY, id="one meets"),
        pytest.param([FAST, US | PRIORITY], Usage(1), BOTH, PRIORITY | US, id="most conditions"),
        pytest.param([OVER], Usage(200), BOTH, {}, id="not over"),
        pytest.param([OVER], Usage(1, 0, 200), BOTH, OVER, id="cached ones count"),
        pytest.param([OVER], Usage(201, extras=Extras(1)), BOTH, {}, id="apart ones do not"),
        pytest.param([FAST, US], Usage(1), BOTH, FAST, id="equals: the first"),
    ],
)
def test_one_rate_is_chosen_by_what_was_served(rates, usage, served, chosen):
    prices = Prices(PLAIN, tuple(whole(when, 10, 10) for when in rates))
    assert dict(prices.rate_for(usage, served).when) == chosen


@pytest.mark.parametrize(("usage", "chosen"), [(Usage(9, 1), FAST), (Usage(1, 9), US)])
def test_of_equal_rates_the_one_that_makes_the_call_dearer(usage, chosen):
    prices = Prices(PLAIN, (whole(FAST, 10, 2), whole(US, 2, 10)))
    assert dict(prices.rate_for(usage, BOTH).when) == chosen


def test_a_rate_of_whole_prices_has_a_chain_of_its_own_and_the_plain_uses():
    plain = plain_rate(
        {"input": 2, "output": 8, "cache_read": 1, "output_image": 60, "web_search": 5, "call": 3}
    )
    rate = conditional_rate(plain, FLEX, {"input": 4, "output": 16, "web_fetch": 7})
    expected = {"cache_read": 4, "output_image": 16, "web_search": 5, "web_fetch": 7, "call": 3}
    assert {name: rate.prices[name] for name in expected} == expected
    assert "output_image" not in rate.own and {"web_search", "web_fetch"} <= rate.own


def test_a_factor_is_of_tokens_alone_and_not_rounded():
    plain = plain_rate({"input": 1, "output": 123456789, "web_search": 5, "call": 3})
    rate = conditional_rate(plain, FLEX, 550_000)
    assert rate.price_text("output") == "0.06790123395"
    assert rate.price_text("web_search") == "0.000000005"
    assert rate.cost(usage_of({"web_search": 2})) == plain.cost(usage_of({"web_search": 2}))
    ratios = {rate.fractions(name) / plain.fractions(name) for name in TOKEN_METERS}
    assert ratios == {0.55} and not set(TOKEN_METERS) & set(USE_METERS)


def test_a_hold_reaches_the_asked_and_the_default_conditions():
    prices = Prices(PLAIN, tuple(whole(when, 9, 9) for when in (PRIORITY, OVER, FAST, US)))

    def reached(conditions, inputs=0, tiers=()):
        return [dict(rate.when) for rate in prices.reachable(conditions, inputs, tiers)]

    assert reached(Served()) == [{}]
    assert reached(Served(), 201) == [{}, OVER]
    assert reached(Served("priority", "fast")) == [{}, PRIORITY, FAST]
    assert reached(Served(), 0, ["priority"]) == [{}, PRIORITY]
    assert reached(Served("default"), 0, ["priority"]) == [{}]


def test_rates_survive_their_texts():
    rng = random.Random(4)
    for _ in range(300):
        rate = random_rate(rng)
        again = rate_of_text(rate.text)
        assert again == rate and again.text == rate.text
    over = conditional_rate(PLAIN, (("tier", "flex"), ("input_over", 7)), 500_000)
    assert over.text == "*0.5 input=2 output=8 cache_read=0.5 ?tier=flex ?input_over=7"
    assert rate_of_text(over.text) == over
    older = rate_of_text("2 8 0.5 2 3.2 8 0.001")  # from a journal written before there were rates
    assert older.prices["cache_write_1h"] == 3_200_000_000 and older.call == 10**6 * 10**12


@pytest.mark.parametrize(
    "text",
    ["", "2 8", "input=1", "input=1 output=x", "input=1 output=2 wine=3", "?teir=a", "*z", "{}"],
)
def test_broken_texts_of_rates_are_refused(text):
    with pytest.raises(AmountError):
        rate_of_text(text)


def test_prices_must_fit():
    with pytest.raises(AmountError, match="price input"):
        rate_of(-1, 0, 0, 0, 0, 0, 0)
    with pytest.raises(AmountError, match="price call"):
        rate_of(0, 0, 0, 0, 0, 0, MAX_BIGINT + 1)


def test_usages_add_up_and_keep_their_sides():
    one = usage_of({"input": 1, "input_audio": 2, "cache_read_audio": 3, "web_search": 4})
    both = one.plus(usage_of({"output": 5, "output_image": 6, "web_search": 1}))
    assert both.meters == {
        **{"input": 1, "output": 5, "input_audio": 2, "cache_read_audio": 3, "output_image": 6},
        "web_search": 5,
    }
    assert (both.inputs, both.outputs, both.summed) == (6, 11, (3, 11, 3, 0, 0, 0))
    extras = Extras(other_models=(OtherUsage("m", one, "advisor"),))
    assert Usage(1, extras=extras).bare() == Usage(1)


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
