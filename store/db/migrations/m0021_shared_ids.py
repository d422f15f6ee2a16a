"""Ids of things that an upstream account keeps and that all users of a channel may name.

Gateways of the version before go on working: they check no such ids.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, add_columns

COLUMNS = [("shared_ids", "TEXT NULL")]

MIGRATION = Migration(
    name="0021_shared_ids",
    sqlite=add_columns(SQLITE, "channels", COLUMNS),
    mysql=add_columns(MYSQL, "channels", COLUMNS),
)
