"""The state of a process's lease on one account, the size it should have, and what calls lack. In
memory.

For funds, on the loop's thread. Times are of the monotonic clock, in seconds.
"""

import asyncio

from store.money.accounts import Account
from store.money.leases import Answer, Order, Verdict

LEASE_COVER_S = 120
"""The time that a lease should last at the recent rate of spending. More is ordered when a quarter
of it is used, so that an outage of a minute and a half is covered at any moment."""

HOLDS_AHEAD = 8
"""The number of further calls like the last one that a lease should cover, whatever the rate."""

STORE_BACKOFF_S = 1.0
"""The time before the next order for an account without free money, or after the store was
unavailable."""

REVIEW_S = 1.0

RENEW_S = 300.0
"""A lease in use is ordered again after this long, however much is left: the node's other workers,
which learn of it, keep theirs for at least as long."""


class LeaseState:
    """The lease on one account, and the parts of it that are held, charged or being returned."""

    __slots__ = (
        *("account", "ahead_at", "away_until", "empty_until", "giving", "held", "hold_size"),
        *("lease", "order", "order_below", "ordered_at", "outdated", "rate", "recall_from"),
        *("recall_until", "recalled", "review_at", "unconfirmed", "underfilled", "unwritten"),
        "used_at",
    )

    def __init__(self, account: Account, now: float) -> None:
        self.account = account
        self.lease = self.held = self.unwritten = self.giving = 0
        self.order: asyncio.Future[Verdict] | None = None
        self.ordered_at = self.ahead_at = self.review_at = 0.0
        self.empty_until = 0.0  # the store has nothing free before then
        self.recall_until = 0.0  # other processes do not have `recall_from` either
        self.recall_from = 0
        self.away_until = 0.0  # the store is unavailable before then
        self.unconfirmed = False  # an order may have been carried out without a confirmation
        self.underfilled = False  # the last order was not filled
        self.outdated = False  # lent before a change of the quota: to be returned
        self.recalled = False  # recalled by others while an order was in flight
        self.order_below = 0  # more is ordered when `free` falls below this
        self.hold_size = 0
        self.used_at = now
        self.rate = _SpendingRate(now)

    @property
    def free(self) -> int:
        """Return the amount that calls may still hold, below 0 if more was charged than was
        lent."""
        return self.lease - self.held - self.unwritten - self.giving

    def target(self, now: float) -> int:
        """Return the amount that a lease should have beyond its running calls."""
        return max(HOLDS_AHEAD * self.hold_size, self.rate.need(now))

    def reserve(self, amount: int, now: float) -> bool:
        """Hold an amount for a call. Return whether more should be ordered."""
        self.held += amount
        self.hold_size = amount
        self.used_at = now
        return self.free < self.order_below

    def spend(self, amount: int, now: float) -> bool:
        """Charge a call an amount that the writer has yet to book. Return whether more should be
        ordered."""
        self.unwritten += amount
        self.used_at = now
        self.rate.add(amount, now)
        if now >= self.review_at:
            self.review_at = now + REVIEW_S
            if not self.underfilled:
                renew = now >= self.ordered_at + RENEW_S
                self.order_below = self.free + 1 if renew else self.target(now) * 3 // 4
        return self.free < self.order_below

    def may_lend(self, lacking: int, now: float) -> bool:
        """Return whether an order may be sent to the store. If `lacking` is above 0, it would also
        recall from other processes."""
        if now < self.away_until:
            return False
        if lacking:
            return now >= self.recall_until or lacking < self.recall_from
        return now >= self.empty_until

    def back_off_recall(self, lacking: int, until: float, now: float) -> None:
        """Stop recalling `lacking` or more until `until`, since no other process has it."""
        self.recall_from = lacking if now >= self.recall_until else min(self.recall_from, lacking)
        self.recall_until = until

    def back_off_store(self, now: float) -> None:
        """Stop ordering for STORE_BACKOFF_S, since the store is unavailable."""
        self.away_until = now + STORE_BACKOFF_S

    def confirm(self, order: Order, answer: Answer, now: float) -> None:
        """Apply an answer of the store. The lease in it was read under its lock, so it includes the
        effects of orders that were not confirmed before."""
        self.lease, self.giving = answer.lease, 0
        self.unconfirmed = False
        if order.give:
            return
        self.underfilled = answer.granted < order.need + order.ahead
        if self.underfilled:
            self.order_below = (self.free - order.need) // 2
        else:
            self.order_below = self.target(now) * 3 // 4
        if answer.empty:
            self.empty_until = now + STORE_BACKOFF_S
        if answer.verdict is Verdict.DRY:
            self.back_off_recall(order.least, now + STORE_BACKOFF_S, now)


class Need:
    """The amount that calls lack, of one account or of several payers together. `least` is the
    smallest amount with which one of the calls can go on. If it is 0, nothing is recalled."""

    __slots__ = ("least", "nanos", "states")

    def __init__(self, states: tuple[LeaseState, ...], nanos: int, least: int) -> None:
        self.states, self.nanos, self.least = states, nanos, least

    def add(self, other: "Need") -> None:
        """Add the need of another call of the same accounts."""
        self.nanos += other.nanos
        self.least = min(self.least or other.least, other.least or self.least)

    def order(self, now: float) -> Order:
        first, *rest = (state.account for state in self.states)
        ahead = self.states[-1].target(now)
        return Order(first, self.nanos, self.least, ahead, rest=tuple(rest))


class _SpendingRate:
    """The amount needed for LEASE_COVER_S at the recent rate of spending, from two buckets of that
    length."""

    __slots__ = ("_bucket", "_earlier", "_recent", "_since")

    def __init__(self, now: float) -> None:
        self._bucket = int(now // LEASE_COVER_S)
        self._earlier = self._recent = 0
        self._since = now

    def add(self, nanos: int, now: float) -> None:
        bucket = int(now // LEASE_COVER_S)
        if bucket != self._bucket:
            follows = bucket == self._bucket + 1
            self._earlier = self._recent if follows else 0
            self._since = max(self._since, (bucket - 1) * LEASE_COVER_S) if follows else now
            self._recent, self._bucket = 0, bucket
        self._recent += nanos

    def need(self, now: float) -> int:
        return (self._earlier + self._recent) * LEASE_COVER_S // max(1, int(now - self._since))
