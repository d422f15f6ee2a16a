"""Every closed call is booked exactly once: through outages, lost replies and adoption.

For killed processes see test_adoption and tests/gateway/test_kill.py.
"""

import asyncio
import contextlib
import functools
import json
import logging
import random
import socket
import sqlite3
import threading
import time
from urllib.parse import urlsplit

import pytest

from store.calls import source as source_module
from store.calls import writer as writer_module
from store.calls.adoption import Orphan
from store.calls.journal import Journal
from store.calls.journal_files import segment_path
from store.calls.journal_lines import Sent, with_check
from store.calls.rollups import verify as verify_rollups
from store.calls.usage_queries import Filters, export_rows
from store.calls.usage_queries import verify as verify_usage
from store.calls.writer import DOWN, UP, Hooks, Writer
from store.channels import breakers, status_sums
from store.db import database as database_module
from store.db import mysql
from store.db.database import discard, execute, open_database, snapshot_read
from store.db.migrate import up
from store.db.nodes import last_seen
from store.db.tables.usage import JournalRow
from store.money.accounts import payment_of
from store.money.books import verify as verify_books
from store.money.funds import Funds
from store.money.leases import Order
from store.money.wallet import Movement, View, credit, show
from store.values.errors import OutcomeUnknown, StoreError, StoreUnavailable
from store.values.ids import new_ulid, now_ms
from store.values.usage_record import AttemptRecord
from tests.store.processes import closed, key_of, opened
from tests.support.client import wait_until
from tests.support.proxy import Switch
from tests.support.stores import change, count, pairs, select
from tests.support.users import add_user

on_sqlite = pytest.mark.databases("sqlite")  # independent of the kind of store
on_mariadb = pytest.mark.databases("mariadb")


def wait_for(condition, timeout_s=20.0):
    assert wait_until(condition, timeout_s, 0.01), "it did not happen in time"


def rows(db):
    """Return the records by their ids."""
    found = list(export_rows(db, Filters()))
    by_id = {row["id"]: row for row in found}
    assert len(by_id) == len(found)
    return by_id


def outcomes(db):
    return {call_id: row["outcome"] for call_id, row in rows(db).items()}


@pytest.fixture
def booked(database):
    """Yield booked(count), which waits for this many records and returns them by their ids. At the
    end, check all books."""

    def wait(number, timeout_s=20.0):
        wait_for(lambda: count(database, "usage_records") >= number, timeout_s)
        found = rows(database)
        assert len(found) == number
        return found

    yield wait
    assert verify_books(database) == []
    assert list(verify_usage(database)) == []
    assert list(verify_rollups(database)) == []


class Line(Switch):
    """A connection to MariaDB that can be cut."""

    def __init__(self, port):
        self.open, self._clients = True, []
        super().__init__(port)

    def _serve(self, client):
        self._clients.append(client)
        if self.open:
            super()._serve(client)
        client.close()

    def cut(self):
        self.open = False
        clients, self._clients = self._clients, []
        for client in clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)


class Outage:
    """An outage: makes the database unavailable and available again, in the way of each kind."""

    def __init__(self, url):
        self.line = self.lock = None
        self.url = url
        if url.startswith("mysql:"):
            parts = urlsplit(url)
            self.line = Line(parts.port)
            self.url = url.replace(f":{parts.port}/", f":{self.line.port}/")
        else:
            self.path = url.removeprefix("sqlite:///")

    def begin(self):
        if self.line:
            self.line.cut()
        else:
            self.lock = sqlite3.connect(self.path, timeout=10, isolation_level=None)
            self.lock.execute("BEGIN IMMEDIATE")

    def end(self):
        if self.line:
            self.line.open = True
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
    if made.line:
        made.line.cut()
        made.line.close()


class Desk:
    """The parts of a worker that write: a journal, a writer, funds, and a replacement for the
    loop."""

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

    def begin(self):
        """Start, and wait until the store is reachable."""
        self.start().wait_up()
        return self

    def wait_up(self):
        wait_for(lambda: self.writer.state == UP)

    def wait_down(self):
        wait_for(lambda: self.writer.state == DOWN)

    @property
    def parked(self):
        """Return the lines of `parked.ndjson`, with the text of each."""
        path = self.journal.directory / "parked.ndjson"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) | {"line": line} for line in lines]

    def run_posts(self):
        posts, self.posts = self.posts, []
        for take_in, *news in posts:
            take_in(*news)

    async def hold(self, payment, amount):
        """Make a hold, running the posts meanwhile."""
        holding = asyncio.ensure_future(self.funds.hold(payment, amount, amount))
        while not holding.done():
            await asyncio.sleep(0.002)
            self.run_posts()
        return holding.result()

    def open(self, user_id):
        call_id = new_ulid()
        self.journal.open_call(opened(call_id, user_id))
        return call_id

    def call(self, user_id, tokens=1, **fields):
        call_id = self.open(user_id)
        self.journal.close_call(closed(call_id, user_id, tokens, **fields))
        return call_id

    def stop(self, timeout_s=20.0):
        self.stopped = True
        return self.writer.stop(timeout_s)

    def kill(self):
        """Stop as after SIGKILL: nothing is drained or removed."""
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


@pytest.fixture
def rich(database, alice):
    """Return the payment of alice's calls; she has a million."""
    credit(database, "alice", Movement(10**6, "paid"))
    return payment_of(key_of(alice), now_ms())


def balance(db):
    return show(db, "alice").balance_nanos


def test_closed_calls_become_records_and_charges(database, desks, alice, booked):
    desk = desks().start()
    ids = [desk.call(alice, number) for number in range(1200)]
    stored = booked(1200)
    assert list(stored) == sorted(ids)
    assert all(row["recorded_ms"] > 1 for row in stored.values())
    assert balance(database) == -sum(2_000 * number for number in range(1200))
    assert desk.writer.state == UP
    wait_for(lambda: desk.journal.backlog_bytes == 0)
    assert desk.stop()
    [(offset, finished)] = select(database, 'SELECT "offset", "finished_ms" FROM "journals"')
    assert offset > 0 and finished is not None
    assert list((desk.journal.directory).iterdir()) == []


async def test_what_runs_is_seen_from_outside_and_others_can_have_the_rest(database, desks, rich):
    first, second = desks().begin(), desks().begin()
    hold = await first.hold(rich, 400_000)
    wait_for(lambda: show(database, "alice").held_nanos == 400_000)
    assert show(database, "alice").leased_nanos == 550_000  # with a quarter of the rest
    holding = asyncio.ensure_future(second.hold(rich, 600_000))
    while not holding.done():
        await asyncio.sleep(0.01)
        first.run_posts()
    assert holding.result().amount_nanos == 600_000
    first.funds.settle(hold, 0)
    wait_for(lambda: show(database, "alice").held_nanos == 600_000)
    second.funds.settle(holding.result(), 0)
    assert first.stop() and second.stop()
    assert show(database, "alice") == View("alice", 10**6, 0, 0)


async def test_orders_are_refused_at_once_while_the_store_is_away(desks, outage, alice, rich):
    desk = desks().begin()
    outage.begin()
    desk.call(alice)  # so that the outage is noticed at once
    desk.wait_down()
    with pytest.raises(StoreUnavailable):
        await desk.hold(rich, 1)
    assert not desk.writer.order(Order(rich.payers[0], need=1))


async def test_the_leases_of_the_dead_are_given_back(database, desks, alice, rich, booked):
    dead = desks().begin()
    await dead.hold(rich, 10**6)
    dead.journal.mark(dead.open(alice), 5, True, Sent(status=200))
    dead.kill()
    assert show(database, "alice").leased_nanos == 10**6
    heir = desks().start()
    wait_for(lambda: show(database, "alice").leased_nanos == 0)
    [record] = booked(1).values()
    assert record["outcome"] == "gateway_lost"
    assert balance(database) == 10**6 - record["cost_nanos"] < 10**6
    assert (await heir.hold(rich, 500_000)).amount_nanos == 500_000


@on_sqlite
def test_breakers_are_shown_while_their_process_lives(database, desks):
    def shown():
        return snapshot_read(database, lambda: breakers.all_open(database))

    def wait_for_those_of(*processes):
        wait_for(lambda: {row.journal_id for row in shown()} == {p.journal.id for p in processes})

    alive, dead = desks().start(), desks()
    dead.open_breakers = alive.open_breakers = {("C1", "m1", "f1"): ("failing", 1, now_ms())}
    dead.start()
    wait_for_those_of(alive, dead)
    names = {(row.node, row.channel_id, row.reason) for row in shown()}
    assert names == {("web-1", "C1", "failing")}
    dead.kill()
    wait_for_those_of(alive)
    assert alive.stop() and shown() == []


def test_sums_that_have_become_old_are_moved_on(database, desks, alice, monkeypatch, booked):
    monkeypatch.setattr(writer_module, "FOLD_FIRST_S", 0.0)
    monkeypatch.setattr(writer_module, "FOLD_INTERVAL_S", 0.1)
    desk = desks().start()
    desk.call(alice)
    desk.call(alice, model="m1", attempts=(AttemptRecord("main", 200),))
    query = 'SELECT "span", "ok" FROM "channel_sums" WHERE "scope" = \'channel\''
    # Folding starts in 1970, so all windows have ended long ago.
    wait_for(lambda: dict(select(database, query)) == {"last_24h": 0, "last_30d": 0})
    booked(2)


@on_sqlite
@pytest.mark.parametrize(
    ("broken", "message"),
    [("fold", "the status of channels cannot be written"), ("poll", "a bad row")],
)
def test_what_is_beside_the_writing_does_not_stop_it(
    desks, alice, monkeypatch, caplog, booked, broken, message
):
    def fail(*_):
        raise StoreError("a bad row") if broken == "poll" else RuntimeError("no status today")

    monkeypatch.setattr(writer_module, "FOLD_FIRST_S", 0.0)
    if broken == "fold":
        monkeypatch.setattr(status_sums, "fold", fail)
    desk = desks(**({"poll": fail} if broken == "poll" else {})).start()
    desk.call(alice)
    booked(1)
    wait_for(lambda: message in caplog.text)
    assert broken == "poll" or wait_until(lambda: desk.polls > 1)
    assert desk.stop()


@on_sqlite
def test_the_node_is_heard_of(database, desks):
    began = now_ms()
    desk = desks().start()
    wait_for(lambda: snapshot_read(database, lambda: last_seen(database)).get("web-1", 0) >= began)
    wait_for(lambda: desk.polls > 0)


def test_an_outage_loses_nothing_and_memory_does_not_grow(database, desks, outage, alice, booked):
    desk = desks().start()
    ids = [desk.call(alice) for _ in range(10)]
    booked(10)
    outage.begin()
    ids += [desk.call(alice) for _ in range(3_000)]
    desk.wait_down()
    time.sleep(0.2)
    pending = desk.writer._own.pending
    # None: a poll noticed the outage before a batch was read.
    assert pending is None or len(pending.records) <= source_module.BATCH_RECORDS
    assert desk.journal.backlog_bytes > 1_000_000
    outage.end()
    desk.wait_up()
    ids += [desk.call(alice) for _ in range(10)]
    assert booked(3_020).keys() == set(ids)
    assert balance(database) == -2_000 * 3_020


def test_a_database_that_is_not_there_at_the_start(empty_database, database_url, tmp_path):
    ended = []
    desk, short = (
        Desk(database_url, tmp_path / "journal", finished=ended.append).start() for _ in range(2)
    )
    desk.call(new_ulid())
    wait_for(lambda: short.writer.trouble)
    assert short.stop()  # it never reached the store, so it does not wait for it
    assert ended == [short.journal.id]
    assert not list((tmp_path / "journal").glob(f"{short.journal.id}*"))
    assert desk.writer.state == DOWN
    up(empty_database)
    desk.wait_up()
    wait_for(lambda: len(rows(empty_database)) == 1)
    assert desk.stop()
    for started in (desk, short):
        discard(started.db)


def test_a_process_that_ends_in_its_first_round_leaves_no_row_of_a_journal_behind(
    database, desks, monkeypatch
):
    """Like a process that a reload has started and a restart ends at once."""
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


@on_sqlite
def test_a_call_left_open_at_the_end_is_adopted(desks, alice, booked):
    desk = desks().start()
    desk.journal.mark(desk.open(alice), 5, True, Sent(200))
    assert not desk.stop(0.5)
    desks().start()
    [row] = booked(1).values()
    assert (row["outcome"], row["status"], row["cost_nanos"]) == ("gateway_lost", 200, 20_000)


def test_the_journals_of_the_dead_are_adopted_while_running(database, desks, alice, booked):
    dead = desks()
    ids = [dead.call(alice) for _ in range(700)]
    lost = dead.open(alice)
    alive = desks().begin()
    dead.start().kill()
    booked(701)
    assert outcomes(database) == dict.fromkeys(ids, "ok") | {lost: "gateway_lost"}
    wait_for(lambda: pairs(database, "journals", "id", "finished_ms")[dead.journal.id] is not None)
    wait_for(lambda: not list(alive.journal.directory.glob(f"{dead.journal.id}*")))
    # They were never counted as charges of the living process.
    assert all(charged == {} for _, charged in alive.posts)


def test_how_far_the_store_is(desks, alice, outage, booked):
    """Reported only once everything written before is stored, including the records of dead
    processes."""
    dead = desks()
    dead.open(alice)
    dead.start().kill()
    reached, finished = [], []
    desk = desks(reached=reached.append, finished=finished.append).start()
    wait_for(lambda: reached)
    assert finished == [dead.journal.id]
    booked(1)
    outage.begin()
    desk.call(alice)
    written_ns = time.monotonic_ns()
    desk.wait_down()
    assert max(reached) < written_ns
    outage.end()
    wait_for(lambda: max(reached) > written_ns)
    booked(2)
    assert reached == sorted(reached)
    desk.stop()
    assert finished == [dead.journal.id, desk.journal.id]


@on_sqlite
def test_an_orphan_that_was_finished_is_only_removed(database, desks, alice, booked):
    dead = desks().start()
    dead.call(alice)
    booked(1)
    dead.kill()
    change(database, 'UPDATE "journals" SET "finished_ms" = 1')
    desks().start()
    wait_for(lambda: not list(dead.journal.directory.glob(f"{dead.journal.id}*")))
    booked(1)


def lose_replies(monkeypatch, replies):
    """Make the transactions of batches lose their reply, "before" or "after" they were
    committed."""
    real = source_module.transaction

    def transact(db, work):
        is_meant = work.__qualname__.startswith("JournalSource._transact")
        lost = replies.pop(0) if is_meant and replies else None
        if lost == "before":
            raise OutcomeUnknown("lost before")
        result = real(db, work)
        if lost == "after":
            raise OutcomeUnknown("lost after")
        return result

    monkeypatch.setattr(source_module, "transaction", transact)


async def test_a_lost_reply_to_commit_books_once(database, desks, alice, monkeypatch, booked):
    rng = random.Random(7)
    lose_replies(monkeypatch, [rng.choice(("before", "after", None)) for _ in range(12)])
    payment = payment_of(key_of(alice), now_ms())
    desk, spent = desks(), 0
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
    booked(600)
    assert balance(database) == -spent
    state = desk.funds._states[alice]
    wait_for(lambda: desk.run_posts() or state.unwritten == 0)
    assert state.lease == 0


def test_a_commit_that_ends_after_the_offset_was_read_books_once(
    database, desks, alice, monkeypatch, caplog, booked
):
    """The reply is lost; the server still works on it when the writer asks, and is done before the
    retry."""
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
    desk.begin()
    wait_for(lambda: len(late) == 2)
    desk.call(alice)
    booked(4)
    assert balance(database) == -2_000 * 4
    entries = [entry for entry in caplog.records if "unknown outcome" in entry.getMessage()]
    assert [entry.levelname for entry in entries] == ["INFO"]
    assert not [entry for entry in caplog.records if entry.exc_info]


@on_mariadb  # SQLite has no such setting
def test_a_server_that_takes_no_writes_is_read_from_and_not_written_to(
    database, desks, alice, monkeypatch, caplog, booked
):
    """Also for root, whom the server would not refuse."""
    monkeypatch.setattr(mysql, "READ_ONLY_CHECK_S", 0.05)
    monkeypatch.setattr(mysql, "SESSION_MAX_S", 0.05)
    desk = desks().begin()
    execute(database, "SET GLOBAL read_only = 1")
    try:
        wait_for(lambda: desk.writer.state == DOWN and "is read-only" in desk.writer.trouble)
        desk.call(alice)
        polls = desk.polls
        wait_for(lambda: desk.polls >= polls + 2)
        assert desk.writer.state == DOWN and rows(database) == {}
    finally:
        execute(database, "SET GLOBAL read_only = 0")
    desk.wait_up()
    booked(1)
    assert not [entry for entry in caplog.records if entry.exc_info]


def test_a_duplicate_is_parked_and_the_rest_goes_on(database, desks, alice, caplog, booked):
    desk = desks().start()
    twice = desk.call(alice, 5)
    booked(1)
    others = [desk.call(alice) for _ in range(3)]
    desk.journal.close_call(closed(twice, alice, 9))
    others += [desk.call(alice) for _ in range(3)]
    booked(7)
    assert desk.stop()
    assert rows(database).keys() == {twice, *others}
    assert balance(database) == -10_000 - 6 * 2_000
    [parked] = desk.parked
    assert parked["record"][1] == twice
    assert "parked" in caplog.text


def test_what_does_not_fit_its_column_is_cut_or_parked(database, desks, alice, booked):
    desk = desks().start()
    wide = closed(new_ulid(), alice, client_request_id="x" * 300)
    huge = closed(new_ulid(), alice, duration_ms=2**63)
    nonsense = closed("no-ulid-but-26-characters!", alice)
    fine = closed(new_ulid(), alice)
    for record in (wide, huge, nonsense, fine):
        desk.journal.close_call(record)
    booked(2)
    assert desk.stop()
    assert rows(database).keys() == {wide.id, fine.id}
    assert {line["record"][1] for line in desk.parked} == {huge.id, nonsense.id}
    assert balance(database) == -4_000


@on_sqlite
def test_errors_that_are_not_a_records_fault_park_nothing(desks, alice, monkeypatch, booked):
    real = source_module.apply_batch
    failures = [StoreError("disk quota"), StoreUnavailable("away"), StoreError("odd")]

    def fail(db, batch, *clock):
        if failures:
            raise failures.pop(0)
        return real(db, batch, *clock)

    monkeypatch.setattr(source_module, "apply_batch", fail)
    desk = desks().start()
    desk.call(alice)
    booked(1)
    assert failures == [] == desk.parked


def damage(desk, offset):
    path = segment_path(desk.journal.directory, desk.journal.id, 0)
    with open(path, "r+b") as segment:
        segment.seek(offset)
        segment.write(b"?")


@on_sqlite
def test_a_damaged_or_unreadable_line_is_parked_and_the_rest_goes_on(desks, alice, caplog, booked):
    desk = desks()
    desk.call(alice)
    before = desk.journal.written_offset
    lost = desk.call(alice)
    damage(desk, desk.journal.written_offset - 20)
    desk.call(alice)
    damage(desk, before + 50)  # an open line, whose call is closed
    desk.journal._append(with_check(b'["C","broken'))
    desk.call(alice)
    desk.start()
    booked(3)
    assert desk.stop()
    damaged = [row for row in desk.parked if "is damaged" in row["line"]]
    assert [row["record"][:4] for row in damaged] == ['["O"', '["C"']
    assert lost in damaged[1]["line"] and desk.journal.id in damaged[1]["line"]
    [unreadable] = [row["line"] for row in desk.parked if row not in damaged]
    assert "unreadable" in unreadable and "broken" in unreadable
    assert "parked.ndjson" in caplog.text


@on_sqlite
def test_damage_in_the_journal_of_the_dead_is_put_aside(database, desks, alice, booked):
    dead = desks()
    lost = dead.call(alice)
    damage(dead, dead.journal.written_offset - 20)
    dead.call(alice)
    dead.stopped = True
    dead.journal.close()
    desk = desks().start()
    booked(2)
    assert outcomes(database)[lost] == "gateway_lost"
    assert desk.stop()
    [parked] = desk.parked
    assert lost in parked["line"] and dead.journal.id in parked["line"]


@on_sqlite
def test_an_exchanged_database_is_noticed(database, desks, alice, caplog, booked):
    desk = desks().start()
    desk.call(alice)
    booked(1)
    change(database, 'UPDATE "journals" SET "offset" = 12345')
    desk.wait_down()
    desk.call(alice)
    time.sleep(0.3)
    booked(1)
    assert "was the database restored" in caplog.text
    assert not desk.stop(0.2)


@on_sqlite
def test_a_journal_that_cannot_be_adopted_does_not_stop_the_rest(desks, alice, monkeypatch, booked):
    dead = desks()
    dead.call(alice)
    dead.start().kill()
    real = Orphan.close_open_calls
    failures = [OSError(28, "No space left on device")] * 3

    def fail(self, applied, node):
        if failures:
            raise failures.pop()
        return real(self, applied, node)

    monkeypatch.setattr(Orphan, "close_open_calls", fail)
    desks().start().call(alice)
    booked(2)
