"""Connections, retries and the names of errors, on real databases."""

import os
import sqlite3
import stat
import threading
import time

import peewee
import pymysql
import pytest

from store.db import database as module
from store.db.database import (
    CLOCKS_AGREE_MS,
    classify,
    database_ms,
    discard,
    execute,
    executemany,
    first_row,
    insert_columns,
    insert_rows,
    is_mysql,
    lead_of,
    open_database,
    place,
    select_rows,
    snapshot_read,
    transaction,
)
from store.db.mysql import Host
from store.db.tables.system import Node
from store.values.errors import Conflict, OutcomeUnknown, StoreError, StoreUnavailable
from store.values.ids import now_ms
from tests.support.ports import free_port
from tests.support.stores import at_once


@pytest.fixture
def db(empty_database):
    execute(empty_database, 'CREATE TABLE "t" ("id" INT NOT NULL PRIMARY KEY, "group" INT)')
    executemany(empty_database, 'INSERT INTO "t" ("id", "group") VALUES (?, ?)', [(1, 0), (2, 0)])
    return empty_database


def add(db, row, amount):
    return execute(db, 'UPDATE "t" SET "group" = "group" + ? WHERE "id" = ?', (amount, row))


def values(db):
    return [row[0] for row in execute(db, 'SELECT "group" FROM "t" ORDER BY "id"').fetchall()]


def in_thread(db, work):
    results = []

    def run():
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - handed to the test
            results.append(error)
        finally:
            discard(db)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def in_other(db, work):
    """Run some work in a thread of its own; return its result."""
    thread, results = in_thread(db, work)
    thread.join()
    return results[0]


URLS = ["postgres://x/y", "sqlite://x.db", "sqlite:///", "sqlite:///:memory:", "mysql://host"]


@pytest.mark.parametrize("url", [*URLS, "mysql:///db", "mysql://h/a/b", "mysql://h/db?x=1"])
def test_urls_that_name_no_database(url):
    with pytest.raises(ValueError, match=r"store\.url"):
        open_database(url)


def test_a_mysql_url_is_decoded():
    db = open_database("mysql://us%40er:p%2Fw@db.example:3307/name")
    assert db.database == "name"
    assert {"user": "us@er", "password": b"p/w"}.items() <= db.connect_params.items()
    assert db.hosts.all == (Host("db.example", 3307),)
    for limit in ("connect_timeout", "read_timeout", "write_timeout"):
        assert db.connect_params[limit]


def test_sqlite_is_durable_and_private(tmp_path):
    path = tmp_path / "x.db"
    db = open_database(f"sqlite:///{path}")
    execute(db, "CREATE TABLE t (a INT)")
    assert (db.journal_mode, db.synchronous, db.timeout) == ("wal", 2, module.LOCK_WAIT_S)
    for name in os.listdir(tmp_path):
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600
    db.close()


def test_a_transaction_commits_or_leaves_nothing(db):
    """The same for a transaction inside another one, which joins it."""
    transaction(db, lambda: add(db, 1, 5))
    assert values(db) == [5, 0]

    def fail():
        transaction(db, lambda: add(db, 1, 5))
        add(db, 2, 5)
        raise KeyError("of the work")

    with pytest.raises(KeyError):
        transaction(db, fail)
    assert values(db) == [5, 0]


@pytest.mark.parametrize("count", [1, 498, 499, 500, 1500])
def test_columns_become_rows_however_many_a_statement_takes(db, count):
    execute(db, 'DELETE FROM "t"')
    groups = [None if number % 3 else -number for number in range(count)]
    transaction(db, lambda: insert_columns(db, "t", {"group": groups, "id": range(count)}))
    assert values(db) == groups


def test_a_column_that_is_left_out_has_its_default(db):
    insert_columns(db, "t", {"id": [3, 4]})
    assert values(db) == [0, 0, None, None]


def test_a_duplicate_is_a_conflict_and_of_many_rows_none_stays(db):
    ids = [*range(10, 1000), 1]
    for work in (
        lambda: insert_columns(db, "t", {"id": ids, "group": ids}),
        lambda: execute(db, 'INSERT INTO "t" VALUES (1, 1)'),
        lambda: executemany(db, 'INSERT INTO "t" VALUES (?, ?)', [(1, 1)]),
    ):
        with pytest.raises(Conflict):
            transaction(db, work)
    assert values(db) == [0, 0]


@pytest.mark.databases("mariadb")  # SQLite columns have no length
def test_what_does_not_fit_is_an_error_not_cut(db):
    execute(db, "CREATE TABLE s (a VARCHAR(3))")
    with pytest.raises(StoreError, match="too long"):
        transaction(db, lambda: execute(db, "INSERT INTO s VALUES (?)", ("four",)))


def test_text_passes_and_rows_found_are_counted_even_when_nothing_changes(db):
    row = execute(db, "SELECT ?, '100%'", ("50% é 😀",)).fetchone()
    assert tuple(row) == ("50% é 😀", "100%")
    assert [add(db, row_id, 0).rowcount for row_id in (1, 3)] == [1, 0]


@pytest.mark.parametrize(
    ("text", "unavailable"), [('SELECT 1 FROM "nowhere"', True), ("SELEKT 1", False)]
)
def test_a_missing_table_is_an_unavailable_store_and_a_mistake_is_none(db, text, unavailable):
    with pytest.raises(StoreError) as caught:
        transaction(db, lambda: execute(db, text))
    assert isinstance(caught.value, StoreUnavailable) is unavailable


def test_a_snapshot_sees_one_moment(db):
    def work():
        before = values(db)
        assert in_other(db, lambda: transaction(db, lambda: add(db, 1, 7).rowcount)) == 1
        return before, values(db)

    assert snapshot_read(db, work) == ([0, 0], [0, 0])
    assert values(db) == [7, 0]


@pytest.mark.databases("mariadb")  # SQLite has one writer
def test_a_deadlock_is_retried_whole(db):
    barrier = threading.Barrier(2, timeout=5)
    tries = []

    def work(first, second):
        tries.append(first)
        add(db, first, 1)
        if len(tries) <= 2:
            barrier.wait()
        add(db, second, 1)

    both = [lambda a=a, b=b: transaction(db, lambda: work(a, b)) for a, b in ((1, 2), (2, 1))]
    assert at_once(db, *both) == [None, None]
    assert len(tries) == 3
    assert values(db) == [2, 2]


def test_a_held_lock_ends_as_unavailable(db, monkeypatch):
    if is_mysql(db):
        execute(db, "SET SESSION innodb_lock_wait_timeout = 1")
    else:
        db.timeout = 0.05
    monkeypatch.setattr(module, "TRANSACTION_ATTEMPTS", 2)
    taken, done = threading.Event(), threading.Event()

    def hold():
        def work():
            add(db, 1, 1)
            taken.set()
            done.wait(20)

        transaction(db, work)

    thread, results = in_thread(db, hold)
    taken.wait(5)
    with pytest.raises(StoreUnavailable):
        transaction(db, lambda: add(db, 1, 1))
    done.set()
    thread.join()
    assert results == [None]
    assert values(db) == [1, 0]


def kill_own_connection(db):
    own = execute(db, "SELECT CONNECTION_ID()").fetchone()[0]
    assert in_other(db, lambda: execute(db, f"KILL {own}") and None) is None


@pytest.mark.databases("mariadb")  # SQLite has no server
def test_a_connection_that_ended_while_idle_is_replaced(db):
    kill_own_connection(db)
    transaction(db, lambda: add(db, 1, 1))
    assert values(db) == [1, 0]


@pytest.mark.databases("mariadb")  # SQLite has no server
def test_a_connection_that_ends_in_a_transaction_leaves_nothing(db):
    runs = []

    def work():
        runs.append(1)
        add(db, 1, 1)
        kill_own_connection(db)
        add(db, 2, 1)

    with pytest.raises(StoreUnavailable) as caught:
        transaction(db, work)
    assert not isinstance(caught.value, OutcomeUnknown)
    assert runs == [1]
    assert transaction(db, lambda: values(db)) == [0, 0]


@pytest.mark.databases("mariadb")  # SQLite has no server
@pytest.mark.parametrize("code", [1047, 1180, 2006, 2013])
def test_a_connection_lost_in_commit_has_an_unknown_outcome(db, monkeypatch, code):
    runs = []

    def commit():
        raise peewee.OperationalError(pymysql.err.OperationalError(code, "gone"), code, "gone")

    monkeypatch.setattr(db, "commit", commit)
    with pytest.raises(OutcomeUnknown):
        transaction(db, lambda: runs.append(add(db, 1, 1)))
    assert len(runs) == 1


@pytest.mark.databases("mariadb")  # SQLite has one writer
@pytest.mark.parametrize("code", [1205, 1213])
def test_a_deadlock_in_commit_is_retried(db, monkeypatch, code):
    real, runs = db.commit, []

    def commit():
        if len(runs) == 1:
            raise peewee.OperationalError(pymysql.err.OperationalError(code, "again"))
        return real()

    monkeypatch.setattr(db, "commit", commit)
    transaction(db, lambda: runs.append(add(db, 1, 1)))
    assert len(runs) == 2
    assert values(db) == [1, 0]


def test_nobody_answers_or_a_file_is_no_database(tmp_path):
    (tmp_path / "x.db").write_bytes(b"nonsense" * 1000)
    start = time.monotonic()
    for url in ("mysql://root@127.0.0.1:1/none", f"sqlite:///{tmp_path}/x.db"):
        db = open_database(url)
        with pytest.raises(StoreUnavailable):
            transaction(db, lambda db=db: execute(db, "SELECT 1"))
    assert time.monotonic() - start < module.CONNECT_TIMEOUT_S


def test_names_of_other_errors():
    assert type(classify(sqlite3.IntegrityError("x"))) is Conflict
    assert type(classify(pymysql.err.DataError(1264, "Out of range"))) is StoreError
    assert type(classify(pymysql.err.OperationalError(1290, "read only"))) is StoreUnavailable
    assert type(classify(pymysql.err.InterfaceError(0, ""))) is StoreUnavailable
    assert str(classify(pymysql.err.OperationalError(2003, "refused"))) == "refused (2003)"
    same = StoreError("x")
    assert classify(same) is same


def test_rows_of_a_model_in_any_number(database):
    rows = [{"name": f"node {number}", "seen_ms": number} for number in range(1200)]
    transaction(database, lambda: insert_rows(database, Node, rows))
    query = Node.select(Node.name, Node.seen_ms).order_by(Node.seen_ms)
    assert select_rows(database, query) == [(row["name"], row["seen_ms"]) for row in rows]
    transaction(database, lambda: insert_rows(database, Node, []))


def test_rows_that_are_there_are_replaced_when_told_so(database):
    old, new = ({"name": "a", "seen_ms": at_ms} for at_ms in (1, 2))
    query = Node.select(Node.seen_ms)
    transaction(database, lambda: insert_rows(database, Node, [old]))
    with pytest.raises(Conflict):
        transaction(database, lambda: insert_rows(database, Node, [new]))
    assert first_row(database, query) == (1,)
    transaction(database, lambda: insert_rows(database, Node, [new], replace=["seen_ms"]))
    assert first_row(database, query) == (2,)


def test_the_database_tells_the_time_in_utc(empty_database):
    began_ms = now_ms()
    for zone in ("+00:00", "-07:30"):
        if is_mysql(empty_database):
            execute(empty_database, "SET SESSION time_zone = ?", (zone,))
        at_ms = database_ms(empty_database)
        assert began_ms - 1000 <= at_ms <= now_ms() + 1000
        assert transaction(empty_database, lambda: database_ms(empty_database)) >= at_ms


def test_clocks_that_agree_have_no_lead():
    assert lead_of(now_ms()) == 0
    assert abs(lead_of(now_ms() + 60_000) - 60_000) < CLOCKS_AGREE_MS
    assert abs(lead_of(now_ms() - 60_000) + 60_000) < CLOCKS_AGREE_MS


def test_messages_name_the_file_or_the_host_and_never_the_password(tmp_path):
    missing = tmp_path / "none" / "sluice.db"
    port = free_port()
    for url, where in (
        (f"sqlite:///{missing}", str(missing)),
        (f"mysql://gateway:s3cretpw@127.0.0.1:{port}/books", f"127.0.0.1:{port}/books"),
    ):
        db = open_database(url)
        with pytest.raises(StoreUnavailable) as caught:
            transaction(db, lambda db=db: execute(db, "SELECT 1"))
        assert str(caught.value).startswith(f"{where}: ")
        assert str(caught.value).count(where) == 1 and "s3cretpw" not in str(caught.value)
        assert place(db) == where


def lose_commit(db, monkeypatch, *, after):
    """Make the first COMMIT of a marked transaction lose its connection, after or before it took
    effect."""
    real, commits = db.commit, []

    def commit():
        commits.append(1)
        if len(commits) > 1:
            return real()
        if after:
            real()
        db.connection().close()
        raise peewee.OperationalError(pymysql.err.OperationalError(2013, "gone"))

    monkeypatch.setattr(db, "commit", commit)


@pytest.mark.databases("mariadb")  # SQLite has no connection to lose
@pytest.mark.parametrize("after", [True, False])
def test_a_marked_transaction_that_is_lost_in_commit_happens_once(database, monkeypatch, after):
    lose_commit(database, monkeypatch, after=after)
    runs = []

    def work():
        runs.append(1)
        insert_rows(database, Node, [{"name": f"node {len(runs)}", "seen_ms": 1}])
        return len(runs)

    times = 1 if after else 2
    assert transaction(database, work, marked=True) == times == len(runs)
    assert select_rows(database, Node.select(Node.name)) == [(f"node {times}",)]


@pytest.mark.databases("mariadb")
def test_where_nobody_answers_the_message_leads_to_the_outcome(database, monkeypatch):
    lose_commit(database, monkeypatch, after=True)
    monkeypatch.setattr(module, "OUTCOME_WAIT_S", 0.0)
    real = module.outcome

    def unavailable(db, mark):
        raise StoreUnavailable("gone")

    monkeypatch.setattr(module, "outcome", unavailable)
    node = {"name": "a", "seen_ms": 1}
    with pytest.raises(OutcomeUnknown, match=r"done: \./sluice store mark ") as caught:
        transaction(database, lambda: insert_rows(database, Node, [node]), marked=True)
    mark = str(caught.value).split()[-1]
    assert abs(real(database, mark) - now_ms()) < 60_000
    assert real(database, "01JUNKNOWN") is None and real(database, "01JUNKNOWN") is None
