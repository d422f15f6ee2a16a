"""Requests that ask for much: refused for good, or held for what there is.

Never an error of ours, never money that is wrong.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    ask,
    check_refusal,
    credentials,
    path_of,
)
from tests.support.documents import PRICE, channel
from tests.support.wallets import check_charged, check_free, joined, owners, secret_of

CREDIT = "1.000000003"
PRICED, FREE, INPUT_ONLY, NARROW, MIXED = "priced", "free", "input-only", "narrow", "mixed"
MOST = 2**31  # what may be asked for
BOUNDS = {CHAT: "max_completion_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens",
          GENERATE: "max_output_tokens"}  # fmt: skip
CHOICES = {CHAT: "n", GENERATE: "candidateCount"}
# JSON text: whether it is refused here. What is not goes to the vendor, who may refuse it.
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
# The cheap bound of a text is a token for 2 bytes, the estimate one for about 4.
TEXT = "the quick brown fox jumps over the lazy dog " * 500
ENOUGH, TOO_LITTLE = "8", "3"  # at 0.001 a token
TPM = 1000
LARGE = "word " * 1000  # some 1250 tokens
LIMITED = {
    "limited": {"tpm": TPM},
    "several": {"tpm": 50 * TPM, "rpm": 100, "group": "tight"},  # whose limit is the smallest
}
FOR_GOOD = {"retry_after": None, "x_should_retry": "false"}


def owner_of(case):
    """Each case has a wallet of its own."""
    return f"owner-{CASES.index(case)}"


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    prices = {PRICED: PRICE, FREE: {"input": "0", "output": "0"}, NARROW: PRICE, MIXED: PRICE,
              INPUT_ONLY: {"input": "1000", "output": "0"}}  # fmt: skip
    wide = dict.fromkeys((PRICED, FREE, INPUT_ONLY, MIXED), "demo-small")
    narrow = dict.fromkeys((NARROW, MIXED), "demo-small")
    made = {
        "model": [{"name": name, "price": price} for name, price in prices.items()],
        "group": [{"name": "all"}, {"name": "tight", "tpm": TPM}],
        "channel": [
            *(channel(f, f, vendor.url, wide, groups=["all", "tight"]) for f in ALL),
            *(channel(f"narrow-{f}", f, vendor.url, narrow, priority=5, tpm=TPM) for f in ALL),
        ],
    }
    people = [
        owners([*map(owner_of, CASES), "big"], CREDIT),
        *(owners([name], "10", **{"group": "all", **limits}) for name, limits in LIMITED.items()),
        *(owners([name], ENOUGH) for name in ("rich", "free")),
        owners(["poor"], TOO_LITTLE),
        owners(["pauper"], "0"),
    ]
    return launch(joined(made, *people), shared=False)


def body_with(family, model=PRICED, **numbers):
    """The bytes of a call with these numbers, each given as JSON text."""
    body = ask(family, model)
    place = body["generationConfig"] if family == GENERATE else body
    for name in ("maxOutputTokens", "max_tokens"):
        if name != BOUNDS[family] and BOUNDS[family] in numbers:
            place.pop(name, None)
    place.update({name: f"@{name}@" for name in numbers})
    text = json.dumps(body)
    for name, value in numbers.items():
        text = text.replace(f'"@{name}@"', value)
    return text.encode()


def post(gateway, family, owner, body, model=PRICED):
    headers = credentials(family, secret_of(owner))
    return exchange(gateway.port, "POST", path_of(family, model), headers, body)


def send(gateway, family, owner, prompt, model=PRICED):
    return post(gateway, family, owner, ask(family, model, prompt), model)


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
        assert name in check_refusal(answer, family, "E12")
        assert record["outcome"] == "refused" and record["attempts"] == []
        check_free(record)
    elif answer.status != 200:
        check_refusal(answer, family, "E22")
        assert record["outcome"] == "upstream_error"
        check_free(record)
    else:
        assert record["outcome"] == "ok"
        assert 0 < check_charged(record) < Decimal(CREDIT)
    wallets.check(owner, CREDIT, [record])


def test_the_greatest_bound_holds_no_more_than_there_is(gateway, wallets):
    """A call that may cost more than the wallet has takes all of it, until it is over."""
    body = body_with(CHAT, max_completion_tokens=str(MOST - 1))  # more is refused by the vendor
    body = body.replace(b"Say something.", b"[[demo ms=100 chunks=20]]")
    body = body.replace(b"{", b'{"stream": true, ', 1)
    with Connection(gateway.port) as connection:
        headers = credentials(CHAT, secret_of("big"))
        connection.request("POST", path_of(CHAT, PRICED), headers, body)
        answer = connection.read_head()
        answer.pieces.append(connection.read_chunk())
        other = send(gateway, CHAT, "big", "Say something.")
        held = wait_until(lambda: wallets.held("big"))
        connection.read_body(answer)
    assert answer.status == 200 and answer.whole
    check_refusal(other, CHAT, "E18")
    after = send(gateway, CHAT, "big", "Say something.")
    assert after.status == 200
    records = [gateway.record(one.call_id) for one in (answer, other, after)]
    assert [record["outcome"] for record in records] == ["ok", "refused", "ok"]
    assert 0 < held <= Decimal(CREDIT) * 10**9
    wallets.check("big", CREDIT, records)


@pytest.mark.parametrize(("model", "number"), [(PRICED, "E12"), (FREE, "E22")])
@pytest.mark.parametrize("family", CHOICES)
def test_numbers_that_only_together_are_beyond_all_money(family, model, number, gateway, wallets):
    numbers = {BOUNDS[family]: str(MOST), CHOICES[family]: str(MOST)}
    answer = post(gateway, family, "pauper", body_with(family, model, **numbers), model)
    check_refusal(answer, family, number)
    check_free(gateway.record(answer.call_id))
    assert wallets.balance("pauper") == "0"


def test_a_call_is_counted_better_before_it_is_refused(gateway, wallets):
    assert len(TEXT) // 2 * Decimal("0.001") > Decimal(ENOUGH)
    answer = send(gateway, CHAT, "rich", TEXT, INPUT_ONLY)
    assert answer.status == 200, answer.body
    wallets.check("rich", ENOUGH, [gateway.record(answer.call_id)])
    check_refusal(send(gateway, CHAT, "poor", TEXT, INPUT_ONLY), CHAT, "E18")


# ---- input that is more than a limit allows in a minute ------------------------------------------


@pytest.mark.parametrize("who", LIMITED)
@pytest.mark.parametrize("family", ALL)
def test_a_call_larger_than_its_limit_is_refused_for_good_and_takes_nothing(gateway, family, who):
    for _ in range(3):
        answer = send(gateway, family, who, LARGE)
        message = check_refusal(answer, family, "E20", **FOR_GOOD)
        assert b"RetryInfo" not in answer.body
        assert "larger than the limit allows in a minute" in message
        assert f"limit is {TPM} tokens" in message
    check_free(gateway.record(answer.call_id))
    if family == GENERATE:
        assert send(gateway, family, who, "Say something.").status == 200


@pytest.mark.parametrize("family", ALL)
def test_a_channel_that_is_too_small_is_no_candidate(gateway, family):
    answer = send(gateway, family, "free", LARGE, MIXED)
    assert answer.status == 200, answer.body
    record = gateway.record(answer.call_id)
    assert [attempt["channel"] for attempt in record["attempts"]] == [family]
    answer = send(gateway, family, "free", LARGE, NARROW)
    assert "larger than any channel" in check_refusal(answer, family, "E09", **FOR_GOOD)


def test_the_books_are_right_after_all_that(gateway, answered):
    assert wait_until(lambda: len(gateway.usage()) >= len(CASES), step_s=0.3)
    gateway.run("usage", "verify")
    gateway.run("books", "verify")
    assert "Traceback" not in gateway.log()
