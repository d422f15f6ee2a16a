"""Every closed call is booked exactly once: through outages, lost replies and SIGKILL."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from urllib.parse import urlsplit

import pytest

from store.calls import source as source_module
from store.calls import writer as writer_module
from store.calls.journal import Journal
from store.calls.journal_files import segment_path
from store.calls.journal_lines import Sent, with_check
from store.calls.rollups import verify as verify_rollups
from store.calls.stored_responses import find_stored, mark_of
from store.calls.usage_queries import Filters, export_rows
from store.calls.usage_queries import verify as verify_usage
from store.calls.writer import DOWN, UP, Hooks, Writer
from store.channels import breakers, status_sums
from store.db import database as database_module
from store.db.database import discard, execute, open_database, snapshot_read, transaction
from store.db.migrate import up
from store.db.nodes import last_seen
from store.db.tables.usage import JournalRow
from store.money import lease_state
from store.money.accounts import payment_of
from store.money.books import verify as verify_books
from store.money.funds import Funds
from store.money.leases import Order
from store.money.wallet import show
from store.values.errors import OutcomeUnknown, StoreError, StoreUnavailable
from store.values.ids import new_ulid, now_ms
from store.values.pricing import Prices, cost_nanos
from store.values.usage_record import AttemptRecord, Charge, StoredAt
from tests.store.processes import key_of
from tests.support.usage_records import open_line, usage_record
from tests.support.users import add_user

PRICES = Prices(10**9, 2 * 10**9, 0, 0, 0, 0, 0)
on_sqlite = pytest.mark.databases("sqlite")  # what is tested is not the store


def facts(call_id, user_id):
    money = {"prices": PRICES.text, "multiplier_ppm": 10**6}
    return {"id": call_id, "user_id": user_id, "user": "alice", "key_id": user_id, **money}


def opened(call_id, user_id):
    return open_line(**facts(call_id, user_id), input_tokens=10)


def closed(call_id, user_id, tokens=1, **fields):
    record = usage_record(
        **facts(call_id, user_id), output_tokens=tokens, usage_source="reported", **fields
    )
    record.cost_nanos = cost_nanos(record, PRICES, 10**6)
    record.charges = (Charge("wallet", record.cost_nanos),) if record.cost_nanos else ()
    return record


def wait_for(condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def rows(db):
    return list(export_rows(db, Filters()))


def balance(db, user_id):
    query = 'SELECT "balance" FROM "wallets" WHERE "user_id" = ?'
    return snapshot_read(db, lambda: execute(db, query, (user_id,)).fetchone())[0]


def journal_rows(db):
    query = 'SELECT "id", "offset", "finished_ms" FROM "journals"'
    return {
        row[0]: (row[1], row[2]) for row in snapshot_read(db, lambda: execute(db, query).fetchall())
    }


def assert_books_are_right(db):
    assert verify_books(db) == []
    assert list(verify_usage(db)) == []
    assert list(verify_rollups(db)) == []


class Proxy:
    """A TCP relay before MariaDB whose line can be cut, also just around a COMMIT."""

    def __init__(self, port):
        self.target = port
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.open = True
        self.cut_commits = []
        self.pairs = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            if not self.open:
                client.close()
                continue
            upstream = socket.create_connection(("127.0.0.1", self.target))
            self.pairs += [client, upstream]
            for source, sink, asks in ((client, upstream, True), (upstream, client, False)):
                threading.Thread(target=self._pump, args=(source, sink, asks), daemon=True).start()

    def _pump(self, source, sink, asks):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if asks and data.endswith(b"\x03COMMIT") and self.cut_commits:
                    if self.cut_commits.pop(0) == "after":
                        # The server commits, the reply goes nowhere.
                        source.shutdown(socket.SHUT_RDWR)
                        sink.sendall(data)
                        time.sleep(0.05)
                    self.close_all()
                    break
                sink.sendall(data)
        for end in (source, sink):  # also of a pair that came while the others were closed
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close_all(self):
        pairs, self.pairs = self.pairs, []
        for end in pairs:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self.server.close()
        self.close_all()


class Outage:
    """Takes the database away and brings it back, in the way of each kind."""

    def __init__(self, url):
        self.proxy = None
        self.url = url
        if url.startswith("mysql:"):
            parts = urlsplit(url)
            self.proxy = Proxy(parts.port)
            self.url = url.replace(f":{parts.port}/", f":{self.proxy.port}/")
        else:
            self.path = url.removeprefix("sqlite:///")
            self.lock = None

    def begin(self):
        if self.proxy:
            self.proxy.open = False
            self.proxy.close_all()
        else:
            self.lock = sqlite3.connect(self.path, timeout=10, isolation_level=None)
            self.lock.execute("BEGIN IMMEDIATE")

    def end(self):
        if self.proxy:
            self.proxy.open = True
        elif self.lock:
            self.lock.close()
            self.lock = None


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(writer_module, "POLL_INTERVAL_S", 0.1)
    monkeypatch.setattr(writer_module, "ADOPT_INTERVAL_S", 0.1)
    monkeypatch.setattr(writer_module, "WRITE_INTERVAL_S", 0.02)
    monkeypatch.setattr(database_module, "LOCK_WAIT_S", 0.05)
    monkeypatch.setattr(database_module, "TRANSACTION_ATTEMPTS", 2)


@pytest.fixture
def outage(database, database_url):
    made = Outage(database_url)
    yield made
    made.end()
    if made.proxy:
        made.proxy.close()


class Desk:
    """What a worker has: a journal, a writer, funds, and a stand-in for the loop."""

    def __init__(self, url, directory, **hooks):
        self.db = open_database(url)
        self.journal = Journal(directory, sync_ms=2)
        self.posts = []
        self.polls = 0
        self.funds = Funds(self._order)
        names = ("applied", "answered", "recalled")
        wired = {name: functools.partial(self._post, getattr(self.funds, name)) for name in names}
        wired |= {"held": self.funds.held, "poll": self._poll}
        self.open_breakers = {}
        wired["open_breakers"] = lambda: self.open_breakers
        self.writer = Writer(self.db, self.journal, "web-1", Hooks(**(wired | hooks)))
        self.stopped = False

    def _order(self, order):
        return self.writer.order(order)

    def _post(self, *news):
        self.posts.append(news)

    def _poll(self, db):
        self.polls += 1

    def start(self):
        self.writer.start()
        return self

    def run_posts(self):
        posts, self.posts = self.posts, []
        for take_in, *news in posts:
            take_in(*news)

    async def hold(self, payment, amount):
        """A hold, with the posts run meanwhile."""
        holding = asyncio.ensure_future(self.funds.hold(payment, amount, amount))
        while not holding.done():
            await asyncio.sleep(0.002)
            self.run_posts()
        return holding.result()

    def call(self, user_id, tokens=1):
        call_id = new_ulid()
        self.journal.open_call(opened(call_id, user_id))
        self.journal.close_call(closed(call_id, user_id, tokens))
        return call_id

    def stop(self, timeout_s=20.0):
        self.stopped = True
        return self.writer.stop(timeout_s)

    def kill(self):
        """As SIGKILL leaves it: nothing is drained or removed."""
        self.stopped = True
        self.writer._stop_at = 0.0
        self.writer._thread.join()
        self.journal.close()


@pytest.fixture
def desks(outage, tmp_path):
    made = []

    def make(**hooks):
        made.append(Desk(outage.url, tmp_path / "journal", **hooks))
        return made[-1]

    yield make
    outage.end()
    for desk in made:
        if not desk.stopped:
            desk.stop()
        discard(desk.db)


@pytest.fixture
def alice(database):
    return add_user(database, "alice")


def test_closed_calls_become_records_and_charges(database, desks, alice):
    desk = desks().start()
    ids = [desk.call(alice, number) for number in range(1200)]
    wait_for(lambda: len(rows(database)) == 1200)
    found = rows(database)
    assert [row["id"] for row in found] == sorted(ids)
    assert all(row["recorded_ms"] > 1 for row in found)
    assert balance(database, alice) == -sum(2_000 * number for number in range(1200))
    assert_books_are_right(database)
    assert desk.writer.state == UP
    wait_for(lambda: desk.journal.backlog_bytes == 0)
    assert desk.stop()
    ((offset, finished),) = journal_rows(database).values()
    assert offset > 0 and finished is not None
    assert list((desk.journal.directory).iterdir()) == []


async def test_posts_keep_what_is_free_exact(database, desks, alice):
    transaction(database, lambda: set_balance(database, alice, 10**9))
    payment = payment_of(key_of(alice), now_ms())
    desk = desks().start()
    wait_for(lambda: desk.writer.state == UP)
    spent = 0
    for turn in range(200):
        hold = await desk.hold(payment, 10_000)
        call_id = new_ulid()
        desk.journal.open_call(opened(call_id, alice))
        record = closed(call_id, alice, turn % 5)
        assert desk.funds.settle(hold, record.cost_nanos) == record.charges
        spent += record.cost_nanos
        desk.journal.close_call(record)
        desk.run_posts()
        if turn % 20 == 0:
            await asyncio.sleep(0.03)
    state = desk.funds._states[alice]
    wait_for(lambda: len(rows(database)) == 200)
    wait_for(lambda: desk.run_posts() or state.unwritten == 0)
    view = show(database, "alice")
    assert (state.lease, state.held) == (view.leased_nanos, 0)
    assert view.balance_nanos == 10**9 - spent
    assert desk.stop()
    assert show(database, "alice").leased_nanos == 0
    assert_books_are_right_but(database, "alice")


def assert_books_are_right_but(db, user):
    """The only fault is the balance that the test has set without a ledger line."""
    assert all(f"wallet of {user}" in fault for fault in verify_books(db))


def set_balance(db, user_id, amount):
    execute(db, 'UPDATE "wallets" SET "balance" = ? WHERE "user_id" = ?', (amount, user_id))


def test_what_runs_is_seen_from_outside_and_others_can_have_the_rest(database, desks, alice):
    transaction(database, lambda: set_balance(database, alice, 100_000))
    payment = payment_of(key_of(alice), now_ms())

    async def main(first, second):
        hold = await first.hold(payment, 40_000)
        wait_for(lambda: show(database, "alice").held_nanos == 40_000)
        assert show(database, "alice").leased_nanos == 55_000  # with a quarter of the rest
        holding = asyncio.ensure_future(second.hold(payment, 60_000))
        while not holding.done():
            await asyncio.sleep(0.01)
            first.run_posts()
        assert holding.result().amount_nanos == 60_000
        first.funds.settle(hold, 0)
        wait_for(lambda: show(database, "alice").held_nanos == 60_000)
        second.funds.settle(holding.result(), 0)

    both = [desks().start(), desks().start()]
    wait_for(lambda: all(desk.writer.state == UP for desk in both))
    asyncio.run(main(*both))
    assert all(desk.stop() for desk in both)
    view = show(database, "alice")
    assert (view.balance_nanos, view.leased_nanos, view.held_nanos) == (100_000, 0, 0)


async def test_orders_are_refused_at_once_while_the_store_is_away(desks, outage, alice):
    payment = payment_of(key_of(alice), now_ms())
    desk = desks().start()
    wait_for(lambda: desk.writer.state == UP)
    outage.begin()
    wait_for(lambda: desk.writer.state == DOWN)
    with pytest.raises(StoreUnavailable):
        await desk.hold(payment, 1)
    assert not desk.writer.order(Order(payment.payers[0], need=1))


def test_the_leases_of_the_dead_are_given_back(database, desks, alice):
    transaction(database, lambda: set_balance(database, alice, 100_000))
    payment = payment_of(key_of(alice), now_ms())
    dead = desks().start()
    wait_for(lambda: dead.writer.state == UP)
    asyncio.run(dead.hold(payment, 100_000))
    call_id = new_ulid()
    dead.journal.open_call(opened(call_id, alice))
    dead.journal.mark(call_id, 5, True, Sent(status=200))
    dead.kill()
    assert show(database, "alice").leased_nanos == 100_000
    heir = desks().start()
    wait_for(lambda: show(database, "alice").leased_nanos == 0)
    (record,) = rows(database)
    assert record["outcome"] == "gateway_lost"
    assert show(database, "alice").balance_nanos == 100_000 - record["cost_nanos"] < 100_000
    assert asyncio.run(heir.hold(payment, 50_000)).amount_nanos == 50_000


@on_sqlite
def test_breakers_are_shown_while_their_process_lives(database, desks):
    def shown():
        return snapshot_read(database, lambda: breakers.all_open(database))

    alive, dead = desks().start(), desks()
    dead.open_breakers = alive.open_breakers = {("C1", "m1", "f1"): ("failing", 1, now_ms())}
    dead.start()
    wait_for(lambda: {one.journal_id for one in shown()} == {alive.journal.id, dead.journal.id})
    assert {(one.node, one.channel_id, one.reason) for one in shown()} == {
        ("web-1", "C1", "failing")
    }
    dead.kill()
    wait_for(lambda: {one.journal_id for one in shown()} == {alive.journal.id})
    assert alive.stop() and shown() == []


def test_sums_that_have_become_old_are_moved_on(database, desks, alice, monkeypatch):
    monkeypatch.setattr(writer_module, "FOLD_FIRST_S", 0.0)
    monkeypatch.setattr(writer_module, "FOLD_INTERVAL_S", 0.1)
    desk = desks().start()
    journal = desk.journal
    call_id = desk.call(alice)
    journal.open_call(opened(new_ulid(), alice))
    journal.close_call(
        closed(new_ulid(), alice, model="m1", attempts=(AttemptRecord("main", 200),))
    )

    def spans():
        query = 'SELECT "span", "ok" FROM "channel_sums" WHERE "scope" = \'channel\''
        return dict(snapshot_read(database, lambda: execute(database, query).fetchall()))

    # It started in 1970, so all windows are long over.
    wait_for(lambda: spans() == {"last_24h": 0, "last_30d": 0})
    assert call_id in {row["id"] for row in rows(database)}


@on_sqlite
def test_status_that_cannot_be_kept_does_not_stop_the_writing(
    database, desks, alice, monkeypatch, caplog
):
    def broken(*_):
        raise RuntimeError("no status today")

    monkeypatch.setattr(status_sums, "fold", broken)
    monkeypatch.setattr(writer_module, "FOLD_FIRST_S", 0.0)
    desk = desks().start()
    call_id = desk.call(alice)
    wait_for(lambda: [row["id"] for row in rows(database)] == [call_id])
    wait_for(lambda: desk.polls > 1)
    assert "the status of channels cannot be written" in caplog.text


@on_sqlite
def test_the_node_is_heard_of(database, desks):
    began = now_ms()
    desk = desks().start()
    wait_for(lambda: snapshot_read(database, lambda: last_seen(database)).get("web-1", 0) >= began)
    wait_for(lambda: desk.polls > 0)


@on_sqlite
def test_an_error_in_the_poll_does_not_stop_the_writing(database, desks, alice, caplog):
    def poll(db):
        raise StoreError("a bad row")

    desk = desks(poll=poll).start()
    desk.call(alice)
    wait_for(lambda: len(rows(database)) == 1)
    assert desk.stop()
    assert "a bad row" in caplog.text


def test_an_outage_loses_nothing_and_memory_does_not_grow(database, desks, outage, alice):
    desk = desks().start()
    before = [desk.call(alice) for _ in range(10)]
    wait_for(lambda: len(rows(database)) == 10)
    outage.begin()
    during = [desk.call(alice) for _ in range(3_000)]
    wait_for(lambda: desk.writer.state == DOWN)
    time.sleep(0.2)
    pending = desk.writer._own.pending
    # None: the outage was met by a poll, before a batch was read.
    assert pending is None or len(pending.records) <= source_module.BATCH_RECORDS
    assert desk.journal.backlog_bytes > 1_000_000
    outage.end()
    wait_for(lambda: desk.writer.state == UP)
    after = [desk.call(alice) for _ in range(10)]
    wait_for(lambda: len(rows(database)) == 3_020)
    assert {row["id"] for row in rows(database)} == {*before, *during, *after}
    assert balance(database, alice) == -2_000 * 3_020
    assert_books_are_right(database)


def test_a_database_that_is_not_there_at_the_start(empty_database, database_url, tmp_path):
    desk = Desk(database_url, tmp_path / "journal").start()
    user_id = new_ulid()
    desk.call(user_id)
    time.sleep(0.3)
    assert desk.writer.state == DOWN
    up(empty_database)
    wait_for(lambda: desk.writer.state == UP)
    wait_for(lambda: len(rows(empty_database)) == 1)
    assert desk.stop()
    discard(desk.db)


def test_a_process_that_never_had_the_store_leaves_nothing_to_wait_for(
    empty_database, database_url, tmp_path
):
    finished = []
    desk = Desk(database_url, tmp_path / "journal", finished=finished.append).start()
    wait_for(lambda: desk.writer.trouble)
    assert desk.stop()
    assert finished == [desk.journal.id]
    assert not list((tmp_path / "journal").glob(f"{desk.journal.id}*"))
    discard(desk.db)


def test_a_process_that_ends_in_its_first_round_leaves_no_row_of_a_journal_behind(
    database, desks, monkeypatch
):
    """As one that a reload has started and a restart ends at once."""
    desk, begun, go_on = desks(), threading.Event(), threading.Event()
    poll = desk.writer._poll

    def late():
        begun.set()
        assert go_on.wait(10)
        poll()

    monkeypatch.setattr(desk.writer, "_poll", late)
    monkeypatch.setattr(writer_module, "IDLE_STOP_S", 10)
    desk.start()
    assert begun.wait(10)
    threading.Timer(0.1, go_on.set).start()
    assert desk.stop()
    assert JournalRow.select().where(JournalRow.finished_ms.is_null()).bind(database).count() == 0


def test_stopping_while_the_store_is_away_leaves_the_journal_for_adoption(
    database, desks, outage, alice
):
    desk = desks().start()
    wait_for(lambda: desk.writer.state == UP)
    outage.begin()
    ids = [desk.call(alice) for _ in range(20)]
    began = time.monotonic()
    assert not desk.stop(0.5)
    assert time.monotonic() - began < 5
    outage.end()
    desks().start()
    wait_for(lambda: len(rows(database)) == 20)
    assert {row["id"] for row in rows(database)} == set(ids)
    assert {row["outcome"] for row in rows(database)} == {"ok"}
    assert_books_are_right(database)


@on_sqlite
def test_a_call_left_open_at_the_end_is_adopted(database, desks, alice):
    desk = desks().start()
    call_id = new_ulid()
    desk.journal.open_call(opened(call_id, alice))
    desk.journal.mark(call_id, 5, True, Sent(200))
    assert not desk.stop(0.5)
    desks().start()
    wait_for(lambda: len(rows(database)) == 1)
    (row,) = rows(database)
    assert (row["outcome"], row["status"], row["cost_nanos"]) == ("gateway_lost", 200, 20_000)
    assert_books_are_right(database)


def test_the_journals_of_the_dead_are_adopted_while_running(database, desks, alice):
    dead = desks()
    ids = [dead.call(alice) for _ in range(700)]
    lost = new_ulid()
    dead.journal.open_call(opened(lost, alice))
    alive = desks().start()
    wait_for(lambda: alive.writer.state == UP)
    dead.writer.start()
    dead.kill()
    wait_for(lambda: len(rows(database)) == 701)
    outcomes = {row["id"]: row["outcome"] for row in rows(database)}
    assert outcomes == dict.fromkeys(ids, "ok") | {lost: "gateway_lost"}
    wait_for(lambda: journal_rows(database)[dead.journal.id][1] is not None)
    wait_for(lambda: not list(alive.journal.directory.glob(f"{dead.journal.id}*")))
    # They were never counted as charges of the living process.
    assert all(charged == {} for _, charged in alive.posts)
    assert_books_are_right(database)


@on_sqlite
def test_the_dead_leave_where_their_responses_are_stored(database, desks, alice):
    dead = desks()
    ended, lost = new_ulid(), new_ulid()
    places = {name: StoredAt(mark_of(name), new_ulid(), "f" * 64) for name in (ended, lost)}
    dead.journal.open_call(opened(ended, alice))
    dead.journal.close_call(closed(ended, alice, stored=places[ended]))
    dead.journal.open_call(opened(lost, alice))
    dead.journal.mark(lost, 5, True, Sent(200, stored=places[lost]))
    dead.writer.start()
    dead.kill()
    desks().start()
    wait_for(lambda: len(rows(database)) == 2)
    assert {n: place_of(database, alice, n) for n in places} == places
    assert_books_are_right(database)


def place_of(db, user_id, name):
    mark = mark_of(name)
    return find_stored(db, "web-1", user_id, [mark], 1).places.get(mark)


@on_sqlite
def test_what_a_running_call_has_handed_out_is_in_the_store(database, desks, alice):
    desk, place = desks().start(), StoredAt(mark_of("resp_1"), new_ulid(), "f" * 64)
    running = new_ulid()
    desk.journal.open_call(opened(running, alice))
    desk.journal.hand_out(running, alice, 0, Sent(200, stored=place))
    wait_for(lambda: place_of(database, alice, "resp_1") == place)
    # And with the record of another call in one batch.
    other, place = new_ulid(), StoredAt(mark_of("resp_2"), new_ulid(), "f" * 64)
    desk.journal.open_call(opened(other, alice))
    desk.journal.hand_out(other, alice, 0, Sent(200, stored=place))
    desk.call(alice)
    wait_for(lambda: place_of(database, alice, "resp_2") == place)
    wait_for(lambda: len(rows(database)) == 1)
    desk.journal.close_call(closed(running, alice, stored=StoredAt(mark_of("resp_1"))))
    desk.journal.close_call(closed(other, alice, stored=place))
    wait_for(lambda: len(rows(database)) == 3)
    assert place_of(database, alice, "resp_1") is None
    assert_books_are_right(database)


def test_how_far_the_store_is(database, desks, alice, outage):
    """Told only when all that was written before is there, that of the dead as well."""
    dead = desks()
    dead.journal.open_call(opened(new_ulid(), alice))
    dead.writer.start()
    dead.kill()
    reached, finished = [], []
    desk = desks(reached=reached.append, finished=finished.append).start()
    wait_for(lambda: reached)
    assert finished == [dead.journal.id] and len(rows(database)) == 1
    outage.begin()
    desk.call(alice)
    written_ns = time.monotonic_ns()
    wait_for(lambda: desk.writer.state == DOWN)
    assert max(reached) < written_ns
    outage.end()
    wait_for(lambda: max(reached) > written_ns)
    assert len(rows(database)) == 2 and reached == sorted(reached)
    desk.stop()
    assert finished == [dead.journal.id, desk.journal.id]


@on_sqlite
def test_an_orphan_that_was_finished_is_only_removed(database, desks, alice):
    dead = desks().start()
    dead.call(alice)
    wait_for(lambda: len(rows(database)) == 1)
    dead.kill()
    finish = 'UPDATE "journals" SET "finished_ms" = 1'
    transaction(database, lambda: execute(database, finish))
    desks().start()
    wait_for(lambda: not list(dead.journal.directory.glob(f"{dead.journal.id}*")))
    assert len(rows(database)) == 1


def lose_replies(monkeypatch, outcomes, module=source_module, of="JournalSource._transact"):
    """Transactions of batches end with a lost reply: "before" or "after" they were committed."""
    real = module.transaction

    def transact(db, work):
        is_meant = work.__qualname__.startswith(of)
        how = outcomes.pop(0) if is_meant and outcomes else None
        if how == "before":
            raise OutcomeUnknown("lost before")
        result = real(db, work)
        if how == "after":
            raise OutcomeUnknown("lost after")
        return result

    monkeypatch.setattr(module, "transaction", transact)


def test_a_lost_reply_to_commit_books_once(database, desks, alice, monkeypatch):
    rng = random.Random(7)
    lose_replies(monkeypatch, [rng.choice(("before", "after", None)) for _ in range(12)])
    payment = payment_of(key_of(alice), now_ms())

    async def main(desk):
        spent = 0
        for turn in range(600):
            record = closed(new_ulid(), alice, turn % 7)
            hold = desk.funds.try_hold(payment, 0)
            spent += record.cost_nanos
            desk.funds.settle(hold, record.cost_nanos)
            desk.journal.close_call(record)
            if turn == 300:
                desk.start()
            if turn % 50 == 0:
                await asyncio.sleep(0.05)
            desk.run_posts()
        wait_for(lambda: len(rows(database)) == 600)
        assert balance(database, alice) == -spent
        state = desk.funds._states[alice]
        wait_for(lambda: desk.run_posts() or state.unwritten == 0)
        assert state.lease == 0

    asyncio.run(main(desks()))
    assert_books_are_right(database)


def test_a_commit_that_ends_after_the_offset_was_read_books_once(
    database, desks, alice, monkeypatch, caplog
):
    """Its answer is lost; the server is at it when the writer asks, and done before the repeat."""
    real, late = source_module.transaction, []

    def transact(db, work):
        if work.__qualname__.startswith("JournalSource._transact"):
            if not late:
                late.append(work)
                raise OutcomeUnknown("lost before")
            if len(late) == 1:
                real(db, late[0])
                late.append(work)
        return real(db, work)

    monkeypatch.setattr(source_module, "transaction", transact)
    caplog.set_level(logging.INFO)
    desk = desks()
    for _ in range(3):
        desk.call(alice)
    desk.start()
    wait_for(lambda: desk.writer.state == UP and len(late) == 2)
    desk.call(alice)
    wait_for(lambda: len(rows(database)) == 4)
    assert balance(database, alice) == -2_000 * 4
    assert_books_are_right(database)
    entries = [entry for entry in caplog.records if "unknown outcome" in entry.getMessage()]
    assert [entry.levelname for entry in entries] == ["INFO"]
    assert not [entry for entry in caplog.records if entry.exc_info]


@pytest.mark.databases("mariadb")  # SQLite has no such setting
def test_a_server_that_takes_no_writes_is_read_from_and_not_written_to(
    database, desks, outage, alice, monkeypatch, caplog
):
    """Also as root, whom the server would not refuse."""
    monkeypatch.setattr(database_module, "READ_ONLY_CHECK_S", 0.05)
    monkeypatch.setattr(database_module, "SESSION_MAX_S", 0.05)
    desk = desks().start()
    wait_for(lambda: desk.writer.state == UP)
    execute(database, "SET GLOBAL read_only = 1")
    try:
        wait_for(lambda: desk.writer.state == DOWN and "is read-only" in desk.writer.trouble)
        desk.call(alice)
        polls = desk.polls
        wait_for(lambda: desk.polls >= polls + 2)
        assert desk.writer.state == DOWN and rows(database) == []
    finally:
        execute(database, "SET GLOBAL read_only = 0")
    wait_for(lambda: desk.writer.state == UP and len(rows(database)) == 1)
    assert not [entry for entry in caplog.records if entry.exc_info]


async def test_a_lost_reply_to_an_order_lends_once(database, desks, alice, monkeypatch):
    monkeypatch.setattr(lease_state, "STORE_BACKOFF_S", 0.02)
    rng = random.Random(7)
    losses = [rng.choice(("before", "after", None)) for _ in range(30)]
    lose_replies(monkeypatch, losses, writer_module, of="Writer._serve_orders")
    transaction(database, lambda: set_balance(database, alice, 10**6))
    payment = payment_of(key_of(alice), now_ms())
    desk = desks().start()
    wait_for(lambda: desk.writer.state == UP)
    passed = 0
    while losses or passed < 20:
        try:
            hold = await desk.hold(payment, 50_000)
        except StoreUnavailable:
            await asyncio.sleep(0.03)
            continue
        desk.funds.settle(hold, 0)
        passed += 1
        desk.funds.recalled([alice])
        await asyncio.sleep(0.01)
        desk.run_posts()
        desk.funds.sweep()
    state = desk.funds._states[alice]
    while state.unconfirmed or state.order or state.giving:
        desk.funds.sweep()
        await asyncio.sleep(0.01)
        desk.run_posts()
    assert show(database, "alice").leased_nanos == state.lease == state.free


@pytest.mark.databases("mariadb")  # SQLite has no connection to cut
def test_real_connections_cut_around_commit(database, desks, outage, alice):
    desk = desks().start()
    total = 0
    for cut in ("after", "before", "after", "after", "before"):
        wait_for(lambda: desk.writer.state == UP)
        outage.proxy.cut_commits.append(cut)
        for _ in range(40):
            desk.call(alice)
        total += 40
        wait_for(lambda total=total: len(rows(database)) == total)
    assert outage.proxy.cut_commits == []
    assert balance(database, alice) == -2_000 * total
    assert_books_are_right(database)


def test_a_duplicate_is_parked_and_the_rest_goes_on(database, desks, alice, caplog):
    desk = desks().start()
    twice = desk.call(alice, 5)
    wait_for(lambda: len(rows(database)) == 1)
    good = [desk.call(alice) for _ in range(3)]
    desk.journal.close_call(closed(twice, alice, 9))
    good += [desk.call(alice) for _ in range(3)]
    wait_for(lambda: len(rows(database)) == 7)
    assert desk.stop()
    assert {row["id"] for row in rows(database)} == {twice, *good}
    assert balance(database, alice) == -10_000 - 6 * 2_000
    (parked,) = (desk.journal.directory / "parked.ndjson").read_text().splitlines()
    assert json.loads(parked)["record"][1] == twice
    assert "parked" in caplog.text
    assert_books_are_right(database)


def test_what_does_not_fit_its_column_is_cut_or_parked(database, desks, alice):
    desk = desks().start()
    wide = closed(new_ulid(), alice)
    wide.call.client_request_id = "x" * 300
    huge = closed(new_ulid(), alice)
    huge.duration_ms = 2**63
    nonsense = closed("no-ulid-but-26-characters!", alice)
    fine = closed(new_ulid(), alice)
    for record in (wide, huge, nonsense, fine):
        desk.journal.close_call(record)
    wait_for(lambda: len(rows(database)) == 2)
    assert desk.stop()
    stored = {row["id"]: row for row in rows(database)}
    assert set(stored) == {wide.id, fine.id}
    parked = (desk.journal.directory / "parked.ndjson").read_text().splitlines()
    assert {json.loads(line)["record"][1] for line in parked} == {huge.id, nonsense.id}
    assert balance(database, alice) == -4_000
    assert_books_are_right(database)


@on_sqlite
def test_errors_that_are_not_a_records_fault_park_nothing(database, desks, alice, monkeypatch):
    real = source_module.apply_batch
    failures = [StoreError("disk quota"), StoreUnavailable("away"), StoreError("odd")]

    def fail(db, batch, *clock):
        if failures:
            raise failures.pop(0)
        return real(db, batch, *clock)

    monkeypatch.setattr(source_module, "apply_batch", fail)
    desk = desks().start()
    desk.call(alice)
    wait_for(lambda: len(rows(database)) == 1)
    assert failures == []
    assert not (desk.journal.directory / "parked.ndjson").exists()


@on_sqlite
def test_an_unreadable_line_is_parked(database, desks, alice):
    desk = desks()
    desk.call(alice)
    desk.journal._append(with_check(b'["c","broken'))
    desk.call(alice)
    desk.start()
    wait_for(lambda: len(rows(database)) == 2)
    parked = (desk.journal.directory / "parked.ndjson").read_text()
    assert "unreadable" in parked and "broken" in parked


def damage(desk, offset):
    path = segment_path(desk.journal.directory, desk.journal.id, 0)
    with open(path, "r+b") as segment:
        segment.seek(offset)
        segment.write(b"?")


@on_sqlite
def test_a_damaged_line_is_put_aside_and_the_rest_goes_on(database, desks, alice, caplog):
    desk = desks()
    desk.call(alice)
    before = desk.journal.written_offset
    lost = desk.call(alice)
    damage(desk, desk.journal.written_offset - 20)
    desk.call(alice)
    damage(desk, before + 50)  # an open line, whose call is closed
    desk.start()
    wait_for(lambda: len(rows(database)) == 2)
    assert desk.stop()
    parked = (desk.journal.directory / "parked.ndjson").read_text().splitlines()
    assert [json.loads(line)["record"][:4] for line in parked] == ['["o"', '["c"']
    assert lost in parked[1] and f"journal {desk.journal.id} is damaged" in parked[1]
    assert "parked.ndjson" in caplog.text
    assert_books_are_right(database)


@on_sqlite
def test_damage_in_the_journal_of_the_dead_is_put_aside(database, desks, alice, caplog):
    dead = desks()
    lost = dead.call(alice)
    damage(dead, dead.journal.written_offset - 20)
    dead.call(alice)
    dead.stopped = True
    dead.journal.close()
    desk = desks().start()
    wait_for(lambda: len(rows(database)) == 2)
    assert {row["id"]: row["outcome"] for row in rows(database)}[lost] == "gateway_lost"
    assert desk.stop()
    [parked] = (desk.journal.directory / "parked.ndjson").read_text().splitlines()
    assert lost in parked and dead.journal.id in parked
    assert_books_are_right(database)


@on_sqlite
def test_an_exchanged_database_is_noticed(database, desks, alice, caplog):
    desk = desks().start()
    desk.call(alice)
    wait_for(lambda: len(rows(database)) == 1)
    transaction(database, lambda: execute(database, 'UPDATE "journals" SET "offset" = 12345'))
    wait_for(lambda: desk.writer.state == DOWN)
    desk.call(alice)
    time.sleep(0.3)
    assert len(rows(database)) == 1
    assert "was the database restored" in caplog.text
    assert not desk.stop(0.2)


@on_sqlite
def test_a_journal_that_cannot_be_adopted_does_not_stop_the_rest(
    database, desks, alice, monkeypatch
):
    dead = desks()
    dead.call(alice)
    dead.writer.start()
    dead.kill()
    from store.calls.adoption import Orphan

    real = Orphan.close_open_calls
    failures = [OSError(28, "No space left on device")] * 3

    def fail(self, applied, node):
        if failures:
            raise failures.pop()
        return real(self, applied, node)

    monkeypatch.setattr(Orphan, "close_open_calls", fail)
    desk = desks().start()
    desk.call(alice)
    wait_for(lambda: len(rows(database)) == 2)
    assert_books_are_right(database)


@on_sqlite
def test_a_journal_that_is_too_old_is_named_once_and_left(database, desks, caplog, monkeypatch):
    monkeypatch.setattr(writer_module, "ADOPT_INTERVAL_S", 0.01)
    dead = desks()
    dead.writer.start()
    dead.kill()
    path = segment_path(dead.journal.directory, dead.journal.id, 0)
    with path.open("r+b") as file:
        file.write(b'["c","01JD0000000000000000000001",1700000000000,"U"]\n')
    desk = desks().start()
    wait_for(lambda: "is too old for this version" in caplog.text)
    time.sleep(0.1)
    assert caplog.text.count(f"journal {dead.journal.id} is too old") == 1
    desk.stop()
    assert path.exists()


CHILD = textwrap.dedent("""
    import os, random, sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from store.db.database import open_database
    from store.values.ids import new_ulid
    from store.calls.journal import Journal
    from store.calls.journal_lines import Sent
    from store.values.pricing import Prices, cost_nanos, prices_from_text
    from store.values.usage_record import AttemptRecord, Charge
    from tests.support.usage_records import open_line, usage_record
    from store.calls.writer import Hooks, Writer
    _, _, url, folder, said, prices_text, *users = sys.argv
    prices = prices_from_text(prices_text)
    journal = Journal(Path(folder), sync_ms=2)
    ignore = lambda *_: None
    hooks = Hooks(ignore, ignore, ignore, lambda: {user: 1 for user in users}, dict, ignore)
    writer = Writer(open_database(url), journal, "web-1", hooks)
    writer.start()
    out = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    rng = random.Random()
    running = []
    while True:
        call_id, user = new_ulid(), rng.choice(users)
        facts = dict(id=call_id, user_id=user, prices=prices_text, multiplier_ppm=1_500_000)
        journal.open_call(open_line(**facts, input_tokens=10))
        os.write(out, f"open {call_id}\\n".encode())
        if rng.random() < 0.3:
            journal.mark(call_id, rng.randrange(50), rng.random() < 0.8, Sent(200))
        running.append((call_id, user, facts))
        if len(running) > 20:
            call_id, user, facts = running.pop(rng.randrange(len(running)))
            record = usage_record(**facts, output_tokens=rng.randrange(100),
                                 usage_source="reported")
            record.cost_nanos = cost_nanos(record, prices, 1_500_000)
            record.charges = (Charge("wallet", record.cost_nanos),) if record.cost_nanos else ()
            journal.close_call(record)
            os.write(out, f"close {call_id} {record.cost_nanos}\\n".encode())
            time.sleep(0.001)  # the records of a second are booked in a second
""")


def kill_somewhere(process, rng, database, at_least):
    """SIGKILL at a random moment after the child's writer has begun to work."""
    wait_for(lambda: next_count(database) > at_least or process.poll() is not None)
    assert process.poll() is None
    time.sleep(rng.uniform(0, 0.15))
    process.send_signal(signal.SIGKILL)
    process.wait()


def next_count(db):
    query = 'SELECT COUNT(*) FROM "usage_records"'
    return snapshot_read(db, lambda: execute(db, query).fetchone())[0]


def test_sigkill_at_any_moment_loses_and_doubles_nothing(database, desks, outage, tmp_path):
    users = [add_user(database, f"user-{number}") for number in range(5)]
    rng = random.Random(11)
    notes = tmp_path / "text"
    folder = tmp_path / "journal"
    for _ in range(10):
        arguments = [os.getcwd(), outage.url, folder, notes, PRICES.text, *users]
        process = subprocess.Popen([sys.executable, "-c", CHILD, *map(str, arguments)])
        try:
            kill_somewhere(process, rng, database, next_count(database))
        finally:
            process.kill()
            process.wait()
    desk = desks().start()
    wait_for(lambda: not set(folder.glob("*.lock")) - {folder / f"{desk.journal.id}.lock"}, 60)
    lines = [line.split() for line in notes.read_text().splitlines()]
    begun = {line[1] for line in lines if line[0] == "open"}
    ended = {line[1]: int(line[2]) for line in lines if line[0] == "close"}
    found = rows(database)
    by_id = {row["id"]: row for row in found}
    assert len(found) == len(by_id)
    # A call whose line was written just before the kill may not have said so: one a cycle.
    assert begun <= set(by_id) and len(set(by_id) - begun) <= 10
    for call_id, cost in ended.items():
        assert (by_id[call_id]["outcome"], by_id[call_id]["cost_nanos"]) == ("ok", cost)
    unknown = [row for row in found if row["id"] not in ended]
    assert sum(row["outcome"] != "gateway_lost" for row in unknown) <= 10
    assert len(unknown) >= 100
    for user_id in users:
        spent = sum(row["cost_nanos"] for row in found if row["user_id"] == user_id)
        assert balance(database, user_id) == -spent
    assert_books_are_right(database)
    assert not (folder / "parked.ndjson").exists()
