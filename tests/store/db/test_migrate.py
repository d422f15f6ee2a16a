"""The runner of migrations: a schema is created once, by any number of runners; a store of the
version before is upgraded, an older one is refused. (For the schema itself see test_schema.)"""

import ast
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from store.admin import kinds
from store.db import migrate, migrations, schema
from store.db.database import discard, execute, is_mysql, open_database, transaction
from store.db.migrations import Migration
from store.values.errors import StoreError, StoreUnavailable
from tests.support.stores import at_once

NAMES = [migration.name for migration in migrations.ALL]

UP = """
import sys
from store.db import database, migrate
print(migrate.up(database.open_database(sys.argv[1])))
"""


def test_up_makes_what_was_pending_and_nothing_twice(empty_database):
    assert migrate.is_new(empty_database) and migrate.pending(empty_database) == NAMES
    assert any("usage_records" in statement for statement in migrate.plan(empty_database))
    assert migrate.up(empty_database) == NAMES
    assert migrate.pending(empty_database) == []
    assert migrate.plan(empty_database) == []
    assert migrate.up(empty_database) == []
    steps = migrate.status(empty_database)
    assert [step.name for step in steps] == NAMES
    assert all(step.applied_ms > 1_600_000_000_000 for step in steps)


def test_many_processes_and_threads_at_once(database_url, empty_database):
    pipes = {"stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", UP, database_url]
    runners = [subprocess.Popen(command, **pipes) for _ in range(3)]
    answers = at_once(empty_database, *[lambda: migrate.up(empty_database)] * 3)
    answers += [ast.literal_eval(runner.communicate(timeout=60)[0]) for runner in runners]
    assert [runner.returncode for runner in runners] == [0] * 3
    assert sorted(name for names in answers for name in names) == NAMES


def test_a_half_applied_migration_is_finished_by_the_next_run(empty_database, monkeypatch):
    create_all = migrations.FIRST.statements
    broken = Migration(NAMES[0], lambda db: [*create_all(db)[:3], "BOOM"])
    monkeypatch.setattr(migrate, "FIRST", broken)
    with pytest.raises(Exception, match="BOOM"):
        migrate.up(empty_database)
    monkeypatch.undo()
    assert migrate.pending(empty_database) == NAMES
    assert migrate.up(empty_database) == NAMES
    assert empty_database.table_exists("usage_records")


def test_a_later_step_is_run_where_the_first_was_and_only_noted_in_a_new_store(
    database, monkeypatch, tmp_path
):
    new = open_database(f"sqlite:///{tmp_path}/new.db")
    later = Migration("0002_later", lambda _: ['CREATE TABLE "later" ("a" INT)'])
    monkeypatch.setattr(migrate, "ALL", (*migrations.ALL, later))
    assert migrate.plan(database) == ['CREATE TABLE "later" ("a" INT)']
    assert migrate.up(database) == ["0002_later"]
    assert database.table_exists("later")
    assert not any("later" in statement for statement in migrate.plan(new))
    assert migrate.up(new) == [*NAMES, "0002_later"] and migrate.up(new) == []
    assert not new.table_exists("later")
    discard(new)


@pytest.mark.databases("mariadb")  # SQLite runs a migration under its write lock
def test_a_lease_held_by_another_runner_is_waited_for(empty_database, monkeypatch):
    for statement in (migrate._HISTORY, migrate._LEASE, migrate._LEASE_ROW):
        execute(empty_database, statement)
    assert migrate._take(empty_database, "another")
    monkeypatch.setattr(migrate, "LEASE_WAIT_S", 0.5)
    with pytest.raises(StoreUnavailable, match="another migration"):
        migrate.up(empty_database)
    execute(empty_database, migrate._LEASE_DROP, ("another",))
    assert migrate.up(empty_database) == NAMES


@pytest.mark.databases("mariadb")  # SQLite runs a migration under its write lock
def test_a_lost_lease_stops_the_runner(empty_database, database_url, monkeypatch):
    monkeypatch.setattr(migrate, "LEASE_RENEW_S", 0.01)
    slow = Migration("0002_slow", lambda _: ["SELECT SLEEP(0.5)", "SELECT SLEEP(0.5)"])
    migrate.up(empty_database)
    monkeypatch.setattr(migrate, "ALL", (*migrations.ALL, slow))

    def steal():
        thief = open_database(database_url)
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


SCHEMA_23 = Path(__file__).parent / "schema_23"


@pytest.fixture
def store_23(empty_database):
    """Return a store created by the version before."""
    name = "mariadb" if is_mysql(empty_database) else "sqlite"
    for statement in (SCHEMA_23 / f"{name}.sql").read_text().split(";\n")[:-1]:
        execute(empty_database, statement)
    return empty_database


def test_a_store_of_the_version_before_is_taken_as_it_is(store_23):
    insert = 'INSERT INTO "wallets" ("user_id", "balance") VALUES (\'u\', 7)'
    transaction(store_23, lambda: execute(store_23, insert))
    assert not migrate.is_new(store_23) and migrate.pending(store_23) == NAMES
    assert "pending: 0001_schema" in migrate.behind(store_23)
    # the times since which usage_by_rate and usage_by_caller are complete; entries beside chat;
    # the rows of alerts and hosts
    marks, entries, jobs = 2, 1, 2
    columns = [names for step in migrations.ALL for names in step.added.values()]
    added = marks + entries + jobs + sum(len(names) or 1 for names in columns)
    # SQLite has a statement for each index of a new table.
    tables = [table for step in migrations.ALL for table, names in step.added.items() if not names]
    indexes = [f'ON "{table}"' for table in tables]
    plan = migrate.plan(store_23)
    planned = [text for text in plan if not any(index in text for index in indexes)]
    assert len(planned) == added, "what it has is left as it is"
    assert migrate.up(store_23) == NAMES and migrate.up(store_23) == []
    assert migrate.behind(store_23) == "" and schema.differences(store_23) == []
    assert execute(store_23, 'SELECT "balance" FROM "wallets"').fetchall()[0][0] == 7
    steps = {row[0] for row in execute(store_23, 'SELECT "name" FROM "schema_migrations"')}
    assert steps == {*migrations.FORERUNNERS, *NAMES}, "the version before could not go on with it"


def test_groups_with_all_families_get_the_entries_beside_chat(store_23):
    families = ["chat_completions", "responses", "messages", "generate_content"]
    insert = 'INSERT INTO "groups" ("id", "name", "multiplier_ppm", "models", "entries") VALUES'
    for name, entries in (("all", families), ("two", families[:2])):
        values = f"""('{name}', '{name}', 1000000, '["*"]', '{json.dumps(entries)}')"""
        transaction(store_23, lambda values=values: execute(store_23, f"{insert} {values}"))
    migrate.up(store_23)
    rows = execute(store_23, 'SELECT "name", "entries" FROM "groups" ORDER BY "name"').fetchall()
    assert [(name, json.loads(text)) for name, text in rows] == [
        ("all", list(kinds.ENTRIES)),
        ("two", families[:2]),
    ]


def test_a_store_whose_schema_is_another_is_not_taken(store_23):
    execute(store_23, 'DROP TABLE "wallets"')
    for attempt in (migrate.plan, migrate.up):
        with pytest.raises(StoreError, match=r"the schema of Sluice .*: table wallets is miss"):
            attempt(store_23)
    assert migrate.pending(store_23) == NAMES


def test_an_older_store_is_refused_with_the_version_to_pass_through(store_23):
    execute(store_23, 'DELETE FROM "schema_migrations" WHERE "name" = \'0023_processes\'')
    message = r"has schema 22, too old .*: upgrade to Sluice 0\.1\.0 at schema 23 .* first"
    for attempt in (migrate.status, migrate.pending, migrate.is_new, migrate.plan, migrate.up):
        with pytest.raises(migrate.SchemaTooOld, match=message):
            attempt(store_23)
    assert re.search(message, migrate.behind(store_23))
