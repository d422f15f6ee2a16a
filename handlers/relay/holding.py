"""The hold of a call: taken before an upstream is asked, raised while its stream grows.

How much a call needs and what happens when it cannot have it are decided here; the money itself is
in store/money/funds.py. Imported by the pipeline.
"""

import asyncio

from adapters.family.estimate import estimate_body_tokens
from handlers.relay import admit, faults, settle
from handlers.relay.call import Call, MoneyUsedUp
from handlers.relay.pump import StreamPump
from store.money.accounts import Payment, payment_of
from store.money.funds import Funds, Hold, QuotaUsed, WalletEmpty
from store.values.errors import StoreUnavailable
from store.values.pricing import affordable_tokens, bound_nanos

ESTIMATES_MAX = 16  # at one time; beyond it the cheap bound decides
ESTIMATE_MARGIN_PERCENT = 110  # the estimator is right within 10 %
# A stream that outgrows its hold gets one for the output of the next seconds, and at least so much.
AHEAD_TOKENS = 1024
AHEAD_S = 2


class Holding:
    """The holds of one worker's calls. For the loop's thread."""

    def __init__(self, funds: Funds, currency: str) -> None:
        self._funds = funds
        self._currency = currency
        self._estimating = 0
        self._raising: dict[str, asyncio.Task[None]] = {}  # by call; also keeps them alive

    def at_once(self, call: Call) -> bool:
        """Whether the call holds all it needs, without waiting, as nearly all do; else see `wait`.

        Raises Fault INVALID_FIELD when no money covers it.
        """
        if call.operation.free:
            return True
        bound = admit.hold_bound(call)
        if not bound:
            return True
        try:
            payment = payment_of(call.key, call.arrival.started_ms)
            call.hold = self._funds.try_hold(payment, bound)
        except (WalletEmpty, QuotaUsed, StoreUnavailable):
            return False
        return call.hold is not None

    async def wait(self, call: Call) -> None:
        """Holds what the call needs, or what is left when that is enough for a short answer.

        Raises Fault WALLET_EMPTY, QUOTA_USED, UNAVAILABLE.
        """
        payment = payment_of(call.key, call.arrival.started_ms)
        try:
            try:
                await self._try(call, payment)
            except (WalletEmpty, QuotaUsed):
                if not await self._estimated(call, payment):
                    raise
                await self._try(call, payment)
        except (WalletEmpty, QuotaUsed, StoreUnavailable) as error:
            raise faults.from_store(error, self._currency) from None

    def follow(self, call: Call, pump: StreamPump, grown: int) -> None:
        """A stream has grown by so many tokens in a second: raises its hold before it costs more.

        Does not wait. When the leases here have too little, a task asks for more; a stream that
        costs more than can be had is interrupted by MoneyUsedUp.
        """
        hold, units = call.hold, pump.output_units
        if hold is None or not hold.amount_nanos or units + grown <= call.covered_units:
            return
        pump.note_delivery()
        cost = _cost(call)
        wanted = cost + _ahead_nanos(call, units, grown) - hold.amount_nanos
        if wanted > 0 and not self._raise_at_once(hold, wanted):
            self._raise_soon(call, pump, wanted)
        call.covered_units = units + _affordable(call, hold.amount_nanos - cost)

    async def _try(self, call: Call, payment: Payment) -> None:
        bound, least = admit.hold_bound(call), admit.least_hold(call)
        call.hold = await self._funds.hold(payment, bound, least)

    async def _estimated(self, call: Call, payment: Payment) -> bool:
        """Whether a better estimate of the input than its cheap bound may change a refusal."""
        if self._estimating >= ESTIMATES_MAX or not self._funds.has_free(payment):
            return False
        self._estimating += 1
        try:
            loop = asyncio.get_running_loop()
            tokens = await loop.run_in_executor(None, estimate_body_tokens, call.body)
        finally:
            self._estimating -= 1
        bound, call.input_bound_tokens = (
            call.input_bound_tokens,
            min(call.input_bound_tokens, tokens * ESTIMATE_MARGIN_PERCENT // 100),
        )
        return call.input_bound_tokens < bound

    def _raise_at_once(self, hold: Hold, wanted: int) -> bool:
        try:
            extra = self._funds.try_hold(hold.payment, wanted)
        except (WalletEmpty, QuotaUsed, StoreUnavailable):
            return False
        if extra is not None:
            hold.add(extra)
        return extra is not None

    def _raise_soon(self, call: Call, pump: StreamPump, wanted: int) -> None:
        """One task at a time for each call: what is missing then is seen in the next second."""
        call_id = call.arrival.call_id
        if call_id not in self._raising:
            loop = asyncio.get_running_loop()
            self._raising[call_id] = loop.create_task(self._raise(call, pump, wanted))

    async def _raise(self, call: Call, pump: StreamPump, wanted: int) -> None:
        hold = call.hold
        assert hold is not None
        try:
            least = max(1, _cost(call) - hold.amount_nanos)
            extra = await self._funds.hold(hold.payment, wanted, least)
        except StoreUnavailable:
            return  # an answer that has begun is not cut while the store is unavailable
        except (WalletEmpty, QuotaUsed) as error:
            if hold.settled:
                return
            pump.note_delivery()
            # What is missing may be for the coming seconds only.
            if _cost(call) > hold.amount_nanos:
                error.left_nanos = 0  # what is left does not pay for what was delivered
                call.interrupt(MoneyUsedUp(faults.from_store(error)))
            return
        finally:
            del self._raising[call.arrival.call_id]
        if hold.settled:
            self._funds.settle(extra, 0)
        else:
            hold.add(extra)


def _cost(call: Call) -> int:
    """Nanos that the call would cost if it ended now."""
    return settle.payable(call, settle.charged_counts(call))[1]


def _ahead_nanos(call: Call, units: int, grown: int) -> int:
    """What the next seconds may add to the cost. The client's own bound counts until it is passed:
    otherwise calls with an exact hold would take money that others need."""
    prices, group, peek = call.prices, call.group, call.peek
    assert prices is not None and group is not None and peek is not None
    now = settle.text_tokens(call, units)
    later = settle.text_tokens(call, units + max(AHEAD_TOKENS, AHEAD_S * grown))
    if peek.max_output_tokens is not None and now <= call.output_bound_tokens:
        later = min(later, call.output_bound_tokens)
    tokens = later - now
    if not tokens:
        return 0
    try:
        return bound_nanos(0, tokens, prices, group.multiplier_ppm)
    except OverflowError:
        return 0  # no money covers it


def _affordable(call: Call, nanos: int) -> int:
    """How many more tokens of output an amount pays for."""
    prices, group = call.prices, call.group
    assert prices is not None and group is not None
    return affordable_tokens(nanos, prices.dearest_output, group.multiplier_ppm)
