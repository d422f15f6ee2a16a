"""Whether what records are asked for by name exists: a mistyped name is told from no calls.

A name exists when an object of the store has it, or the sums of usage remember calls of one that
was removed. For commands and the Hub.
"""

from typing import Any

import peewee

from store.admin.export import show
from store.db.database import first_row, select_rows
from store.db.tables.catalog import Channel, Group
from store.db.tables.channels import ChannelSums
from store.db.tables.usage import UsageByDay, UsageByKey
from store.db.tables.users import ApiKey, User
from store.values.errors import NotFound
from store.values.texts import nearest

_OBJECTS: dict[str, Any] = {"user": User, "group": Group, "channel": Channel}
_REMEMBERED: dict[str, Any] = {
    "user": UsageByKey.user,
    "group": ChannelSums.name,
    "channel": UsageByDay.channel,
    "key": UsageByKey.key_id,
}


def require(db: peewee.Database, kind: str, name: str) -> None:
    """NotFound, with the nearest name, unless a user, group or channel is, or was, called so."""
    column = _OBJECTS[kind].name
    if not (_is_there(db, column, name) or _is_remembered(db, kind, name)):
        names = [row[0] for row in select_rows(db, column.model.select(column))]
        raise NotFound(f'there is no {kind} "{name}"{nearest(name, names)}')


def key_id_of(db: peewee.Database, key: str) -> str:
    """The id of a key given by its id or as USER/NAME. NotFound, with the nearest one."""
    if _is_there(db, ApiKey.id, key) or _is_remembered(db, "key", key):
        return key
    return str(show(db, "key", key)["id"])


def _is_remembered(db: peewee.Database, kind: str, name: str) -> bool:
    own = (ChannelSums.scope == "group",) if kind == "group" else ()
    return _is_there(db, _REMEMBERED[kind], name, *own)


def _is_there(db: peewee.Database, column: Any, value: str, *conditions: Any) -> bool:
    query = column.model.select(column).where(column == value, *conditions)
    return first_row(db, query) is not None
