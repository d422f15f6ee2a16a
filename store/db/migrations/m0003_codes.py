"""Redeem codes: what each is worth, and what became of it."""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

TABLES = (
    Table(
        "codes",
        [
            ("id", "ID NOT NULL"),
            ("digest", "DIGEST NOT NULL"),
            ("pepper_id", "VARCHAR(32) NOT NULL"),
            ("last_four", "VARCHAR(32) NOT NULL"),
            ("amount", "BIGINT NOT NULL"),
            ("expires_ms", "BIGINT NULL"),
            ("created_ms", "BIGINT NOT NULL"),
            ("revoked_ms", "BIGINT NULL"),
            ("redeemed_ms", "BIGINT NULL"),
            ("redeemed_by", "ID NULL"),
        ],
        ["id"],
        unique={"codes_digest": ["digest"]},
    ),
)

MIGRATION = Migration(
    name="0003_codes",
    sqlite=[s for table in TABLES for s in create(SQLITE, table)],
    mysql=[s for table in TABLES for s in create(MYSQL, table)],
)
