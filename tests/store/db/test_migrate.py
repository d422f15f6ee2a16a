"""The schema: made once, by any number of runners. (Against the models: test_schema.)"""

import ast
import subprocess
import sys
import threading

import pytest

from store.db import migrate, migrations
from store.db.database import discard, execute, is_mysql, open_database, transaction
from store.db.migrations.ddl import Migration
from store.values.errors import StoreUnavailable

NAMES = [migration.name for migration in migrations.ALL]

UP = """
import sys
from store.db import database, migrate
print(migrate.up(database.open_database(sys.argv[1])))
"""


def test_up_makes_what_was_pending_and_nothing_twice(empty_database):
    assert migrate.pending(empty_database) == NAMES
    assert any("usage_records" in statement for statement in migrate.plan(empty_database))
    assert migrate.up(empty_database) == NAMES
    assert migrate.pending(empty_database) == []
    assert migrate.plan(empty_database) == []
    assert migrate.up(empty_database) == []
    steps = migrate.status(empty_database)
    assert [step.name for step in steps] == NAMES
    assert all(step.applied_ms > 1_600_000_000_000 for step in steps)


def test_names_compare_byte_by_byte(database):
    for name in ("a", "A", "a ", "ä", "a\u0308"):
        row = {"id": name, "name": name, "role": "member", "spend_order": "x", "created_ms": 1}
        columns = ", ".join(f'"{c}"' for c in row)
        marks = ", ".join("?" * len(row))
        transaction(
            database,
            lambda row=row, columns=columns, marks=marks: execute(
                database, f'INSERT INTO "users" ({columns}) VALUES ({marks})', row.values()
            ),
        )
    for name in ("a", "A", "a "):
        for column in ("name", "id"):
            query = f'SELECT "name" FROM "users" WHERE "{column}" = ?'
            assert [r[0] for r in execute(database, query, (name,)).fetchall()] == [name]


def test_usage_records_are_partitioned_by_day_on_mysql(database):
    if not is_mysql(database):
        pytest.skip("SQLite has no partitions")
    query = (
        "SELECT partition_method, partition_expression, partition_description"
        " FROM information_schema.partitions"
        " WHERE table_schema = DATABASE() AND table_name = 'usage_records'"
    )
    [(method, expression, limit)] = execute(database, query).fetchall()
    assert (method, expression.strip('`"'), limit) == ("RANGE", "day", "MAXVALUE")


def test_many_processes_at_once(database_url):
    runners = [
        subprocess.Popen(
            [sys.executable, "-c", UP, database_url], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    answers = [runner.communicate(timeout=60)[0].strip() for runner in runners]
    assert [runner.returncode for runner in runners] == [0] * 4
    _assert_each_ran_once([ast.literal_eval(answer) for answer in answers])


def test_many_threads_at_once(empty_database):
    done, failed = [], []

    def run():
        try:
            done.append(migrate.up(empty_database))
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failed.append(error)
        finally:
            discard(empty_database)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(done) == len(threads)
    _assert_each_ran_once(done)


def _assert_each_ran_once(answers):
    # SQLite gives the write lock up between two migrations: another runner may do the next.
    assert sorted(name for names in answers for name in names) == NAMES


def test_a_half_applied_migration_is_finished_by_the_next_run(empty_database, monkeypatch):
    good = migrations.ALL[0]
    broken = Migration(good.name, [*good.sqlite[:3], "BOOM"], [*good.mysql[:3], "BOOM"])
    monkeypatch.setattr(migrate, "ALL", (broken,))
    with pytest.raises(Exception, match="BOOM"):
        migrate.up(empty_database)
    monkeypatch.setattr(migrate, "ALL", (good,))
    assert migrate.pending(empty_database) == ["0001_core"]
    assert migrate.up(empty_database) == ["0001_core"]
    assert empty_database.table_exists("usage_records")


def test_a_lease_held_by_another_runner_is_waited_for(empty_database, monkeypatch):
    if not is_mysql(empty_database):
        pytest.skip("SQLite runs a migration under its write lock")
    for statement in (migrate._HISTORY, migrate._LEASE, migrate._LEASE_ROW):
        execute(empty_database, statement)
    assert migrate._take(empty_database, "another")
    monkeypatch.setattr(migrate, "LEASE_WAIT_S", 0.5)
    with pytest.raises(StoreUnavailable, match="another migration"):
        migrate.up(empty_database)
    execute(empty_database, migrate._LEASE_DROP, ("another",))
    assert migrate.up(empty_database) == NAMES


def test_a_lost_lease_stops_the_runner(empty_database, monkeypatch):
    if not is_mysql(empty_database):
        pytest.skip("SQLite runs a migration under its write lock")
    monkeypatch.setattr(migrate, "LEASE_RENEW_S", 0.01)
    slow = Migration("0002_slow", [], ["SELECT SLEEP(0.5)", "SELECT SLEEP(0.5)"])
    migrate.up(empty_database)
    monkeypatch.setattr(migrate, "ALL", (*migrations.ALL, slow))

    def steal():
        thief = open_database(_url(empty_database))
        while not execute(
            thief, "UPDATE schema_lease SET owner = 'thief' WHERE owner <> ''"
        ).rowcount:
            pass
        discard(thief)

    thread = threading.Thread(target=steal)
    thread.start()
    with pytest.raises(StoreUnavailable, match="lease"):
        migrate.up(empty_database)
    thread.join()
    assert migrate.pending(empty_database) == ["0002_slow"]


def _url(db):
    return f"mysql://root@127.0.0.1:{db.connect_params['port']}/{db.database}"
