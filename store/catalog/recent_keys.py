"""The keys that are likely to be used next, for the memory of a worker that starts.

The last use of a key is known by the sums of days, which each batch of records brings up to date:
the records themselves are pruned, and a column of the key would be one more write for each call.
Of one day those with the most calls come first. Behind all that were used come the newest keys.
Imported by the worker.
"""

import threading
from collections.abc import Iterator
from itertools import chain, islice

import peewee
from peewee import fn

from store.catalog.keys import KeyEntry, keys_of
from store.db.database import PORTION, raw_rows
from store.db.tables.usage import UsageByUser
from store.db.tables.users import ApiKey

MAX_DAYS = 400  # with calls, that are looked at
REST_S = 0.01  # between two portions: others need the interpreter, too


def recent_keys(db: peewee.Database, limit: int) -> Iterator[list[tuple[bytes, KeyEntry]]]:
    """The keys last used, at most ``limit`` of them, latest first, some at a time: each digest that
    opens one, with the key.

    Blocking: in threads only. Raises StoreUnavailable.
    """
    ids, pause = islice(_ids(db, limit), limit), threading.Event()
    while portion := list(islice(ids, PORTION)):
        yield keys_of(db, portion)
        pause.wait(REST_S)


def _ids(db: peewee.Database, limit: int) -> Iterator[str]:
    seen: set[str] = set()
    for key_id in chain(_used(db), _newest(db, limit)):
        if key_id not in seen:
            seen.add(key_id)
            yield key_id


def _used(db: peewee.Database) -> Iterator[str]:
    """Ids of keys by the last day that they were used; they come again on earlier days."""
    table = UsageByUser
    last = raw_rows(db, table.select(fn.MAX(table.day)))
    for _ in range(MAX_DAYS):
        day = last[0][0]
        if day is None:
            return
        used = table.select(table.key_id).where(table.day == day).group_by(table.key_id)
        for row in raw_rows(db, used.order_by(fn.SUM(table.calls).desc())):
            yield row[0]
        last = raw_rows(db, table.select(fn.MAX(table.day)).where(table.day < day))


def _newest(db: peewee.Database, limit: int) -> Iterator[str]:
    newest = ApiKey.select(ApiKey.id).where(ApiKey.revoked_ms.is_null())
    for row in raw_rows(db, newest.order_by(ApiKey.created_ms.desc(), ApiKey.id).limit(limit)):
        yield row[0]
