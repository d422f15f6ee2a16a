"""Lines of journals of older versions, flat: the facts of a call stand beside all others.

They are read after an upgrade, when the journal of the version before is adopted; nothing writes
them.
"""

from typing import TypeVar

import msgspec

from store.calls.journal_lines import OPEN_TAG, OpenLine
from store.values.usage_record import (
    CLOSE_TAG,
    AttemptRecord,
    CallFacts,
    Charge,
    StoredAt,
    UsageRecord,
)

Line = TypeVar("Line", OpenLine, UsageRecord)


class _FlatOpenLine(msgspec.Struct, array_like=True, tag=OPEN_TAG, gc=False):
    id: str
    started_ms: int
    user_id: str
    user: str
    key_id: str
    key_name: str
    group: str
    endpoint: str
    family: str
    model: str | None = None
    stream: bool | None = None
    prices: str | None = None
    multiplier_ppm: int | None = None
    input_tokens: int = 0
    client_request_id: str | None = None
    client_ip: str | None = None
    user_agent: str | None = None
    holds: tuple[Charge, ...] = ()
    limit_account: str | None = None


class _FlatRecord(msgspec.Struct, array_like=True, tag=CLOSE_TAG, gc=False):
    id: str
    started_ms: int
    user_id: str
    user: str
    key_id: str
    key_name: str
    group: str
    endpoint: str
    family: str
    upstream_family: str | None = None
    model: str | None = None
    upstream_model: str | None = None
    channel: str | None = None
    stream: bool | None = None
    status: int | None = None
    outcome: str = "ok"
    error_code: str | None = None
    error_message: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    usage_source: str = "none"
    prices: str | None = None
    multiplier_ppm: int | None = None
    cost_nanos: int = 0
    billed_to: str | None = None
    charges: tuple[Charge, ...] = ()
    reported_usage: str | None = None
    ttft_ms: int | None = None
    duration_ms: int | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    client_request_id: str | None = None
    upstream_request_id: str | None = None
    client_ip: str | None = None
    user_agent: str | None = None
    node: str | None = None
    limit_account: str | None = None
    stored: StoredAt | None = None


_decode_open = msgspec.json.Decoder(_FlatOpenLine).decode
_decode_close = msgspec.json.Decoder(_FlatRecord).decode


def older_open(body: bytes) -> OpenLine:
    """The open line of an older journal. Raises msgspec.DecodeError, UnicodeDecodeError."""
    return _with_facts(OpenLine, _decode_open(body))


def older_close(body: bytes) -> UsageRecord:
    """The record of a close line of an older journal. Raises as `older_open`."""
    return _with_facts(UsageRecord, _decode_close(body))


def _with_facts(kind: type[Line], flat: _FlatOpenLine | _FlatRecord) -> Line:
    facts = (name for name in CallFacts.__struct_fields__ if hasattr(flat, name))
    call = CallFacts(**{name: getattr(flat, name) for name in facts})
    others = (name for name in kind.__struct_fields__ if name != "call")
    return kind(call=call, **{name: getattr(flat, name) for name in others})
