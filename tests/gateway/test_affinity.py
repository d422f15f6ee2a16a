"""Conversations keep to one account, over real sockets: they stick, move on a failure, and stay."""

import itertools
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.client import exchange
from tests.support.dialects import CHAT, GENERATE, MESSAGES, RESPONSES, ask, credentials, path_of
from tests.support.documents import CREDIT, channel, document

HOST = "127.0.0.1"
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
ANSWERS = {
    CHAT: {"id": "c", "object": "chat.completion", "model": "up", "choices": [CHOICE],
           "usage": USAGE},
    MESSAGES: {"id": "m", "type": "message", "role": "assistant", "model": "up", "usage":
               {"input_tokens": 1, "output_tokens": 1}, "content": [{"type": "text", "text": "Hi"}],
               "stop_reason": "end_turn"},
    RESPONSES: {"id": "resp_1", "object": "response", "model": "up", "status": "completed",
                "output": [], "usage": {"input_tokens": 1, "output_tokens": 1}},
    GENERATE: {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]},
                               "finishReason": "STOP", "index": 0}], "usageMetadata":
               {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}},
}  # fmt: skip
WAYS_TO_FAIL = {
    500: {"error": {"message": "broken", "type": "server_error"}},
    401: {"error": {"message": "who?", "type": "invalid_request_error"}},
}
SECRETS = {"owner": "sk-test-of-the-owner-0123456789", "other": "sk-test-of-another-0123456789ab"}
serial = itertools.count()


class Account:
    """Notes the credential of each call, answers well or with `status`, refuses one credential."""

    def __init__(self, family):
        account = self
        self.status, self.keys, self.refused = 200, [], None

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                account.keys.append(self._key())
                self._answer(401 if account.keys[-1] == account.refused else account.status)

            def do_GET(self):
                # The list of models, by which the gateway checks a key that was refused.
                self._answer(401 if self._key() == account.refused else 200)

            def _key(self):
                names = ("authorization", "x-api-key", "x-goog-api-key")
                key = next(self.headers[name] for name in names if self.headers[name])
                return key.removeprefix("Bearer ")

            def _answer(self, status):
                body = ANSWERS[family] if status == 200 else WAYS_TO_FAIL[status]
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        self.url = "http://{}:{}".format(*self.server.server_address)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Accounts:
    """The accounts of one model: channels on equal terms, each with upstream keys of its own."""

    def __init__(self, family, model, keys=1, **more):
        self.family, self.model = family, model
        self.each = [Account(family) for _ in range(3)]
        self.channels = [
            channel(f"{model}-{n}", family, one.url, {model: "up"}, **more,
                    keys=[f"sk-{model}-{n}-{k}" for k in range(keys)])
            for n, one in enumerate(self.each)
        ]  # fmt: skip

    def place(self, key):
        """The account that has an upstream key."""
        return self.each[int(key.split("-")[-2])]

    def asked(self):
        """The upstream keys that were used since the last time, in no order."""
        keys = [key for one in self.each for key in one.keys]
        for one in self.each:
            one.keys.clear()
        return keys


@pytest.fixture(scope="module")
def accounts():
    made = {
        **{family: Accounts(family, f"spread_{family}", keys=2) for family in ANSWERS},
        "moves": Accounts(CHAT, "moves"),
        "keys": Accounts(CHAT, "keys", keys=2),
        "users": Accounts(CHAT, "users"),
        "last": Accounts(CHAT, "last"),
    }
    made["last"].channels[2]["priority"] = -5
    yield made
    for one in made.values():
        for account in one.each:
            account.close()


def launched(launch, accounts, workers):
    channels = [made for one in accounts.values() for made in one.channels]
    content = document([one.model for one in accounts.values()], channels)
    content["user"] = [{"name": name, "balance": CREDIT} for name in SECRETS]
    content["key"] = [
        {"user": name, "name": "main", "group": "all", "secret": secret}
        for name, secret in SECRETS.items()
    ]
    return launch(content, {"server.workers": workers}, follow=False)


@pytest.fixture(scope="module")
def gateway(launch, accounts):
    """One worker, so that there is one memory."""
    return launched(launch, accounts, 1)


@pytest.fixture(scope="module")
def two_workers(launch, accounts):
    return launched(launch, accounts, 2)


def turns_of(family, first, count):
    """The list of a conversation of so many questions."""
    texts = [first, *(text for _ in range(count - 1) for text in ("Yes.", "And then?"))]
    roles = ("user", "model" if family == GENERATE else "assistant")
    if family == GENERATE:
        return [{"role": roles[n % 2], "parts": [{"text": t}]} for n, t in enumerate(texts)]
    return [{"role": roles[n % 2], "content": t} for n, t in enumerate(texts)]


def say(gateway, accounts, first, turn=1, user="owner", **more):
    """One turn of a conversation; the upstream keys that it asked, the last one with success."""
    family = accounts.family
    body = ask(family, accounts.model, **more)
    body[{GENERATE: "contents", RESPONSES: "input"}.get(family, "messages")] = turns_of(
        family, first, turn
    )
    sent = credentials(family, SECRETS[user])
    answer = exchange(gateway.port, "POST", path_of(family, accounts.model), sent, body)
    assert answer.status == 200, answer.body
    return accounts.asked()


def only(keys):
    (key,) = keys
    return key


@pytest.mark.parametrize("family", ANSWERS)
def test_a_conversation_sticks_in_all_workers(two_workers, accounts, family):
    here = accounts[family]
    used = Counter()
    for number in range(30):
        keys = {only(say(two_workers, here, f"Topic {number}", turn)) for turn in (1, 2, 3, 4)}
        used[only(keys)] += 1
    assert len(used) >= 5  # of six


def test_it_is_the_same_in_another_node(gateway, accounts):
    here, node = accounts[CHAT], gateway.sibling("second")
    node.start()
    try:
        places = [
            {only(say(one, here, f"Again {number}")) for one in (gateway, node)}
            for number in range(12)
        ]
    finally:
        node.stop()
    assert all(len(keys) == 1 for keys in places) and len(set.union(*places)) > 2


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


def test_users_do_not_share_conversations(gateway, accounts):
    here = accounts["users"]
    places = [
        [only(say(gateway, here, f"Same {n}", user=user)) for n in range(25)] for user in SECRETS
    ]
    assert places[0] != places[1]
    assert len(set(places[0])) == len(set(places[1])) == 3


def test_one_that_met_a_failure_moves_and_stays(gateway, accounts):
    here = accounts["moves"]
    first = f"Moving {next(serial)}"
    home = only(say(gateway, here, first))
    bad = here.place(home)
    bad.status = 500
    asked = say(gateway, here, first, 2)
    bad.status = 200
    assert len(asked) == 2 and home in asked
    refuge = only(set(asked) - {home})
    # It has its cache there now.
    assert {only(say(gateway, here, first, turn)) for turn in range(3, 9)} == {refuge}
    # Nothing was put aside: others go on where they were, new ones come.
    assert len({only(say(gateway, here, f"New {next(serial)}")) for _ in range(25)}) == 3
    here.place(refuge).status = 500
    asked = say(gateway, here, first, 9)
    here.place(refuge).status = 200
    assert refuge in asked and only(set(asked) - {refuge}) == home
    assert {only(say(gateway, here, first, turn)) for turn in range(10, 14)} == {home}


def test_it_stays_even_where_priority_would_not_send_it(gateway, accounts):
    here = accounts["last"]
    first = f"Last resort {next(serial)}"
    assert only(say(gateway, here, first)).split("-")[-2] in "01"
    for bad in here.each[:2]:
        bad.status = 500
    asked = say(gateway, here, first, 2)
    for bad in here.each[:2]:
        bad.status = 200
    spare = "sk-last-2-0"
    assert len(asked) == 3 and spare in asked
    assert only(say(gateway, here, first, 3)) == spare
    assert spare not in {only(say(gateway, here, f"New {next(serial)}")) for _ in range(15)}


def test_a_refused_key_moves_its_conversations_alone(gateway, accounts):
    here = accounts["keys"]
    homes = {}
    while len(set(homes.values())) < 6:
        first = f"Key {next(serial)}"
        homes[first] = only(say(gateway, here, first))
    first, home = next(iter(homes.items()))
    here.place(home).refused = home
    neighbour = home[:-1] + str(1 - int(home[-1]))
    assert sorted(say(gateway, here, first, 2)) == sorted([home, neighbour])
    here.place(home).refused = None
    assert only(say(gateway, here, first, 3)) == neighbour
    for other, key in homes.items():
        if key != home:
            assert only(say(gateway, here, other, 3)) == key
