"""Streams that outgrow their hold: the hold is raised, and without money the stream ends.

tests/handlers/relay/test_holding.py checks how much is held, and when.
"""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.support import dialects
from tests.support.chat_streams import bounded
from tests.support.client import Connection, events, wait_until
from tests.support.coins import person
from tests.support.documents import channel
from tests.support.journal import marks
from tests.support.wallets import cost_of, joined, secret_of

MODEL = "endless"
PRICE = {"input": "0", "output": "10"}  # for a million tokens: 1 for 100,000
TOKEN = Decimal("0.00001")
DEFAULT_HOLD = 8192 * TOKEN
RICH = "100"
POOR = "0.02"  # 2000 tokens
PACE = 5000  # tokens a second: 50 deltas of 400 bytes
LONG = "[[demo ms=20 bytes=1600 chunks=150]]"  # three seconds, 60,000 tokens
ENDLESS = "[[demo ms=20 bytes=400 chunks=10000]]"
LATE_S = 4  # from a sweep that notices the excess to the end of the stream
OVERDRAWN = -LATE_S * PACE * TOKEN
# Ways to run out of money: the family of the call, its refusal, and the user.
WAYS = {
    "wallet": (dialects.CHAT, "E18", person("wallet", POOR, "wallet_only")),
    "plan": (
        dialects.GENERATE,
        "E19",
        person("plan", RICH, "plan_only", {"small": {"quota": POOR}}),
    ),
}
PLAN = "0.1"  # more than the initial hold


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    made = {
        "model": [{"name": MODEL, "price": PRICE}],
        "group": [{"name": "all"}],
        "channel": [channel(f, f, vendor.url, {MODEL: "demo-small"}) for f in dialects.ALL],
    }
    people = [
        person("rich", RICH, "wallet_only"),
        person("split", RICH, "plan_first", {"first": {"quota": PLAN}}),
        *(user for _, _, user in WAYS.values()),
    ]
    return launch(joined(made, *people), shared=False)


def begin(gateway, family, who, prompt):
    connection = Connection(gateway.port, patience_s=60)
    # The messages family requires a bound: one that exceeds all money.
    bound = 10**9 if family == dialects.MESSAGES else None
    body = bounded(dialects.ask(family, MODEL, prompt, stream=True), family, bound)
    headers = dialects.credentials(family, secret_of(who))
    connection.request("POST", dialects.path_of(family, MODEL, stream=True), headers, body)
    return connection


def read_stream(gateway, family, who, prompt):
    with begin(gateway, family, who, prompt) as connection:
        answer = connection.read_head()
        assert answer.status == 200, (answer.head, connection.read_body(answer))
        connection.read_body(answer)
    return answer


@pytest.fixture(scope="module")
def streams(gateway, wallets):
    """Yield the answers of all streams, run at the same time, and the largest hold of the rich
    user."""
    with ThreadPoolExecutor(len(WAYS) + 1) as pool:
        running = {
            what: pool.submit(read_stream, gateway, family, what, ENDLESS)
            for what, (family, *_) in WAYS.items()
        }
        running["rich"] = pool.submit(read_stream, gateway, dialects.CHAT, "rich", LONG)
        most_nanos = 0
        while not running["rich"].done():
            most_nanos = max(most_nanos, wallets.held("rich"))
        return {what: stream.result() for what, stream in running.items()}, most_nanos


def test_more_is_held_for_a_stream_that_goes_on(gateway, wallets, streams):
    answers, most_nanos = streams
    dialects.check_whole_stream(answers["rich"])
    assert most_nanos > 2 * DEFAULT_HOLD * 10**9
    record = gateway.record(answers["rich"].call_id)
    assert record["outcome"] == "ok"
    wallets.check("rich", RICH, [record])


@pytest.mark.parametrize("what", WAYS)
def test_without_money_a_stream_ends_and_what_was_delivered_is_paid(
    gateway, wallets, vendor, streams, what
):
    answer, (family, number, _) = streams[0][what], WAYS[what]
    assert "used up" in dialects.check_stream_failure(answer, family, number)
    record = gateway.record(answer.call_id)
    assert (record["outcome"], record["status"]) == ("refused", 200)
    assert record["error_code"] == dialects.REFUSALS[number].code
    assert Decimal(record["cost"]) == cost_of(record)
    assert OVERDRAWN < Decimal(POOR) - cost_of(record) < 0
    assert 0 < record["output_tokens"] < sum(map(len, events(answer.body))) // 4
    assert wait_until(lambda: vendor.stats()["streams"] == 0), "an upstream was not cancelled"
    if what != "plan":
        wallets.check(what, POOR if what == "wallet" else RICH, [record])


def is_split(gateway):
    """Return True if a mark in the journal has two payers and costs more than the plan has."""
    return any(
        len(mark.holds) == 2 and mark.output_tokens * TOKEN > Decimal(PLAN)
        for mark in marks(gateway)
    )


def test_what_was_raised_is_known_after_a_kill(gateway, streams):
    """The second payer was added when the first was used up; the adopted call is split in the same
    way."""
    with begin(gateway, dialects.CHAT, "split", ENDLESS) as connection:
        connection.read_head()
        assert wait_until(lambda: is_split(gateway), 20), "no mark is beyond the plan"
        gateway.kill()
    gateway.start()
    record = gateway.tail.find(timeout_s=10, user="split")
    assert (record["outcome"], record["usage_source"]) == ("gateway_lost", "estimated")
    plan, wallet = record["charges"]
    assert (plan["to"], plan["amount"]) == ("subscription:first", PLAN)
    assert wallet["to"] == "wallet" and cost_of(record) > Decimal(PLAN)
    gateway.run("usage", "verify")
    gateway.run("books", "verify")
