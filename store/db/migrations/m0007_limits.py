"""Limits of users, and of each upstream key of a channel. 0: no limit.

Gateways of the version before go on working; they do not know the new limits.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, add_columns

NUMBER = "BIGINT NOT NULL DEFAULT 0"
LIMITS = ("rpm", "tpm", "concurrency")
COLUMNS = {
    "users": [(name, NUMBER) for name in LIMITS],
    "channels": [(f"key_{name}", NUMBER) for name in LIMITS],
}

MIGRATION = Migration(
    name="0007_limits",
    sqlite=[s for name, columns in COLUMNS.items() for s in add_columns(SQLITE, name, columns)],
    mysql=[s for name, columns in COLUMNS.items() for s in add_columns(MYSQL, name, columns)],
)
