"""Lists of administered objects for the Hub, by page. Also prices over time, and the names that
records may have.

`export.list_objects` returns all objects at once. A page reads only its own rows, so that many
users do not slow the list down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import peewee
from peewee import fn

from store.admin.export import show, shown
from store.admin.kinds import KINDS
from store.admin.objects import TABLES, find, of_rows
from store.catalog.catalog import own_prices
from store.db.database import first_row, has_words, in_snapshot, select_rows
from store.db.tables.catalog import Channel, Group, Model, Price
from store.db.tables.channels import ChannelSums
from store.db.tables.money import Subscription
from store.db.tables.usage import UsageByDay, UsageByKey
from store.db.tables.users import ApiKey, User
from store.values.errors import NotFound
from store.values.meters import COLUMN_METERS
from store.values.price_fields import PriceTable, RateList
from store.values.texts import nearest
from store.values.usage_record import rfc3339

Shown = dict[str, Any]

_OBJECTS: dict[str, Any] = {"user": User, "group": Group, "channel": Channel}
_REMEMBERED: dict[str, Any] = {
    "user": UsageByKey.user,
    "group": ChannelSums.name,
    "channel": UsageByDay.channel,
    "key": UsageByKey.key_id,
}


@dataclass(frozen=True, slots=True)
class Paging:
    """Part of a list: `limit` objects after the one whose cursor is `after`, with the words of
    `search` in their names, or for channels also in their models and base URLs."""

    limit: int
    after: str = ""
    search: str = ""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a list. `next` is the cursor of the next page, None at the end."""

    items: list[Shown]
    next: str | None


@in_snapshot
def list_page(db: peewee.Database, kind: str, paging: Paging) -> ListPage:
    """Return objects as `export.show` shows them, in order of name (subscriptions: of creation)."""
    table: Any = TABLES[kind]
    named = "name" in KINDS[kind].identity
    cursor = table.name if named else table.id
    query = table.select().order_by(cursor).limit(paging.limit + 1)
    if paging.after:
        query = query.where(cursor > paging.after)
    if paging.search and kind == "channel":
        places = (table.name, table.models, table.base_url)
        query = query.where(reduce(or_, (has_words(place, paging.search) for place in places)))
    elif paging.search and named:
        query = query.where(has_words(table.name, paging.search))
    elif paging.search:
        owners = User.select(User.id).where(has_words(User.name, paging.search))
        query = query.where(Subscription.user_id << owners)
    rows = list(query.bind(db).dicts())
    more = len(rows) > paging.limit
    rows = rows[: paging.limit]
    items = [shown(stored) for stored in of_rows(db, kind, rows)]
    return ListPage(items, rows[-1]["name" if named else "id"] if more else None)


@in_snapshot
def show_one(db: peewee.Database, kind: str, name: str) -> Shown:
    """Return an object by name, a subscription as USER/PLAN or by its id. Raises NotFound."""
    table: Any = TABLES[kind]
    if "name" in KINDS[kind].identity:
        rows = list(table.select().where(table.name == name).bind(db).dicts())
        if rows:
            return shown(of_rows(db, kind, rows)[0])
        names = [row[0] for row in select_rows(db, table.select(table.name))]
        raise NotFound(f'there is no {kind} "{name}"{nearest(name, names)}')
    rows = list(table.select().bind(db).dicts())
    state = {kind: {stored.identity: stored for stored in of_rows(db, kind, rows)}}
    return shown(find(state, kind, name))


def names(db: peewee.Database, kind: str, limit: int) -> list[str]:
    """Return the first names of a kind with names, in order."""
    table: Any = TABLES[kind]
    query = table.select(table.name).order_by(table.name).limit(limit)
    return [row[0] for row in select_rows(db, query)]


def existing(db: peewee.Database, kind: str, candidates: Sequence[str]) -> set[str]:
    """Return those of the candidates that are names of objects of a kind."""
    table: Any = TABLES[kind]
    query = table.select(table.name).where(table.name << list(candidates))
    return {row[0] for row in select_rows(db, query)}


@in_snapshot
def price_history(db: peewee.Database, model: str) -> list[Shown]:
    """Return the prices and rates of a model with their start times, the newest first, and their
    source if they are from a list. The first meters are None without a price. Raises NotFound."""
    show_one(db, "model", model)
    query = Price.select(Price).join(Model, on=(Model.id == Price.model_id))
    rows: Any = (
        query.where(Model.name == model).order_by(Price.effective_ms.desc()).bind(db).dicts()
    )
    return [
        {
            "effective_at": rfc3339(row["effective_ms"]),
            **dict.fromkeys(COLUMN_METERS),
            **PriceTable().plain(own_prices(row)),
            "rate": RateList().plain(row["rates"] or []),
            "source": row["source"],
        }
        for row in rows
    ]


def priced_since(db: peewee.Database, models: Sequence[str]) -> dict[str, int]:
    """Return the time (ms) since which the newest prices of models apply, by name."""
    since = fn.MAX(Price.effective_ms)
    query = Price.select(Model.name, since).join(Model, on=(Model.id == Price.model_id))
    rows = query.where(Model.name << list(models)).group_by(Model.name)
    return {name: int(at_ms) for name, at_ms in select_rows(db, rows)}


def require_name(db: peewee.Database, kind: str, name: str) -> None:
    """Raise NotFound, with the nearest name, unless a user, group or channel has or had this
    name."""
    column = _OBJECTS[kind].name
    if not (_is_there(db, column, name) or _is_remembered(db, kind, name)):
        names = [row[0] for row in select_rows(db, column.model.select(column))]
        raise NotFound(f'there is no {kind} "{name}"{nearest(name, names)}')


def key_id_of(db: peewee.Database, key: str) -> str:
    """Return the id of a key given by its id or as USER/NAME. Raises NotFound."""
    if _is_there(db, ApiKey.id, key) or _is_remembered(db, "key", key):
        return key
    return str(show(db, "key", key)["id"])


def _is_remembered(db: peewee.Database, kind: str, name: str) -> bool:
    own = (ChannelSums.scope == "group",) if kind == "group" else ()
    return _is_there(db, _REMEMBERED[kind], name, *own)


def _is_there(db: peewee.Database, column: Any, value: str, *conditions: Any) -> bool:
    query = column.model.select(column).where(column == value, *conditions)
    return first_row(db, query) is not None
