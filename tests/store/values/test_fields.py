"""Field types: document value in, kept value out and back, and words of the command line."""

from decimal import Decimal

import pytest

from store.values import texts
from store.values.fields import (
    Boolean,
    Choice,
    HeaderMap,
    Instant,
    Integer,
    ListOf,
    ModelMap,
    Number,
    Optional,
    OptionMap,
    PriceTable,
    Sealed,
    Text,
)
from store.values.pricing import format_money, parse_money

NAME = Text(texts.name)
MONEY = Number(parse_money, format_money)
INTEGER = Integer(0, 10)
SEALED = Sealed("token")
OPTIONS = {"a": True, "b": 5, "c": "word", "d": ["x", "y"]}


@pytest.mark.parametrize(
    ("kind", "value", "kept", "plain"),
    [
        (NAME, "a", "a", "a"),
        (Choice(("a", "b")), "b", "b", "b"),
        (INTEGER, 10, 10, 10),
        (Boolean(), False, False, False),
        (MONEY, "2.50", 2_500_000_000, "2.5"),
        (MONEY, Decimal("0.1"), 100_000_000, "0.1"),
        (MONEY, Decimal("1e3"), 10**12, "1000"),
        (MONEY, 2, 2 * 10**9, "2"),
        (Optional(INTEGER), None, None, None),
        (Optional(INTEGER), 3, 3, 3),
        (ListOf(NAME), ["b", "a", "b"], ["b", "a"], ["b", "a"]),
        (ListOf(NAME), [], [], []),
        (ModelMap(), {"a/b": "C d"}, {"a/b": "C d"}, {"a/b": "C d"}),
        (Instant(), "2027-01-01T00:00:00Z", 1_798_761_600_000, "2027-01-01T00:00:00Z"),
        (Instant(), "2027-01-01T01:00:00.5+01:00", 1_798_761_600_500, "2027-01-01T00:00:00.500Z"),
        (Instant(), "9999-12-31T23:59:59.999Z", 253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (
            PriceTable(),
            {"output": 8, "input": "2"},
            {"output": 8 * 10**9, "input": 2 * 10**9},
            {"input": "2", "output": "8"},
        ),
        (OptionMap(), OPTIONS, OPTIONS, OPTIONS),
    ],
)
def test_values_and_back(kind, value, kept, plain):
    assert kind.parse(value) == kept
    assert kind.plain(kept) == plain


@pytest.mark.parametrize(
    ("kind", "value", "hint"),
    [
        (NAME, 1, "must be a string"),
        (Choice(("member", "admin")), "membr", 'did you mean "member"'),
        (Choice(("member", "admin")), None, "one of member, admin"),
        (INTEGER, 11, "between 0 and 10"),
        (INTEGER, -1, "between 0 and 10"),
        (INTEGER, "3", "whole number"),
        (INTEGER, True, "whole number"),
        (INTEGER, 3.0, "whole number"),
        (Boolean(), "true", "true or false"),
        (Boolean(), 1, "true or false"),
        (MONEY, "-1", "amount"),
        (MONEY, "1e3", "amount"),
        (MONEY, "0.0000000001", "9 decimals"),
        (MONEY, Decimal("1e999999999"), "out of range"),
        (MONEY, Decimal("NaN"), "decimal string"),
        (MONEY, True, "decimal string"),
        (MONEY, 2.5, "decimal string"),
        (MONEY, None, "decimal string"),
        (MONEY, "99999999999", "too large"),
        (ListOf(NAME), "a", "must be a list"),
        (ListOf(NAME), ["a", 1], "element 2 must be a string"),
        (ListOf(INTEGER), [0] * 10_001, "more than 10000"),
        (ModelMap(), [], "must be a table"),
        (ModelMap(), {"a b": "c"}, 'entry "a b"'),
        (ModelMap(), {"a": 1}, 'entry "a"'),
        (PriceTable(), "2", "must be a table"),
        (PriceTable(), {"inptu": "2"}, 'did you mean "input"'),
        (PriceTable(), {"input": "x"}, "input: 'x'"),
        (PriceTable(), {"input": None}, "always needed"),
        (Instant(), "2027-01-01", "like"),
        (Instant(), "2027-01-01T00:00:00", "like"),
        (Instant(), "2027-13-01T00:00:00Z", ""),
        (Instant(), 5, "like"),
        (Instant(), "1969-12-31T23:59:59Z", "1970 to 9999"),
        (Instant(), "9999-12-31T23:59:59-00:01", "1970 to 9999"),
        (Instant(), None, "like"),
        (HeaderMap(), ["x"], "must be a table"),
        (HeaderMap(), {"Host": "x"}, 'entry "Host" is set by the gateway itself'),
        (HeaderMap(), {"X-A": "1", "x-a": "2"}, 'entry "x-a" is given twice'),
        (HeaderMap(), {"x-a": 1}, "must be a string"),
        (HeaderMap(), {"x-a": ""}, "printable"),
        (HeaderMap(), {f"x-{n}": "1" for n in range(33)}, "more than 32"),
        (OptionMap(), [], "table of option"),
        (OptionMap(), {"x" * 129: 1}, "name of an option"),
        (OptionMap(), dict.fromkeys(map(str, range(33)), 1), "entries"),
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
        (INTEGER, "-7", -7),
        (INTEGER, "7x", "7x"),
        (Boolean(), "true", True),
        (Boolean(), "false", False),
        (Boolean(), "yes", "yes"),
        (MONEY, "2.5", "2.5"),
        (Optional(INTEGER), "", None),
        (Optional(INTEGER), "5", 5),
        (ListOf(NAME), "a, b,,c", ["a", "b", "c"]),
        (ListOf(NAME), "", []),
        (ModelMap(), "a=b,c", {"a": "b", "c": "c"}),
        (ModelMap(), "", {}),
        (HeaderMap(), "X-A=b=c, x-d=e", {"X-A": "b=c", "x-d": "e"}),
        (OptionMap(), "a=true, b=7,c=word,d=", {"a": True, "b": 7, "c": "word", "d": ""}),
    ],
)
def test_words_of_the_command_line(kind, word, value):
    assert kind.from_text(word) == value


def test_names_of_headers_become_small_and_what_is_sealed_stays_so():
    assert HeaderMap().parse({"X-A": "1", "x-b": SEALED}) == {"x-a": "1", "x-b": SEALED}
    assert "token" not in repr(SEALED)


@pytest.mark.parametrize(
    "odd", [None, {"b": 1}, [["x"]], Decimal("0.5"), "x" * 201], ids=lambda odd: repr(odd)[:20]
)
def test_options_are_words_numbers_flags_and_lists_of_words(odd):
    with pytest.raises(ValueError, match='entry "a" must be a word, a number'):
        OptionMap().parse({"a": odd})


def test_one_option_of_the_command_line_that_is_no_json_is_a_word():
    assert OptionMap().value_from_text("[" * 100_000) == "[" * 100_000
