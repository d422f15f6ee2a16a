"""Conversations stay with one account; tests/handlers/relay tests the choice and what changes
it."""

import contextlib
import itertools

import pytest

from tests.support.client import exchange
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.echo import ANSWER, Echo, answer_of

MODEL = "spread"


@pytest.fixture(scope="module")
def accounts():
    """Yield three accounts of the model: equal channels, each with two upstream keys."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Echo())) for _ in range(3)]


@pytest.fixture(scope="module")
def gateway(launch, accounts):
    channels = []
    for number, one in enumerate(accounts):
        one.answer = answer_of(200, ANSWER)
        keys = [f"sk-{number}-{n}" for n in range(2)]
        channels.append(channel(f"{MODEL}-{number}", CHAT, one.url, {MODEL: "up"}, keys=keys))
    return launch(document([MODEL], channels), {"server.workers": 2}, follow=False)


def say(gateway, accounts, first, turn=1, **more):
    """Send one turn of a conversation; return the upstream key that it used."""
    body = ask(CHAT, MODEL, **more)
    texts = [first, *(text for _ in range(turn - 1) for text in ("Yes.", "And then?"))]
    roles = itertools.cycle(("user", "assistant"))
    body["messages"] = [{"role": next(roles), "content": text} for text in texts]
    answer = exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), body)
    assert answer.status == 200, answer.body
    (request,) = [request.lower() for one in accounts for request in one.requests]
    for one in accounts:
        one.requests.clear()
    return request.partition("authorization: bearer ")[2].split("\r\n")[0]


def test_a_conversation_sticks_in_all_workers(gateway, accounts):
    used = set()
    for number in range(30):
        keys = {say(gateway, accounts, f"Topic {number}", turn) for turn in (1, 2, 3)}
        assert len(keys) == 1
        used |= keys
    assert len(used) >= 5  # of six
    # Conversations that the client names stay together.
    assert (
        len({say(gateway, accounts, f"Part {n}", prompt_cache_key="one") for n in range(12)}) == 1
    )
