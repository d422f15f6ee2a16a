"""Roll-ups of usage records, filled from the records that are there, day by day.

Gateways of the version before write records without roll-ups: when one was running during the
migration, `usage rebuild-rollups` afterwards makes them complete.
"""

from collections.abc import Sequence

from store.db.migrations.ddl import MYSQL, SQLITE, Days, Migration, Table, create

DAY = "INT NOT NULL"
HOUR = "SMALLINT NOT NULL"
NAME = "VARCHAR(128) NOT NULL"
MODEL = "VARCHAR(256) NOT NULL"
WORD = "VARCHAR(32) NOT NULL"
SUMS = (
    "calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "cost_nanos",
)
_SUMS = [(name, "BIGINT NOT NULL DEFAULT 0") for name in SUMS]

TABLES = (
    Table(
        "usage_by_key",
        [
            ("day", DAY),
            ("hour", HOUR),
            ("key_id", "ID NOT NULL"),
            ("user", NAME),
            ("model", MODEL),
            ("outcome", WORD),
            *_SUMS,
        ],
        ["day", "hour", "key_id", "user", "model", "outcome"],
        indexes={
            "usage_by_key_key": ["key_id", "day"],
            "usage_by_key_user": ["user", "day"],
        },
    ),
    Table(
        "usage_by_channel",
        [
            ("day", DAY),
            ("hour", HOUR),
            ("channel", NAME),
            ("model", MODEL),
            ("outcome", WORD),
            *_SUMS,
        ],
        ["day", "hour", "channel", "model", "outcome"],
    ),
    # The sums of usage_by_channel over a day's hours, for reports over months.
    Table(
        "usage_by_day",
        [("day", DAY), ("channel", NAME), ("model", MODEL), ("outcome", WORD), *_SUMS],
        ["day", "channel", "model", "outcome"],
    ),
)

# No model and no channel are empty texts here, since columns of a key cannot be NULL.
_SOURCES = {
    "day": '"day"',
    "hour": '(("started_ms" % 86400000) - ("started_ms" % 3600000)) / 3600000',
    "channel": "COALESCE(\"channel\", '')",
    "model": "SUBSTR(COALESCE(\"model\", ''), 1, 256)",
    "calls": "COUNT(*)",
}


def _fill(table: Table, replacing: str) -> str:
    """Adds up a day's records; a row that is there already gets its sums again."""
    names = [name for name, _ in table.columns]
    sums = {name: f'SUM("{name}")' for name in SUMS}
    if table.name == "usage_by_day":
        source, values = "usage_by_channel", sums
    else:
        source, values = "usage_records", sums | _SOURCES
    chosen = ", ".join(values.get(name, f'"{name}"') for name in names)
    grouped = ", ".join(values.get(name, f'"{name}"') for name in table.primary)
    return (
        f'INSERT INTO "{table.name}" ({_names(names)})'
        f' SELECT {chosen} FROM "{source}" WHERE "day" = ? GROUP BY {grouped} {replacing}'
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _on_mysql(table: Table) -> str:
    sums = ", ".join(f'"{name}" = VALUES("{name}")' for name in SUMS)
    return _fill(table, f"ON DUPLICATE KEY UPDATE {sums}")


def _on_sqlite(table: Table) -> str:
    sums = ", ".join(f'"{name}" = excluded."{name}"' for name in SUMS)
    return _fill(table, f"ON CONFLICT ({_names(table.primary)}) DO UPDATE SET {sums}")


# Before which day records have been removed, so that roll-ups of those days are left alone.
PRUNED = 'INTO "versions" ("name", "version") VALUES (\'usage_pruned\', 0)'

MIGRATION = Migration(
    name="0002_usage_rollups",
    sqlite=[
        *(s for table in TABLES for s in create(SQLITE, table)),
        f"INSERT OR IGNORE {PRUNED}",
    ],
    mysql=[
        *(s for table in TABLES for s in create(MYSQL, table)),
        f"INSERT IGNORE {PRUNED}",
    ],
    # All days at once would be one temporary table of all sums, and one transaction.
    days=Days(
        sqlite=[*map(_on_sqlite, TABLES)],
        mysql=[*map(_on_mysql, TABLES)],
        done='SELECT 1 FROM "usage_by_day" WHERE "day" = ? LIMIT 1',
    ),
)
