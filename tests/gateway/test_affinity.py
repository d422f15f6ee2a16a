"""Conversations keep to one account, over real sockets: they stick, move on a failure, and stay.

Where they fall, and what else moves them: tests/handlers/relay/routing.
"""

import contextlib
import itertools
import json
from collections import Counter

import pytest

from tests.support.client import exchange
from tests.support.dialects import CHAT, GENERATE, MESSAGES, RESPONSES, ask, credentials, path_of
from tests.support.documents import channel, document
from tests.support.echo import ANSWER, ERROR, Echo, answer_of

USAGE = {"input_tokens": 1, "output_tokens": 1}
ANSWERS = {
    CHAT: ANSWER,
    MESSAGES: {"id": "m", "type": "message", "role": "assistant", "model": "up", "usage": USAGE,
               "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"},
    RESPONSES: {"id": "resp_1", "object": "response", "model": "up", "status": "completed",
                "output": [], "usage": USAGE},
    GENERATE: {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]},
                               "finishReason": "STOP", "index": 0}], "usageMetadata":
               {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}},
}  # fmt: skip
CREDENTIALS = ("authorization: bearer ", "x-api-key: ", "x-goog-api-key: ")
serial = itertools.count()


class Accounts:
    """Three accounts of one model: channels on equal terms, each with two upstream keys."""

    def __init__(self, family, model, stack):
        self.family, self.model = family, model
        self.each = [stack.enter_context(contextlib.closing(Echo())) for _ in range(3)]
        self.well()
        self.channels = [
            channel(f"{model}-{n}", family, one.url, {model: "up"},
                    keys=[f"sk-{model}-{n}-{k}" for k in range(2)])
            for n, one in enumerate(self.each)
        ]  # fmt: skip

    def well(self):
        for one in self.each:
            one.answer = answer_of(200, ANSWERS[self.family])

    def break_account_of(self, key):
        self.each[int(key.split("-")[-2])].answer = answer_of(500, ERROR)

    def asked(self):
        """The upstream keys that were used since the last time, in no order."""
        requests = [request.lower() for one in self.each for request in one.requests]
        for one in self.each:
            one.requests.clear()
        return [
            request.partition(name)[2].split("\r\n")[0]
            for request in requests
            for name in CREDENTIALS
            if name in request
        ]


@pytest.fixture(scope="module")
def accounts():
    with contextlib.ExitStack() as stack:
        made = {family: Accounts(family, f"spread_{family}", stack) for family in ANSWERS}
        yield {**made, "moves": Accounts(CHAT, "moves", stack)}


@pytest.fixture(scope="module")
def gateway(launch, accounts):
    channels = [made for one in accounts.values() for made in one.channels]
    content = document([one.model for one in accounts.values()], channels)
    return launch(content, {"server.workers": 2}, follow=False)


def turns_of(family, first, count):
    """The list of a conversation of so many questions."""
    texts = [first, *(text for _ in range(count - 1) for text in ("Yes.", "And then?"))]
    roles = ("user", "model" if family == GENERATE else "assistant")
    if family == GENERATE:
        return [{"role": roles[n % 2], "parts": [{"text": t}]} for n, t in enumerate(texts)]
    return [{"role": roles[n % 2], "content": t} for n, t in enumerate(texts)]


def say(gateway, accounts, first, turn=1, **more):
    """One turn of a conversation; the upstream keys that it asked, the last one with success."""
    family = accounts.family
    body = ask(family, accounts.model, **more)
    body[{GENERATE: "contents", RESPONSES: "input"}.get(family, "messages")] = turns_of(
        family, first, turn
    )
    path = path_of(family, accounts.model)
    answer = exchange(gateway.port, "POST", path, credentials(family), body)
    assert answer.status == 200, answer.body
    return accounts.asked()


def only(keys):
    (key,) = keys
    return key


@pytest.mark.parametrize("family", ANSWERS)
def test_a_conversation_sticks_in_all_workers(gateway, accounts, family):
    here, used = accounts[family], Counter()
    for number in range(30):
        keys = {only(say(gateway, here, f"Topic {number}", turn)) for turn in (1, 2, 3, 4)}
        used[only(keys)] += 1
    assert len(used) >= 5  # of six


def test_what_the_client_names_keeps_together(gateway, accounts):
    here = accounts[CHAT]
    for name in ("one", "two", "three"):
        keys = {only(say(gateway, here, f"Part {n}", prompt_cache_key=name)) for n in range(12)}
        assert len(keys) == 1
    assert len({only(say(gateway, here, f"Part {n}")) for n in range(12)}) > 1
    # Claude Code names its session here, and changes all else.
    here = accounts[MESSAGES]
    named = {"metadata": {"user_id": json.dumps({"device": "d", "session_id": "s-1"})}}
    keys = {only(say(gateway, here, f"Part {n}", system=f"v{n}", **named)) for n in range(12)}
    assert len(keys) == 1


def test_one_that_met_a_failure_moves_and_stays(launch, accounts):
    """In the memory of one worker."""
    here = accounts["moves"]
    alone = launch(document(["moves"], here.channels), follow=False)
    first = f"Moving {next(serial)}"
    home = only(say(alone, here, first))
    here.break_account_of(home)
    asked = say(alone, here, first, 2)
    here.well()
    assert len(asked) == 2 and home in asked
    refuge = only(set(asked) - {home})
    # It has its cache there now.
    assert {only(say(alone, here, first, turn)) for turn in range(3, 9)} == {refuge}
    # Nothing was put aside: others go on where they were, new ones come.
    assert len({only(say(alone, here, f"New {next(serial)}")) for _ in range(30)}) >= 5
    here.break_account_of(refuge)
    asked = say(alone, here, first, 9)
    here.well()
    assert refuge in asked and len(asked) == 2
    again = only(set(asked) - {refuge})
    assert {only(say(alone, here, first, turn)) for turn in range(10, 14)} == {again}
