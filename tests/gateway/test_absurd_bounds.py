"""Requests for very much output: refused at once, or held for what the wallet has.

They never cause an internal error or wrong amounts.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.support import dialects
from tests.support.client import exchange, wait_until
from tests.support.documents import PRICE, channel
from tests.support.wallets import check_charged, check_free, joined, owners, secret_of

CREDIT = "1.000000003"
PRICED, FREE, INPUT_ONLY = "priced", "free", "input-only"
MOST = 2**31  # the highest number that may be requested
BOUNDS = {
    dialects.CHAT: "max_completion_tokens", dialects.RESPONSES: "max_output_tokens",
    dialects.MESSAGES: "max_tokens", dialects.GENERATE: "max_output_tokens",
}  # fmt: skip
CHOICES = {dialects.CHAT: "n", dialects.GENERATE: "candidateCount"}
# JSON texts, and whether the gateway refuses them. Others go to the vendor, which may refuse them.
VALUES = {
    "9223372036854775808": True, "1e18": True, "1e400": True, "-9223372036854775809": True,
    str(MOST + 1): True, str(MOST): False, "0": False, "null": False,
}  # fmt: skip
CASES = [
    (family, name, value)
    for fields in (BOUNDS, CHOICES)
    for family, name in fields.items()
    for value in VALUES
]
# The cheap bound assumes a token for 2 bytes of text, the estimate one for about 4.
TEXT = "the quick brown fox jumps over the lazy dog " * 500
ENOUGH, TOO_LITTLE = "8", "3"  # at 0.001 a token


def owner_of(case):
    """Return the name of the case's owner; each case has a wallet of its own."""
    return f"owner-{CASES.index(case)}"


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    prices = {PRICED: PRICE, FREE: {"input": "0", "output": "0"},
              INPUT_ONLY: {"input": "1000", "output": "0"}}  # fmt: skip
    models = dict.fromkeys(prices, "demo-small")
    made = {
        "model": [{"name": name, "price": price} for name, price in prices.items()],
        "group": [{"name": "all"}],
        "channel": [channel(f, f, vendor.url, models) for f in dialects.ALL],
    }
    people = [
        owners([*map(owner_of, CASES)], CREDIT),
        owners(["rich"], ENOUGH),
        owners(["poor"], TOO_LITTLE),
        owners(["pauper"], "0"),
    ]
    return launch(joined(made, *people), shared=False)


def body_with(family, model=PRICED, **numbers):
    """Return the body of a call with these numbers, each in its JSON spelling."""
    body = dialects.ask(family, model)
    place = body["generationConfig"] if family == dialects.GENERATE else body
    for name in ("maxOutputTokens", "max_tokens"):
        if name != BOUNDS[family] and BOUNDS[family] in numbers:
            place.pop(name, None)
    place.update({name: f"@{name}@" for name in numbers})
    text = json.dumps(body)
    for name, value in numbers.items():
        text = text.replace(f'"@{name}@"', value)
    return text.encode()


def post(gateway, family, owner, body, model=PRICED):
    headers = dialects.credentials(family, secret_of(owner))
    return exchange(gateway.port, "POST", dialects.path_of(family, model), headers, body)


def send(gateway, family, owner, prompt, model=PRICED):
    return post(gateway, family, owner, dialects.ask(family, model, prompt), model)


@pytest.fixture(scope="module")
def answered(gateway):
    def call(case):
        family, name, value = case
        return post(gateway, family, owner_of(case), body_with(family, **{name: value}))

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(CASES, pool.map(call, CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_an_absurd_number_is_refused_or_bounded(case, gateway, wallets, answered):
    family, name, value = case
    answer, owner = answered[case], owner_of(case)
    record = gateway.record(answer.call_id)
    if VALUES[value]:
        assert name in dialects.check_refusal(answer, family, "E12")
        assert record["outcome"] == "refused" and record["attempts"] == []
        check_free(record)
    elif answer.status != 200:
        dialects.check_refusal(answer, family, "E22")
        assert record["outcome"] == "upstream_error"
        check_free(record)
    else:
        assert record["outcome"] == "ok"
        assert 0 < check_charged(record) < Decimal(CREDIT)
    wallets.check(owner, CREDIT, [record])


@pytest.mark.parametrize(("model", "number"), [(PRICED, "E12"), (FREE, "E22")])
@pytest.mark.parametrize("family", CHOICES)
def test_numbers_that_only_together_are_beyond_all_money(family, model, number, gateway, wallets):
    numbers = {BOUNDS[family]: str(MOST), CHOICES[family]: str(MOST)}
    answer = post(gateway, family, "pauper", body_with(family, model, **numbers), model)
    dialects.check_refusal(answer, family, number)
    check_free(gateway.record(answer.call_id))
    assert wallets.balance("pauper") == "0"


def test_a_call_is_counted_better_before_it_is_refused(gateway, wallets):
    assert len(TEXT) // 2 * Decimal("0.001") > Decimal(ENOUGH)
    answer = send(gateway, dialects.CHAT, "rich", TEXT, INPUT_ONLY)
    assert answer.status == 200, answer.body
    wallets.check("rich", ENOUGH, [gateway.record(answer.call_id)])
    dialects.check_refusal(
        send(gateway, dialects.CHAT, "poor", TEXT, INPUT_ONLY), dialects.CHAT, "E18"
    )


def test_the_books_are_right_after_all_that(gateway, answered):
    assert wait_until(lambda: len(gateway.usage()) >= len(CASES), step_s=0.3)
    gateway.run("usage", "verify")
    gateway.run("books", "verify")
    assert "Traceback" not in gateway.log()
