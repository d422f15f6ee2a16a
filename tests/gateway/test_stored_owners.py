"""Stored responses belong to their user from the first byte that carries their id.

Two users with one channel and one upstream key between them, so that the vendor would give either
of them everything; two workers. While the store takes nothing, is slow to hear of it, or does not
know an id. While it is away: tests/gateway/test_stored_outage.py.
"""

import contextlib
import sqlite3
import threading

import pytest

from store.calls.stored_responses import mark_of
from tests.support.client import Connection, data_of, exchange, wait_until
from tests.support.dialects import RESPONSES, ask, check_refusal, credentials
from tests.support.two_users import (
    MODEL,
    NOBODYS,
    PATH,
    SECRETS,
    TRIES,
    begun,
    call,
    check_hidden,
    check_reaches,
    check_shown,
    content,
    create,
)
from tests.support.upstream import STREAM_HEAD, RawUpstream

FLOOD_THREADS = 24
FLOOD_EACH = 8


@pytest.fixture(scope="module", params=["refuse", "pass"])
def gateway(request, launch, vendor):
    settings = {"server.workers": 2, "routing.unknown_responses": request.param}
    return launch(content(vendor), settings)


@contextlib.contextmanager
def stalled(gateway):
    """No writer gets anything into the store, which can be read."""
    (path,) = gateway.folder.rglob("*.db")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        try:
            yield lock
        finally:
            lock.execute("ROLLBACK")


def rows(lock, name):
    query = "SELECT COUNT(*) FROM stored_responses WHERE mark = ?"
    return lock.execute(query, (bytes.fromhex(mark_of(name)),)).fetchone()[0]


def test_before_the_store_knows_of_it(gateway, vendor):
    with stalled(gateway) as lock:
        name = create(gateway)
        check_hidden(gateway, vendor, name)
        check_shown(gateway, name)
        with begun(gateway) as streamed:
            check_hidden(gateway, vendor, streamed)
            check_reaches(gateway, vendor, streamed)
        cut = streamed  # its client has left, so that it was cut
        check_hidden(gateway, vendor, cut)
        assert rows(lock, name) == rows(lock, cut) == 0
    check_hidden(gateway, vendor, name)
    check_shown(gateway, name)


def test_a_running_stream_is_in_the_store_before_it_ends(gateway, vendor):
    with begun(gateway) as name:
        (path,) = gateway.folder.rglob("*.db")
        with contextlib.closing(sqlite3.connect(path)) as store:
            assert wait_until(lambda: rows(store, name) == 1)
        check_hidden(gateway, vendor, name)


def test_what_nobody_was_given(gateway, vendor):
    """Refused, or sent on to the only channel; but not before the store could have been told."""
    passes = gateway.settings["routing.unknown_responses"] == "pass"
    with stalled(gateway):
        create(gateway)  # a writer waits with it, and nobody knows with what else
        vendor.reset()
        for _ in range(2):
            answer = call(gateway, "GET", f"{PATH}/{NOBODYS}", user="other")
            check_refusal(answer, RESPONSES, "E38", retry_after="1")
        assert vendor.log() == []
    assert wait_until(lambda: call(gateway, "GET", f"{PATH}/{NOBODYS}").status == 404, 20)
    elsewhere = ask(RESPONSES, "demo-small", "Keep this.", store=True)
    made = exchange(vendor.port, "POST", PATH, credentials(RESPONSES, "sk-up"), elsewhere).json
    vendor.reset()
    answer = call(gateway, "GET", f"{PATH}/{made['id']}")
    if passes:
        assert (answer.status, answer.json) == (200, made)
        (entry,) = vendor.log()
        assert entry["path"] == f"{PATH}/{made['id']}"
    else:
        check_refusal(answer, RESPONSES, "E35")
        check_hidden(gateway, vendor, made["id"], "owner")


def test_what_was_deleted(gateway):
    name = create(gateway)
    assert call(gateway, "DELETE", f"{PATH}/{name}").json["deleted"] is True
    for user in ("other", "owner"):
        check_refusal(call(gateway, "GET", f"{PATH}/{name}", user=user), RESPONSES, "E35")


def test_junk_ids_of_one_user_hold_nobody_else_up(gateway):
    """The owner's ids are in the store alone, since all workers are new."""
    names = [create(gateway, f"Before the restart {n}.") for n in range(8)]
    (path,) = gateway.folder.rglob("*.db")
    with contextlib.closing(sqlite3.connect(path)) as store:
        assert wait_until(lambda: all(rows(store, name) for name in names))
    gateway.stop()
    gateway.start()
    told = []

    def flood(thread):
        for number in range(FLOOD_EACH):
            junk = f"resp_{thread}_{number}_junk"
            told.append(call(gateway, "GET", f"{PATH}/{junk}", user="other").status)

    threads = [threading.Thread(target=flood, args=(n,)) for n in range(FLOOD_THREADS)]
    for thread in threads:
        thread.start()
    during = [call(gateway, "GET", f"{PATH}/{name}").status for name in names for _ in range(3)]
    for thread in threads:
        thread.join()
    assert during == [200] * (3 * len(names))
    assert len(told) == FLOOD_THREADS * FLOOD_EACH and set(told) <= {404, 503}
    assert told.count(404) > 0


def test_what_another_node_has_just_handed_out(gateway, vendor):
    node = gateway.sibling("second")
    node.start()
    try:
        with begun(gateway) as streamed:
            check_hidden(node, vendor, streamed)
            check_reaches(node, vendor, streamed)
        name = create(gateway)
        check_hidden(node, vendor, name)
        check_shown(node, name)
        check_refusal(call(node, "GET", f"{PATH}/resp_{node.port}"), RESPONSES, "E35")
    finally:
        node.stop()  # closing would end the tail, which is shared


def test_an_id_that_comes_late_in_a_stream(launch, vendor):
    """The vendor begins with an event that says nothing of the response."""
    with RawUpstream() as raw:
        document = content(vendor)
        document["channel"][0]["base_url"] = raw.url
        settings = {"server.workers": 2, "routing.unknown_responses": "pass"}
        gateway = launch(document, settings, follow=False)
        with stalled(gateway), Connection(gateway.port) as connection:
            body = ask(RESPONSES, MODEL, stream=True)
            connection.request("POST", PATH, credentials(RESPONSES, SECRETS["owner"]), body)
            peer = raw.accept()
            peer.send(STREAM_HEAD)
            peer.chunk(b'event: codex.rate_limits\ndata: {"type":"codex.rate_limits"}\n\n')
            connection.read_head()
            connection.read_chunk()
            created = b'data: {"type":"response.created","response":{"id":"resp_late"}}\n\n'
            peer.chunk(created)
            assert data_of(connection.read_chunk())["response"]["id"] == "resp_late"
            for _ in range(TRIES):
                answer = call(gateway, "GET", f"{PATH}/resp_late", user="other")
                check_refusal(answer, RESPONSES, "E35")
            peer.close()
