"""What `explain` says of a call, and what the call gets: the same, in every state."""

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


@pytest.fixture
def vendors():
    made = [Vendor(), Vendor()]
    yield made
    for one in made:
        one.close()


@pytest.fixture
def world(launch_own, vendors):
    channels = [
        channel("main", CHAT, vendors[0].url, {"m": "up"}, priority=5, keys=["sk-main"]),
        channel("spare", CHAT, vendors[1].url, {"m": "up"}, keys=["sk-spare"]),
    ]
    made = document(["m"], channels)
    made["user"].append({"name": "poor"})
    made["key"].append({"user": "poor", "name": "k", "group": "all", "secret": POOR})
    return launch_own(made)


def call(gateway, secret=SECRET):
    """(code, status, channels that were asked) of a call."""
    # A conversation of its own: others stay where they were served last.
    body = ask(CHAT, "m", f"Question {next(_numbers)}")
    answer = exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT, secret), body)
    code = None if answer.status == 200 else answer.json["error"]["code"]
    asked = [one["channel"] for one in gateway.record(answer.call_id)["attempts"]]
    return code, answer.status, asked


def explain(gateway, secret=SECRET):
    args = ("--key", secret, "--model", "m", "--endpoint", PATHS[CHAT])
    return json.loads(gateway.run("explain", *args, "--json"))


def check_agreement(gateway, secret=SECRET):
    """What both say: the code, or the channel that was asked first."""
    said = explain(gateway, secret)
    code, status, asked = call(gateway, secret)
    if said["allowed"]:
        assert asked[0] in said["first"], (said, asked)
        return asked[0]
    assert (said["reason"], said["status"], asked) == (code, status, [])
    return code


def shown(gateway, channel_name):
    """Why explain says that a channel's circuit is open."""
    [one] = [one for one in explain(gateway)["channels"] if one["name"] == channel_name]
    return one["reason"]


def fail(gateway, vendor, how=(500, ERROR, {})):
    vendor.behave = lambda prompt, key: how
    for _ in range(CONSECUTIVE_FAULTS):
        call(gateway)


def test_all_is_well(world):
    assert check_agreement(world) == "main"
    assert check_agreement(world, POOR) == "insufficient_quota"


@pytest.mark.parametrize(
    ("verb", "code"), [("disable", "model_not_found"), ("drain", "no_channel_available")]
)
def test_switches(world, verb, code):
    world.run("channel", verb, "main")
    assert wait_until(lambda: call(world)[2] == ["spare"], CHANGES_WITHIN_S)
    assert check_agreement(world) == "spare"
    world.run("channel", verb, "spare")
    assert wait_until(lambda: call(world)[0] == code, CHANGES_WITHIN_S)
    assert check_agreement(world) == code


def test_the_model_is_switched_off(world):
    world.run("model", "disable", "m")
    assert wait_until(lambda: call(world)[0] == "model_not_found", CHANGES_WITHIN_S)
    assert check_agreement(world) == "model_not_found"


@pytest.mark.parametrize(
    ("how", "reason"),
    [((500, ERROR, {}), "failing"), ((429, ERROR, {"Retry-After": "30"}), "rate_limited")],
)
def test_a_channel_fails_and_then_both(world, vendors, how, reason):
    fail(world, vendors[0], how)
    assert wait_until(lambda: shown(world, "main") == reason, CHANGES_WITHIN_S)
    assert check_agreement(world) == "spare"
    fail(world, vendors[1])
    assert wait_until(lambda: shown(world, "spare") == "failing", CHANGES_WITHIN_S)
    assert check_agreement(world) == ("main" if reason == "failing" else "spare")


def test_upstream_keys_are_refused(world, vendors):
    refuse(world, vendors[0], "main")
    assert check_agreement(world) == "spare"
    refuse(world, vendors[1], "spare")
    assert check_agreement(world) == "channel_misconfigured"


def refuse(gateway, vendor, channel_name):
    """The vendor refuses the channel's key, and all have heard of it."""
    vendor.list = lambda key: (401, WRONG, {})
    fail(gateway, vendor, (401, WRONG, {}))
    assert wait_until(lambda: shown(gateway, channel_name) == "key_put_aside", CHANGES_WITHIN_S)
