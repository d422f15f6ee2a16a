"""Sums of days by user and key, and by group: of many calls the sums by hour and key are too many
rows to add up while somebody waits.

They are filled from usage_by_key: days without records at once, all others one by one. Gateways of
the version before do not add to them: when one was running during or after the migration,
`usage rebuild-rollups` makes them complete.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Days, Migration, Table, create
from store.db.migrations.m0002_usage_rollups import DAY, MODEL, NAME, SUMS, WORD
from store.db.migrations.m0014_usage_rollups import CODE, FIRST_BYTE, TEXT

_SUMS = [(name, "BIGINT NOT NULL DEFAULT 0") for name in SUMS]
_SUMS += [(name, "INT NOT NULL DEFAULT 0") for name in FIRST_BYTE]
_USER = [("user", NAME), ("key_id", "ID NOT NULL"), ("group", TEXT), ("outcome", WORD)]
_GROUP = [("group", TEXT), ("model", MODEL), ("outcome", WORD), ("endpoint", TEXT)]
_GROUP += [("error_code", CODE)]


def _table(
    name: str, told: list[tuple[str, str]], indexes: dict[str, list[str]] | None = None
) -> Table:
    key = [("day", DAY), *told]
    return Table(name, [*key, *_SUMS], [column for column, _ in key], indexes=indexes or {})


TABLES = (
    _table("usage_by_user", _USER, {"usage_by_user_user": ["user", "day"]}),
    _table("usage_by_group", _GROUP),
)

# Days whose records are gone; nobody adds to them but calls that were booked very late.
_PRUNED = '"day" < (SELECT "version" FROM "versions" WHERE "name" = \'usage_pruned\')'
_OF_DAY = '"day" = ?'


def _filled(table: Table, days: str) -> list[str]:
    """Makes the sums of days from those by hour and key."""
    key = _names([*table.primary])
    names = _names([name for name, _ in table.columns])
    sums = ", ".join(f'SUM("{name}")' for name, _ in _SUMS)
    return [
        f'DELETE FROM "{table.name}" WHERE {days}',
        f'INSERT INTO "{table.name}" ({names}) SELECT {key}, {sums} FROM "usage_by_key"'
        f" WHERE {days} GROUP BY {key}",
    ]


def _names(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _statements(dialect: str) -> list[str]:
    made = [statement for table in TABLES for statement in create(dialect, table)]
    return made + [statement for table in TABLES for statement in _filled(table, _PRUNED)]


_days = [statement for table in TABLES for statement in _filled(table, _OF_DAY)]

MIGRATION = Migration(
    name="0020_usage_by_user",
    sqlite=_statements(SQLITE),
    mysql=_statements(MYSQL),
    days=Days(
        sqlite=_days,
        mysql=_days,
        done='SELECT 1 FROM "usage_by_user" WHERE "day" = ? LIMIT 1',
    ),
)
