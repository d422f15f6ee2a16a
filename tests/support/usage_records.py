"""Usage records written straight into the store."""

from store.db.database import transaction
from store.money.books import apply_records
from store.values.ids import ulid
from store.values.usage_record import UsageRecord

MONDAY_MS = NOW_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z


def store(db, records, recorded_ms=MONDAY_MS):
    transaction(db, lambda: apply_records(db, list(records), recorded_ms))


def record(number, at_ms, **fields):
    facts = {"user_id": "u", "user": "alice", "key_id": "k", "key_name": "n", "group": "g"}
    facts |= {"endpoint": "/a", "family": "f", "model": "m", "status": 200}
    return UsageRecord(id=ulid(at_ms, number.to_bytes(10)), started_ms=at_ms, **facts, **fields)
