"""`explain` and real calls agree in every state of the channels."""

import contextlib
import itertools
import json

import pytest

from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, PATHS, SECRET, ask, credentials
from tests.support.documents import channel, document
from tests.support.echo import ERROR
from tests.support.switched import WRONG, Vendor

POOR = "sk-test-of-a-poor-user-0123456789"
CHANGES_WITHIN_S = 10
_numbers = itertools.count()
# case, which is also the name of its model: the result of a call after the change
CASES = {
    "well": "main",
    "disable": "model_not_found",
    "drain": "no_channel_available",
    "failing": "main",
    "refused": "channel_misconfigured",
}


@pytest.fixture(scope="module")
def gateway(launch, vendors):
    """Return a gateway with two channels for each case; `main` is preferred."""
    channels = []
    for case, (main, spare) in vendors.items():
        models = {case: "up"}
        keys = [f"sk-{case}"]
        channels += [
            channel(f"{case}-main", CHAT, main.url, models, priority=5, keys=keys),
            channel(f"{case}-spare", CHAT, spare.url, models, keys=keys),
        ]
    made = document(list(vendors), channels)
    made["user"].append({"name": "poor"})
    made["key"].append({"user": "poor", "name": "k", "group": "all", "secret": POOR})
    return launch(made)


@pytest.fixture(scope="module")
def vendors():
    with contextlib.ExitStack() as stack:
        yield {
            case: [stack.enter_context(contextlib.closing(Vendor())) for _ in range(2)]
            for case in CASES
        }


class Case:
    """The calls of one model, and the output of `explain` for them."""

    def __init__(self, gateway, vendors, name):
        self.gateway, self.vendors, self.name = gateway, vendors[name], name
        self.run = gateway.run

    def call(self, secret=SECRET):
        """Make a call; return (code, status, channels that were asked)."""
        # A new conversation each time: an existing one stays with its last channel.
        body = ask(CHAT, self.name, f"Question {next(_numbers)}")
        headers = credentials(CHAT, secret)
        answer = exchange(self.gateway.port, "POST", PATHS[CHAT], headers, body)
        code = None if answer.status == 200 else answer.json["error"]["code"]
        attempts = self.gateway.record(answer.call_id)["attempts"]
        return code, answer.status, [one["channel"] for one in attempts]

    def explain(self, secret=SECRET):
        args = ("--key", secret, "--model", self.name, "--endpoint", PATHS[CHAT])
        return json.loads(self.run("explain", *args, "--json"))

    def check_agreement(self, secret=SECRET):
        """Check that both agree; return the code, or the channel that was asked first."""
        explained = self.explain(secret)
        code, status, asked = self.call(secret)
        if explained["allowed"]:
            assert asked[0] in explained["first"], (explained, asked)
            return asked[0].removeprefix(f"{self.name}-")
        assert (explained["reason"], explained["status"], asked) == (code, status, [])
        return code

    def fail(self, number, reason, how=(500, ERROR, {})):
        """Make a vendor fail until `explain` gives this reason for its channel."""
        self.vendors[number].behave = lambda prompt, key: how
        for _ in range(CONSECUTIVE_FAULTS):
            self.call()
        name = f"{self.name}-{('main', 'spare')[number]}"

        def shown():
            return [one["reason"] for one in self.explain()["channels"] if one["name"] == name]

        assert wait_until(lambda: shown() == [reason], CHANGES_WITHIN_S)


@pytest.fixture
def case(gateway, vendors, request):
    return Case(gateway, vendors, request.param)


def in_case(*names):
    return pytest.mark.parametrize("case", names, indirect=True)


@in_case("well")
def test_all_is_well(case):
    assert case.check_agreement() == "main"
    assert case.check_agreement(POOR) == "insufficient_quota"


@in_case("disable", "drain")
def test_switches(case):
    case.run("channel", case.name, f"{case.name}-main")
    assert wait_until(lambda: case.call()[2] == [f"{case.name}-spare"], CHANGES_WITHIN_S)
    assert case.check_agreement() == "spare"
    case.run("channel", case.name, f"{case.name}-spare")
    assert wait_until(lambda: case.call()[0] == CASES[case.name], CHANGES_WITHIN_S)
    assert case.check_agreement() == CASES[case.name]


@in_case("failing")
def test_a_channel_fails_and_then_both(case):
    case.fail(0, "failing")
    assert case.check_agreement() == "spare"
    case.fail(1, "failing")
    assert case.check_agreement() == CASES[case.name]


@in_case("refused")
def test_upstream_keys_are_refused(case):
    for number, expected in enumerate(("spare", CASES[case.name])):
        case.vendors[number].list = lambda key: (401, WRONG, {})
        case.fail(number, "key_suspended", (401, WRONG, {}))
        assert case.check_agreement() == expected
