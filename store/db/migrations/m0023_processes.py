"""State that each process of a node reports beside its journal: `sluice nodes`.

Gateways of the version before go on working: of theirs nothing is known.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, add_columns

COLUMNS = [
    ("seen_ms", "BIGINT NULL"),
    ("version", "VARCHAR(64) NULL"),
    ("lead_ms", "BIGINT NULL"),
    ("backlog_bytes", "BIGINT NULL"),
    ("not_ready", "VARCHAR(128) NULL"),
]

MIGRATION = Migration(
    name="0023_processes",
    sqlite=add_columns(SQLITE, "journals", COLUMNS),
    mysql=add_columns(MYSQL, "journals", COLUMNS),
)
