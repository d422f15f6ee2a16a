"""The assignment of probes: each is made by one process of all nodes.

A channel × model is quiet if it has had neither a call nor a probe for the interval. A claim sets
the time of its next probe, so that only one of many processes makes it. status_sums stores the
results of probes, separately from traffic.
"""

import queue
import random
import time
from collections.abc import Callable, Iterable, Sequence

import peewee

from store.channels.status_sums import CHANNEL, HOUR, HOUR_S, MINUTE, PROBE, Probed, add_probes
from store.db.database import database_ms, first_row, in_snapshot, lead_ms, select_rows, transaction
from store.db.tables.channels import ChannelProbe as Claim
from store.db.tables.channels import ChannelSums as Sums
from store.values.errors import Conflict

Pair = tuple[str, str]
"""The names of a channel and a model."""

LOOK_S = 5.0  # between two checks of what is quiet; each claims at most one
RESULTS_MAX = 1000  # waiting for the store; more are dropped

KEPT_MS = 2 * 86_400_000
"""The time for which a claim is kept without renewal: twice the longest interval."""


class Rota:
    """The probes of one process: those it must make, and their results.

    `begin` is called in the writer's thread with the claimed pair. Everything else except `look` is
    for the loop's thread. `pairs` may be probed. If `interval_s` is 0, nothing is.
    """

    def __init__(self, interval_s: int, begin: Callable[[Pair], None]) -> None:
        self.pairs: Sequence[Pair] = ()
        self.busy = False
        """True if no further probe may start now."""
        self.interval_s = interval_s
        self._begin = begin
        self._look_at = time.monotonic() + random.uniform(0, LOOK_S)  # staggers the workers
        self._results: queue.Queue[Probed] = queue.Queue(RESULTS_MAX)
        self._unwritten: list[Probed] = []

    def note(self, result: Probed) -> bool:
        """Queue the result of a probe. Return False if it was dropped because the queue is full."""
        try:
            self._results.put_nowait(result)
        except queue.Full:
            return False
        return True

    def look(self, db: peewee.Database) -> None:
        """Write results and claim a probe if one is due. Blocking; call it about once a second.
        Raises StoreUnavailable; results are kept then."""
        if not self.interval_s:
            return
        while not self._results.empty() and len(self._unwritten) < RESULTS_MAX:
            self._unwritten.append(self._results.get())
        if self._unwritten:
            add_probes(db, self._unwritten, lead_ms(db))
            self._unwritten.clear()
        now = time.monotonic()
        if now < self._look_at or self.busy:
            return
        self._look_at = now + LOOK_S
        at_ms = database_ms(db)
        if quiet_pairs := quiet(db, self.pairs, self.interval_s, at_ms):
            pair = random.choice(quiet_pairs)
            if claim(db, pair, self.interval_s, at_ms):
                self._begin(pair)


@in_snapshot
def quiet(db: peewee.Database, pairs: Iterable[Pair], interval_s: int, at_ms: int) -> list[Pair]:
    """Return those of `pairs` without a call, probe or claim for `interval_s`."""
    since_ms = at_ms - interval_s * 1000
    recent = (Sums.last_ok_ms > since_ms) | (Sums.last_failed_ms > since_ms)
    rows = Sums.span.in_((MINUTE, HOUR)) & (Sums.at_s > since_ms // 1000 - HOUR_S)
    active = Sums.select(Sums.name, Sums.model).where(
        rows & Sums.scope.in_((CHANNEL, PROBE)) & recent
    )
    claimed = Claim.select(Claim.channel, Claim.model).where(Claim.next_ms > at_ms)
    active_pairs = {*select_rows(db, active.distinct()), *select_rows(db, claimed)}
    return [pair for pair in pairs if pair not in active_pairs]


def claim(db: peewee.Database, pair: Pair, interval_s: int, at_ms: int) -> bool:
    """Claim the next probe of a pair. Return whether the caller must make it; if so, no other
    process may within the interval."""
    next_ms = at_ms + interval_s * 1000
    own = (Claim.channel == pair[0]) & (Claim.model == pair[1])

    def work() -> bool:
        if Claim.update(next_ms=next_ms).where(own & (Claim.next_ms <= at_ms)).execute(db):
            return True
        if first_row(db, Claim.select(Claim.next_ms).where(own)) is not None:
            return False
        Claim.insert(channel=pair[0], model=pair[1], next_ms=next_ms).execute(db)
        return True

    try:
        return transaction(db, work)
    except Conflict:  # another process has just made the first claim
        return False


def forget_old(db: peewee.Database, at_ms: int) -> None:
    """Remove the claims of channels and models that were removed."""
    delete = Claim.delete().where(Claim.next_ms < at_ms - KEPT_MS)
    transaction(db, lambda: delete.execute(db))
