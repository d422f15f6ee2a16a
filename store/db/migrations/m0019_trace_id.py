"""Usage records have the trace that their call belonged to.

Gateways of the version before go on working: what they write has none.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, add_columns

COLUMNS = [("trace_id", "VARCHAR(32) NULL")]

MIGRATION = Migration(
    name="0019_trace_id",
    sqlite=add_columns(SQLITE, "usage_records", COLUMNS),
    mysql=add_columns(MYSQL, "usage_records", COLUMNS),
)
