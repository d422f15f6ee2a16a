"""What the journal is told of a call: that it begins, how far it has come, what became of it.

Belongs here: the lines of a call and its usage record. Not here: what it costs (settle).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from adapters.json.jsonio import dumps
from handlers.relay.call import Attempt, Call, Ending
from handlers.relay.faults import from_store
from handlers.relay.settle import Bill, text_tokens
from handlers.relay.stored_responses import StoredResponses
from store.calls.journal import Journal
from store.calls.journal_files import JournalFull
from store.calls.journal_lines import OpenLine, Sent
from store.calls.stored_responses import mark_of
from store.values.ids import now_ms
from store.values.usage_record import CallFacts, StoredAt, UsageRecord

UPSTREAM_ID_MAX = 128
MAX_MADE_IDS = 1000  # that one answer hands out besides its own; nobody can use further ones
IDS_PER_LINE = 64  # of the journal: half of what a line may hold

# outcomes whose error_code is the outcome word itself
_WORDS = frozenset({"client_gone", "upstream_truncated", "drained"})


@dataclass(slots=True)
class Records:
    """The calls of one worker, as its journal has them."""

    journal: Journal
    stored: StoredResponses
    node: str

    def open(self, call: Call) -> None:
        """The journal knows of the call before any upstream does. Raises Fault UNAVAILABLE."""
        call.facts = _facts_of(call)
        line = OpenLine(
            id=call.arrival.call_id,
            call=call.facts,
            input_tokens=call.input_estimate_tokens,
            holds=call.hold.parts if call.hold else (),
        )
        try:
            self.journal.open_call(line)
        except JournalFull as error:
            raise from_store(error) from None
        call.opened = True

    def mark(self, call: Call, output_units: int) -> None:
        """The journal knows how far a stream has come."""
        # Were the process killed, this would be charged.
        output_tokens = text_tokens(call, output_units)
        hold, call_id = call.hold, call.arrival.call_id
        holds = hold.parts if hold is not None and hold.raised else ()
        self.journal.mark(call_id, output_tokens, relayed=True, sent=_sent(call), holds=holds)

    def identified(self, call: Call) -> None:
        """The client is about to read the id of an answer that the vendor keeps, if it has one."""
        attempt = call.attempt
        if not call.kept or attempt is None or attempt.bridge is None:
            return
        bridge = attempt.bridge
        if self.note_stored(call, bridge.upstream_id):
            so_far = text_tokens(call, bridge.output_units)
            self.journal.hand_out(call.arrival.call_id, call.key.user_id, so_far, _sent(call))

    def note_stored(self, call: Call, response_id: str | None) -> bool:
        """The vendor keeps the answer under this id, which the client is about to read; whether
        that is new. Idempotent."""
        if call.stored is not None or not response_id or call.attempt is None:
            return False
        call.stored = _stored_at(call.attempt, mark_of(response_id))
        self.stored.note(call.key.user_id, call.stored)
        return True

    def note_made(self, call: Call, ids: Iterable[str]) -> None:
        """The vendor keeps things under these ids, besides the answer, which the client is about to
        read. Idempotent."""
        attempt, made, new = call.attempt, call.made_marks, []
        assert attempt is not None
        for one in ids:
            mark = mark_of(one)
            if mark in made or attempt.candidate.channel.shares(one) or len(made) >= MAX_MADE_IDS:
                continue
            made.add(mark)
            new.append(mark)
            self.stored.note(call.key.user_id, _stored_at(attempt, mark))
        bridge = attempt.bridge
        so_far = text_tokens(call, bridge.output_units) if bridge is not None else 0
        for start in range(0, len(new), IDS_PER_LINE):
            first, *more = new[start : start + IDS_PER_LINE]
            sent = replace(_sent(call), stored=_stored_at(attempt, first, tuple(more)))
            self.journal.hand_out(
                call.arrival.call_id,
                call.key.user_id,
                so_far,
                sent,
                relayed=bridge is not None,
            )

    def close(self, call: Call, ending: Ending, bill: Bill) -> tuple[UsageRecord, bool]:
        """The usage record of a call that is over, and whether the journal has it now: of the many
        refused calls of a key in a minute another record tells."""
        record = record_of(call, ending, bill, self.node, now_ms())
        if call.opened:
            self.journal.close_call(record)
            return record, True
        return record, self.journal.refused(record)


def _stored_at(attempt: Attempt, mark: str, more: tuple[str, ...] = ()) -> StoredAt:
    """The place of an attempt: its channel and upstream key."""
    channel, key = attempt.candidate.channel, attempt.candidate.key
    fingerprint = channel.fingerprints[key] if channel.fingerprints else ""
    return StoredAt(mark, channel.id, fingerprint, more)


def _sent(call: Call) -> Sent:
    attempt = call.attempt
    assert attempt is not None
    channel = attempt.candidate.channel
    return Sent(
        status=200,
        upstream_family=channel.family,
        upstream_model=attempt.upstream_model,
        channel=channel.name,
        stored=call.stored,
    )


def record_of(call: Call, ending: Ending, bill: Bill, node: str, ended_ms: int) -> UsageRecord:
    """The usage record of a call that is over."""
    counts, attempt, facts = bill.counts, call.tried, call.facts or _facts_of(call)
    channel = attempt.candidate.channel if attempt else None
    usage, first_byte_ms, upstream_id = counts.usage, call.first_byte_ms, call.delivery.upstream_id
    code, message = (None, None) if ending.outcome == "ok" else _error_of(ending)
    # A wall clock may have been set back meanwhile.
    ttft_ms = max(0, first_byte_ms - facts.started_ms) if first_byte_ms is not None else None
    # In the order of the fields: a call with so many names makes a dict of them first, which takes
    # 20,000 of the loop's 640,000 instructions together with the facts below.
    return UsageRecord(
        call.arrival.call_id,
        facts,
        channel.family if channel else None,
        attempt.upstream_model if attempt else None,
        channel.name if channel else None,
        call.status,
        ending.outcome,
        code,
        message,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        usage.reasoning_tokens,
        counts.source,
        bill.cost_nanos,
        bill.charges,
        None if counts.reported is None else _reported_text(counts.reported),
        ttft_ms,
        max(0, ended_ms - facts.started_ms),
        tuple(call.attempts),
        upstream_id[:UPSTREAM_ID_MAX] if upstream_id else None,
        node,
        call.stored,
    )


def _facts_of(call: Call) -> CallFacts:
    arrival, key, prices = call.arrival, call.key, call.prices
    return CallFacts(  # in the order of the fields, as above
        arrival.started_ms,
        key.user_id,
        key.user,
        key.id,
        key.name,
        key.group,
        call.operation.endpoint,
        call.family.name,
        call.model_name,
        call.stream,
        prices.text if prices else None,
        call.group.multiplier_ppm if prices and call.group else None,
        arrival.client_request_id,
        arrival.client_ip,
        arrival.user_agent,
        call.hold.limit_account if call.hold else None,
        arrival.trace.trace_id if arrival.trace else None,
    )


def _reported_text(reported: object) -> str | None:
    """The vendor's words as JSON; None when JSON cannot say them (NaN)."""
    try:
        return dumps(reported).decode()
    except (OverflowError, ValueError):
        return None


def _error_of(ending: Ending) -> tuple[str, str | None]:
    """(code, message) of a call that did not end well."""
    fault = ending.fault
    message = fault.message if fault is not None else None
    if ending.outcome in _WORDS:
        return ending.outcome, message
    return (fault.code if fault is not None else ending.outcome), message
