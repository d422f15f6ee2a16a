"""Which channel and upstream key have made a response that its vendor keeps.

Gateways of the version before neither write nor read it and go on working.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

TABLE = Table(
    "stored_responses",
    [
        ("mark", "DIGEST NOT NULL"),
        ("user_id", "ID NOT NULL"),
        ("channel_id", "ID NOT NULL"),
        ("fingerprint", "VARCHAR(64) NOT NULL"),
        ("expires_ms", "BIGINT NOT NULL"),
    ],
    # Vendors choose the ids, so two of them may choose the same.
    ["mark", "user_id"],
    indexes={"stored_responses_expires": ["expires_ms"]},
)

MIGRATION = Migration(
    name="0006_stored_responses",
    sqlite=create(SQLITE, TABLE),
    mysql=create(MYSQL, TABLE),
)
