"""Limits that two nodes count in Redis, through real sockets; and their behaviour without Redis."""

import contextlib
import json

import pytest

from tests.support import commands
from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import CREDIT, channel, document
from tests.support.redis import RedisServer
from tests.support.wallets import joined, owners, secret_of

LIMIT = 5
KEYS = ["sk-up-1", "sk-up-2"]
ENDLESS = "[[demo ms=1000 chunks=900]]"


@pytest.fixture(scope="module")
def server():
    with RedisServer() as running:
        yield running


@pytest.fixture(scope="module")
def nodes(launch, vendor, server):
    """Return two nodes of one store that count in one Redis."""
    models = {"tea": "demo-small"}
    places = [
        channel("first", CHAT, vendor.url, models, priority=5, keys=KEYS, key_concurrency=1),
        channel("second", CHAT, vendor.url, models, concurrency=1),
    ]
    plain = channel("plain", CHAT, vendor.url, {"milk": "demo-small"})
    people = [owners(["rated", "later"], CREDIT, rpm=LIMIT), owners(["free"], CREDIT)]
    whole = joined(document(["tea", "milk"], [*places, plain]), *people)
    one = launch(whole, {"limits.url": server.url, "server.workers": 2}, shared=False)
    other = one.sibling("other")
    other.start()
    yield one, other
    other.close()


def call(gateway, who, model, prompt="Say something.", *, stream=False):
    headers = credentials(CHAT, secret_of(who))
    return exchange(gateway.port, "POST", PATHS[CHAT], headers, ask(CHAT, model, prompt, stream))


@contextlib.contextmanager
def stream(gateway, who, model):
    with Connection(gateway.port, patience_s=30) as connection:
        body = ask(CHAT, model, ENDLESS, True)
        connection.request("POST", PATHS[CHAT], credentials(CHAT, secret_of(who)), body)
        yield connection.read_head()


def test_requests_of_both_nodes_count_together(nodes):
    answers = [call(nodes[number % 2], "rated", "milk") for number in range(LIMIT + 4)]
    statuses = [answer.status for answer in answers]
    assert statuses.count(200) in (LIMIT, LIMIT + 1) and statuses[-1] == 429
    assert answers[0].headers["x-ratelimit-limit-requests"] == str(LIMIT)
    assert int(answers[1].headers["x-ratelimit-remaining-requests"]) <= LIMIT - 2
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60 // LIMIT


def test_upstream_keys_and_channels_are_taken_in_their_order_over_nodes(nodes):
    with contextlib.ExitStack() as stack:
        heads = [stack.enter_context(stream(nodes[n % 2], "free", "tea")) for n in range(3)]
        assert [head.status for head in heads] == [200] * 3
        assert call(nodes[0], "free", "tea").status == 503  # two keys and a channel are in use
    # The clients have disconnected: a slot is free as soon as the gateway notices.
    assert wait_until(lambda: call(nodes[1], "free", "tea").status == 200, 10)


def test_without_it_the_nodes_count_and_say_so(nodes, server):
    def told():
        done = commands.run(["status", "--json", "--config", str(nodes[0].config)])
        return json.loads(done.stdout)["limits_up"]

    assert wait_until(lambda: told() is True, 10)  # workers report once a second
    server.stop()
    statuses = [call(nodes[number % 2], "later", "milk").status for number in range(12)]
    # shares of 3, full, because Redis had counted no call; of 5 at a node that has not noticed the
    # other
    assert 6 <= statuses.count(200) <= 2 * LIMIT
    assert wait_until(lambda: told() is False, 10)
    doctor = commands.run(["doctor", "--json", "--config", str(nodes[0].config)])
    findings = {finding["check"]: finding for finding in json.loads(doctor.stdout)["findings"]}
    assert "limits.url does not answer" in findings["limits"]["message"]
    server.start()
    assert wait_until(lambda: told() is True, 15)
