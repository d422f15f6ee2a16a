"""Below which balance a user wants to be told.

Gateways of the version before go on working: they do not know it.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

LOW_BALANCES = Table(
    "low_balances",
    columns=(("user_id", "ID NOT NULL"), ("below", "BIGINT NOT NULL")),
    primary=("user_id",),
)

MIGRATION = Migration(
    name="0016_overview",
    sqlite=create(SQLITE, LOW_BALANCES),
    mysql=create(MYSQL, LOW_BALANCES),
)
