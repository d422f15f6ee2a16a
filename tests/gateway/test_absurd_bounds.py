"""Requests that ask for absurdly much: refused in the family's words, or held for what there is.

Never an error of ours, never money that is wrong.
"""

import json
import threading
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
from tests.support.wallets import Wallets, check_charged, check_free, joined, owners, secret_of

CREDIT = "1.000000003"
PRICED, FREE = "priced", "free"
MOST = 2**31  # what may be asked for
LIMITS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    RESPONSES: ("max_output_tokens",),
    MESSAGES: ("max_tokens",),
    GENERATE: ("maxOutputTokens", "max_output_tokens"),
}
CHOICES = {CHAT: ("n",), GENERATE: ("candidateCount", "candidate_count")}
# JSON text: whether it is refused here. What is not goes to the vendor, who may refuse it.
LIMIT_VALUES = {
    "9223372036854775808": True, "18446744073709551616": True, "1000000000000000000": True,
    "1e18": True, "1e400": True, "-5": True, "-9223372036854775809": True, '"5"': True,
    "true": True, "1.5": True, "[5]": True, str(MOST + 1): True,
    str(MOST): False, str(MOST - 1): False, "0": False, "null": False,
}  # fmt: skip
CHOICE_VALUES = {
    "1000000000000000000": True, "1e18": True, "1e400": True, "-1": True, '"2"': True,
    "9223372036854775808": True, str(MOST + 1): True,
    str(MOST): False, "0": False, "null": False,
}  # fmt: skip
CASES = [
    (family, name, value, refused)
    for fields, values in ((LIMITS, LIMIT_VALUES), (CHOICES, CHOICE_VALUES))
    for family, names in fields.items()
    for name in names
    for value, refused in values.items()
]
SLOW_PROMPT = "[[demo ms=100 chunks=20]]"


def owner_of(case):
    """Each case has a wallet of its own."""
    return f"owner-{CASES.index(case)}"


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    made = {
        "model": [
            {"name": PRICED, "price": PRICE},
            {"name": FREE, "price": {"input": "0", "output": "0"}},
        ],
        "group": [{"name": "all"}],
        "channel": [
            channel(family, family, vendor.url, {PRICED: "demo-small", FREE: "demo-small"})
            for family in ALL
        ],
    }
    names = [owner_of(case) for case in CASES] + [*ALL, "pauper"]
    people = owners(names[:-1], CREDIT)
    return launch(joined(made, people, owners(["pauper"], "0")), shared=False)


@pytest.fixture(scope="module")
def wallets(gateway):
    made = Wallets(gateway)
    yield made
    made.close()


def body_with(family, model=PRICED, **numbers):
    """The bytes of a call with these numbers, each given as JSON text."""
    body = ask(family, model)
    place = body
    if family == GENERATE:
        place = body["generationConfig"]
        if "max_output_tokens" in numbers:
            del place["maxOutputTokens"]
    if "max_completion_tokens" in numbers:
        del body["max_tokens"]
    place.update({name: f"@{name}@" for name in numbers})
    text = json.dumps(body)
    for name, value in numbers.items():
        text = text.replace(f'"@{name}@"', value)
    return text.encode()


def post(gateway, family, owner, body, model=PRICED):
    headers = credentials(family, secret_of(owner))
    return exchange(gateway.port, "POST", path_of(family, model), headers, body)


@pytest.fixture(scope="module")
def answered(gateway):
    def call(case):
        family, name, value, _ = case
        return post(gateway, family, owner_of(case), body_with(family, **{name: value}))

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(CASES, pool.map(call, CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case[:3])))
def test_an_absurd_number_is_refused_or_bounded(case, gateway, wallets, answered):
    family, name, _, refused = case
    answer, owner = answered[case], owner_of(case)
    record = gateway.record(answer.call_id)
    if refused:
        message = check_refusal(answer, family, "E12")
        assert name in message
        assert record["outcome"] == "refused" and record["attempts"] == []
        check_free(record)
    elif answer.status != 200:
        check_refusal(answer, family, "E22")
        assert record["outcome"] == "upstream_error"
        check_free(record)
    else:
        assert record["outcome"] == "ok"
        assert 0 < check_charged(record) < Decimal(CREDIT)
    if record["cost"] == "0":
        assert wallets.balance(owner) == CREDIT
    wallets.check(owner, CREDIT, [record])


@pytest.mark.parametrize("family", ALL)
def test_the_greatest_bound_holds_no_more_than_there_is(family, gateway, wallets):
    """A call that may cost more than the wallet has takes all of it, until it is over."""
    (limit, *_) = LIMITS[family]
    big = {limit: str(MOST - 1)}  # more is refused by the vendor
    body = body_with(family, **big).replace(b"Say something.", SLOW_PROMPT.encode())
    if family != GENERATE:
        body = body.replace(b"{", b'{"stream": true, ', 1)
    held = []
    over = threading.Event()

    def watch():
        looking = Wallets(gateway)
        while not over.wait(0.05):
            held.append(looking.held(family))
        looking.close()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with Connection(gateway.port) as connection:
            headers = credentials(family, secret_of(family))
            connection.request("POST", path_of(family, PRICED, stream=True), headers, body)
            answer = connection.read_head()
            assert answer.status == 200, answer.head
            answer.pieces.append(connection.read_chunk())
            other = post(gateway, family, family, body_with(family))
            connection.read_body(answer)
    finally:
        over.set()
        watching.join()
    assert answer.status == 200 and answer.whole
    check_refusal(other, family, "E18")
    after = post(gateway, family, family, body_with(family))
    assert after.status == 200
    records = [gateway.record(one.call_id) for one in (answer, other, after)]
    assert [record["outcome"] for record in records] == ["ok", "refused", "ok"]
    assert held and min(held) >= 0 and max(held) <= Decimal(CREDIT) * 10**9
    wallets.check(family, CREDIT, records)


@pytest.mark.parametrize("family", [CHAT, GENERATE])
def test_numbers_that_only_together_are_beyond_all_money(family, gateway, wallets):
    numbers = {LIMITS[family][0]: str(MOST), CHOICES[family][0]: str(MOST)}
    before = wallets.balance("pauper")
    for model, number in ((PRICED, "E12"), (FREE, "E22")):
        body = body_with(family, model, **numbers)
        answer = post(gateway, family, "pauper", body, model)
        check_refusal(answer, family, number)
        check_free(gateway.record(answer.call_id))
    assert wallets.balance("pauper") == before == "0"


def test_the_books_are_right_after_all_that(gateway, answered):
    assert wait_until(lambda: len(gateway.usage()) >= len(CASES), step_s=0.3)
    gateway.run("usage", "verify")
    gateway.run("books", "verify")
    assert "Traceback" not in gateway.log()
