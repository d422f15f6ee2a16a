"""A live tail's filter agrees with the store's."""

import pytest

from store.calls.usage_queries import Filters, history, matches
from tests.support.usage_records import MONDAY_MS, record, store

CHOICES = (
    *({}, {"user": "alice"}, {"user": ("bob", "alice")}, {"user": "bob"}, {"outcome": "timeout"}),
    *({"stream": True}, {"stream": False}, {"min_duration_ms": 10}, {"min_duration_ms": 11}),
    *({"text": "SURE"}, {"text": "sure_"}, {"status": 200}, {"channel": "c"}, {"group": "g"}),
    *({"since_ms": MONDAY_MS + 1}, {"until_ms": MONDAY_MS + 1}, {"upstream_request_id": "req_2"}),
    *({"error_code": ("x", "z")}, {"model": "other"}, {"client_request_id": "mine"}),
    {"trace_id": "f" * 32},
)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_it_matches_as_the_store_does(database, choice):
    store(
        database,
        [
            record(1, MONDAY_MS, stream=True, duration_ms=10, outcome="timeout", error_code="x",
                   error_message="Sure it failed", client_request_id="mine"),
            record(2, MONDAY_MS + 1, stream=False, duration_ms=2_000, upstream_request_id="req_2",
                   channel="c", trace_id="f" * 32),
            record(3, MONDAY_MS + 2, error_code="y", error_message="surely", outcome="refused"),
        ],
    )  # fmt: skip
    found = {row["id"] for row in history(database, Filters(**choice), 10)}
    rows = history(database, Filters(), 10)
    assert len(rows) == 3
    assert {row["id"] for row in rows if matches(Filters(**choice), row)} == found
