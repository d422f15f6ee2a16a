"""The lease and the last run of the upkeep, which one process of all nodes does.

Gateways of the version before go on working: each of their writers does its own small upkeep.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

TABLE = Table(
    "upkeep",
    columns=(
        ("name", "VARCHAR(32) NOT NULL"),
        ("owner", "ID NOT NULL"),
        ("node", "VARCHAR(128) NOT NULL"),
        ("until_ms", "BIGINT NOT NULL"),
        ("begun_ms", "BIGINT NULL"),
        ("ended_ms", "BIGINT NULL"),
        ("next_ms", "BIGINT NOT NULL"),
        ("removed", "TEXT NULL"),
        ("trouble", "TEXT NULL"),
    ),
    primary=("name",),
)
# The one row, due at once.
ROW = (
    'INTO "upkeep" ("name", "owner", "node", "until_ms", "next_ms") VALUES (\'upkeep\', \'\', \'\','
    " 0, 0)"
)

MIGRATION = Migration(
    name="0018_upkeep",
    sqlite=[*create(SQLITE, TABLE), f"INSERT OR IGNORE {ROW}"],
    mysql=[*create(MYSQL, TABLE), f"INSERT IGNORE {ROW}"],
)
