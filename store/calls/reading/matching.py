"""Filters applied to rows in memory: for live tails, which make no query."""

from collections.abc import Mapping
from typing import Any

from store.calls.usage_queries import Filters

_NAMES = (
    *("user", "key_id", "model", "endpoint", "channel", "group", "outcome", "error_code"),
    *("status", "client_request_id", "upstream_request_id", "trace_id"),
)


def matches(filters: Filters, row: Mapping[str, Any]) -> bool:
    """Return whether a row of usage_records matches."""
    for name in _NAMES:
        expected = getattr(filters, name)
        if expected is None:
            continue
        if row[name] not in expected if isinstance(expected, tuple) else row[name] != expected:
            return False
    stream, started_ms, duration_ms = row["stream"], row["started_ms"], row["duration_ms"] or 0
    return (
        (filters.request_id is None or row["id"] == filters.request_id)
        and (filters.stream is None or (stream is not None and bool(stream) == filters.stream))
        and (filters.min_duration_ms is None or duration_ms >= filters.min_duration_ms)
        and (filters.text is None or filters.text.lower() in (row["error_message"] or "").lower())
        and (filters.since_ms is None or started_ms >= filters.since_ms)
        and (filters.until_ms is None or started_ms < filters.until_ms)
    )
