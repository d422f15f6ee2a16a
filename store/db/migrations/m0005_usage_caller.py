"""One index of usage records by who called, in place of one by user and one by key.

A key is of one user, whom the roll-ups know, so it needs no index of its own: the writer has one
less to keep and pruning one less to clear. Outcome and key are in it so that what is looked for is
told apart without reading the records. Gateways of the version before go on working.
"""

from store.db.migrations.ddl import Migration

COLUMNS = '"user", "day", "id", "outcome", "key_id"'

# MySQL has no IF EXISTS for indexes. One statement, so that there is always an index by user;
# both servers build it while others write.
_ALTER = (
    f'ALTER TABLE "usage_records" ADD INDEX "usage_caller" ({COLUMNS}),'
    ' DROP INDEX "usage_user", DROP INDEX "usage_key", ALGORITHM=INPLACE, LOCK=NONE'
)
_THERE = (
    "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()"
    " AND table_name = 'usage_records' AND index_name = 'usage_caller'"
)

MIGRATION = Migration(
    name="0005_usage_caller",
    sqlite=[
        f'CREATE INDEX IF NOT EXISTS "usage_caller" ON "usage_records" ({COLUMNS})',
        'DROP INDEX IF EXISTS "usage_user"',
        'DROP INDEX IF EXISTS "usage_key"',
    ],
    mysql=[
        # A session of its own would forget it: the next two are run on the same connection.
        f"SET @alter = IF(({_THERE}) = 0, '{_ALTER}', 'DO 0')",
        "PREPARE alter_usage FROM @alter",
        "EXECUTE alter_usage",
        "DEALLOCATE PREPARE alter_usage",
    ],
)
