"""Roll-ups tell endpoints and error codes apart, by key also groups, and count first bytes;
look-ups by the client's and the vendor's id have indexes.

Sums of days that were pruned stay, with an empty endpoint and code; all others are made anew from
their records, day by day. Gateways of the version before go on adding to the sums on MySQL; on
SQLite, where a key cannot be altered, their records wait in their journals until they are replaced.
When one was running meanwhile, `usage rebuild-rollups` makes the sums complete.
"""

from store.db.migrations.ddl import SQLITE, Days, Migration, Table, create
from store.db.migrations.m0002_usage_rollups import DAY, HOUR, MODEL, NAME, SUMS, WORD

CODE = "VARCHAR(64) NOT NULL DEFAULT ''"
TEXT = "VARCHAR(128) NOT NULL DEFAULT ''"
ENDPOINT_CHARS = 128
BOUNDS_MS = (
    *(50, 100, 200, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, 9600, 12800),
    *(25600, 51200, 102400, 204800, 409600),
)
FIRST_BYTE = tuple(f"first_byte_{bound}" for bound in (*(f"le_{ms}" for ms in BOUNDS_MS), "more"))
_SUMS = [(name, "BIGINT NOT NULL DEFAULT 0") for name in SUMS]
_SUMS += [(name, "INT NOT NULL DEFAULT 0") for name in FIRST_BYTE]
_NEW = {"endpoint": TEXT, "error_code": CODE, "group": TEXT}

_WHEN = [("day", DAY), ("hour", HOUR)]
_CHANNEL = [("channel", NAME), ("model", MODEL), ("outcome", WORD)]
_CHANNEL += [("endpoint", TEXT), ("error_code", CODE)]


def _table(name: str, key: list[tuple[str, str]], indexes: dict[str, list[str]]) -> Table:
    return Table(name, [*key, *_SUMS], [column for column, _ in key], indexes=indexes)


TABLES = (
    _table(
        "usage_by_key",
        [
            *_WHEN,
            ("key_id", "ID NOT NULL"),
            ("user", NAME),
            ("model", MODEL),
            ("outcome", WORD),
            *_NEW.items(),
        ],
        {"usage_by_key_key": ["key_id", "day"], "usage_by_key_user": ["user", "day"]},
    ),
    _table("usage_by_channel", [*_WHEN, *_CHANNEL], {}),
    _table("usage_by_day", [("day", DAY), *_CHANNEL], {}),
)

_SOURCES = {
    "hour": '(("started_ms" % 86400000) - ("started_ms" % 3600000)) / 3600000',
    "channel": "COALESCE(\"channel\", '')",
    "model": "SUBSTR(COALESCE(\"model\", ''), 1, 256)",
    "endpoint": f'SUBSTR("endpoint", 1, {ENDPOINT_CHARS})',
    "error_code": "COALESCE(\"error_code\", '')",
}


def _counted(low_ms: int | None, high_ms: int | None) -> str:
    """How many streams began within these times."""
    bounds = [f'"ttft_ms" > {low_ms}'] if low_ms is not None else []
    bounds += [f'"ttft_ms" <= {high_ms}'] if high_ms is not None else []
    return f'SUM(CASE WHEN "stream" = 1 AND {" AND ".join(bounds)} THEN 1 ELSE 0 END)'


_BUCKETS = map(_counted, (None, *BOUNDS_MS), (*BOUNDS_MS, None))
_COUNTS = {
    "calls": "COUNT(*)",
    **{name: f'SUM("{name}")' for name in SUMS[1:]},
    **dict(zip(FIRST_BYTE, _BUCKETS, strict=True)),
}
# Sums of pruned days are all that is left of them.
_UNPRUNED = (
    '"day" = ? AND "day" >= (SELECT "version" FROM "versions" WHERE "name" = \'usage_pruned\')'
)


def _refill(table: Table) -> list[str]:
    """Makes the sums of a day anew."""
    names = [name for name, _ in table.columns]
    if table.name == "usage_by_day":
        source, values = "usage_by_channel", {name: f'SUM("{name}")' for name, _ in _SUMS}
    else:
        source, values = "usage_records", _COUNTS | _SOURCES
    chosen = ", ".join(values.get(name, f'"{name}"') for name in names)
    grouped = ", ".join(values.get(name, f'"{name}"') for name in table.primary)
    return [
        f'DELETE FROM "{table.name}" WHERE {_UNPRUNED}',
        f'INSERT INTO "{table.name}" ({_names(names)}) SELECT {chosen} FROM "{source}"'
        f" WHERE {_UNPRUNED} GROUP BY {grouped}",
    ]


def _names(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _made_again(table: Table) -> list[str]:
    """SQLite: the table with its new key, and the old sums in it."""
    making, *indexes = create(SQLITE, table)
    new = f"{table.name}_new"
    added = {*_NEW, *FIRST_BYTE}
    kept = _names([name for name, _ in table.columns if name not in added])
    return [
        making.replace(f'"{table.name}"', f'"{new}"', 1),
        f'INSERT INTO "{new}" ({kept}) SELECT {kept} FROM "{table.name}"',
        f'DROP TABLE "{table.name}"',
        f'ALTER TABLE "{new}" RENAME TO "{table.name}"',
        *indexes,
    ]


def _altered(table: Table) -> list[str]:
    """MySQL: columns and key in one statement, if they are not there yet."""
    added = [(name, kind) for name, kind in table.columns if name in {*_NEW, *FIRST_BYTE}]
    parts = [f'ADD COLUMN "{name}" {kind}' for name, kind in added]
    parts += ["DROP PRIMARY KEY", f"ADD PRIMARY KEY ({_names([*table.primary])})"]
    there = (
        "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()"
        f" AND table_name = '{table.name}' AND column_name = 'error_code'"
    )
    return _unless(there, f'ALTER TABLE "{table.name}" {", ".join(parts)}')


def _unless(there: str, statement: str) -> list[str]:
    # A session of its own would forget it: all are run on the same connection.
    quoted = statement.replace("'", "''")
    return [
        f"SET @alter = IF(({there}) = 0, '{quoted}', 'DO 0')",
        "PREPARE alter_rollups FROM @alter",
        "EXECUTE alter_rollups",
        "DEALLOCATE PREPARE alter_rollups",
    ]


# The vendor's id is a TEXT on MySQL, of which an index takes a beginning.
_INDEXES = {
    "usage_client_id": '"client_request_id"',
    "usage_upstream_id": '"upstream_request_id"(64)',
}


def _indexed(name: str, column: str) -> list[str]:
    there = (
        "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()"
        f" AND table_name = 'usage_records' AND index_name = '{name}'"
    )
    alter = (
        f'ALTER TABLE "usage_records" ADD INDEX "{name}" ({column}), ALGORITHM=INPLACE, LOCK=NONE'
    )
    return _unless(there, alter)


_days = [statement for table in TABLES for statement in _refill(table)]

MIGRATION = Migration(
    name="0014_usage_rollups",
    sqlite=[
        *(statement for table in TABLES for statement in _made_again(table)),
        # What has no such id takes no place in the index.
        *(
            f'CREATE INDEX IF NOT EXISTS "{name}" ON "usage_records" ("{column}")'
            f' WHERE "{column}" IS NOT NULL'
            for name, column in (
                ("usage_client_id", "client_request_id"),
                ("usage_upstream_id", "upstream_request_id"),
            )
        ),
    ],
    mysql=[
        *(statement for table in TABLES for statement in _altered(table)),
        *(statement for one in _INDEXES.items() for statement in _indexed(*one)),
    ],
    days=Days(
        sqlite=_days,
        mysql=_days,
        done='SELECT 1 FROM "usage_by_day" WHERE "day" = ? AND "endpoint" <> \'\' LIMIT 1',
    ),
)
