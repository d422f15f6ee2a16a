"""Sessions of browsers and tokens of scripts.

Gateways of the version before go on working: they have no Hub.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

TABLES = (
    Table(
        "hub_sessions",
        columns=(
            ("digest", "DIGEST NOT NULL"),
            ("id", "ID NOT NULL"),
            ("user_id", "ID NOT NULL"),
            ("created_ms", "BIGINT NOT NULL"),
            ("seen_ms", "BIGINT NOT NULL"),
            ("address", "VARCHAR(64) NOT NULL"),
            ("agent", "VARCHAR(255) NOT NULL"),
        ),
        primary=("digest",),
        unique={"hub_sessions_id": ("id",)},
        indexes={"hub_sessions_user_id": ("user_id",)},
    ),
    Table(
        "api_tokens",
        columns=(
            ("id", "ID NOT NULL"),
            ("digest", "DIGEST NOT NULL"),
            ("user_id", "ID NOT NULL"),
            ("name", "VARCHAR(128) NOT NULL"),
            ("scopes", "TEXT NOT NULL"),
            ("last_four", "VARCHAR(26) NOT NULL"),
            ("created_ms", "BIGINT NOT NULL"),
            ("used_ms", "BIGINT NULL"),
            ("revoked_ms", "BIGINT NULL"),
        ),
        primary=("id",),
        unique={"api_tokens_digest": ("digest",)},
        indexes={"api_tokens_user_id": ("user_id",)},
    ),
)

MIGRATION = Migration(
    name="0012_hub",
    sqlite=[statement for table in TABLES for statement in create(SQLITE, table)],
    mysql=[statement for table in TABLES for statement in create(MYSQL, table)],
)
