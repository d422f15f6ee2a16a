"""Versions of administered objects. An edit that was started before another user's change is
refused instead of restoring old values.

The version of an object is the id of the audit line of its last change, which is written in the
transaction of the change. An object that has not changed since the store has an audit log has the
version "".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from store.db.audit import SECRET_FIELDS
from store.db.database import first_row, select_rows
from store.db.tables.system import AuditRow
from store.values.errors import Conflict

EDITS = ("create", "update")
"""Actions whose lines contain fields of the document."""
MAX_LINES = 200  # the most recent changes since a version that are compared

Fields = Mapping[str, Any]
"""Fields of the document with plain values, secrets masked."""


@dataclass(frozen=True, slots=True)
class Revision:
    """The last change of an object: its audit line, time and actor."""

    id: str
    at_ms: int
    actor: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that was changed since a version: its value `before`, the stored value `theirs`, and
    the value `mine` of the refused edit. `changed`: by others. `touched`: by the edit."""

    name: str
    before: Any
    theirs: Any
    mine: Any
    changed: bool
    touched: bool

    @property
    def secret(self) -> bool:
        """Return whether its values are masked."""
        return self.name in SECRET_FIELDS

    @property
    def merged(self) -> Any:
        """Return the value that keeps both changes. If both changed the same field, or the same
        name of a table, it is the edit's value."""
        return _three_way(self.before, self.theirs, self.mine)


class Outdated(Conflict):
    """An edit of an object that others have changed since the edit's version."""

    def __init__(self, named: str, last: Revision, differences: Sequence[Difference]) -> None:
        fields = ", ".join(item.name for item in differences if item.changed)
        super().__init__(
            f"{named} was changed by {last.actor} since this version: {fields or 'other fields'};"
            f" its version is {last.id} now"
        )
        self.last, self.differences = last, list(differences)
        self.named = named

    @property
    def merged(self) -> dict[str, Any]:
        """Return the values with which a form keeps the changes of both."""
        return {item.name: item.merged for item in self.differences if not item.secret}


def outdated_of(failure: BaseException | None) -> Outdated | None:
    """Return the conflict by which a form was refused, or None. outdated.html shows it above the
    form."""
    cause = failure.__cause__ if failure else None
    return cause if isinstance(cause, Outdated) else None


def last_revision(db: peewee.Database, kind: str, name: str) -> Revision | None:
    """Return the last change of an object, or None if its audit lines have none. `name` is that of
    its audit lines."""
    query = AuditRow.select(AuditRow.id, AuditRow.at_ms, AuditRow.actor).where(
        AuditRow.kind == kind, AuditRow.name == name, AuditRow.action << EDITS
    )
    row = first_row(db, query.order_by(AuditRow.at_ms.desc(), AuditRow.id.desc()).limit(1))
    return Revision(*row) if row else None


def version_of(db: peewee.Database, kind: str, name: str) -> str:
    """Return the version of an object. `name` is that of its audit lines."""
    last = last_revision(db, kind, name)
    return last.id if last else ""


def require(
    db: peewee.Database, named: tuple[str, str], version: str, stored: Fields, mine: Fields
) -> None:
    """Raise Outdated unless `version` is the object's current one. `named` is its kind and name,
    `stored` its current fields, `mine` the fields that the edit would change. Inside the
    transaction of the edit."""
    last = last_revision(db, *named)
    if last is None or last.id == version or not mine:
        return
    raise Outdated(" ".join(named), last, _differences(_lines(db, named, version), stored, mine))


def _lines(db: peewee.Database, named: tuple[str, str], version: str) -> list[tuple[Any, Any]]:
    """Return (before, after) of the changes since a version, the oldest first."""
    kind, name = named
    query = AuditRow.select(AuditRow.id, AuditRow.before, AuditRow.after).where(
        AuditRow.kind == kind, AuditRow.name == name, AuditRow.action << EDITS
    )
    lines = []
    newest_first = query.order_by(AuditRow.at_ms.desc(), AuditRow.id.desc()).limit(MAX_LINES)
    for line_id, before, after in select_rows(db, newest_first):
        if line_id == version:
            break
        lines.append((before or {}, after or {}))
    return lines[::-1]


def _differences(
    lines: Sequence[tuple[Fields, Fields]], stored: Fields, mine: Fields
) -> list[Difference]:
    before: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for old, new in lines:
        before = {**old, **before}
        theirs.update(new)
    differences = []
    for name in dict.fromkeys((*theirs, *mine)):
        base = before.get(name, stored.get(name))
        own = mine.get(name, stored.get(name))
        secret = name in SECRET_FIELDS  # masked values are equal
        changed = name in theirs and (secret or theirs[name] != base)
        # An edit contains secrets only if the user entered one.
        touched = name in mine and (secret or own != base)
        if changed or touched:
            now = theirs.get(name, base)
            mine_now = own if touched else base
            differences.append(Difference(name, base, now, mine_now, changed, touched))
    return differences


def _three_way(before: Any, theirs: Any, mine: Any) -> Any:
    if mine == before:
        return theirs
    if theirs == before or not all(isinstance(value, dict) for value in (before, theirs, mine)):
        return mine
    names = dict.fromkeys((*theirs, *mine))
    parts = {name: _three_way(before.get(name), theirs.get(name), mine.get(name)) for name in names}
    return {name: value for name, value in parts.items() if value is not None}
