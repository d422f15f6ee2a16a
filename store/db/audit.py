"""The audit log: who changed what and when, with every secret masked.

A row is written in the transaction of its change. Rows are never changed.
"""

import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import peewee

from store.db.database import database_ms, in_transaction
from store.db.tables.fields import MARK
from store.db.tables.system import AuditRow
from store.values.ids import new_ulid

PAGE_ROWS = 1000
SECRET_FIELDS = frozenset({"extra_headers", "keys", "password", "proxy", "secret"})
MASK = "***"

caller: ContextVar[str | None] = ContextVar("caller", default=None)
"""The client address of a change. Commands, which run on this machine, do not set it."""

_LOGIN = re.compile(r"(?<=://).*@")


@dataclass(frozen=True, slots=True)
class Act:
    """One change: actor, action and object. `before` and `after` are its document fields."""

    actor: str
    action: str
    kind: str
    name: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@in_transaction
def write(db: peewee.Database, act: Act) -> None:
    """Add a row for this change, in the transaction of the change if there is one."""
    row = {
        "id": new_ulid(),
        "at_ms": database_ms(db),
        "actor": act.actor,
        "action": act.action,
        "kind": act.kind,
        "name": act.name,
        "before": masked(act.before),
        "after": masked(act.after),
        "address": (caller.get() or "")[:MARK] or None,
    }
    AuditRow.insert(row).execute(db)


def masked(fields: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields with every secret replaced. A list keeps its length, a table its names, a
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


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Conditions on audit rows: an actor, a kind, a name, a time of the oldest."""

    actor: str = ""
    kind: str = ""
    name: str = ""
    since_ms: int | None = None


def entries(
    db: peewee.Database, limit: int, filters: AuditFilter = AuditFilter(), before: str = ""
) -> list[dict[str, Any]]:
    """Return the newest rows first, at most `limit`, as column dictionaries. `before`: the id of a
    row; only older ones are returned."""
    query = AuditRow.select()
    for column in ("actor", "kind", "name"):
        if value := getattr(filters, column):
            query = query.where(getattr(AuditRow, column) == value)
    if filters.since_ms is not None:
        query = query.where(AuditRow.at_ms >= filters.since_ms)
    if before:
        query = query.where(AuditRow.id < before)
    rows: Any = query.order_by(AuditRow.id.desc()).limit(limit).bind(db).dicts()
    return list(rows)


def every_entry(db: peewee.Database, filters: AuditFilter) -> Iterator[dict[str, Any]]:
    """Yield all matching rows, the newest first. Memory: one page."""
    page = entries(db, PAGE_ROWS, filters)
    while page:
        yield from page
        page = entries(db, PAGE_ROWS, filters, page[-1]["id"]) if len(page) == PAGE_ROWS else []
