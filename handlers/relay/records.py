"""The journal lines of a call: its start, its progress, its end.

Belongs here: the lines of a call and its usage record. Not here: its cost (settle).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from adapters.json.jsonio import dumps
from handlers.relay.call import Attempt, Call, Ending
from handlers.relay.faults import from_store
from handlers.relay.settle import Bill, receipt_so_far, text_tokens
from handlers.relay.stored_responses import StoredResponses
from store.calls.journal import Journal
from store.calls.journal_files import JournalFull
from store.calls.journal_lines import OpenLine, Sent
from store.calls.stored_responses import mark_of
from store.money.funds import NO_LIMITS
from store.values.usage import NOT_REPORTED
from store.values.usage_record import CallFacts, StoredAt, UsageRecord

UPSTREAM_ID_MAX = 128
MAX_MADE_IDS = 1000  # handed out by one answer besides its own; further ids cannot be used
IDS_PER_LINE = 64  # half of what a journal line may hold

# Outcomes whose error_code is the outcome itself.
_WORDS = frozenset({"client_gone", "upstream_truncated", "drained"})


@dataclass(slots=True)
class Records:
    """The journal lines and usage records of one worker's calls."""

    journal: Journal
    stored: StoredResponses
    node: str

    def open(self, call: Call) -> CallFacts:
        """Write the call to the journal before it is sent upstream. Raises Fault UNAVAILABLE."""
        facts, hold, admitted = _facts_of(call), call.held.hold, call.admitted
        assert admitted is not None
        line = OpenLine(
            id=call.id,
            call=facts,
            input_tokens=admitted.input_estimate_tokens,
            holds=hold.parts if hold else (),
        )
        try:
            self.journal.open_call(line)
        except JournalFull as error:
            raise from_store(error) from None
        return facts

    def mark(self, call: Call, output_units: int) -> None:
        """Note a stream's progress in the journal, by which it is charged if the process dies."""
        hold = call.held.hold
        holds = hold.parts if hold is not None and hold.raised else ()
        tokens = _text_tokens(call, output_units)
        self.journal.mark(
            call.id, tokens, relayed=True, sent=_sent(call, output_units), holds=holds
        )

    def identified(self, call: Call) -> None:
        """Note the id under which the vendor stores the answer, before the client reads it. Does
        nothing if there is no such id."""
        attempt = call.attempt
        if not call.keeps_answer or attempt is None or attempt.bridge is None:
            return
        bridge = attempt.bridge
        if self.note_stored(call, bridge.upstream_id):
            so_far = _text_tokens(call, bridge.output_units)
            self.journal.hand_out(
                call.id, call.head.key.user_id, so_far, _sent(call, bridge.output_units)
            )

    def note_stored(self, call: Call, response_id: str | None) -> bool:
        """Note that the vendor stores the answer under this id, before the client reads it. Return
        whether that is new. Idempotent."""
        if call.outcome.stored is not None or not response_id or call.attempt is None:
            return False
        call.outcome.stored = stored = _stored_at(call.attempt, mark_of(response_id))
        self.stored.note(call.head.key.user_id, stored)
        return True

    def note_made(self, call: Call, ids: Iterable[str]) -> None:
        """Note that the vendor stores objects other than the answer under these ids, before the
        client reads them. Idempotent."""
        attempt, user_id = call.attempt, call.head.key.user_id
        assert attempt is not None
        known_marks, new = call.outcome.made_marks, dict[str, None]()
        for id_ in ids:
            mark = mark_of(id_)
            full = len(known_marks) + len(new) >= MAX_MADE_IDS
            if full or mark in known_marks or attempt.candidate.channel.shares(id_):
                continue
            new[mark] = None
        for mark in new:
            self.stored.note(user_id, _stored_at(attempt, mark))
        call.outcome.made_marks = known_marks.union(new)
        bridge, marks = attempt.bridge, list(new)
        units = bridge.output_units if bridge is not None else 0
        so_far = _text_tokens(call, units)
        for start in range(0, len(marks), IDS_PER_LINE):
            first, *more = marks[start : start + IDS_PER_LINE]
            sent = replace(_sent(call, units), stored=_stored_at(attempt, first, tuple(more)))
            self.journal.hand_out(call.id, user_id, so_far, sent, relayed=bridge is not None)

    def close(self, call: Call, ending: Ending, bill: Bill) -> tuple[UsageRecord, bool]:
        """Return the usage record of a call that is over, and whether the journal now has it: many
        refused calls of a key in one minute share one record."""
        record = record_of(call, ending, bill, self.node, call.head.arrival.elapsed_ms())
        if call.opened is not None:
            self.journal.close_call(record)
            return record, True
        return record, self.journal.refused(record)


def _text_tokens(call: Call, units: int) -> int:
    assert call.admitted is not None
    return text_tokens(call.admitted, units)


def _stored_at(attempt: Attempt, mark: str, more: tuple[str, ...] = ()) -> StoredAt:
    """Return the place of an attempt: its channel and upstream key."""
    channel, key = attempt.candidate.channel, attempt.candidate.key
    fingerprint = channel.fingerprints[key] if channel.fingerprints else ""
    return StoredAt(mark, channel.id, fingerprint, more)


def _sent(call: Call, output_units: int) -> Sent:
    """Return an answer's progress, by which it is charged if the process dies."""
    attempt = call.attempt
    assert attempt is not None
    channel, bridge = attempt.candidate.channel, attempt.bridge
    served = NOT_REPORTED if bridge is None else bridge.served
    return Sent(
        status=200,
        upstream_family=channel.family,
        upstream_model=attempt.upstream_model,
        channel=channel.name,
        stored=call.outcome.stored,
        receipt=receipt_so_far(call, served, output_units),
    )


def record_of(call: Call, ending: Ending, bill: Bill, node: str, duration_ms: int) -> UsageRecord:
    """Return the usage record of a call that is over."""
    outcome, counts = call.outcome, bill.counts
    attempt, facts = call.begun_attempt, call.opened or _facts_of(call)
    channel = attempt.candidate.channel if attempt else None
    upstream_id = outcome.delivery.upstream_id
    code, message = (None, None) if ending.outcome == "ok" else _error_of(ending)
    # By position, in the order of the fields: so many keyword arguments would make a dict first,
    # which takes 20,000 of the loop's 640,000 instructions together with the facts below.
    return UsageRecord(
        call.id,
        facts,
        channel.family if channel else None,
        attempt.upstream_model if attempt else None,
        channel.name if channel else None,
        outcome.status,
        ending.outcome,
        code,
        message,
        counts.usage,
        counts.source,
        bill.cost_nanos,
        bill.charges,
        None if counts.reported is None else _reported_text(counts.reported),
        outcome.ttft_ms,
        duration_ms,
        tuple(outcome.attempts),
        upstream_id[:UPSTREAM_ID_MAX] if upstream_id else None,
        node,
        outcome.stored,
        bill.receipt,
        bill.upstream_nanos,
    )


def _facts_of(call: Call) -> CallFacts:
    head, offer, hold = call.head, call.offer, call.held.hold
    arrival, key, requested = head.arrival, head.key, call.requested
    key_limit, user_limit = hold.limit_accounts if hold else NO_LIMITS
    return CallFacts(  # in the order of the fields, as above
        arrival.started_ms,
        key.user_id,
        key.user,
        key.id,
        key.name,
        key.group,
        head.operation.endpoint,
        head.family.name,
        requested.model,
        requested.stream,
        offer.prices.plain.text if offer else None,
        offer.group.multiplier_ppm if offer else None,
        arrival.client_request_id,
        arrival.client_ip,
        arrival.user_agent,
        key_limit,
        arrival.trace.trace_id if arrival.trace else None,
        user_limit,
    )


def _reported_text(reported: object) -> str | None:
    """Return the vendor's report as JSON; None if JSON cannot express it (NaN)."""
    try:
        return dumps(reported).decode()
    except (OverflowError, ValueError):
        return None


def _error_of(ending: Ending) -> tuple[str, str | None]:
    """Return (code, message) of a call that failed."""
    fault = ending.fault
    message = fault.message if fault is not None else None
    if ending.outcome in _WORDS:
        return ending.outcome, message
    return (fault.code if fault is not None else ending.outcome), message
