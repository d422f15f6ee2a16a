"""Field types: document values, stored values and back, and texts of the command line."""

from decimal import Decimal

import pytest

from store.values import fields, texts
from store.values.price_fields import CostMap, PriceTable, RateList
from store.values.pricing import format_money, parse_money

NAME = fields.Text(texts.name)
MONEY = fields.Number(parse_money, format_money)
INTEGER = fields.Integer(0, 10)
SEALED = fields.Sealed("token")
OPTIONS = {"a": True, "b": 5, "c": "word", "d": ["x", "y"]}


@pytest.mark.parametrize(
    ("kind", "value", "kept", "plain"),
    [
        (NAME, "a", "a", "a"),
        (fields.Choice(("a", "b")), "b", "b", "b"),
        (INTEGER, 10, 10, 10),
        (fields.Boolean(), False, False, False),
        (MONEY, "2.50", 2_500_000_000, "2.5"),
        (MONEY, Decimal("1e3"), 10**12, "1000"),
        (fields.Optional(INTEGER), None, None, None),
        (fields.ListOf(NAME), ["b", "a", "b"], ["b", "a"], ["b", "a"]),
        (fields.ListOf(NAME), [], [], []),
        (fields.ModelMap(), {"a/b": "C d"}, {"a/b": "C d"}, {"a/b": "C d"}),
        (fields.Instant(), "2027-01-01T00:00:00Z", 1_798_761_600_000, "2027-01-01T00:00:00Z"),
        (
            fields.Instant(),
            "2027-01-01T01:00:00.5+01:00",
            1_798_761_600_500,
            "2027-01-01T00:00:00.500Z",
        ),
        (
            fields.Instant(),
            "9999-12-31T23:59:59.999Z",
            253_402_300_799_999,
            "9999-12-31T23:59:59.999Z",
        ),
        (
            PriceTable(),
            {"output": 8, "input": "2", "web_search": "0.01", "reasoning": None},
            {"call": 0, "input": 2 * 10**9, "output": 8 * 10**9, "web_search": 10**7},
            {"input": "2", "output": "8", "call": "0", "web_search": "0.01"},
        ),
        (
            RateList(),
            [
                {"when": {"input_over": 5, "tier": "Fast"}, "factor": "0.5"},
                {"when": {"geo": "US"}, "output": "3", "input": "1"},
            ],
            [
                {"when": {"tier": "priority", "input_over": 5}, "factor": 500_000},
                {"when": {"geo": "us"}, "prices": {"input": 10**9, "output": 3 * 10**9}},
            ],
            [
                {"when": {"tier": "priority", "input_over": 5}, "factor": "0.5"},
                {"when": {"geo": "us"}, "input": "1", "output": "3"},
            ],
        ),
        (fields.OptionMap(), OPTIONS, OPTIONS, OPTIONS),
        (
            CostMap(),
            {"m": {"output": "5", "input": "1"}},
            {"m": {"call": 0, "input": 10**9, "output": 5 * 10**9}},
            {"m": {"input": "1", "output": "5", "call": "0"}},
        ),
    ],
)
def test_values_and_back(kind, value, kept, plain):
    assert kind.parse(value) == kept
    assert kind.plain(kept) == plain


@pytest.mark.parametrize(
    ("kind", "value", "hint"),
    [
        (NAME, 1, "must be a string"),
        (fields.Choice(("member", "admin")), "membr", 'did you mean "member"'),
        (fields.Choice(("member", "admin")), None, "one of member, admin"),
        (INTEGER, 11, "between 0 and 10"),
        (INTEGER, -1, "between 0 and 10"),
        (INTEGER, "3", "whole number"),
        (INTEGER, True, "whole number"),
        (fields.Boolean(), "true", "true or false"),
        (fields.Boolean(), 1, "true or false"),
        (MONEY, "-1", "amount"),
        (MONEY, "0.0000000001", "9 decimals"),
        (MONEY, Decimal("1e999999999"), "out of range"),
        (MONEY, Decimal("NaN"), "decimal string"),
        (MONEY, True, "decimal string"),
        (MONEY, 2.5, "decimal string"),
        (MONEY, "99999999999", "too large"),
        (fields.ListOf(NAME), "a", "must be a list"),
        (fields.ListOf(NAME), ["a", 1], "element 2 must be a string"),
        (fields.ListOf(INTEGER), [0] * 10_001, "more than 10000"),
        (fields.ModelMap(), [], "must be a table"),
        (fields.ModelMap(), {"a b": "c"}, 'entry "a b"'),
        (fields.ModelMap(), {"a": 1}, 'entry "a"'),
        (PriceTable(), "2", "must be a table"),
        (PriceTable(), {"inptu": "2"}, 'did you mean "input"'),
        (PriceTable(), {"input": "x"}, "input: 'x'"),
        (PriceTable(), {"input": None}, "input is missing"),
        (RateList(), {"when": {}}, "must be a list"),
        (RateList(), [{"when": {}}], "rate 1: when needs a condition"),
        (RateList(), [{"when": {"teir": "a"}}], 'no condition "teir"; did you mean "tier"'),
        (RateList(), [{"when": {"tier": "a b"}}], "when: tier must be a word"),
        (RateList(), [{"when": {"input_over": -1}}], "when: input_over must be between"),
        (RateList(), [{"when": {"tier": "flex"}, "input": "1"}], "rate 1: output is missing"),
        (
            RateList(),
            [{"when": {"tier": "flex"}, "factor": "1", "call": "1"}],
            "factor and prices",
        ),
        (RateList(), [{"when": {"tier": "flex"}, "factor": "-1"}], "factor: multiplier -1"),
        (RateList(), [{"when": {"tier": "flex"}, "outptu": "1"}], 'did you mean "output"'),
        (fields.Instant(), "2027-01-01T00:00:00", "like"),
        (fields.Instant(), "2027-13-01T00:00:00Z", ""),
        (fields.Instant(), 5, "like"),
        (fields.Instant(), "1969-12-31T23:59:59Z", "1970 to 9999"),
        (fields.Instant(), "9999-12-31T23:59:59-00:01", "1970 to 9999"),
        (fields.HeaderMap(), ["x"], "must be a table"),
        (fields.HeaderMap(), {"Host": "x"}, 'entry "Host" is set by the gateway itself'),
        (fields.HeaderMap(), {"X-A": "1", "x-a": "2"}, 'entry "x-a" is given twice'),
        (fields.HeaderMap(), {"x-a": 1}, "must be a string"),
        (fields.HeaderMap(), {"x-a": ""}, "printable"),
        (fields.HeaderMap(), {f"x-{n}": "1" for n in range(33)}, "more than 32"),
        (fields.OptionMap(), [], "table of option"),
        (CostMap(), "m", "table of models"),
        (CostMap(), {"m": {"input": "1"}}, 'entry "m" output is missing'),
        (CostMap(), {"a b": {"input": "1", "output": "1"}}, 'entry "a b"'),
        (fields.OptionMap(), {"x" * 129: 1}, "name of an option"),
        (fields.OptionMap(), dict.fromkeys(map(str, range(33)), 1), "entries"),
    ],
)
def test_what_is_refused(kind, value, hint):
    with pytest.raises(ValueError) as caught:
        kind.parse(value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "word", "value"),
    [
        (NAME, "a", "a"),
        (INTEGER, "7", 7),
        (INTEGER, "7x", "7x"),
        (fields.Boolean(), "true", True),
        (fields.Boolean(), "yes", "yes"),
        (MONEY, "2.5", "2.5"),
        (fields.Optional(INTEGER), "", None),
        (fields.Optional(INTEGER), "5", 5),
        (fields.ListOf(NAME), "a, b,,c", ["a", "b", "c"]),
        (fields.ModelMap(), "a=b,c", {"a": "b", "c": "c"}),
        (fields.HeaderMap(), "X-A=b=c, x-d=e", {"X-A": "b=c", "x-d": "e"}),
        (fields.OptionMap(), "a=true, b=7,c=word,d=", {"a": True, "b": 7, "c": "word", "d": ""}),
    ],
)
def test_words_of_the_command_line(kind, word, value):
    assert kind.from_text(word) == value


def test_names_of_headers_become_small_and_what_is_sealed_stays_so():
    assert fields.HeaderMap().parse({"X-A": "1", "x-b": SEALED}) == {"x-a": "1", "x-b": SEALED}
    assert "token" not in repr(SEALED)


@pytest.mark.parametrize(
    "odd", [None, {"b": 1}, [["x"]], Decimal("0.5"), "x" * 201], ids=lambda odd: repr(odd)[:20]
)
def test_options_are_words_numbers_flags_and_lists_of_words(odd):
    with pytest.raises(ValueError, match='entry "a" must be a word, a number'):
        fields.OptionMap().parse({"a": odd})


def test_one_option_of_the_command_line_that_is_no_json_is_a_word():
    assert fields.OptionMap().value_from_text("[" * 100_000) == "[" * 100_000
