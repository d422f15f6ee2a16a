"""Notices of administrators, and from where an audited change was asked for.

Gateways of the version before go on working: they write no address and know no notices.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, add_columns, create

NOTICES = Table(
    "hub_notices",
    columns=(
        ("id", "ID NOT NULL"),
        ("text", "TEXT NOT NULL"),
        ("level", "VARCHAR(32) NOT NULL"),
        ("since_ms", "BIGINT NOT NULL"),
        ("until_ms", "BIGINT NULL"),
        ("created_ms", "BIGINT NOT NULL"),
        ("created_by", "VARCHAR(128) NOT NULL"),
    ),
    primary=("id",),
)
ADDRESS = (("address", "VARCHAR(64) NULL"),)

MIGRATION = Migration(
    name="0017_notices",
    sqlite=[*create(SQLITE, NOTICES), *add_columns(SQLITE, "audit_log", ADDRESS)],
    mysql=[*create(MYSQL, NOTICES), *add_columns(MYSQL, "audit_log", ADDRESS)],
)
