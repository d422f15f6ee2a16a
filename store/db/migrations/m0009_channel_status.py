"""What the status of channels is made of: sums by minute, hour and day, breakers, claims of probes.

Nothing is filled in: the sums begin with the first gateway of this version. Gateways of the version
before write records without them.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

ID = "ID NOT NULL"
NAME = "VARCHAR(128) NOT NULL"
MODEL = "VARCHAR(256) NOT NULL"
WORD = "VARCHAR(32) NOT NULL"
MARK = "VARCHAR(64) NOT NULL"
SUM = "BIGINT NOT NULL DEFAULT 0"
NUMBER = "BIGINT NOT NULL"

BOUNDS_MS = (
    *(50, 100, 200, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, 9600, 12800),
    *(25600, 51200, 102400, 204800, 409600),
)
BUCKETS = (*(f"le_{bound_ms}" for bound_ms in BOUNDS_MS), "more")

TABLES = (
    # scope and name: whose sums they are; span and at_s: of which time, see status_sums.
    Table(
        "channel_sums",
        [
            ("span", WORD),
            ("at_s", NUMBER),
            ("scope", WORD),
            ("name", NAME),
            ("model", MODEL),
            ("ok", SUM),
            ("failed", SUM),
            ("output_tokens", SUM),
            ("generation_ms", SUM),
            *((f"first_byte_{bucket}", SUM) for bucket in BUCKETS),
            *((f"total_{bucket}", SUM) for bucket in BUCKETS),
            ("last_error", "VARCHAR(64) NOT NULL DEFAULT ''"),
            ("last_ok_ms", SUM),
            ("last_failed_ms", SUM),
        ],
        ["span", "at_s", "scope", "name", "model"],
    ),
    # What a process has against an upstream key, for a model or (empty) for all of them.
    Table(
        "channel_breakers",
        [
            ("journal_id", ID),
            ("channel_id", ID),
            ("model", MODEL),
            ("fingerprint", MARK),
            ("reason", WORD),
            ("since_ms", NUMBER),
            ("until_ms", NUMBER),
        ],
        ["journal_id", "channel_id", "model", "fingerprint"],
    ),
    # Until when nobody else probes a channel for a model.
    Table(
        "channel_probes",
        [("channel", NAME), ("model", MODEL), ("next_ms", NUMBER)],
        ["channel", "model"],
    ),
)

MIGRATION = Migration(
    name="0009_channel_status",
    sqlite=[s for table in TABLES for s in create(SQLITE, table)],
    mysql=[s for table in TABLES for s in create(MYSQL, table)],
)
