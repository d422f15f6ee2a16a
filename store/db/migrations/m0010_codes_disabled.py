"""Redeem codes are disabled, which can be taken back, in place of revoked.

Codes that were revoked are disabled codes. No gateway reads codes, so those of the version before
go on working; their `code` commands do not.
"""

from store.db.migrations.ddl import Migration

# MySQL has no IF EXISTS for columns. CHANGE, as older servers have no RENAME COLUMN; both rename
# without touching the rows.
_ALTER = 'ALTER TABLE "codes" CHANGE COLUMN "revoked_ms" "disabled_ms" BIGINT NULL'
_THERE = (
    "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()"
    " AND table_name = 'codes' AND column_name = 'revoked_ms'"
)

MIGRATION = Migration(
    name="0010_codes_disabled",
    sqlite=['ALTER TABLE "codes" RENAME COLUMN "revoked_ms" TO "disabled_ms"'],
    mysql=[
        # A session of its own would forget it: the next two are run on the same connection.
        f"SET @alter = IF(({_THERE}) = 1, '{_ALTER}', 'DO 0')",
        "PREPARE alter_codes FROM @alter",
        "EXECUTE alter_codes",
        "DEALLOCATE PREPARE alter_codes",
    ],
)
