"""Which channels are to be probed, and by whom: one process of all nodes at a time.

A channel × model is quiet when it has had neither a call nor a probe for the interval. A claim sets
the time of its next probe, so that of any number of processes one makes it. Results of probes are
kept by status_sums, apart from traffic.
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
"""Name of a channel, and of a model."""

LOOK_S = 5.0  # between two looks at what is quiet; each claims at most one
RESULTS_MAX = 1000  # that wait for the store; more are dropped

KEPT_MS = 2 * 86_400_000
"""How long a claim that nobody renews is kept: the longest interval, twice."""


class Rota:
    """The probes of one process: which it makes, and their results.

    `begin` is called in the writer's thread with what is claimed; all else, but `look`, is for the
    loop's. `pairs`: what may be probed. `interval_s` 0: nothing is.
    """

    def __init__(self, interval_s: int, begin: Callable[[Pair], None]) -> None:
        self.pairs: Sequence[Pair] = ()
        self.busy = False
        """No further probe is to be begun now."""
        self.interval_s = interval_s
        self._begin = begin
        self._look_at = time.monotonic() + random.uniform(0, LOOK_S)  # not all workers at once
        self._results: queue.Queue[Probed] = queue.Queue(RESULTS_MAX)
        self._unwritten: list[Probed] = []

    def note(self, result: Probed) -> bool:
        """Queue the result of a probe; False when it is dropped, since the queue is full."""
        try:
            self._results.put_nowait(result)
        except queue.Full:
            return False
        return True

    def look(self, db: peewee.Database) -> None:
        """Write results and claim a probe when one is due. Blocking; call it about once a second.
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
    """Return whether the caller is to make the probe; nobody else may in the interval."""
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
    except Conflict:  # another one has just claimed it for the first time
        return False


def forget_old(db: peewee.Database, at_ms: int) -> None:
    """Remove the claims of channels and models that are gone."""
    delete = Claim.delete().where(Claim.next_ms < at_ms - KEPT_MS)
    transaction(db, lambda: delete.execute(db))
