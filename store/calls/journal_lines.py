"""The lines of a journal, written when a call starts, while it runs and when it has ended.

A line is one JSON array, a blank, the CRC-32 of the array in 8 hexadecimal digits, and a line end:
`["O",id,…]` when a call starts, `["M",id,…]` while it relays, `["S",id,…]` instead of that when the
client learns ids of what the vendor stores, `["C",id,…]` when it has ended (the usage record).
Fields may only be added at the end of an array, with a default.
"""

from zlib import crc32

import msgspec

from store.money.accounts import split
from store.values.pricing import cost_nanos, rate_of_text
from store.values.usage import Usage
from store.values.usage_record import (
    CLOSE_TAG,
    NO_RECEIPT,
    WALLET,
    CallFacts,
    Charge,
    Receipt,
    StoredAt,
    UsageRecord,
)

LINE_MAX_BYTES = 8 * 1024

OPEN_TAG = "O"
MARK_TAG = "M"
HANDED_TAG = "S"
OPEN = OPEN_TAG.encode()
MARK = MARK_TAG.encode()
HANDED = HANDED_TAG.encode()
CLOSE = CLOSE_TAG.encode()
CHECK = b" %08x\n"
CHECK_BYTES = 10

LOST_OUTCOME = "gateway_lost"
LOST_MESSAGE = "The gateway process ended before this call did."


class OpenLine(msgspec.Struct, array_like=True, frozen=True, tag=OPEN_TAG, gc=False):
    """The start of a call, with what its record needs if the process dies.

    `input_tokens` is the estimate that is then charged. `holds` is what each payer has reserved for
    it, in the order in which they pay.
    """

    id: str
    call: CallFacts
    input_tokens: int = 0
    holds: tuple[Charge, ...] = ()


class Sent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The part of the answer that the client has, and its channel. `receipt`: the rate and the
    conditions of service, as far as the vendor has reported them."""

    status: int | None = None
    upstream_family: str | None = None
    upstream_model: str | None = None
    channel: str | None = None
    upstream_request_id: str | None = None
    stored: StoredAt | None = None
    receipt: Receipt = NO_RECEIPT


class MarkLine(msgspec.Struct, array_like=True, frozen=True, tag=MARK_TAG, gc=False):
    """The progress of a running call. Only the last mark of a call counts. `holds` is as in
    OpenLine, if more was reserved since."""

    id: str
    at_ms: int
    output_tokens: int
    relayed: bool
    sent: Sent
    holds: tuple[Charge, ...] = ()


class HandedLine(msgspec.Struct, array_like=True, frozen=True, tag=HANDED_TAG, gc=False):
    """A mark whose `sent.stored` the client learns with what is relayed next. The store must know
    it before the call has ended."""

    id: str
    at_ms: int
    output_tokens: int
    relayed: bool
    sent: Sent
    user_id: str


def with_check(body: bytes) -> bytes:
    """Return a JSON text as a line, with its checksum and line end."""
    return body + CHECK % crc32(body)


def line_kind(line: bytes) -> bytes:
    """Return OPEN, MARK, HANDED or CLOSE, by position, since only this program writes lines."""
    return line[2:3]


def line_call_id(line: bytes) -> bytes:
    """Return the id of a line's call."""
    return line[6:32]


def lost_record(opened: OpenLine, mark: MarkLine | HandedLine | None, node: str) -> UsageRecord:
    """Return the record of a call whose process died. It is charged for its input and the output of
    the last mark if anything was relayed to the client, otherwise not at all."""
    sent = Sent() if mark is None else mark.sent
    record = UsageRecord(
        id=opened.id,
        call=opened.call,
        upstream_family=sent.upstream_family,
        upstream_model=sent.upstream_model,
        channel=sent.channel,
        status=sent.status,
        outcome=LOST_OUTCOME,
        error_code=LOST_OUTCOME,
        error_message=LOST_MESSAGE,
        duration_ms=None if mark is None else max(0, mark.at_ms - opened.call.started_ms),
        upstream_request_id=sent.upstream_request_id,
        stored=sent.stored,
        node=node,
        receipt=sent.receipt,
    )
    if mark is not None and mark.relayed:
        record.usage = Usage(opened.input_tokens, mark.output_tokens)
        record.usage_source = "estimated"
        raised = mark.holds if isinstance(mark, MarkLine) else ()
        _charge(record, raised or opened.holds)
    return record


def _charge(record: UsageRecord, holds: tuple[Charge, ...]) -> None:
    call = record.call
    rate = record.rate_text
    if rate is None or call.multiplier_ppm is None:
        return
    try:
        cost = cost_nanos(record.usage, rate_of_text(rate), call.multiplier_ppm)
    except (OverflowError, ValueError) as error:
        # A cost that cannot be computed is not charged, and must not stop the other calls.
        record.usage_source = "none"
        record.error_message = f"{LOST_MESSAGE} Not charged: {error}"
        return
    if cost:
        record.cost_nanos = cost
        record.charges = split(cost, holds or (Charge(WALLET, cost),))
