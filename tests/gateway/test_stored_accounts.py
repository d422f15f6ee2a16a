"""Stored responses of several accounts: each goes back to the channel and key that made it.

By whichever worker or node it is asked for, right after its client has seen it, and after a kill.
"""

import contextlib
import sqlite3

import pytest

from store.calls.stored_responses import mark_of
from store.db.database import discard, execute, open_database, snapshot_read
from tests.support.client import Connection, data_of, events, exchange, wait_until
from tests.support.dialects import RESPONSES, ask, check_refusal, credentials
from tests.support.documents import CREDIT, channel

PATH = "/v1/responses"
MODEL, ELSEWHERE = "kept", "served-by-b-alone"
SECRETS = {"owner": "sk-test-of-the-owner-0123456789", "other": "sk-test-of-another-0123456789ab"}
KEYS = {"a": ["sk-of-a-1"], "b": ["sk-of-b-1", "sk-of-b-2"]}
FREE = {"input": "0", "output": "0"}


def content(vendor, keys=None):
    """Two accounts on equal terms; models cost nothing, so that no call waits for the store."""
    keys = keys or KEYS
    models = {"a": {MODEL: "demo-small"}, "b": {MODEL: "demo-small", ELSEWHERE: "demo-large"}}
    return {
        "model": [{"name": name, "price": FREE} for name in (MODEL, ELSEWHERE)],
        "group": [{"name": "all"}],
        "channel": [
            channel(name, RESPONSES, vendor.url, models[name], keys=keys[name]) for name in KEYS
        ],
        "user": [{"name": name, "balance": CREDIT} for name in SECRETS],
        "key": [
            {"user": name, "name": "main", "group": "all", "secret": secret}
            for name, secret in SECRETS.items()
        ],
    }


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    return launch(content(vendor), {"server.workers": 2})


@pytest.fixture
def own(launch_own, vendor):
    """A gateway that a test may change and kill."""
    return launch_own(content(vendor), {"server.workers": 2}, follow=False)


def call(gateway, method, path, body=None, user="owner"):
    return exchange(gateway.port, method, path, credentials(RESPONSES, SECRETS[user]), body)


def asked(vendor):
    """The upstream keys of the calls since the last time; not of those that are cut in a test."""
    calls = [one for one in vendor.log() if "[[demo ms" not in one["body"]]
    keys = [one["headers"]["authorization"].removeprefix("Bearer ") for one in calls]
    vendor.reset()
    return keys


def create(gateway, vendor, text, stream=False, user="owner", **more):
    """(id of a response that was stored, upstream key that made it)."""
    vendor.reset()
    answer = call(gateway, "POST", PATH, ask(RESPONSES, MODEL, text, stream=stream, **more), user)
    assert answer.status == 200, answer.body
    made = data_of(events(answer.body)[-1])["response"] if stream else answer.json
    name = made["id"]
    (key,) = asked(vendor)
    return name, key


def rows(gateway, name):
    database = open_database(f"sqlite:///{database_path(gateway)}")
    query = 'SELECT "channel_id" FROM "stored_responses" WHERE "mark" = ?'
    values = (bytes.fromhex(mark_of(name)),)
    try:
        return snapshot_read(database, lambda: execute(database, query, values).fetchall())
    finally:
        discard(database)


def database_path(gateway):
    (path,) = gateway.folder.rglob("*.db")
    return path


def check_all(gateway, vendor, name, key, user="owner"):
    """Everything that names it goes to the key that made it, each on a connection of its own."""
    for rest in ("", "/input_items", "", "/input_items"):
        answer = call(gateway, "GET", f"{PATH}/{name}{rest}", user=user)
        assert answer.status == 200, answer.body
    for path in (PATH, f"{PATH}/input_tokens", PATH):
        body = {"model": MODEL, "input": "And?", "previous_response_id": name}
        answer = call(gateway, "POST", path, body, user)
        assert answer.status == 200, answer.body
    assert asked(vendor) == [key] * 7


@pytest.mark.parametrize("stream", [False, True])
def test_what_names_a_response_goes_where_it_was_made(gateway, vendor, stream):
    made = [create(gateway, vendor, f"Keep {n} {stream}.", stream) for n in range(50)]
    last = {key: name for name, key in made}
    assert sorted(last) == ["sk-of-a-1", "sk-of-b-1", "sk-of-b-2"]
    for name, key in {*made[:12], *((name, key) for key, name in last.items())}:
        check_all(gateway, vendor, name, key)


def test_both_workers_know_at_once(gateway, vendor):
    """The one that made it and the one that did not are asked right after the answer."""
    for number in range(6):
        name, key = create(gateway, vendor, f"At once {number}.", stream=True)
        answers = [call(gateway, "GET", f"{PATH}/{name}") for _ in range(8)]
        assert [answer.status for answer in answers] == [200] * 8
        assert asked(vendor) == [key] * 8


def test_a_conversation_of_many_answers(gateway, vendor):
    name, key = create(gateway, vendor, "The first of many.")
    for number in range(6):
        body = ask(RESPONSES, MODEL, f"More {number}", previous_response_id=name)
        name = call(gateway, "POST", PATH, body).json["id"]
    assert asked(vendor) == [key] * 6


def test_another_node_knows_it_at_once(gateway, vendor):
    node = gateway.sibling("second")
    node.start()
    try:
        for number in range(4):
            name, key = create(gateway, vendor, f"Far away {number}.")
            check_all(node, vendor, name, key)
    finally:
        node.stop()  # closing would end the tail, which is shared


def test_another_users_response_is_no_response(gateway, vendor):
    name, _ = create(gateway, vendor, "Mine.")
    vendor.reset()
    unknown = "resp_" + "0" * 28
    for asked_for in (name, unknown):
        for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
            answer = call(gateway, method, f"{PATH}/{asked_for}{rest}", user="other")
            assert asked_for in check_refusal(answer, RESPONSES, "E35")
        body = ask(RESPONSES, MODEL, "x", previous_response_id=asked_for)
        answer = call(gateway, "POST", PATH, body, "other")
        check_refusal(answer, RESPONSES, "E35")
        assert gateway.record(answer.call_id)["attempts"] == []
    assert asked(vendor) == []
    assert call(gateway, "GET", f"{PATH}/{name}").status == 200


def test_what_was_not_to_be_stored_is_not_known(gateway, vendor):
    name, _ = create(gateway, vendor, "Forget this.", store=False)
    check_refusal(call(gateway, "GET", f"{PATH}/{name}"), RESPONSES, "E35")
    assert asked(vendor) == [] and rows(gateway, name) == []


def test_what_was_deleted_is_forgotten(gateway, vendor):
    name, key = create(gateway, vendor, "Not for long.")
    assert wait_until(lambda: len(rows(gateway, name)) == 1)
    answer = call(gateway, "DELETE", f"{PATH}/{name}")
    assert answer.json["deleted"] is True and asked(vendor) == [key]
    assert wait_until(lambda: rows(gateway, name) == [])
    check_refusal(call(gateway, "GET", f"{PATH}/{name}"), RESPONSES, "E35")


def test_a_model_that_its_channel_does_not_serve(gateway, vendor):
    made = dict(reversed(create(gateway, vendor, f"Which? {n}")) for n in range(12))
    for key, name in made.items():
        body = ask(RESPONSES, ELSEWHERE, "And?", previous_response_id=name)
        answer = call(gateway, "POST", PATH, body)
        if key in KEYS["b"]:
            assert answer.status == 200
        else:
            check_refusal(answer, RESPONSES, "E35")


def test_a_failure_of_its_channel_is_told_and_no_other_is_asked(gateway, vendor):
    name, key = create(gateway, vendor, "Then it fails.")
    body = ask(RESPONSES, MODEL, "[[demo status=500]]", previous_response_id=name)
    answer = call(gateway, "POST", PATH, body)
    check_refusal(answer, RESPONSES, "E26")
    assert asked(vendor) == [key]


def made_by_each(gateway, vendor):
    """channel -> (id, key)"""
    made = {}
    for number in range(40):
        name, key = create(gateway, vendor, f"One of each {number}.")
        made.setdefault(key.split("-")[2], (name, key))
        if len(made) == len(KEYS):
            return made
    raise AssertionError("one account has made all of them")


def statuses(gateway, name):
    """What asking for it gives, most likely in each of the workers."""
    return {call(gateway, "GET", f"{PATH}/{name}").status for _ in range(20)}


def test_a_channel_that_is_switched_off_and_a_key_that_is_replaced(own, vendor):
    made = made_by_each(own, vendor)
    own.run("channel", "disable", "a")
    name, _ = made["a"]
    assert wait_until(lambda: statuses(own, name) == {503}, 20)
    check_refusal(call(own, "GET", f"{PATH}/{name}"), RESPONSES, "E09")
    asked(vendor)
    check_all(own, vendor, *made["b"])
    own.run("channel", "enable", "a")
    own.apply(content(vendor, {**KEYS, "a": ["sk-of-a-new"]}))
    assert wait_until(lambda: statuses(own, name) == {200}, 20)
    asked(vendor)
    new = {"sk-of-a-new"}
    assert wait_until(lambda: statuses(own, name) and set(asked(vendor)) == new, 20)
    check_all(own, vendor, name, "sk-of-a-new")


def test_a_kill_before_the_writer_loses_nothing(own, vendor):
    """The store is locked, so that no record can get there, and then all processes are killed."""
    create(own, vendor, "For the key to be known.")
    create(own, vendor, "And in the other worker, too.")
    with contextlib.closing(sqlite3.connect(database_path(own), isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        made = [create(own, vendor, f"Before the end {n}.", n % 2 == 0) for n in range(6)]
        with Connection(own.port) as connection:
            slow = ask(RESPONSES, MODEL, "[[demo ms=50 chunks=1000]]", stream=True)
            connection.request("POST", PATH, credentials(RESPONSES, SECRETS["owner"]), slow)
            connection.read_head()
            begun = data_of(connection.read_chunk())["response"]["id"]
            own.kill()
        lock.execute("ROLLBACK")
    assert all(rows(own, name) == [] for name, _ in made)
    own.start()
    assert wait_until(
        lambda: all(len(rows(own, name)) == 1 for name in (begun, *(n for n, _ in made)))
    )
    asked(vendor)
    for name, key in made:
        check_all(own, vendor, name, key)
