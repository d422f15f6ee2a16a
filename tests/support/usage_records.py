"""Usage records written straight into the store."""

from store.calls.booking import Batch, apply_batch, apply_records
from store.calls.journal_lines import OpenLine
from store.db.database import execute, transaction
from store.values.ids import new_ulid, ulid
from store.values.usage import TOKEN_COUNTS, Usage
from store.values.usage_record import CallFacts, Charge, UsageRecord

MONDAY_MS = NOW_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z
DAY_MS = 86_400_000

_serial = iter(range(10**6))
_DEFAULTS = {"started_ms": 1} | dict.fromkeys(
    ("user_id", "user", "key_id", "key_name", "group", "endpoint", "family"), "x"
)


def usage_record(*, id=None, **fields):
    """Return a record. Arguments may also be facts of its call and token counts; missing texts are
    "x"."""
    call, usage = _facts(fields), Usage(**_taken(fields, (*TOKEN_COUNTS, "more")))
    return UsageRecord(id=id or new_ulid(), call=call, usage=usage, **fields)


def open_line(*, id=None, **fields):
    """Return an open line, with the same arguments."""
    return OpenLine(id=id or new_ulid(), call=_facts(fields), **fields)


def record_at(at_ms, **fields):
    """Return a record of a call that started at this time, with an id of its own."""
    call_id = ulid(at_ms, next(_serial).to_bytes(10))
    return usage_record(**({"id": call_id, "started_ms": at_ms} | fields))


def field_of(record, name):
    """Return a field of a record, of its call's facts or of its usage."""
    parts = (record.call, record.usage, record)
    return getattr(next(part for part in parts if name in part.__struct_fields__), name)


def _facts(fields):
    return CallFacts(**(_DEFAULTS | _taken(fields, CallFacts.__struct_fields__)))


def _taken(fields, names):
    return {name: fields.pop(name) for name in names if name in fields}


def store(db, records, recorded_ms=MONDAY_MS):
    transaction(db, lambda: apply_records(db, list(records), recorded_ms))


def record(number, at_ms, **fields):
    facts = {"user_id": "u", "user": "alice", "key_id": "k", "key_name": "n", "group": "g"}
    facts |= {"endpoint": "/a", "family": "f", "model": "m", "status": 200}
    return usage_record(id=ulid(at_ms, number.to_bytes(10)), started_ms=at_ms, **(facts | fields))


def charged(user_id, cost, at_ms=MONDAY_MS, **fields):
    """Return the record of a call that the wallet pays."""
    facts = {"cost_nanos": cost, "charges": (Charge("wallet", cost),) if cost else ()}
    facts |= {"key_id": new_ulid(), "user_id": user_id} | fields
    return record_at(at_ms, **facts)


class BookedJournal:
    """A journal whose batches are booked directly."""

    def __init__(self, db):
        self.id = new_ulid()
        self._db = db
        insert = 'INSERT INTO "journals" ("id", "node", "offset", "opened_ms") VALUES (?, ?, 0, 0)'
        transaction(db, lambda: execute(db, insert, (self.id, "web-1")))

    def book(self, records, old, new, at_ms=MONDAY_MS):
        """Book a batch; return the journal's leases afterwards."""
        batch = Batch(self.id, old, new, records)
        return transaction(self._db, lambda: apply_batch(self._db, batch, at_ms))
