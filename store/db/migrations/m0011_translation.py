"""Whether channels and groups take calls of other families, and what models of a channel can take.

Gateways of the version before go on working: they translate nothing.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, add_columns

FLAG = "SMALLINT NOT NULL DEFAULT 1"
COLUMNS = {
    "groups": [("translate", FLAG)],
    "channels": [("translate", FLAG), ("options", "TEXT NULL")],
}

MIGRATION = Migration(
    name="0011_translation",
    sqlite=[s for name, columns in COLUMNS.items() for s in add_columns(SQLITE, name, columns)],
    mysql=[s for name, columns in COLUMNS.items() for s in add_columns(MYSQL, name, columns)],
)
