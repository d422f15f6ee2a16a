"""Keys, users, models and channels by a part of their names, limited to what the user may see.

Blocking; for the Hub.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import peewee

from store.catalog.catalog import EVERYTHING
from store.db.database import has_words, in_snapshot, select_rows
from store.db.tables.catalog import Channel, Group, Model
from store.db.tables.users import ApiKey, User
from store.hub.membership import groups_of


@dataclass(frozen=True, slots=True)
class Hit:
    """An object: its kind and name. Keys also have an id, and a user unless the key is the caller's
    own."""

    kind: str
    name: str
    id: str = ""
    user: str = ""


@in_snapshot
def hits(db: peewee.Database, text: str, user_id: str, limit: int, *, admin: bool) -> list[Hit]:
    """Return at most `limit` objects with this text in their names. Exact matches come first, then
    names that start with it. Members find their own keys and the models of their groups."""
    rows: list[Hit] = [
        *(Hit("model", name) for name in _models(db, text, user_id, limit, admin=admin)),
        *_keys(db, text, user_id, limit, admin=admin),
    ]
    if admin:
        for kind, column in (("user", User.name), ("channel", Channel.name)):
            query = column.model.select(column).where(has_words(column, text)).order_by(column)
            rows += [Hit(kind, name) for (name,) in select_rows(db, query.limit(limit))]
    return sorted(rows, key=lambda hit: rank(hit.name, text))[:limit]


def rank(name: str, text: str) -> int:
    """Return the rank of a name that contains a text: 0 if equal, 1 if it starts with it, else
    2."""
    name, text = name.lower(), text.lower()
    return 0 if name == text else 1 if name.startswith(text) else 2


def _models(
    db: peewee.Database, text: str, user_id: str, limit: int, *, admin: bool
) -> Iterable[str]:
    query = Model.select(Model.name).where(has_words(Model.name, text)).order_by(Model.name)
    if not admin:
        query = query.where(Model.name << sorted(_names_for(db, user_id)))
    return [name for (name,) in select_rows(db, query.limit(limit))]


def _names_for(db: peewee.Database, user_id: str) -> set[str]:
    """Return the models of a user's groups, as /models lists them. For a group with all models,
    those are the models that some channel serves to it."""
    groups = groups_of(db, user_id, admin=False)
    query = Group.select(Group.name, Group.models).where(Group.name << groups)
    offered: dict[str, list[str]] = dict(select_rows(db, query))
    names = {name for models in offered.values() for name in models}
    if EVERYTHING in names:
        wide = {group for group, models in offered.items() if EVERYTHING in models}
        for served, models in select_rows(db, Channel.select(Channel.groups, Channel.models)):
            if not wide.isdisjoint(served):
                names.update(models)
    return names


def _keys(
    db: peewee.Database, text: str, user_id: str, limit: int, *, admin: bool
) -> Sequence[Hit]:
    columns: tuple[Any, ...] = (ApiKey.name, ApiKey.last_four, ApiKey.id)
    named = reduce(or_, (has_words(column, text) for column in columns))
    query = (
        ApiKey.select(ApiKey.id, ApiKey.name, ApiKey.user_id, User.name)
        .join(User, on=(User.id == ApiKey.user_id))
        .where(named)
        .order_by(ApiKey.id.desc())
    )
    if not admin:
        query = query.where(ApiKey.user_id == user_id)
    return [
        Hit("key", name, key_id, "" if owner_id == user_id else owner)
        for key_id, name, owner_id, owner in select_rows(db, query.limit(limit))
    ]
