"""The hold of a call: taken before an upstream is contacted, raised while its stream grows.

Decides how much a call needs and what happens if that is not available. The money itself is in
store/money/funds.py. Imported by the pipeline.
"""

import asyncio

import msgspec

from adapters.family.estimate import estimate_body_tokens
from handlers.relay import faults, settle
from handlers.relay.admit import LEAST_OUTPUT_TOKENS, hold_bound, inner_models, reachable_rates
from handlers.relay.call import Admitted, RequestHead
from handlers.relay.live import LiveStream
from handlers.relay.running import MoneyUsedUp
from store.money.accounts import Payment, payment_of
from store.money.funds import Funds, Hold, QuotaUsed, WalletEmpty
from store.values.errors import StoreUnavailable
from store.values.pricing import affordable_tokens, rounded_up

ESTIMATES_MAX = 16  # at one time; beyond it the cheap bound decides
ESTIMATE_MARGIN_PERCENT = 110  # the estimator is accurate within 10 %
# The hold of a stream is raised for the output of the next AHEAD_S, at least AHEAD_TOKENS.
AHEAD_TOKENS = 1024
AHEAD_S = 2


class Holding:
    """The holds of one worker's calls. For the loop's thread."""

    def __init__(self, funds: Funds, currency: str) -> None:
        self._funds = funds
        self._currency = currency
        self._estimating = 0
        self._raising: dict[str, asyncio.Task[None]] = {}  # by call; also keeps them alive

    def at_once(self, head: RequestHead, bound_nanos: int) -> Hold | None:
        """Return a hold of the amount a call needs, which nearly all calls get without waiting.
        None: call `wait`."""
        try:
            payment = payment_of(head.key, head.arrival.started_ms)
            return self._funds.try_hold(payment, bound_nanos)
        except (WalletEmpty, QuotaUsed, StoreUnavailable):
            return None

    async def wait(
        self, head: RequestHead, admitted: Admitted, body: bytes
    ) -> tuple[Hold, Admitted]:
        """Return a hold of the amount a call needs, or of the rest of the money if that is enough
        for a short answer; and the admitted call, with a better estimate of its input if one was
        necessary. Raises Fault WALLET_EMPTY, QUOTA_USED, UNAVAILABLE."""
        payment = payment_of(head.key, head.arrival.started_ms)
        try:
            try:
                return await self._hold(payment, admitted), admitted
            except (WalletEmpty, QuotaUsed):
                better = await self._estimated(head, payment, admitted, body)
                if better is None:
                    raise
                return await self._hold(payment, better), better
        except (WalletEmpty, QuotaUsed, StoreUnavailable) as error:
            raise faults.from_store(error, self._currency) from None

    async def cover(self, head: RequestHead, admitted: Admitted, hold: Hold | None) -> Hold | None:
        """Return the hold of a call whose bounds have changed, raised to what it needs now, or by
        the rest of the money if that is enough for a short answer. Raises Fault as `wait` does."""
        present = 0 if hold is None else hold.amount_nanos
        missing = call_bound(admitted) - present
        if missing <= 0:
            return hold
        extra, least = self.at_once(head, missing), call_bound(admitted, least=True) - present
        try:
            if extra is None:
                payment = payment_of(head.key, head.arrival.started_ms)
                extra = await self._funds.hold(payment, missing, max(1, least))
        except (WalletEmpty, QuotaUsed, StoreUnavailable) as error:
            if least > 0:
                raise faults.from_store(error, self._currency) from None
            return hold
        if hold is None:
            return extra
        hold.add(extra)
        return hold

    def follow(self, stream: LiveStream, grown: int) -> None:
        """Raise the hold of a stream, which grew by `grown` tokens in a second, before it costs
        more than is held. Does not wait. If this worker's leases have too little, a task requests
        more. A stream that costs more than is available is interrupted by MoneyUsedUp."""
        call, units = stream.call, stream.pump.output_units
        hold, admitted = call.held.hold, call.admitted
        if hold is None or not hold.amount_nanos or units + grown <= stream.covered_units:
            return
        assert admitted is not None
        cost = _cost(stream)
        missing = cost + _ahead_nanos(admitted, units, grown) - hold.amount_nanos
        if missing > 0 and not self._raise_at_once(hold, missing):
            self._raise_soon(stream, hold, missing)
        stream.covered_units = units + _affordable(admitted, hold.amount_nanos - cost)

    async def _hold(self, payment: Payment, admitted: Admitted) -> Hold:
        least = call_bound(admitted, least=True)
        return await self._funds.hold(payment, call_bound(admitted), least)

    async def _estimated(
        self, head: RequestHead, payment: Payment, admitted: Admitted, body: bytes
    ) -> Admitted | None:
        """Return the call with a better estimate of its input than the cheap bound; None if that
        cannot change the refusal."""
        no_body = not body  # a form, whose bound cannot be improved because of its files
        if no_body or self._estimating >= ESTIMATES_MAX or not self._funds.has_free(payment):
            return None
        self._estimating += 1
        try:
            loop = asyncio.get_running_loop()
            tokens = await loop.run_in_executor(None, estimate_body_tokens, body)
        finally:
            self._estimating -= 1
        tokens = tokens * ESTIMATE_MARGIN_PERCENT // 100
        if tokens >= admitted.input_bound_tokens:
            return None
        offer, peek = admitted.offer, admitted.peek
        assert offer is not None
        return msgspec.structs.replace(
            admitted,
            input_bound_tokens=tokens,
            rates=reachable_rates(offer, peek, tokens),
            inner_models=inner_models(head, offer, peek, tokens, admitted.output_bound_tokens),
        )

    def _raise_at_once(self, hold: Hold, nanos: int) -> bool:
        try:
            extra = self._funds.try_hold(hold.payment, nanos)
        except (WalletEmpty, QuotaUsed, StoreUnavailable):
            return False
        if extra is not None:
            hold.add(extra)
        return extra is not None

    def _raise_soon(self, stream: LiveStream, hold: Hold, nanos: int) -> None:
        """Start a task that raises the hold, at most one at a time for each call. The next second's
        sweep sees what is still missing."""
        call_id = stream.call.id
        if call_id not in self._raising:
            loop = asyncio.get_running_loop()
            self._raising[call_id] = loop.create_task(self._raise(stream, hold, nanos))

    async def _raise(self, stream: LiveStream, hold: Hold, nanos: int) -> None:
        try:
            least = max(1, _cost(stream) - hold.amount_nanos)
            extra = await self._funds.hold(hold.payment, nanos, least)
        except StoreUnavailable:
            return  # a started answer is not cut off while the store is unavailable
        except (WalletEmpty, QuotaUsed) as error:
            # The missing amount may be only for the coming seconds.
            if not hold.settled and _cost(stream) > hold.amount_nanos:
                error.left_nanos = 0  # the rest does not even pay for the delivered part
                stream.call.running.interrupt(MoneyUsedUp(faults.from_store(error)))
            return
        finally:
            del self._raising[stream.call.id]
        if hold.settled:
            self._funds.settle(extra, 0)
        else:
            hold.add(extra)


def call_bound(admitted: Admitted, *, least: bool = False) -> int:
    """Return the nanos that an admitted call can cost at most; with `least` those with which it may
    start, for a short answer. Raises Fault INVALID_FIELD if no amount of money covers it."""
    output_tokens = admitted.output_bound_tokens
    if least:
        output_tokens = min(LEAST_OUTPUT_TOKENS, output_tokens)
    assert admitted.offer is not None
    return hold_bound(admitted.offer, admitted, output_tokens, least=least)


def _cost(stream: LiveStream) -> int:
    """Return the nanos that the call would cost if it ended now."""
    call, delivery = stream.call, stream.pump.delivery()
    return settle.bill_of(call, delivery, settle.charged_counts(call, delivery)).cost_nanos


def _ahead_nanos(admitted: Admitted, units: int, grown: int) -> int:
    """Return the nanos that the next seconds may add to the cost. The client's own bound applies
    until it is passed: otherwise calls with an exact hold would take money that others need."""
    offer = admitted.offer
    assert offer is not None
    now = settle.text_tokens(admitted, units)
    later = settle.text_tokens(admitted, units + max(AHEAD_TOKENS, AHEAD_S * grown))
    if admitted.peek.max_output_tokens is not None and now <= admitted.output_bound_tokens:
        later = min(later, admitted.output_bound_tokens)
    tokens = later - now
    if not tokens:
        return 0
    try:
        return rounded_up(_dearest_output(admitted) * tokens, offer.group.multiplier_ppm)
    except OverflowError:
        return 0  # no amount of money covers it


def _affordable(admitted: Admitted, nanos: int) -> int:
    """Return the number of additional output tokens that an amount pays for."""
    offer = admitted.offer
    assert offer is not None
    return affordable_tokens(nanos, _dearest_output(admitted), offer.group.multiplier_ppm)


def _dearest_output(admitted: Admitted) -> int:
    """Return the price, in fractions, of the most expensive output token that the call may be
    charged for."""
    return max(rate.bound(0, 1, admitted.other_meters) - rate.call for rate in admitted.rates)
