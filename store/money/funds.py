"""The money this process may promise: holds and settlements, in memory, for the loop's thread.

free = lease - open holds - charges not yet written - amounts being returned. The writer delivers
new lease sizes together with the charges they already contain (`applied`), so that no amount is
counted twice or lost. Orders to borrow or return money go to the writer before money runs short. A
call waits for one only if it is the first of its user in this process, or if little is left. The
database side is leases.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn

from msgspec import Struct

from store.money.accounts import KEY_LIMIT, USER_LIMIT, Account, Payment
from store.money.lease_state import LeaseState, Need
from store.money.leases import Answer, Order, Verdict
from store.values.errors import StoreError, StoreUnavailable
from store.values.usage_record import WALLET, Charge

LEASE_IDLE_S = 600.0
"""The lease of an account that has not been used for this long is given back."""

RECALL_WAIT_S = 1.0
RECALL_RETRY_S = 0.1
RECALL_BACKOFF_S = 0.25  # no call waits for another recall this long after one that brought nothing
ORDER_WAIT_S = 5.0
AHEAD_INTERVAL_S = 0.25
AHEAD_BACKOFF_S = 2.0  # nothing is ordered ahead for this long on an account that was recalled
IDLE_SWEEP_S = 30.0


class NotCovered(StoreError):
    """A call that is not covered: it needs at least `needed_nanos`, but only `left_nanos` are
    free."""

    def __init__(self, text: str, left_nanos: int = 0, needed_nanos: int = 0) -> None:
        super().__init__(text)
        self.left_nanos, self.needed_nanos = left_nanos, needed_nanos


class WalletEmpty(NotCovered):
    """A call that all payers together, including the wallet, cannot cover."""

    def __init__(self, left_nanos: int = 0, needed_nanos: int = 0) -> None:
        super().__init__("the free balance does not cover this call", left_nanos, needed_nanos)


class QuotaUsed(NotCovered):
    """A subscription's quota or a spend limit that has too little. `account` is its window, or None
    if no subscription is active."""

    def __init__(self, account: Account | None, left_nanos: int = 0, needed_nanos: int = 0) -> None:
        super().__init__("the quota does not cover this call", left_nanos, needed_nanos)
        self.account = account


_Part = tuple[LeaseState, int]

NO_LIMITS = (None, None)


class Hold(Struct, eq=False):
    """Money that a running call has reserved, to be settled exactly once. `raised` is true if more
    was added after it was created."""

    payment: Payment
    _parts: Sequence[_Part]
    _limits: Sequence[LeaseState]
    amount_nanos: int
    settled: bool = False
    raised: bool = False

    def add(self, extra: "Hold") -> None:
        """Take over the reserved money of another hold of the same payment. That hold is then
        settled."""
        amounts = {state.account.id: (state, amount) for state, amount in self._parts}
        for state, amount in extra._parts:
            before = amounts.get(state.account.id, (state, 0))[1]
            amounts[state.account.id] = (state, before + amount)
        in_order = (amounts.get(account.id) for account in self.payment.payers)
        self._parts = tuple(part for part in in_order if part is not None)
        self.amount_nanos += extra.amount_nanos
        self.raised = extra.settled = True

    @property
    def parts(self) -> tuple[Charge, ...]:
        """Return the amount reserved with each payer, in the order in which they pay."""
        return tuple([_charge(state.account, amount) for state, amount in self._parts])

    @property
    def limit_accounts(self) -> tuple[str | None, str | None]:
        """Return the spend limits of key and user that the cost will count against, each None if
        there is no limit."""
        if not self._limits:
            return NO_LIMITS
        ids = {state.account.kind: state.account.id for state in self._limits}
        return ids.get(KEY_LIMIT), ids.get(USER_LIMIT)


class _Lack(Exception):
    """A sign that only the store can say whether accounts have what a call needs."""

    def __init__(self, need: Need) -> None:
        super().__init__(need.nanos)
        self.need = need


class Funds:
    """Holds and charges of all accounts of this process. All methods are for the loop's thread,
    except `held`, which any thread may call."""

    def __init__(
        self,
        send: Callable[[Order], bool],
        note: Callable[[Account, int], None] = lambda account, target: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create without leases. `send` passes an order to the writer, which answers by `answered`.
        It returns False if the store is unavailable; no answer comes then. `note` gets each account
        for which enough was lent, and the lease that it should have: other workers of the node
        `prepare` for its calls."""
        self._send = send
        self._note = note
        self._clock = clock
        self._states: dict[str, LeaseState] = {}
        self._unconfirmed: set[str] = set()
        self._asking: dict[tuple[LeaseState, ...], Need] = {}  # not ordered yet
        self._idle_sweep_at = clock() + IDLE_SWEEP_S

    # ---- calls ----

    def try_hold(self, payment: Payment, wanted_nanos: int) -> Hold | None:
        """Hold the full amount now, or return None if only `hold` can decide. Raises as `hold`
        does."""
        if wanted_nanos <= 0:
            return Hold(payment, (), (), 0)
        if len(payment.payers) == 1 and not payment.limits:
            state = self._states.get(payment.payers[0].id)
            if state is not None and state.free >= wanted_nanos:
                if state.reserve(wanted_nanos, self._clock()):
                    self._order_ahead(state, self._clock())
                return Hold(payment, ((state, wanted_nanos),), (), wanted_nanos)
        try:
            return self._hold_parts(payment, wanted_nanos, wanted_nanos)
        except _Lack:
            return None

    async def hold(self, payment: Payment, wanted_nanos: int, least_nanos: int) -> Hold:
        """Reserve money for a call: `wanted`, or everything that is free if that is at least
        `least`.

        Always succeeds if nothing is wanted. Raises WalletEmpty, QuotaUsed, and StoreUnavailable if
        the leases do not cover the call and the store is unavailable.
        """
        if wanted_nanos <= 0:
            return Hold(payment, (), (), 0)
        recall_until = self._clock() + RECALL_WAIT_S
        give_up_at = recall_until + ORDER_WAIT_S
        while self._clock() < give_up_at:
            try:
                return self._hold_parts(payment, wanted_nanos, least_nanos)
            except _Lack as lack:
                need = lack.need
                verdict = await self._more(need)
            if verdict is Verdict.SHORT and need.least:
                now = self._clock()
                if now < recall_until:
                    await asyncio.sleep(RECALL_RETRY_S)
                else:
                    for state in need.states:
                        state.back_off_recall(need.least, now + RECALL_BACKOFF_S, now)
        raise StoreUnavailable("the store lends too slowly")

    def has_free(self, payment: Payment) -> bool:
        """Return whether the payers' leases here have anything left."""
        return any(self._state(account).free > 0 for account in payment.payers)

    def settle(self, hold: Hold, cost_nanos: int) -> tuple[Charge, ...]:
        """Release a hold and charge the cost, which may be more or less. Return the charges. They
        count as spent from now on; the caller writes them into the call's record."""
        if hold.settled:
            raise RuntimeError("a hold is settled once")
        hold.settled = True
        now = self._clock()
        costs = self._costs(hold, cost_nanos)
        for state, amount in hold._parts:
            state.held -= amount
        for limit in hold._limits:
            limit.held -= hold.amount_nanos
            if limit.spend(cost_nanos, now):
                self._order_ahead(limit, now)
        for state, amount in costs:
            if state.spend(amount, now):
                self._order_ahead(state, now)
        return tuple([_charge(state.account, amount) for state, amount in costs])

    # ---- the writer ----

    def applied(self, leases: Mapping[str, int], charged: Mapping[str, int]) -> None:
        """Update leases from the store that already contain `charged` of this process's charges.
        Both are by account id. The writer's posts must arrive in the order in which it made
        them."""
        for account_id, lease in leases.items():
            if state := self._states.get(account_id):
                state.lease = lease
        for account_id, amount in charged.items():
            if state := self._states.get(account_id):
                state.unwritten -= amount

    def answered(self, order: Order, answer: Answer) -> None:
        """Process the answer to an order. It must arrive in sequence with the posts of
        `applied`."""
        states = [self._states[account.id] for account in order.accounts]
        if answer.verdict is Verdict.AWAY:
            self._not_confirmed(states)
        else:
            now = self._clock()
            for state, its in zip(states, (answer, *answer.further), strict=True):
                state.confirm(order, its, now)
                self._unconfirmed.discard(state.account.id)
                # The target is 0 where no call has come, but another worker's may come here.
                if order.ahead and not state.underfilled and (target := state.target(now)):
                    self._note(state.account, target)
        self._end_order(states, answer.verdict)
        for state in states:
            recalled, state.recalled = state.recalled, False
            # Calls that wait for the lent money take it first.
            if state.outdated or (recalled and answer.verdict is Verdict.SHORT):
                self._give_back(state)

    def recalled(self, account_ids: Collection[str]) -> None:
        """Give back the free money of these accounts, because another process needs it."""
        for account_id in account_ids:
            if state := self._states.get(account_id):
                # Do not borrow it back before the other process could take it.
                state.ahead_at = self._clock() + AHEAD_BACKOFF_S
                state.recalled = state.order is not None
                self._give_back(state)

    def held(self) -> dict[str, int]:
        """Return the holds of running calls by account id. May be called by any thread."""
        return {state.account.id: state.held for state in list(self._states.values())}

    # ---- upkeep ----

    def reconsider(self, refs: Collection[str] | None) -> None:
        """Give back the quotas of changed plans, limits or users (their ids; None: any), to borrow
        them again."""
        for state in list(self._states.values()):
            if refs is None or state.account.ref in refs:
                state.empty_until = state.recall_until = 0.0
                if state.account.kind != WALLET:
                    state.outdated = True
                    self._give_back(state)

    def prepare(self, targets: Mapping[Account, int]) -> None:
        """Order leases, of these amounts, on accounts that other workers of the node use. Keep them
        while these do."""
        now = self._clock()
        for account, target in targets.items():
            state = self._state(account)
            state.used_at = now
            if state.free < target // 2:
                self._order_ahead(state, now, target)

    def sweep(self) -> None:
        """Retry unconfirmed orders and give back idle leases. Call once a second."""
        now = self._clock()
        for account_id in list(self._unconfirmed):
            state = self._states[account_id]
            if state.order is None:
                self._order(state, Order(state.account))
        if now < self._idle_sweep_at:
            return
        self._idle_sweep_at = now + IDLE_SWEEP_S
        for account_id, state in list(self._states.items()):
            if state.used_at > now - LEASE_IDLE_S or state.held or state.unwritten or state.order:
                continue
            if state.lease:
                self._give_back(state)
            elif not state.unconfirmed:
                del self._states[account_id]

    # ---- internals ----

    def _state(self, account: Account) -> LeaseState:
        state = self._states.get(account.id)
        if state is None:
            state = self._states[account.id] = LeaseState(account, self._clock())
        return state

    def _hold_parts(self, payment: Payment, wanted: int, least: int) -> Hold:
        """Return the hold that the leases allow. Raises _Lack while the store may lend more."""
        if not payment.payers:
            raise QuotaUsed(None)
        now, least = self._clock(), max(1, min(least, wanted))
        parts, got = self._payers_parts(payment, wanted, least, now)
        if got < least:
            self._ask_others(payment, wanted - got, (got, least), now)
        limits = tuple([self._state(account) for account in payment.limits])
        for limit in limits:
            # A call asks for a limit only once it has its payers' part and the limits before it.
            # Otherwise two calls could each hold one part and wait for the other.
            got = self._allowed(limit, got, least, now)
        if limits:
            parts = _shortened(parts, got)
        for state, amount in (*parts, *((limit, got) for limit in limits)):
            if state.reserve(amount, now):
                self._order_ahead(state, now)
        return Hold(payment, parts, limits, got)

    def _payers_parts(
        self, payment: Payment, wanted: int, least: int, now: float
    ) -> tuple[list[_Part], int]:
        """Return the amount that each payer can reserve, in order, and the sum."""
        parts: list[_Part] = []
        got = 0
        for account in payment.payers:
            state = self._state(account)
            amount = min(max(0, state.free), wanted - got)
            if got + amount < wanted:
                # If the last payer has too little as well, all are asked at once.
                alone = account is not payment.payers[-1] or got + amount >= least
                if alone and state.may_lend(0, now):
                    raise _Lack(Need((state,), wanted - got - amount, 0))
            if amount:
                parts.append((state, amount))
                got += amount
            if got == wanted:
                break
        return parts, got

    def _ask_others(
        self, payment: Payment, need: int, got_of_least: tuple[int, int], now: float
    ) -> NoReturn:
        """Raise _Lack while other processes may have the missing money, otherwise the refusal."""
        got, least = got_of_least
        states = tuple(self._state(account) for account in payment.payers)
        if any(state.may_lend(least - got, now) for state in states):
            raise _Lack(Need(states, need, least - got))
        raise self._refusal(payment, got_of_least, now)

    def _allowed(self, limit: LeaseState, got: int, least: int, now: float) -> int:
        """Return the part of a hold that a spend limit allows."""
        free = max(0, limit.free)
        if free >= got:
            return got
        lacking = max(0, least - free)
        if limit.may_lend(lacking, now):
            raise _Lack(Need((limit,), got - free, lacking))
        if not lacking:
            return free
        if now < limit.away_until:
            raise StoreUnavailable("the store is unavailable and the lease does not cover the call")
        raise QuotaUsed(limit.account, free, least)

    def _refusal(self, payment: Payment, got_of_least: tuple[int, int], now: float) -> StoreError:
        if any(now < self._state(account).away_until for account in payment.payers):
            return StoreUnavailable("the store is unavailable and the leases do not cover the call")
        if any(account.kind == WALLET for account in payment.payers):
            return WalletEmpty(*got_of_least)
        # Report the window that ends first, since it is the first to have money again.
        soonest = min(payment.payers, key=lambda account: account.ends_ms or 0)
        return QuotaUsed(soonest, *got_of_least)

    async def _more(self, need: Need) -> Verdict:
        """Order from the store what a call lacks, together with all calls that wait now."""
        states, now = need.states, self._clock()
        busy = next((state for state in states if state.order is not None), None)
        asking = self._asking.get(states)
        if busy is None:
            # All calls that were woken by one answer share the next order.
            asking = self._asking[states] = Need(states, 0, 0)
            self._begin_order(states, now)
            asyncio.get_running_loop().call_soon(self._order_need, asking)
        elif asking is None and now - busy.ordered_at > ORDER_WAIT_S:
            busy.back_off_store(now)
            return Verdict.AWAY
        order = (busy or states[0]).order
        assert order is not None
        for state in states:
            state.hold_size = max(state.hold_size, need.nanos)
        if asking is not None:
            asking.add(need)
        try:
            await asyncio.wait({order}, timeout=ORDER_WAIT_S)
        finally:
            if asking is not None:
                asking.nanos -= need.nanos
        if order.done():
            return order.result()
        for state in states:
            state.back_off_store(self._clock())
        return Verdict.AWAY

    def _order_need(self, need: Need) -> None:
        del self._asking[need.states]
        if not self._send(need.order(self._clock())):
            self._not_sent(need.states)

    def _order_ahead(self, state: LeaseState, now: float, target: int = 0) -> None:
        if now < state.ahead_at or state.order is not None or not state.may_lend(0, now):
            return
        state.ahead_at = now + AHEAD_INTERVAL_S
        lacking = max(target, state.target(now)) - state.free
        self._order(state, Order(state.account, ahead=max(1, lacking)))

    def _order(self, state: LeaseState, order: Order) -> None:
        self._begin_order((state,), self._clock())
        if not self._send(order):
            self._not_sent((state,))

    def _give_back(self, state: LeaseState) -> None:
        if state.order is not None or state.unconfirmed:
            return
        state.outdated = False
        if state.free <= 0:
            return
        state.giving = state.free
        state.recall_until = 0.0  # this much becomes available to new calls
        self._order(state, Order(state.account, give=state.giving))

    def _not_confirmed(self, states: Sequence[LeaseState]) -> None:
        for state in states:
            state.back_off_store(self._clock())
            state.unconfirmed = True
            self._unconfirmed.add(state.account.id)

    def _not_sent(self, states: Sequence[LeaseState]) -> None:
        for state in states:
            if not state.unconfirmed:
                state.giving = 0
            state.back_off_store(self._clock())
        self._end_order(states, Verdict.AWAY)

    def _begin_order(self, states: Sequence[LeaseState], now: float) -> None:
        order: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        for state in states:
            state.order, state.ordered_at = order, now

    def _end_order(self, states: Sequence[LeaseState], verdict: Verdict) -> None:
        order = states[0].order
        for state in states:
            state.order = None
        if order is not None:
            order.set_result(verdict)

    def _costs(self, hold: Hold, cost: int) -> Sequence[_Part]:
        """Split a cost: each payer pays up to its reserve, then from its free money; the last pays
        the rest."""
        parts = hold._parts
        if cost == 0:
            return ()
        if len(parts) == 1 and cost <= parts[0][1]:
            return ((parts[0][0], cost),)
        costs: dict[str, _Part] = {}
        left = cost
        for state, amount in (
            *parts,
            *(
                (self._state(account), max(0, self._state(account).free))
                for account in hold.payment.payers
            ),
            (self._state(hold.payment.payers[-1]), cost),
        ):
            paid = min(left, amount)
            if paid:
                before = costs.get(state.account.id, (state, 0))[1]
                costs[state.account.id] = (state, before + paid)
                left -= paid
        return tuple(costs.values())


def _shortened(parts: list[_Part], total: int) -> list[_Part]:
    """Return the parts, cut from the end so that they sum up to `total`."""
    out, left = [], total
    for state, amount in parts:
        if left:
            out.append((state, min(amount, left)))
            left -= out[-1][1]
    return out


def _charge(account: Account, amount: int) -> Charge:
    return Charge(account.to, amount, "" if account.kind == WALLET else account.id)
