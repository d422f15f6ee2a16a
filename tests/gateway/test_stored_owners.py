"""Stored responses belong to their user from the first byte with their id, and everything that
names one goes to the channel and upstream key that made it.

Two users share two accounts, so that the vendor itself would give either user everything. Two
workers; also while the store is locked or away, and after a kill.
"""

import contextlib
import sqlite3

import pytest

from store.calls.stored_responses import mark_of
from tests.support.client import data_of, events, wait_until
from tests.support.dialects import RESPONSES, ask, check_refusal
from tests.support.documents import channel
from tests.support.gateway import Gateway
from tests.support.two_users import (
    MODEL,
    PATH,
    SECRETS,
    TRIES,
    begun,
    call,
    check_hidden,
    check_reaches,
    check_shown,
    content,
)
from tests.support.upstream import ScriptedUpstream

ELSEWHERE = "served-by-b-alone"
KEYS = {"a": ["sk-of-a-1"], "b": ["sk-of-b-1", "sk-of-b-2"]}
NOBODYS = "resp_of_nobody_here_0000000000000"


def accounts(vendor, keys=KEYS):
    """Return two equal accounts."""
    models = {"a": {MODEL: "demo-small"}, "b": {MODEL: "demo-small", ELSEWHERE: "demo-large"}}
    return [channel(name, RESPONSES, vendor.url, models[name], keys=keys[name]) for name in KEYS]


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    return launch(content(accounts(vendor)), {"server.workers": 2})


def asked(vendor):
    """Return the upstream keys of the calls since the last time, without those that a test cuts."""
    calls = [one for one in vendor.log() if "[[demo ms" not in one["body"]]
    keys = [one["headers"]["authorization"].removeprefix("Bearer ") for one in calls]
    vendor.reset()
    return keys


def create(gateway, vendor, text="Keep this.", stream=False, user="owner", **more):
    """Create a stored response; return (its id, the upstream key that made it)."""
    vendor.reset()
    answer = call(gateway, "POST", PATH, ask(RESPONSES, MODEL, text, stream=stream, **more), user)
    assert answer.status == 200, answer.body
    response = data_of(events(answer.body)[-1])["response"] if stream else answer.json
    (key,) = asked(vendor)
    return response["id"], key


def store_of(gateway):
    (path,) = gateway.folder.rglob("*.db")
    return contextlib.closing(sqlite3.connect(path, isolation_level=None))


def rows(gateway, name):
    """Return how many rows the store has for a response."""
    query = "SELECT COUNT(*) FROM stored_responses WHERE mark = ?"
    with store_of(gateway) as store:
        return store.execute(query, (bytes.fromhex(mark_of(name)),)).fetchone()[0]


@contextlib.contextmanager
def stalled(gateway):
    """Keep all writers out of the store, which can still be read."""
    with store_of(gateway) as lock:
        lock.execute("BEGIN IMMEDIATE")
        yield
        lock.execute("ROLLBACK")


def check_all(gateway, vendor, name, key):
    """Check that everything that names it goes to the key that made it, each on a new
    connection."""
    asked(vendor)
    for rest in ("", "/input_items", "", "/input_items"):
        answer = call(gateway, "GET", f"{PATH}/{name}{rest}")
        assert answer.status == 200, answer.body
    for path in (PATH, f"{PATH}/input_tokens", PATH):
        body = {"model": MODEL, "input": "And?", "previous_response_id": name}
        answer = call(gateway, "POST", path, body)
        assert answer.status == 200, answer.body
    assert asked(vendor) == [key] * 7


# ---- ownership -----------------------------------------------------------------------------------


def test_before_the_store_knows_of_it(gateway, vendor):
    with stalled(gateway):
        name, _ = create(gateway, vendor)
        check_hidden(gateway, vendor, name)
        check_shown(gateway, name)
        with begun(gateway) as streamed:
            check_hidden(gateway, vendor, streamed)
            check_reaches(gateway, vendor, streamed)
        # Its client has disconnected, so it was cut.
        check_hidden(gateway, vendor, streamed)
        assert rows(gateway, name) == rows(gateway, streamed) == 0
        # An unknown id: it could be among the records that the writer has not stored yet.
        vendor.reset()
        for _ in range(2):
            answer = call(gateway, "GET", f"{PATH}/{NOBODYS}", user="other")
            check_refusal(answer, RESPONSES, "E38", retry_after="1")
        assert vendor.log() == []
    check_hidden(gateway, vendor, name)
    check_shown(gateway, name)
    assert wait_until(lambda: call(gateway, "GET", f"{PATH}/{NOBODYS}").status == 404, 20)
    answer = call(gateway, "POST", PATH, ask(RESPONSES, MODEL, previous_response_id=NOBODYS))
    check_refusal(answer, RESPONSES, "E35")
    assert gateway.record(answer.call_id)["attempts"] == []


# ---- routing -------------------------------------------------------------------------------------


def test_what_names_a_response_goes_where_it_was_made(gateway, vendor):
    made = [create(gateway, vendor, f"Keep {n}.", n % 2 == 0) for n in range(40)]
    assert {key for _, key in made} == {"sk-of-a-1", "sk-of-b-1", "sk-of-b-2"}
    last = {key: name for name, key in made}
    for name, key in {*made[:8], *((name, key) for key, name in last.items())}:
        check_all(gateway, vendor, name, key)
    for key, name in last.items():  # a model that one of the channels does not serve
        body = ask(RESPONSES, ELSEWHERE, "And?", previous_response_id=name)
        answer = call(gateway, "POST", PATH, body)
        if key in KEYS["b"]:
            assert answer.status == 200
        else:
            check_refusal(answer, RESPONSES, "E35")


def test_both_workers_and_another_node_know_at_once(gateway, vendor):
    """The worker that made it and those that did not are asked right after the answer."""
    node = gateway.sibling("second")
    node.start()
    try:
        for number in range(4):
            name, key = create(gateway, vendor, f"At once {number}.", stream=number % 2 == 0)
            assert [call(gateway, "GET", f"{PATH}/{name}").status for _ in range(8)] == [200] * 8
            assert asked(vendor) == [key] * 8
            check_all(node, vendor, name, key)
        check_hidden(node, vendor, name)
        with begun(gateway) as streamed:
            check_hidden(node, vendor, streamed)
            check_reaches(node, vendor, streamed)
        check_refusal(call(node, "GET", f"{PATH}/resp_{node.port}"), RESPONSES, "E35")
    finally:
        node.stop()  # close() would end the tail, which is shared


def test_what_was_not_to_be_stored_is_not_known(gateway, vendor):
    name, _ = create(gateway, vendor, "Forget this.", store=False)
    check_refusal(call(gateway, "GET", f"{PATH}/{name}"), RESPONSES, "E35")
    assert asked(vendor) == [] and rows(gateway, name) == 0


def statuses(gateway, name):
    """Return the statuses of requests for it, which most likely reach both workers."""
    return {call(gateway, "GET", f"{PATH}/{name}").status for _ in range(20)}


def test_a_channel_that_is_switched_off_and_a_key_that_is_replaced(gateway, vendor):
    each = [create(gateway, vendor, f"One of each {number}.") for number in range(24)]
    made = {key.split("-")[2]: (name, key) for name, key in each}
    gateway.run("channel", "disable", "a")
    name, _ = made["a"]
    assert wait_until(lambda: statuses(gateway, name) == {503}, 20)
    check_refusal(call(gateway, "GET", f"{PATH}/{name}"), RESPONSES, "E09")
    check_all(gateway, vendor, *made["b"])
    gateway.run("channel", "enable", "a")
    gateway.apply({"channel": accounts(vendor, {**KEYS, "a": ["sk-of-a-new"]})})
    assert wait_until(lambda: statuses(gateway, name) == {200}, 20)
    asked(vendor)
    new = {"sk-of-a-new"}
    assert wait_until(lambda: statuses(gateway, name) and set(asked(vendor)) == new, 20)
    check_all(gateway, vendor, name, "sk-of-a-new")


# ---- without the store ---------------------------------------------------------------------------


def test_a_kill_before_the_writer_loses_nothing(gateway, vendor):
    """All processes are killed while the store is locked, so that no record could get there."""
    with stalled(gateway):
        made = [create(gateway, vendor, f"Before the end {n}.", n % 2 == 0) for n in range(6)]
        with begun(gateway) as streamed:
            gateway.kill()
    names = [streamed, *(name for name, _ in made)]
    assert [rows(gateway, name) for name in names[1:]] == [0] * len(made)
    gateway.start()
    assert wait_until(lambda: [rows(gateway, name) for name in names] == [1] * len(names))
    for name, key in made:
        check_all(gateway, vendor, name, key)


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_while_mariadb_is_away(breakable_mariadb, tmp_path, how):
    """The user can continue it meanwhile, and nobody else can see it."""
    settings = {
        "server.workers": 2,
        "store.url": breakable_mariadb.fresh_url(user="gateway"),
        "routing.unknown_responses": "refuse" if how == "killed" else "pass",
    }
    with ScriptedUpstream() as vendor, contextlib.closing(Gateway(tmp_path, settings)) as gateway:
        gateway.apply(content(accounts(vendor)[:1]))
        gateway.start()
        before, _ = create(gateway, vendor)
        for user in SECRETS:  # so that both workers know both keys
            for _ in range(2 * TRIES):
                create(gateway, vendor, user=user)
        try:
            breakable_mariadb.kill() if how == "killed" else breakable_mariadb.freeze()
            name, _ = create(gateway, vendor)
            with begun(gateway) as streamed:
                for mine in (before, name, streamed):
                    check_hidden(gateway, vendor, mine, times=1)
            for mine in (before, name):
                check_shown(gateway, mine)
            answer = call(gateway, "GET", f"{PATH}/{NOBODYS}", user="other")
            check_refusal(answer, RESPONSES, "E38", retry_after="1")
        finally:
            breakable_mariadb.restore()
        check_hidden(gateway, vendor, name, times=1)
        check_shown(gateway, name)
