"""How pages write numbers."""

import pytest

from handlers.hub.web.formats import brief, count, milliseconds, money, seconds, share, text_of_size


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0.0832632", "0.0833"),
        ("0", "0"),
        ("0.00000000", "0"),
        ("0.00004", "<0.0001"),
        ("0.00006", "0.0001"),
        ("1234.5", "1,234.5000"),
        ("-4.118", "−4.1180"),
        (None, "–"),
    ],
)
def test_money_in_lists(amount, text):
    assert money(amount) == text


def test_money_with_all_its_decimals():
    assert money("1234.000000001", None) == "1,234.000000001" and money("-0.5", None) == "−0.5"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (812, "812"),
        (9999, "9,999"),
        (52100, "52 k"),
        (9210000, "9.21 M"),
        (None, "–"),
        (3000000000, "3.00 G"),
    ],
)
def test_tokens_of_summaries(number, text):
    assert brief(number) == text


def test_a_share_is_never_rounded_up_to_all():
    assert [share(part) for part in (1, 0.999999, 0.9746, None)] == [
        "100.00",
        "99.99",
        "97.46",
        "–",
    ]


def test_others():
    assert (count(2752), seconds(38_614), seconds(None)) == ("2,752", "38.61", "–")
    assert [milliseconds(ms) for ms in (None, 0.38, 12.6, 5000)] == ["–", "0.4", "13", "5,000"]
    assert [text_of_size(n) for n in (812, 1536, 5 << 30)] == ["812 B", "1.5 KiB", "5.0 GiB"]
