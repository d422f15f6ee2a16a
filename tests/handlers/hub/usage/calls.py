"""Calls of the two users of the Hub's tests, written into its store."""

from store.db.database import select_rows
from store.db.tables.users import User
from store.values.ids import now_ms, ulid
from store.values.pricing import cost_nanos
from store.values.usage_record import AttemptRecord, Charge
from tests.support.prices import rate_of
from tests.support.usage_records import store, usage_record

PRICES = rate_of(2 * 10**9, 8 * 10**9, 5 * 10**8, 2 * 10**9, 32 * 10**8, 8 * 10**9, 0)
FAILED = AttemptRecord("main", 429, "upstream_rate_limited", 210, "the vendor's own words")
MINUTE_MS = 60_000


def call(db, number, user="alice", minutes_ago=5, **fields):
    """Return the record of a user's call, not stored yet."""
    [(user_id,)] = select_rows(db, User.select(User.id).where(User.name == user))
    at_ms = now_ms() - minutes_ago * MINUTE_MS - number
    facts = {"user_id": user_id, "user": user, "key_id": f"key-of-{user}", "key_name": "laptop"}
    facts |= {"group": "default", "endpoint": "/v1/chat/completions", "model": "gpt-4.1"}
    facts |= {"family": "chat_completions", "stream": True, "prices": PRICES.text}
    facts |= {"multiplier_ppm": 500_000, "client_ip": "192.0.2.1", "user_agent": "agent/1"}
    own = {"status": 200, "ttft_ms": 400, "duration_ms": 2_000, "channel": "main", "node": "web-1"}
    own |= {"input_tokens": 100, "output_tokens": 50, "usage_source": "reported"}
    own |= {"upstream_request_id": f"req_{number}", "upstream_model": "gpt-4.1-x"}
    own |= {"attempts": (AttemptRecord("main", 200, None, 400),)}
    made = usage_record(
        id=ulid(at_ms, number.to_bytes(10)), started_ms=at_ms, **(facts | own | fields)
    )
    if made.usage_source != "none":
        made.cost_nanos = cost_nanos(made.usage, PRICES, 500_000)
        made.charges = (Charge("wallet", made.cost_nanos),)
    return made


def failed(db, number, user="alice", **fields):
    """Return the record of a call that failed at its channel."""
    own = {"status": 429, "outcome": "upstream_error", "error_code": "upstream_rate_limited"}
    own |= {"error_message": "All channels for 'gpt-4.1' are rate limited.", "ttft_ms": None}
    own |= {"usage_source": "none", "input_tokens": 0, "output_tokens": 0}
    own |= {"attempts": (FAILED,), "stream": False}
    return call(db, number, user, **(own | fields))


def put(db, *records):
    """Store records as the writer does, now."""
    store(db, records, now_ms())
    return [record.id for record in records]
