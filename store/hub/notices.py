"""Notices: messages of administrators to everybody who signs in, between two times. Also the
balance below which a user is notified."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import peewee

from store.db import audit
from store.db.database import database_ms, first_row, in_transaction, insert_rows, select_rows
from store.db.tables.hub import LowBalance
from store.db.tables.hub import Notice as Row
from store.values.errors import NotFound, Refused
from store.values.fields import Instant
from store.values.ids import new_ulid
from store.values.usage_record import rfc3339, rfc3339_or_none

WARNING = "warning"
LEVELS = ("info", WARNING)
MAX_TEXT_CHARS = 2000
MAX_SHOWN = 5  # at a time; the newest ones
FIELDS = ("text", "level", "since", "until")


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice. `until_ms` None: until it is removed."""

    id: str
    text: str
    level: str
    since_ms: int
    until_ms: int | None
    created_by: str


def current(db: peewee.Database) -> list[Notice]:
    """Return the notices in force, newest first."""
    at_ms = database_ms(db)
    in_time = (Row.since_ms <= at_ms) & (Row.until_ms.is_null() | (Row.until_ms > at_ms))
    query = _all().where(in_time).limit(MAX_SHOWN)
    return [Notice(*row) for row in select_rows(db, query)]


def listed(db: peewee.Database) -> list[Notice]:
    """Return all notices, including past and future ones, the newest first."""
    return [Notice(*row) for row in select_rows(db, _all())]


@in_transaction
def create(db: peewee.Database, fields: Mapping[str, object], actor: str) -> Notice:
    """Create a notice from `text`, `level`, `since` and `until`, of which only the text is
    required. Raises Refused with the invalid fields."""
    at_ms = database_ms(db)
    faults: dict[str, str] = {}
    for name in fields.keys() - set(FIELDS):
        faults[name] = f"unknown field: {name}"
    text, level = fields.get("text"), fields.get("level") or LEVELS[0]
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT_CHARS:
        faults["text"] = f"text must be a string of 1 to {MAX_TEXT_CHARS} characters"
    if level not in LEVELS:
        faults["level"] = f"level must be one of {', '.join(LEVELS)}"
    since_ms = _moment(fields, "since", faults) or at_ms
    until_ms = _moment(fields, "until", faults)
    if until_ms is not None and until_ms <= max(since_ms, at_ms):
        faults.setdefault("until", "until must be later than since, and than now")
    if faults:
        raise Refused(list(faults.values()), list(faults))
    notice = Notice(new_ulid(), str(text).strip(), str(level), since_ms, until_ms, actor)
    row = {**{name: getattr(notice, name) for name in Notice.__slots__}, "created_ms": at_ms}
    Row.insert(row).execute(db)
    audit.write(db, audit.Act(actor, "create", "notice", notice.id, after=public(notice)))
    return notice


@in_transaction
def remove(db: peewee.Database, notice_id: str, actor: str) -> None:
    """Remove a notice. Raises NotFound."""
    rows = select_rows(db, _all().where(Row.id == notice_id))
    if not rows:
        raise NotFound(f"there is no notice {notice_id}")
    Row.delete().where(Row.id == notice_id).execute(db)
    before = public(Notice(*rows[0]))
    audit.write(db, audit.Act(actor, "remove", "notice", notice_id, before))


def public(notice: Notice) -> dict[str, Any]:
    """Return a notice as JSON."""
    return {
        "id": notice.id,
        "text": notice.text,
        "level": notice.level,
        "since": rfc3339(notice.since_ms),
        "until": rfc3339_or_none(notice.until_ms),
    }


def _moment(fields: Mapping[str, object], name: str, faults: dict[str, str]) -> int | None:
    if fields.get(name) in (None, ""):
        return None
    try:
        return Instant().parse(fields[name])
    except ValueError as error:
        faults[name] = f"{name} {error}"
        return None


def _all() -> Any:
    """Return the query for the fields of Notice, in order."""
    columns = (Row.id, Row.text, Row.level, Row.since_ms, Row.until_ms, Row.created_by)
    return Row.select(*columns).order_by(Row.id.desc())


def low_balance(db: peewee.Database, user_id: str) -> int | None:
    """Return the balance (nanos) below which a user is notified. None: when it is about to run
    out."""
    query = LowBalance.select(LowBalance.below).where(LowBalance.user_id == user_id)
    row = first_row(db, query)
    return None if row is None else int(row[0])


@in_transaction
def set_low_balance(db: peewee.Database, user_id: str, below_nanos: int | None) -> None:
    """Set the value that `low_balance` returns."""
    if below_nanos is None:
        LowBalance.delete().where(LowBalance.user_id == user_id).execute(db)
    else:
        row = {"user_id": user_id, "below": below_nanos}
        insert_rows(db, LowBalance, [row], replace=("below",))
