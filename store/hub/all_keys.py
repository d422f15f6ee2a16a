"""Keys of all users, for administrators: by user, by text, by a leaked secret.

Blocking; for the Hub. A secret that is searched is digested at once, and neither stored nor logged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import peewee

from store.catalog import keys
from store.db import audit
from store.db.database import has_words, in_snapshot, select_rows, snapshot_read
from store.db.tables.users import ApiKey, User
from store.hub import own_keys
from store.hub.own_keys import OwnKey
from store.values.errors import NotFound


@dataclass(frozen=True, slots=True)
class UserKey:
    """A key and the name of its user."""

    user: str
    key: OwnKey


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter for keys: by user, and by a text in the name of user or key, or in the visible part
    of the secret. An empty field matches all."""

    user: str = ""
    text: str = ""


@in_snapshot
def page(
    db: peewee.Database, chosen: Filter, limit: int, after: str, at_ms: int
) -> tuple[list[UserKey], str | None]:
    """Return at most `limit` keys, the newest first, each with its use, and the `after` of the next
    page (None: there is none). `after`: the id of a key; only keys created before it are
    returned."""
    query = _joined().order_by(ApiKey.id.desc()).limit(limit + 1)
    if after:
        query = query.where(ApiKey.id < after)
    if chosen.user:
        query = query.where(User.name == chosen.user)
    if chosen.text:
        columns = (User.name, ApiKey.name, ApiKey.prefix, ApiKey.last_four, ApiKey.id)
        query = query.where(reduce(or_, (has_words(column, chosen.text) for column in columns)))
    rows = select_rows(db, query)
    return _with_keys(db, rows[:limit], at_ms), rows[limit - 1][0] if len(rows) > limit else None


@in_snapshot
def show(db: peewee.Database, key_id: str, at_ms: int) -> UserKey:
    """Return a key of any user. Raises NotFound."""
    rows = select_rows(db, _joined().where(ApiKey.id == key_id))
    if not rows:
        raise NotFound(f"there is no key {key_id!r}")
    return _with_keys(db, rows, at_ms)[0]


def find_by_secret(
    db: peewee.Database, secret: str, peppers: Sequence[str], actor: str, at_ms: int
) -> UserKey:
    """Return the key that a secret opens, or opened until it was rotated. Audited. Raises
    NotFound."""
    key_id = keys.in_use(db, secret, peppers)
    if key_id is None:
        raise NotFound("no key has this secret")
    key = show(db, key_id, at_ms)
    audit.write(db, audit.Act(actor, "find", "key", f"{key.user}/{key.key.name}"))
    return key


def _joined() -> Any:
    return ApiKey.select(ApiKey.id, User.name).join(User, on=(User.id == ApiKey.user_id))


def _with_keys(db: peewee.Database, rows: Sequence[tuple[str, str]], at_ms: int) -> list[UserKey]:
    ids = [key_id for key_id, _ in rows]
    by_id = {key.id: key for key in snapshot_read(db, lambda: own_keys.of_ids(db, ids, at_ms))}
    return [UserKey(user, by_id[key_id]) for key_id, user in rows if key_id in by_id]
