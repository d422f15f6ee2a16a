"""Nodes name the revision of the code that they run.

Gateways of the version before go on working: they leave it as it is.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, add_columns

COLUMNS = [("revision", "VARCHAR(64) NULL")]

MIGRATION = Migration(
    name="0028_node_revision",
    sqlite=add_columns(SQLITE, "nodes", COLUMNS),
    mysql=add_columns(MYSQL, "nodes", COLUMNS),
)
