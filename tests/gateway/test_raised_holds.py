"""Streams that outgrow what was held for them: more is held, and without money they end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.support.chat_streams import bounded
from tests.support.client import Connection, events, wait_until
from tests.support.coins import person
from tests.support.dialects import (
    ALL,
    CHAT,
    MESSAGES,
    REFUSALS,
    ask,
    check_stream_failure,
    check_whole_stream,
    credentials,
    path_of,
)
from tests.support.documents import channel
from tests.support.journal import marks
from tests.support.wallets import Wallets, cost_of, joined, secret_of

MODEL = "endless"
PRICE = {"input": "0", "output": "10"}  # of a hundred thousand tokens: 1
TOKEN = Decimal("0.00001")
DEFAULT_HOLD = 8192 * TOKEN
RICH = "100"
POOR = "0.02"  # 2000 tokens
PACE = 5000  # tokens a second: pieces of 400 bytes, 50 of them in a second
TEXT = "ms=20 bytes=400"
LONG = "[[demo ms=20 bytes=1600 chunks=150]]"  # three seconds, 60,000 tokens
ENDLESS = f"[[demo {TEXT} chunks=10000]]"
LATE_S = 4  # from a sweep that sees too much to the end of the stream
OVERDRAWN = -LATE_S * PACE * TOKEN
# How the user of a call runs out of money, and what is said of it.
WAYS = {
    "wallet": ("E18", {"balance": POOR}),
    "limit": ("E19", {"balance": RICH, "limit": POOR}),
    "plan": ("E19", {"balance": RICH, "order": "plan_only", "plans": {"small": {"quota": POOR}}}),
}
PLAN = "0.1"  # more than what is held in the beginning


def owner(what, family):
    return f"{what}-{family}".replace("_", "-")


def people():
    for family in ALL:
        yield person(owner("rich", family), RICH)
        yield person(owner("keeps", family), "0.009")
        for what, (_, fields) in WAYS.items():
            plans = {owner(n, family): p for n, p in fields.get("plans", {}).items()}
            rest = {n: v for n, v in fields.items() if n not in ("balance", "plans", "order")}
            yield person(owner(what, family), fields["balance"],
                         fields.get("order", "wallet_only"), plans, **rest)  # fmt: skip
    yield person("split", RICH, "plan_first", {"first": {"quota": PLAN}})


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    made = {
        "model": [{"name": MODEL, "price": PRICE}],
        "group": [{"name": "all"}],
        "channel": [channel(f, f, vendor.url, {MODEL: "demo-small"}) for f in ALL],
    }
    return launch(joined(made, *people()), shared=False)


@pytest.fixture(scope="module")
def wallets(gateway):
    made = Wallets(gateway)
    yield made
    made.close()


def begin(gateway, family, who, prompt, bound=None):
    connection = Connection(gateway.port, patience_s=60)
    body = bounded(ask(family, MODEL, prompt, stream=True), family, bound)
    headers = credentials(family, secret_of(who))
    connection.request("POST", path_of(family, MODEL, stream=True), headers, body)
    return connection


def read_stream(gateway, family, who, prompt, bound=None):
    with begin(gateway, family, who, prompt, bound) as connection:
        answer = connection.read_head()
        assert answer.status == 200, (answer.head, connection.read_body(answer))
        connection.read_body(answer)
    return answer


def bound_for(family):
    """Messages cannot do without a bound: there one that is beyond all money."""
    return 10**9 if family == MESSAGES else None


class Watch:
    """The most that a user's calls have held while it runs."""

    def __init__(self, gateway, who):
        self.most_nanos = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(gateway, who))

    def _look(self, gateway, who):
        looking = Wallets(gateway)
        while not self._over.wait(0.05):
            self.most_nanos = max(self.most_nanos, looking.held(who))
        looking.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize("family", [f for f in ALL if f != MESSAGES])
def test_more_is_held_for_a_stream_that_goes_on(gateway, wallets, family):
    who = owner("rich", family)
    with Watch(gateway, who) as watch:
        answer = read_stream(gateway, family, who, LONG)
    check_whole_stream(answer)
    assert watch.most_nanos > 2 * DEFAULT_HOLD * 10**9
    record = gateway.record(answer.call_id)
    assert record["outcome"] == "ok"
    wallets.check(who, RICH, [record])


@pytest.mark.parametrize("family", ALL)
def test_no_more_is_held_than_a_bound_may_cost(gateway, wallets, family):
    who, bound = owner("keeps", family), 800
    with Watch(gateway, who) as watch:
        prompt = "[[demo ms=50 bytes=60 chunks=50]]"  # 750 tokens
        answer = read_stream(gateway, family, who, prompt, bound)
    check_whole_stream(answer)
    assert watch.most_nanos == bound * TOKEN * 10**9
    wallets.check(who, "0.009", [gateway.record(answer.call_id)])


@pytest.fixture(scope="module")
def ended(gateway):
    """The answers of all calls whose money ends, made at once."""
    ways = [(what, family) for what in WAYS for family in ALL]
    with ThreadPoolExecutor(len(ways)) as pool:
        running = {
            way: pool.submit(read_stream, gateway, way[1], owner(*way), ENDLESS, bound_for(way[1]))
            for way in ways
        }
        return {way: one.result() for way, one in running.items()}


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("what", WAYS)
def test_without_money_a_stream_ends_and_what_was_delivered_is_paid(
    gateway, wallets, vendor, ended, what, family
):
    answer, (number, fields) = ended[what, family], WAYS[what]
    assert "used up" in check_stream_failure(answer, family, number)
    record = gateway.record(answer.call_id)
    assert (record["outcome"], record["status"]) == ("refused", 200)
    assert record["error_code"] == REFUSALS[number].code
    assert Decimal(record["cost"]) == cost_of(record)
    assert OVERDRAWN < Decimal(POOR) - cost_of(record) < 0
    delivered = sum(len(one) for one in events(answer.body))
    assert 0 < record["output_tokens"] < delivered // 4
    assert wait_until(lambda: vendor.stats()["streams"] == 0), "an upstream was not cancelled"
    if what != "plan":
        wallets.check(owner(what, family), fields["balance"], [record])


def is_split(gateway):
    """Whether a mark in the journal holds of two payers and costs more than the plan has."""
    return any(
        len(mark.holds) == 2 and mark.output_tokens * TOKEN > Decimal(PLAN)
        for mark in marks(gateway)
    )


def test_what_was_raised_is_known_after_a_kill(gateway):
    """The second payer came in when the first had no more: the adopted call is split as it was."""
    with begin(gateway, CHAT, "split", ENDLESS) as connection:
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
