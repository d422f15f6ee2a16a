"""Exports and tails of clients that disconnect or stop reading."""

import functools
import http.client
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.hub.web import exports, live_tail
from handlers.hub.web.live_tail import NewCalls, TailViewer
from store.calls.usage_queries import Filters, history
from store.db.database import select_rows, transaction
from store.db.tables.hub import Session
from store.hub import sessions
from tests.handlers.hub.usage.calls import call, failed, put
from tests.support.ports import HOST

PIECES = 200


@pytest.fixture
def stream_of():
    """Return stream_of(browser, path): the answer, whose body the test reads; hang_up()
    disconnects."""
    connections = []

    def open_stream(browser, path):
        connection = http.client.HTTPConnection(HOST, browser.port, timeout=30)
        connections.append(connection)
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        connection.request("GET", path, headers={"Cookie": cookie})
        response = connection.getresponse()
        response.hang_up = lambda: (response.close(), connection.close())
        return response

    yield open_stream
    for connection in connections:
        connection.close()


@pytest.fixture
def stream(alice, stream_of):
    """Return stream(path): the same for alice."""
    return functools.partial(stream_of, alice)


def ids_until(response, *call_ids):
    """Return the ids of a tail's events up to these; without any, the first one."""
    ids = set()
    while not ids or not ids.issuperset(call_ids):
        line = response.readline()
        if line.startswith(b"data: "):
            ids.add(json.loads(line[6:])["id"])
    return ids


def test_the_tail_shows_new_calls_to_those_who_may_see_them(db, alice, boss, stream_of):
    path = "/api/usage/tail"
    own, everybody, again = (stream_of(browser, path) for browser in (alice, boss, alice))
    failures = stream_of(boss, f"{path}?outcome=upstream_error")
    assert own.headers["Content-Type"].startswith("text/event-stream")
    begun = threading.Event()

    def call_until_begun():  # the reader starts with calls recorded after its own start
        for number in itertools.count(4):
            put(db, call(db, number, "boss"))
            if begun.wait(0.1):
                return

    with ThreadPoolExecutor(1) as pool:
        pool.submit(call_until_begun)
        ids_until(everybody)
        begun.set()
    good, bad, hers = put(db, call(db, 1), failed(db, 2), call(db, 3, "boss"))
    ids_until(everybody, good, bad, hers)
    assert ids_until(own, good, bad) == ids_until(again, good, bad) == {good, bad}
    assert ids_until(failures, bad) == {bad}
    readers = [thread for thread in threading.enumerate() if thread.name == "usage-news"]
    assert len(readers) == 1
    for viewer in (own, everybody, again, failures):
        viewer.hang_up()
    readers[0].join(30)
    assert not readers[0].is_alive()


@pytest.fixture
def impatient(monkeypatch):
    """Make tails check their sessions continuously."""
    monkeypatch.setattr(live_tail, "CHECK_S", 0.0)
    monkeypatch.setattr(live_tail, "HEARTBEAT_S", 0.05)


def test_an_export_ends_when_its_client_leaves(db, alice, stream, monkeypatch):
    put(db, *[call(db, number) for number in range(PIECES)])
    written, read = [], exports._piece

    def slow(*args, **named):
        time.sleep(0.02)
        written.append(read(*args, **named))
        return written[-1]

    monkeypatch.setattr(exports, "PIECE_ROWS", 1)
    monkeypatch.setattr(exports, "_piece", slow)
    response = stream("/api/usage/export")
    response.read(100)
    # others are answered meanwhile
    assert alice.get("/api/usage?limit=1").status == 200
    response.hang_up()
    before = -1
    while before != len(written):
        before = len(written)
        time.sleep(0.2)
    assert 0 < before < PIECES


async def test_what_a_viewer_does_not_take_is_bounded_and_counted(db, monkeypatch):
    monkeypatch.setattr(live_tail, "WAITING_MAX", 3)
    put(db, *[call(db, number) for number in range(5)], failed(db, 9))
    news = NewCalls(db)
    everything, timeouts = (TailViewer(Filters(outcome=name), "a") for name in (None, "timeout"))
    news._viewers |= {everything, timeouts}
    news._give(history(db, Filters(), 10))
    assert everything.wake.is_set() and not timeouts.wake.is_set()
    rows, missed = everything.take()
    assert (len(rows), missed) == (3, 3)
    assert everything.take() == timeouts.take() == ([], 0)


@pytest.mark.parametrize("limit", ["VIEWERS_MAX", "VIEWERS_OF_USER_MAX"])
def test_viewers_are_bounded(db, alice, monkeypatch, limit):
    monkeypatch.setattr(live_tail, limit, 0)
    answer = alice.get("/api/usage/tail")
    assert answer.status == 429 and answer.headers["Retry-After"] == "60"


@pytest.mark.parametrize("path", ["/api/usage/tail", "/usage/tail"])
def test_a_tail_ends_with_its_session(alice, stream, impatient, path):
    response = stream(path)
    assert response.readline() == b"retry: 2000\n"
    alice.send("/sign-out", [])
    response.read()  # to the end of the stream
    response.close()


@pytest.mark.parametrize("path", ["/api/usage/tail", "/usage/tail"])
def test_an_open_tail_is_no_use_of_its_session(db, alice, stream, impatient, path):
    seen = Session.select(Session.seen_ms)
    ago_ms = sessions.IDLE_MS - 60_000
    transaction(db, lambda: Session.update(seen_ms=Session.seen_ms - ago_ms).execute(db))
    before = select_rows(db, seen)
    response = stream(path)
    lines = [response.readline() for _ in range(8)]  # long enough for a few checks of the session
    assert b": still here\n" in lines and select_rows(db, seen) == before
    transaction(db, lambda: Session.update(seen_ms=Session.seen_ms - 120_000).execute(db))
    response.read()  # to its end, because the session was not used for so long
    response.close()
    assert alice.get("/usage").status == 303


def test_a_look_that_nobody_sees_is_no_use(db, alice):
    seen = Session.select(Session.seen_ms)
    ago_ms = 2 * sessions.SEEN_EVERY_MS
    transaction(db, lambda: Session.update(seen_ms=Session.seen_ms - ago_ms).execute(db))
    before = select_rows(db, seen)
    assert alice.get("/", **{"X-Unseen": "1"}).status == 200 and select_rows(db, seen) == before
    alice.send("/wallet/low-balance", [("below", "")], **{"X-Unseen": "1"})  # as from a drawer
    assert select_rows(db, seen) != before
