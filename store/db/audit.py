"""The audit log: who changed what, when, with every secret masked.

A row is written in the transaction of its change. Rows are never changed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import peewee

from store.db.database import database_ms
from store.db.tables.system import AuditRow
from store.values.ids import new_ulid

SECRET_FIELDS = frozenset({"extra_headers", "keys", "password", "proxy", "secret"})
MASK = "***"

_LOGIN = re.compile(r"(?<=://).*@")


@dataclass(frozen=True, slots=True)
class Act:
    """One change: who did what to which object; before and after are its document fields."""

    actor: str
    action: str
    kind: str
    name: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def write(db: peewee.Database, act: Act) -> None:
    """Add a row for this act; call it inside the transaction of the change."""
    row = {
        "id": new_ulid(),
        "at_ms": database_ms(db),
        "actor": act.actor,
        "action": act.action,
        "kind": act.kind,
        "name": act.name,
        "before": masked(act.before),
        "after": masked(act.after),
    }
    AuditRow.insert(row).execute(db)


def masked(fields: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The same fields with every secret replaced; a list keeps its length, a table its names, a
    proxy its address."""
    if fields is None:
        return None
    return {
        name: _mask(name, value) if name in SECRET_FIELDS else value
        for name, value in fields.items()
    }


def _mask(field: str, value: Any) -> Any:
    if value is None:
        return None
    if field == "proxy":
        return _LOGIN.sub(f"{MASK}@", value)
    if isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    return [MASK] * len(value) if isinstance(value, (list, tuple)) else MASK


def entries(db: peewee.Database, limit: int) -> list[dict[str, Any]]:
    """The newest rows first, at most `limit`, as column dictionaries."""
    query = AuditRow.select().order_by(AuditRow.at_ms.desc(), AuditRow.id.desc()).limit(limit)
    rows: Any = query.bind(db).dicts()
    return list(rows)
