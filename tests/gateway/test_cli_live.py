"""Changes by commands take effect in a running gateway within two seconds, in every worker.

Each check asks several times on connections of its own, so that both workers are asked. Everything
is used before it is changed, so that a worker cannot pass just because it had not loaded it yet.
"""

import contextlib
import datetime
import json
import time
from decimal import Decimal

import pytest

from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.wallets import cost_of

ACTS_WITHIN_S = 20.0  # 2 are promised; this allows for a busy machine
ASKED_TIMES = 8  # on as many connections; the chance that all go to one of two workers is 1 in 128
PRICE = {"input": "1", "output": "4"}
OVERLAP_S = 2
RECORDED_WITHIN_S = 1
LATER_S = 8  # enough for a command and a call on a busy machine


class Running:
    """A gateway with two workers; `ask` makes a call with a secret."""

    def __init__(self, gateway):
        self.gateway, self.run, self.record = gateway, gateway.run, gateway.record

    def run_json(self, *args):
        return json.loads(self.run(*args, "--json"))

    def key(self, name, user="alice", group="apart"):
        """Return (id, secret) of a new key, after checking that it works in all workers."""
        made = self.run_json(
            "key", "create", *f"--user {user} --group {group} --name {name}".split()
        )
        return made["id"], made["secret"]

    def ask(self, secret, model="tea"):
        """Return (code of the error or "ok", id of the call)."""
        headers, body = credentials(CHAT, secret), ask(CHAT, model)
        answer = exchange(self.gateway.port, "POST", PATHS[CHAT], headers, body)
        code = "ok" if answer.status == 200 else answer.json["error"]["code"]
        return code, answer.call_id

    def codes(self, secret, model="tea"):
        """Return the answers of all workers. Each is asked twice: one that was busy while the
        other answered may be behind it."""
        return {self.ask(secret, model)[0] for _ in range(2 * ASKED_TIMES)}

    def check_says(self, code, secret, model="tea"):
        """Check that all workers soon say `code`."""
        assert wait_until(lambda: self.codes(secret, model) == {code}, ACTS_WITHIN_S), code

    def record_of_call(self, secret, model="tea"):
        return self.record(self.ask(secret, model)[1])

    def check_recorded(self, value, name, secret, model="tea"):
        """Check that the records of all workers soon have `value` in a field."""

        def recorded():
            ids = [self.ask(secret, model)[1] for _ in range(2 * ASKED_TIMES)]
            return [self.record(call_id)[name] for call_id in ids]

        expected = [value] * (2 * ASKED_TIMES)
        assert wait_until(lambda: recorded() == expected, ACTS_WITHIN_S), value

    @contextlib.contextmanager
    def stream(self, secret, words, model="tea"):
        """Yield (connection, answer) of a streamed call whose body has not been read yet."""
        with Connection(self.gateway.port) as connection:
            body = ask(CHAT, model, f"[[demo {words}]]", stream=True)
            connection.request("POST", PATHS[CHAT], credentials(CHAT, secret), body)
            yield connection, connection.read_head()


@pytest.fixture(scope="module")
def running(launch, vendor):
    groups = ["default", "apart"]
    channels = [
        channel("first", CHAT, vendor.url, {"tea": "tea-1"}, priority=1, groups=groups),
        channel("second", CHAT, vendor.url, {"tea": "tea-2"}, groups=groups),
        channel("only", CHAT, vendor.url, {"coffee": "coffee"}, groups=groups),
    ]
    made = document([], channels)
    made |= {
        "model": [{"name": name, "price": PRICE} for name in ("tea", "coffee")],
        "group": [{"name": name} for name in groups],
        "user": [{"name": "alice", "balance": "100"}],
        "key": [],
    }
    return Running(launch(made, {"server.workers": 2}, shared=False))


# ---- what may be called --------------------------------------------------------------------------

# command: the model of the calls, their result after it, and the command that reverts it
SWITCHES = {
    "key disable {key}": ("tea", "api_key_disabled", "key enable {key}"),
    "user disable alice": ("tea", "api_key_disabled", "user enable alice"),
    "model disable coffee": ("coffee", "model_not_found", "model enable coffee"),
    "group set apart entries=messages": (
        *("coffee", "entry_point_not_allowed"),
        "group set apart entries=chat_completions",
    ),
}


@pytest.mark.parametrize("command", SWITCHES)
def test_what_is_switched_off_and_on(running, command):
    model, code, back = SWITCHES[command]
    key_id, secret = running.key(command.replace(" ", "-").replace("{key}", "own"))
    running.check_says("ok", secret, model)
    running.run(*command.format(key=key_id).split())
    running.check_says(code, secret, model)
    running.run(*back.format(key=key_id).split())
    running.check_says("ok", secret, model)


def test_what_is_new(running):
    secret = "a-key-from-another-gateway-1"
    assert running.codes(secret) == {"invalid_api_key"}
    args = "--user alice --group default --name moved --secret"
    running.run("key", "create", *args.split(), secret)
    running.check_says("ok", secret)
    assert running.codes(secret, "water") == {"model_not_found"}
    running.gateway.apply({"model": [{"name": "water", "price": PRICE}]})
    running.run("channel", "set", "only", "models.water=water")
    running.check_says("ok", secret, "water")


def test_rotating_a_key(running):
    key_id, old = running.key("rotated")
    running.check_says("ok", old)

    def rotate(overlap):
        made = running.run_json("key", "rotate", key_id, "--overlap", overlap)
        assert made["id"] == key_id
        return made["secret"]

    second = rotate("1h")
    running.check_says("ok", second)
    assert running.codes(old) == {"ok"}, "the old secret works on for a while"
    third = rotate(f"{OVERLAP_S}s")
    running.check_says("invalid_api_key", second)
    assert running.codes(third) == {"ok"}


# ---- what is recorded, and money -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "before", "command", "after", "back"),
    [
        ("channel", "first", "channel set first enabled=false", "second",
         "channel set first enabled=true"),
        ("multiplier", "1", "group set apart multiplier=2.5", "2.5",
         "group set apart multiplier=1"),
    ],
)  # fmt: skip
def test_the_next_calls_have_what_is_new(running, field, before, command, after, back):
    _, secret = running.key(f"recorded-{field}")
    running.check_recorded(before, field, secret)
    running.run(*command.split())
    running.check_recorded(after, field, secret)
    record = running.record_of_call(secret)
    assert Decimal(record["cost"]) == cost_of(record)
    running.run(*back.split())
    running.check_recorded(before, field, secret)


def test_a_price(running):
    _, secret = running.key("prices")
    before = running.record_of_call(secret, "coffee")
    assert {name: before["prices"][name] for name in PRICE} == PRICE
    with running.stream(secret, "ms=100 chunks=40", "coffee") as (connection, answer):
        running.run("model", "set", "coffee", "price.input=3", "price.output=0.123456789")
        changed = {"1": "3", "4": "0.123456789", "0": "0"}
        prices = {name: changed[price] for name, price in before["prices"].items()}
        running.check_recorded(prices, "prices", secret, "coffee")
        after = running.record_of_call(secret, "coffee")
        connection.read_body(answer)
    assert answer.body.endswith(b"data: [DONE]\n\n")
    begun_before = running.record(answer.call_id)
    assert begun_before["prices"] == before["prices"], "a call has the prices of its beginning"
    for record in (before, begun_before, after):
        assert Decimal(record["cost"]) == cost_of(record)
    assert running.gateway.usage(request_id=before["id"]) == [before]


def test_a_price_from_a_time_on(running):
    """Every worker applies it by the time, not because it is notified."""
    _, secret = running.key("later")
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=LATER_S)
    at = at.replace(microsecond=0)
    running.run("model", "set", "tea", "price.input=7", f"from={at:%Y-%m-%dT%H:%M:%SZ}")
    before = running.record_of_call(secret)
    assert before["prices"]["input"] == "1"
    time.sleep(max(0.0, (at - datetime.datetime.now(datetime.UTC)).total_seconds()))
    after = {name: "7" if price == "1" else price for name, price in before["prices"].items()}
    running.check_recorded(after, "prices", secret)
    assert running.run_json("model", "show", "tea")["price_changes"] == []


def check_books(running):
    """Check every wallet against its ledger and every cost against its record."""
    time.sleep(RECORDED_WITHIN_S)
    running.run("books", "verify")
    running.run("usage", "verify")


def test_the_books_are_right_in_the_end(running):
    check_books(running)
