"""What a channel sends beside and how it is reached, draining, and upstream keys put aside.

Gateways of the version before go on working, but they send no such headers, ask upstreams without
the proxy, and give draining channels new calls.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

KEYS_ASIDE = Table(
    "keys_aside",
    [
        ("channel_id", "ID NOT NULL"),
        ("fingerprint", "VARCHAR(64) NOT NULL"),
        ("since_ms", "BIGINT NOT NULL"),
        ("until_ms", "BIGINT NOT NULL"),
        ("times", "BIGINT NOT NULL"),
        ("reason", "VARCHAR(128) NOT NULL"),
    ],
    ["channel_id", "fingerprint"],
)

COLUMNS = (
    '"extra_headers" TEXT NULL',
    '"proxy" TEXT NULL',
    '"ca_file" TEXT NULL',
    '"draining" SMALLINT NOT NULL DEFAULT 0',
)

# MySQL has no IF NOT EXISTS for columns; one statement adds all of them or none.
_ALTER = f'ALTER TABLE "channels" {", ".join(f"ADD COLUMN {column}" for column in COLUMNS)}'
_THERE = (
    "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()"
    " AND table_name = 'channels' AND column_name = 'draining'"
)

MIGRATION = Migration(
    name="0008_channels",
    sqlite=[
        *(f'ALTER TABLE "channels" ADD COLUMN {column}' for column in COLUMNS),
        *create(SQLITE, KEYS_ASIDE),
    ],
    mysql=[
        # A session of its own would forget it: the next two are run on the same connection.
        f"SET @alter = IF(({_THERE}) = 0, '{_ALTER}', 'DO 0')",
        "PREPARE alter_channels FROM @alter",
        "EXECUTE alter_channels",
        "DEALLOCATE PREPARE alter_channels",
        *create(MYSQL, KEYS_ASIDE),
    ],
)
