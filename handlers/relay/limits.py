"""Whom a call counts for, what it reserves, and what its caller is told about that.

A key and its group count each for itself; a call has to fit in both. Calls that cost nothing (token
counts, stored things) have cells of their own beside those of the calls that are paid: the same
numbers, but neither takes from the other. The counting itself is in cells.py.
"""

import logging
from collections.abc import Sequence

from adapters.faults import Condition, Fault
from adapters.rate_headers import RateLevel
from handlers.relay.admit import DEFAULT_OUTPUT_BOUND_TOKENS, LEAST_OUTPUT_TOKENS
from handlers.relay.call import Call
from handlers.relay.cells import (
    MINUTE_NS,
    Cells,
    Claim,
    Refusal,
    SharedCells,
    Taken,
    Unfit,
    private_cells,
    request_ns,
)

log = logging.getLogger("sluice.relay")

TELL_EVERY_S = 60
_SECOND_NS = 1_000_000_000


def shared_cells(descriptor: int) -> SharedCells:
    """The cells of the node; those of this worker alone when they cannot be shared."""
    try:
        return SharedCells(descriptor)
    except Unfit as error:
        log.error("%s; rate limits are counted in each worker apart until the next restart", error)
        return private_cells()


class Limits:
    """The limits of one worker's calls."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._quiet_s = 0

    @staticmethod
    def concern(call: Call) -> bool:
        """Whether the key or its group has any limit: most have none, and this is all they cost."""
        key, group = call.key, call.group
        assert group is not None
        return bool(
            key.rpm or key.concurrency or key.tpm or group.rpm or group.concurrency or group.tpm
        )

    def enter(self, call: Call) -> tuple[tuple[RateLevel, ...], Fault | None]:
        """Takes what the call needs: what is left then, and E20 when it may not go on."""
        entered = self._cells.enter(_claims_of(call))
        if isinstance(entered, Refusal):
            return _levels([entered]), _fault_of(entered)
        call.slots = entered
        return _levels(entered.taken), None

    def leave(self, call: Call, tokens: int) -> None:
        """Gives back what the call has; of one that was never opened all of it. Idempotent."""
        assert call.slots is not None
        self._cells.leave(call.slots, tokens if call.opened else None)

    def sweep(self) -> None:
        """Frees what dead workers held. Once a second."""
        told = self._cells.sweep()
        self._quiet_s -= 1
        if told and self._quiet_s <= 0:
            self._quiet_s = TELL_EVERY_S
            for words in told:
                log.warning(words)


def _claims_of(call: Call) -> list[Claim]:
    key, group = call.key, call.group
    assert group is not None
    kind = "free" if call.operation.free else "paid"
    tokens, least = (0, 0) if call.operation.free else _tokens_of(call)
    claims = []
    if key.rpm or key.tpm or key.concurrency:
        subject = f"{kind} key {key.id}"
        claims.append(Claim(subject, key.rpm, key.tpm, key.concurrency, tokens, least))
    if group.rpm or group.tpm or group.concurrency:
        subject = f"{kind} group {group.name}"
        claims.append(Claim(subject, group.rpm, group.tpm, group.concurrency, tokens, least))
    return claims


def _tokens_of(call: Call) -> tuple[int, int]:
    """(wanted, least) tokens: the input as estimated and the longest answer, or a short one.

    A client that sets no bound of its answer does not want the longest that the model can give.
    """
    assert call.peek is not None
    outputs = call.output_bound_tokens
    if call.peek.max_output_tokens is None:
        outputs = min(outputs, DEFAULT_OUTPUT_BOUND_TOKENS * call.peek.choices)
    inputs = call.input_estimate_tokens
    return inputs + outputs, inputs + min(outputs, LEAST_OUTPUT_TOKENS)


def _fault_of(refusal: Refusal) -> Fault:
    claim, wait_ns = refusal.claim, refusal.wait_ns
    fault = Fault(Condition.RATE_LIMITED)
    if wait_ns is not None:
        fault.retry_after_s = -(-wait_ns // _SECOND_NS)
    limit, what = {
        "requests": (claim.rpm, "request{s} per minute"),
        "tokens": (claim.tpm, "token{s} per minute"),
        "calls": (claim.concurrency, "concurrent call{s}"),
    }[refusal.kind]
    what = what.format(s="" if limit == 1 else "s")
    fault.message = f"Rate limit reached: {limit} {what}. Try again in {fault.wait_s}s."
    return fault


def _levels(taken: Sequence[Taken | Refusal]) -> tuple[RateLevel, ...]:
    """Of each kind the limit that has least left."""
    requests, tokens = [], []
    for one in taken:
        claim = one.claim
        if claim.rpm:
            each_ns = request_ns(claim.rpm)
            left = max(0, claim.rpm - -(-one.requests_ns // each_ns))
            requests.append(RateLevel("requests", claim.rpm, left, one.requests_ns / _SECOND_NS))
        if claim.tpm:
            left = max(0, (MINUTE_NS - one.tokens_ns) * claim.tpm // MINUTE_NS)
            tokens.append(RateLevel("tokens", claim.tpm, left, one.tokens_ns / _SECOND_NS))
    if len(taken) == 1:
        return (*requests, *tokens)
    return tuple(min(kind, key=_remaining) for kind in (requests, tokens) if kind)


def _remaining(level: RateLevel) -> int:
    return level.remaining
