"""The last channel is never refused by us, over real sockets: a bad second does not take it from
anybody. How few calls ask one that hangs or limits us: handlers/relay/routing/test_last_resort."""

import contextlib
import time

import pytest

from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS
from tests.support.client import exchange
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.echo import ANSWER, ERROR
from tests.support.switched import Vendor

PLACES = ("fails", "refuses")  # each a model with one channel


@pytest.fixture(scope="module")
def vendors():
    with contextlib.ExitStack() as stack:
        yield {place: stack.enter_context(contextlib.closing(Vendor())) for place in PLACES}


@pytest.fixture(scope="module")
def gateway(launch, vendors):
    channels = [
        channel(place, CHAT, vendor.url, {place: "up"}) for place, vendor in vendors.items()
    ]
    return launch(document(PLACES, channels))


def call(gateway, place, prompt):
    return exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), ask(CHAT, place, prompt))


def code(answer):
    return None if answer.status == 200 else answer.json["error"]["code"]


def good(prompt, key):
    return 200, ANSWER, {}


def opened(gateway, place):
    """The lines that say that the channel's circuit opened."""
    lines = gateway.log().splitlines()
    return [line for line in lines if "circuit opened" in line and f"channel={place} " in line]


@pytest.mark.parametrize("place", PLACES)
def test_after_an_outage_of_a_second_the_next_call_is_served(gateway, vendors, place):
    vendor = vendors[place]
    if place == "fails":
        vendor.behave = lambda prompt, key: (500, ERROR, {})
    else:
        vendor.away()
    deadline, answers = time.monotonic() + 1, []
    while time.monotonic() < deadline or len(answers) < 3 * CONSECUTIVE_FAULTS:
        answers.append(call(gateway, place, "now"))
    # The vendor's own error, and from no call it is kept by us.
    assert {code(one) for one in answers} <= {"upstream_unreachable", "upstream_error"}
    assert place == "refuses" or len(vendor.asked) == len(answers)
    attempts = gateway.record(answers[-1].call_id)["attempts"]
    assert [one["channel"] for one in attempts] == [place]
    assert f"channel={place} model={place} upstream_key=1 cause=" in opened(gateway, place)[0]
    vendor.behave = good
    if place == "refuses":
        vendor.back()
    assert [code(call(gateway, place, "again")) for _ in range(20)] == [None] * 20
