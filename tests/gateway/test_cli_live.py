"""What commands change acts in a running gateway within two seconds, in every worker of it.

Each check asks several times on connections of their own, so that both workers are asked, and
everything has been used before it is changed, so that no worker is helped by not knowing it yet.
"""

import contextlib
import datetime
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from decimal import ROUND_CEILING, Decimal

import pytest

from conf.version import VERSION
from tests.support import leash
from tests.support.gateway import HOST, ROOT, Gateway
from tests.support.ports import free_port
from tests.support.upstream import ScriptedUpstream

ACTS_AFTER_S = 2.0  # what is promised
ACTS_WITHIN_S = 10 * ACTS_AFTER_S  # what a busy machine is given
ASKED_TIMES = 8  # on as many connections; that all go to one of two workers happens once in 128
PATH = "/v1/chat/completions"
PRICE = {"input": "1.00", "output": "4.00"}
OVERLAP_S = 2
RECORDED_WITHIN_S = 1
LATER_S = 15  # a busy machine makes a command and a call in this time


class Running:
    """A gateway of two workers; `ask` makes a call with a secret."""

    def __init__(self, folder):
        self.upstream = ScriptedUpstream()
        self.gateway = Gateway(folder, {"server.workers": 2})
        self.gateway.apply(self._document())
        self.gateway.start()
        self.records = self.gateway.follow()

    def _document(self):
        channel = {
            "vendor": "openai",
            "family": "chat_completions",
            "base_url": self.upstream.url,
            "keys": ["sk-of-the-operator"],
            "groups": ["default", "apart"],
        }
        return {
            "model": [{"name": name, "price": PRICE} for name in ("tea", "coffee")],
            "group": [{"name": "default"}, {"name": "apart"}],
            "channel": [
                {**channel, "name": "first", "priority": 1, "models": {"tea": "tea-1"}},
                {**channel, "name": "second", "models": {"tea": "tea-2"}},
                {**channel, "name": "only", "models": {"coffee": "coffee"}},
                {**channel, "name": "closed", "base_url": f"http://{HOST}:{free_port()}",
                 "models": {"tea": "tea"}, "enabled": False},
            ],
            "user": [{"name": "alice", "balance": "100"}, {"name": "bob", "balance": "0"}],
        }  # fmt: skip

    def close(self):
        self.gateway.close()
        self.upstream.close()

    def run(self, *args):
        return self.gateway.run(*args)

    def key(self, name, user="alice", group="default"):
        """(id, secret) of a new key that works everywhere."""
        made = json.loads(
            self.run(
                *("key", "create", "--user", user, "--group", group),
                *("--name", name, "--json"),
            )
        )
        return made["id"], made["secret"]

    def ask(self, secret, prompt="hello", model="tea"):
        """(code of the error or "ok", id of the call)."""
        body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
        headers = {"Authorization": f"Bearer {secret}"}
        status, answered, text = self.gateway.call("POST", PATH, body, headers)
        told = "ok" if status == 200 else json.loads(text)["error"]["code"]
        return told, answered["x-request-id"]

    def all_say(self, secret, model="tea"):
        """What all workers say, in one word; None when they differ."""
        said = {self.ask(secret, model=model)[0] for _ in range(ASKED_TIMES)}
        return said.pop() if len(said) == 1 else None

    def check_says(self, code, secret, model="tea"):
        """All workers say `code` soon, and go on saying it.

        Twice in a row: a worker that is busy while the other one answers all may be behind it.
        """
        self._check_soon([code] * 2, lambda: [self.all_say(secret, model) for _ in range(2)])

    def _check_soon(self, wanted, seen):
        deadline = time.monotonic() + ACTS_WITHIN_S
        while (last := seen()) != wanted:
            assert time.monotonic() < deadline, f"{last} instead of {wanted}"
            time.sleep(0.05)

    def record_of_call(self, secret, **fields):
        return self.records.record(self.ask(secret, **fields)[1])

    def recorded(self, name, secret, **fields):
        """What the records of calls that are made now say under a name, each word once."""
        ids = [self.ask(secret, **fields)[1] for _ in range(ASKED_TIMES)]
        said = [self.records.record(call_id)[name] for call_id in ids]
        return [word for place, word in enumerate(said) if word not in said[:place]]

    def check_recorded(self, value, name, secret, **fields):
        """The records of all workers soon say `value` under a name, and go on saying it."""
        self._check_soon(
            [[value]] * 2, lambda: [self.recorded(name, secret, **fields) for _ in range(2)]
        )

    @contextlib.contextmanager
    def stream(self, secret, words, model="tea"):
        """The answer of a streamed call, not read yet."""
        connection = http.client.HTTPConnection(HOST, self.gateway.port, timeout=20)
        body = {
            "model": model,
            "stream": True,
            "messages": [{"role": "user", "content": f"[[demo {words}]]"}],
        }
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        with contextlib.closing(connection):
            connection.request("POST", PATH, json.dumps(body), headers)
            yield connection.getresponse()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    made = Running(tmp_path_factory.mktemp("live"))
    yield made
    made.close()


# ---- keys ----------------------------------------------------------------------------------------


def test_the_node_is_shown_as_it_says_itself(running):
    """Its first words are those of its first second; ten seconds later it says more."""
    gateway = running.gateway
    [shown] = json.loads(gateway.run("nodes", "--json"))
    node = json.loads(gateway.run("status", "--json"))
    assert (shown["state"], shown["node"]) == ("ready", node["node"])
    assert shown["version"] == f"{VERSION} {node['revision']}"
    assert shown["clock_behind_ms"] == 0 and shown["backlog_bytes"] >= 0


def test_a_new_key(running):
    secret = "a-key-from-another-gateway-1"
    assert running.all_say(secret) == "invalid_api_key"
    running.run(
        *("key", "create", "--user", "alice", "--group", "default"),
        *("--name", "moved", "--secret", secret),
    )
    running.check_says("ok", secret)


def test_disabling_and_enabling_a_key(running):
    key_id, secret = running.key("switched")
    running.check_says("ok", secret)
    running.run("key", "disable", key_id)
    running.check_says("api_key_disabled", secret)
    running.run("key", "enable", key_id)
    running.check_says("ok", secret)


def test_revoking_a_key(running):
    key_id, secret = running.key("revoked")
    running.check_says("ok", secret)
    running.run("key", "revoke", key_id)
    running.check_says("api_key_disabled", secret)


def test_rotating_a_key(running):
    key_id, old = running.key("rotated")
    running.check_says("ok", old)

    def rotate(overlap):
        made = json.loads(running.run("key", "rotate", key_id, "--overlap", overlap, "--json"))
        assert made["id"] == key_id
        return made["secret"]

    second = rotate("1h")
    running.check_says("ok", second)
    assert running.all_say(old) == "ok", "the old secret works on for a while"
    third = rotate(f"{OVERLAP_S}s")
    running.check_says("invalid_api_key", second)
    assert running.all_say(third) == "ok"


def test_rotating_a_key_at_once(running):
    key_id, old = running.key("replaced")
    running.check_says("ok", old)
    made = json.loads(running.run("key", "rotate", key_id, "--overlap", "0s", "--json"))
    running.check_says("invalid_api_key", old)
    running.check_says("ok", made["secret"])
    record = running.record_of_call(made["secret"])
    assert record["key_id"] == key_id


def test_disabling_a_user(running):
    _, secret = running.key("of-bob", user="bob")
    running.check_says("insufficient_quota", secret)
    running.run("user", "disable", "bob")
    running.check_says("api_key_disabled", secret)
    running.run("user", "enable", "bob")
    running.check_says("insufficient_quota", secret)


# ---- groups, models, channels --------------------------------------------------------------------


def test_disabling_a_channel(running):
    _, secret = running.key("channels")
    running.check_says("ok", secret, model="coffee")
    running.run("channel", "disable", "only")
    running.check_says("model_not_found", secret, model="coffee")
    running.run("channel", "enable", "only")
    running.check_says("ok", secret, model="coffee")


def test_the_next_channel_takes_over(running):
    _, secret = running.key("next")

    assert running.recorded("channel", secret) == ["first"]
    running.run("channel", "set", "first", "enabled=false")
    running.check_recorded("second", "channel", secret)
    running.run("channel", "set", "first", "enabled=true")
    running.check_recorded("first", "channel", secret)


def test_disabling_a_model(running):
    _, secret = running.key("models")
    running.check_says("ok", secret, model="coffee")
    running.run("model", "disable", "coffee")
    running.check_says("model_not_found", secret, model="coffee")
    running.run("model", "enable", "coffee")
    running.check_says("ok", secret, model="coffee")


def test_entries_and_models_of_a_group(running):
    _, secret = running.key("grouped", group="apart")
    running.check_says("ok", secret)
    running.run("group", "set", "apart", "models=coffee")
    running.check_says("model_not_found", secret)
    running.check_says("ok", secret, model="coffee")
    running.run("group", "set", "apart", "entries=messages")
    running.check_says("entry_point_not_allowed", secret, model="coffee")
    running.run("group", "set", "apart", "entries=chat_completions", "models=*")
    running.check_says("ok", secret)


def test_a_new_model(running):
    _, secret = running.key("new-model")
    assert running.all_say(secret, model="water") == "model_not_found"
    running.gateway.apply({"model": [{"name": "water", "price": PRICE}]})
    running.run("channel", "set", "only", "models.water=water")
    running.check_says("ok", secret, model="water")


# ---- money ---------------------------------------------------------------------------------------


def cost_of(record, price):
    tokens = record["input_tokens"] * Decimal(price["input"])
    tokens += record["output_tokens"] * Decimal(price["output"])
    exact = tokens / 10**6 * Decimal(record["multiplier"])
    return exact.quantize(Decimal("1e-9"), ROUND_CEILING)


def test_a_price(running):
    _, secret = running.key("prices")
    before = running.record_of_call(secret, model="coffee")
    assert {name: before["prices"][name] for name in PRICE} == {"input": "1", "output": "4"}
    with running.stream(secret, "ms=100 chunks=40", model="coffee") as answer:
        answer.readline()
        running.run("model", "set", "coffee", "price.input=3", "price.output=0.123456789")
        changed = {"1": "3", "4": "0.123456789", "0": "0"}
        prices = {name: changed[price] for name, price in before["prices"].items()}
        running.check_recorded(prices, "prices", secret, model="coffee")
        after = running.record_of_call(secret, model="coffee")
        text = answer.read()
    assert text.endswith(b"data: [DONE]\n\n")
    begun_before = running.records.record(answer.headers["x-request-id"])
    assert begun_before["prices"]["output"] == "4", "a call has the prices of its beginning"
    assert Decimal(before["cost"]) == cost_of(before, PRICE)
    assert after["prices"]["output"] == "0.123456789"
    assert Decimal(after["cost"]) == cost_of(after, {"input": "3", "output": "0.123456789"})
    assert running.gateway.usage(request_id=before["id"]) == [before]


def test_a_price_from_a_time_on(running):
    """Every worker goes by the time, and not by hearing of it."""
    _, secret = running.key("later")
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=LATER_S)
    at = at.replace(microsecond=0)
    running.run("model", "set", "tea", "price.input=7", f"from={at:%Y-%m-%dT%H:%M:%SZ}")
    before = running.record_of_call(secret, model="tea")
    assert before["prices"]["input"] == "1"
    time.sleep(max(0.0, (at - datetime.datetime.now(datetime.UTC)).total_seconds()))
    after = {name: "7" if price == "1" else price for name, price in before["prices"].items()}
    running.check_recorded(after, "prices", secret, model="tea")
    assert json.loads(running.run("model", "show", "tea", "--json"))["price_changes"] == []


def test_a_multiplier(running):
    _, secret = running.key("multiplied", group="apart")
    before = running.record_of_call(secret)
    running.run("group", "set", "apart", "multiplier=2.5")
    running.check_recorded("2.5", "multiplier", secret)
    after = running.record_of_call(secret)
    assert after["output_tokens"] == before["output_tokens"]
    assert Decimal(after["cost"]) == Decimal("2.5") * Decimal(before["cost"])


def test_credit_and_debit(running):
    _, secret = running.key("wallet", user="bob")
    running.check_says("insufficient_quota", secret)
    running.run("wallet", "credit", "--user", "bob", "--amount", "1", "--reason", "a present")
    running.check_says("ok", secret)
    time.sleep(RECORDED_WITHIN_S)
    wallet = json.loads(running.run("wallet", "show", "--user", "bob", "--json"))
    spent = Decimal(1) - Decimal(wallet["balance"])
    running.run(
        *("wallet", "debit", "--user", "bob", "--reason", "taken back"),
        *("--amount", wallet["balance"]),
    )
    time.sleep(ACTS_AFTER_S)  # a call before would still be served, and charged
    running.check_says("insufficient_quota", secret)
    wait_for_books(running)
    lines = json.loads(running.run("wallet", "ledger", "--user", "bob", "--json"))
    amounts = {line["kind"]: Decimal(line["amount"]) for line in lines}
    assert amounts["credit"] == 1
    assert abs(amounts["charges"]) == spent


def wait_for_books(running):
    """Every wallet is what its lines say, every cost what its record says."""
    time.sleep(RECORDED_WITHIN_S)
    running.run("books", "verify")
    running.run("usage", "verify")


# ---- what runs is not disturbed ------------------------------------------------------------------


def test_a_running_stream_comes_to_its_end(running):
    key_id, secret = running.key("undisturbed")
    with running.stream(secret, "ms=100 chunks=30") as answer:
        answer.readline()
        running.run("key", "revoke", key_id)
        running.run("channel", "disable", "first")
        running.check_says("api_key_disabled", secret)
        text = answer.read()
    running.run("channel", "enable", "first")
    assert text.endswith(b"data: [DONE]\n\n")
    record = running.records.record(answer.headers["x-request-id"])
    assert (record["outcome"], record["channel"]) == ("ok", "first")


# ---- watching ------------------------------------------------------------------------------------


def tail_argv(running, *args):
    argv = [sys.executable, str(ROOT / "app.py"), "usage", "tail", *args]
    return [*argv, "--config", str(running.gateway.config)]


class Watching:
    """`usage tail -f` in a terminal: `lines` so far, and how it ended after Ctrl-C."""

    def __init__(self, running, *args):
        argv = tail_argv(running, "-f", *args)
        self.lines: list[str] = []
        self._process = leash.Popen(argv, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        self.lines.extend(self._process.stdout)

    def wait_for(self, call_id):
        deadline = time.monotonic() + 10
        while not any(call_id in line for line in self.lines):
            assert time.monotonic() < deadline, f"{call_id} is not shown: {self.lines}"
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGINT)
        self.code = self._process.wait(10)
        self._reader.join()
        self._process.stdout.close()


def test_tail_shows_a_long_stream_that_began_earlier(running):
    """Records are shown as they are written, not in the order of their calls' beginnings."""
    key_id, secret = running.key("watched")
    ids: list[str] = []
    with (
        Watching(running, "--json", "--key-id", key_id) as watching,
        running.stream(secret, "ms=150 chunks=20") as answer,
    ):
        long_id = answer.headers["x-request-id"]
        for _ in range(10):
            ids.append(running.ask(secret)[1])
        watching.wait_for(ids[-1])
        assert not any(long_id in line for line in watching.lines)
        answer.read()
        watching.wait_for(long_id)
        assert all(long_id < call_id for call_id in ids)
    assert watching.code == 0
    records = [json.loads(line) for line in watching.lines]
    *shown, last = [record["id"] for record in records]
    assert (sorted(shown), last) == (sorted(ids), long_id), "each once, in order of recording"
    assert list(records[0]) == list(running.gateway.usage(request_id=long_id)[0])


def test_tail_for_people(running):
    key_id, secret = running.key("for-people")
    with Watching(running, "--key-id", key_id) as watching:
        other = running.ask(running.key("someone-else")[1])[1]
        call_id = running.ask(secret)[1]
        watching.wait_for(call_id)
    assert watching.code == 0
    heading, line = watching.lines
    assert "outcome" in heading
    assert re.search(r"\balice\b.*\btea\b.*\bfirst\b.*\b200\b.*\bok\b", line)
    assert other not in line, "the filter does not act"


def test_tail_ends_when_its_reader_does(running):
    argv = tail_argv(running, "--limit", "5")
    shell = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1', "sh", *argv],
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert shell.stdout.startswith("recorded_at")
    assert "Traceback" not in shell.stderr


# ---- channel test --------------------------------------------------------------------------------


def check_channel(running, name, *args, code=0):
    return json.loads(running.gateway.run("channel", "test", name, *args, "--json", code=code))


def test_a_channel_is_tested_by_a_real_call(running):
    running.upstream.reset()
    told = check_channel(running, "first")
    assert (told["ok"], told["status"], told["error"]) == (True, 200, None)
    assert (told["model"], told["upstream_model"]) == ("tea", "tea-1")
    assert 0 <= told["first_byte_ms"] <= told["total_ms"]
    assert check_channel(running, "first", "--stream")["stream"] is True
    plain, stream = [json.loads(entry["body"]) for entry in running.upstream.log()]
    assert (plain["model"], plain.get("stream", False)) == ("tea-1", False)
    assert (stream["model"], stream["stream"]) == ("tea-1", True)
    assert running.upstream.log()[0]["headers"]["authorization"] == "Bearer sk-of-the-operator"


def test_a_channel_that_cannot_be_reached(running):
    told = check_channel(running, "closed", code=1)
    assert (told["ok"], told["status"]) == (False, None)
    assert told["error"]


def test_a_channel_whose_vendor_fails(running):
    running.run("channel", "set", "closed", f"base_url={running.upstream.url}",
                "models.tea=script.status=401")  # fmt: skip
    for args in ((), ("--stream",)):
        told = check_channel(running, "closed", *args, code=1)
        assert (told["ok"], told["status"]) == (False, 401)
        assert "sk-of-the-operator" not in told["error"]


def test_a_test_costs_nothing(running):
    before = json.loads(running.run("wallet", "show", "--user", "alice", "--json"))["balance"]
    running.upstream.reset()
    check_channel(running, "second")
    after = json.loads(running.run("wallet", "show", "--user", "alice", "--json"))["balance"]
    assert before == after
    assert len(running.upstream.log()) == 1


def test_the_books_are_right_in_the_end(running):
    wait_for_books(running)
