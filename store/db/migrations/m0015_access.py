"""How people get into the Hub: the links of the first run, one-time codes, links to users of an
OpenID provider; and what the Hub keeps for all nodes, as the address of the relay.

Gateways of the version before go on working: they know none of it.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

TABLES = (
    Table(
        "hub_values",
        columns=(("name", "VARCHAR(32) NOT NULL"), ("value", "TEXT NOT NULL")),
        primary=("name",),
    ),
    Table(
        "first_run_links",
        columns=(("digest", "DIGEST NOT NULL"), ("created_ms", "BIGINT NOT NULL")),
        primary=("digest",),
    ),
    Table(
        "one_time_codes",
        columns=(
            ("user_id", "ID NOT NULL"),
            ("sealed", "TEXT NOT NULL"),
            ("last_step", "BIGINT NOT NULL"),
            ("confirmed_ms", "BIGINT NULL"),
            ("recovery", "TEXT NOT NULL"),
        ),
        primary=("user_id",),
    ),
    Table(
        "openid_links",
        columns=(
            ("digest", "DIGEST NOT NULL"),
            ("id", "ID NOT NULL"),
            ("user_id", "ID NOT NULL"),
            ("issuer", "VARCHAR(255) NOT NULL"),
            ("subject", "VARCHAR(255) NOT NULL"),
            ("created_ms", "BIGINT NOT NULL"),
            ("used_ms", "BIGINT NULL"),
        ),
        primary=("digest",),
        unique={"openid_links_id": ("id",)},
        indexes={"openid_links_user_id": ("user_id",)},
    ),
)

MIGRATION = Migration(
    name="0015_access",
    sqlite=[statement for table in TABLES for statement in create(SQLITE, table)],
    mysql=[statement for table in TABLES for statement in create(MYSQL, table)],
)
