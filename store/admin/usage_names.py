"""Whether what records are asked for by name exists: a mistyped name is told from no calls.

A name exists when an object of the store has it, or the sums of usage remember calls of one that
was removed. For commands and the Hub.
"""

from collections.abc import Sequence

import peewee

from store.admin.export import show
from store.db.database import execute, snapshot_read
from store.values.errors import NotFound
from store.values.texts import nearest

_OBJECTS = {"user": "users", "group": "groups", "channel": "channels"}
_REMEMBERED = {
    "user": 'SELECT 1 FROM "usage_by_key" WHERE "user" = ? LIMIT 1',
    "group": 'SELECT 1 FROM "channel_sums" WHERE "scope" = \'group\' AND "name" = ? LIMIT 1',
    "channel": 'SELECT 1 FROM "usage_by_day" WHERE "channel" = ? LIMIT 1',
    "key": 'SELECT 1 FROM "usage_by_key" WHERE "key_id" = ? LIMIT 1',
}


def require(db: peewee.Database, kind: str, name: str) -> None:
    """NotFound, with the nearest name, unless a user, group or channel is, or was, called so."""
    table = _OBJECTS[kind]
    there = _rows(db, f'SELECT 1 FROM "{table}" WHERE "name" = ?', name)
    if there or _rows(db, _REMEMBERED[kind], name):
        return
    names = [str(row[0]) for row in _rows(db, f'SELECT "name" FROM "{table}"')]
    raise NotFound(f'there is no {kind} "{name}"{nearest(name, names)}')


def key_id_of(db: peewee.Database, key: str) -> str:
    """The id of a key given by its id or as USER/NAME. NotFound, with the nearest one."""
    there = _rows(db, 'SELECT 1 FROM "api_keys" WHERE "id" = ?', key)
    if there or _rows(db, _REMEMBERED["key"], key):
        return key
    return str(show(db, "key", key)["id"])


def _rows(db: peewee.Database, query: str, *values: str) -> Sequence[tuple[object, ...]]:
    rows: Sequence[tuple[object, ...]]
    rows = snapshot_read(db, lambda: execute(db, query, values).fetchall())
    return rows
