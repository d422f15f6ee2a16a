"""Stopped keys: who disabled or revoked a key, when and why. Also stopping all keys of a user at
once.

Actor and reason come from the audit log. The reads grow with the number of requested keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import peewee

from store.catalog import keys
from store.db.audit import AuditFilter, entries
from store.db.database import first_row, in_transaction, select_rows
from store.db.tables.system import AuditRow
from store.db.tables.users import ApiKey, User
from store.values.errors import NotFound

STOPS = ("disable", "revoke")


@dataclass(frozen=True, slots=True)
class KeyStop:
    """The last time that a key was disabled or revoked. `reason` is empty if none was given."""

    actor: str
    at_ms: int
    reason: str


def stops_of(db: peewee.Database, user: str, names: Sequence[str]) -> dict[str, KeyStop]:
    """Return who stopped keys of a user, by name, without those disabled by commands or documents
    of `apply`."""
    stops = {}
    for name in names:
        query = AuditRow.select(AuditRow.actor, AuditRow.at_ms, AuditRow.after).where(
            AuditRow.kind == "key", AuditRow.name == f"{user}/{name}", AuditRow.action << STOPS
        )
        if row := first_row(db, query.order_by(AuditRow.at_ms.desc()).limit(1)):
            stops[name] = KeyStop(row[0], row[1], (row[2] or {}).get("reason", ""))
    return stops


@in_transaction
def disable_all(db: peewee.Database, user: str, actor: str, reason: str = "") -> list[str]:
    """Disable all keys of a user. Return the ids of those that were enabled. Raises NotFound."""
    owner = first_row(db, User.select(User.id).where(User.name == user))
    if owner is None:
        raise NotFound(f'there is no user "{user}"')
    query = ApiKey.select(ApiKey.id).where(
        ApiKey.user_id == owner[0],
        ApiKey.disabled == False,  # noqa: E712 - SQL
        ApiKey.revoked_ms.is_null(),
    )
    ids = [key_id for (key_id,) in select_rows(db, query)]
    for key_id in ids:
        keys.set_key_enabled(db, key_id, False, actor, reason)
    return ids


def removal_of(db: peewee.Database, user: str) -> KeyStop | None:
    """Return who removed a user of this name, and when, or None."""
    rows = entries(db, 1, AuditFilter(kind="user", name=user))
    if not rows or rows[0]["action"] != "remove":
        return None
    return KeyStop(rows[0]["actor"], rows[0]["at_ms"], "")


def origin_of(db: peewee.Database, user: str) -> tuple[int, str | None]:
    """Return when a user was created, and by whom (None: the audit log does not have it). Raises
    NotFound."""
    owner = first_row(db, User.select(User.created_ms).where(User.name == user))
    if owner is None:
        raise NotFound(f'there is no user "{user}"')
    query = AuditRow.select(AuditRow.actor).where(
        AuditRow.kind == "user", AuditRow.name == user, AuditRow.action == "create"
    )
    row = first_row(db, query.order_by(AuditRow.at_ms.desc()).limit(1))
    return owner[0], str(row[0]) if row else None
