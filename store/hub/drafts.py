"""Drafts of new channels: what an administrator has entered so far, one for each session or token.

Sealed as a whole, like the keys of channels, since a draft contains keys. Kept for LIFETIME_MS
after the last change. A draft that no cipher key opens any more counts as missing.
"""

import json
from collections.abc import Callable
from typing import Any

import peewee

from store.db import changes
from store.db.database import database_ms, first_row, insert_rows, transaction
from store.db.tables.hub import ChannelDraft
from store.values.cipher import Cipher, Unreadable
from store.values.ids import DAY_MS

LIFETIME_MS = DAY_MS

Content = dict[str, Any]
"""A draft as JSON."""


def load(db: peewee.Database, cipher: Cipher, owner: str) -> Content | None:
    """Return the draft of a session or token, by its id, or None."""
    row = first_row(
        db,
        ChannelDraft.select(ChannelDraft.sealed).where(
            ChannelDraft.owner_id == owner,
            ChannelDraft.changed_ms > database_ms(db) - LIFETIME_MS,
        ),
    )
    try:
        return None if row is None else json.loads(cipher.decrypt(row[0]))
    except Unreadable:
        return None


def change(
    db: peewee.Database, cipher: Cipher, owner: str, edit: Callable[[Content | None], Content]
) -> Content:
    """Replace a draft by the result of `edit`. Concurrent changes are not lost. Raises whatever
    `edit` raises."""

    def work() -> Content:
        changes.lock(db)
        content = edit(load(db, cipher, owner))
        row = {
            "owner_id": owner,
            "sealed": cipher.encrypt(json.dumps(content)),
            "changed_ms": database_ms(db),
        }
        insert_rows(db, ChannelDraft, [row], replace=("sealed", "changed_ms"))
        return content

    return transaction(db, work)


def drop(db: peewee.Database, owner: str) -> None:
    """Remove a draft, if there is one."""
    query = ChannelDraft.delete().where(ChannelDraft.owner_id == owner)
    transaction(db, lambda: query.execute(db))


def forget_old(db: peewee.Database, at_ms: int) -> None:
    """Remove the expired drafts."""
    query = ChannelDraft.delete().where(ChannelDraft.changed_ms <= at_ms - LIFETIME_MS)
    transaction(db, lambda: query.execute(db))
