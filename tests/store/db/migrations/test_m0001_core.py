"""The first schema: every statement can be run again, every table has a primary key."""

import re

from store.db.database import execute, is_mysql
from store.db.migrations import ALL, m0001_core


def test_it_is_the_first_and_names_are_in_order():
    names = [migration.name for migration in ALL]
    assert names[0] == "0001_core" and names == sorted(names)


def test_every_statement_can_be_run_twice(database):
    if is_mysql(database):
        statements = [s.format(nopad_bin="utf8mb4_nopad_bin") for s in m0001_core.MIGRATION.mysql]
    else:
        statements = m0001_core.MIGRATION.sqlite
    execute(database, 'UPDATE "versions" SET "version" = 7')
    for statement in statements:
        execute(database, re.sub(r"%", "%%", statement))
    assert execute(database, 'SELECT "version" FROM "versions"').fetchall()[0][0] == 7


def test_each_table_has_a_primary_key():
    assert all(table.primary for table in m0001_core.TABLES)
