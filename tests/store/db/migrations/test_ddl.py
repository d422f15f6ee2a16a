"""Rendering of table definitions for both dialects."""

from store.db.migrations.ddl import COLLATION_MARK, MYSQL, SQLITE, Table, create

TABLE = Table(
    "t",
    [("id", "ID NOT NULL"), ("digest", "DIGEST NOT NULL"), ("group", "BIGINT NULL")],
    ["id"],
    unique={"t_digest": ["digest"]},
    indexes={"t_group": ["group", "id"]},
    partition="PARTITION BY x",
)


def test_sqlite_has_indexes_of_their_own_and_no_partitions():
    assert create(SQLITE, TABLE) == [
        'CREATE TABLE IF NOT EXISTS "t" (\n  "id" VARCHAR(26) NOT NULL,\n'
        '  "digest" BLOB NOT NULL,\n  "group" BIGINT NULL,\n  PRIMARY KEY ("id")\n)',
        'CREATE UNIQUE INDEX IF NOT EXISTS "t_digest" ON "t" ("digest")',
        'CREATE INDEX IF NOT EXISTS "t_group" ON "t" ("group", "id")',
    ]


def test_mysql_makes_a_table_in_one_statement():
    assert create(MYSQL, TABLE) == [
        'CREATE TABLE IF NOT EXISTS "t" (\n  "id" VARCHAR(26) NOT NULL,\n'
        '  "digest" BINARY(32) NOT NULL,\n  "group" BIGINT NULL,\n  PRIMARY KEY ("id"),\n'
        '  UNIQUE KEY "t_digest" ("digest"),\n  KEY "t_group" ("group", "id")\n)'
        f" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {COLLATION_MARK} PARTITION BY x"
    ]
