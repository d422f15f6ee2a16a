"""The difference of this node's clock from the database's, for log, metrics and `status`.

Ids, days and windows use the node's clock. Times that machines compare with each other are the
database's (ADR 0016). Part of the worker; called in its writer's thread.
"""

import logging
import time

import peewee

from store.db.database import lead_ms

log = logging.getLogger("sluice.worker")

LOOK_EVERY_S = 60.0
WARN_MS = 60_000


class NodeClock:
    """The comparison of the clocks. `lead_ms`: the lead of the node's clock over the database's;
    None before the first comparison."""

    def __init__(self) -> None:
        self.lead_ms: int | None = None
        self._next_look = 0.0
        self._wrong = False

    def look(self, db: peewee.Database) -> None:
        """Compare the clocks once a minute. Log when they begin to differ by a minute, and when
        they agree again. Raises StoreUnavailable."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self.lead_ms = -lead_ms(db)
        self._next_look = now + LOOK_EVERY_S
        wrong = abs(self.lead_ms) >= WARN_MS
        if wrong and not self._wrong:
            log.warning(
                "this node's clock is %.0f s %s the database's; synchronise both with NTP:"
                " ids, days and windows use the node's clock",
                abs(self.lead_ms) / 1000,
                "ahead of" if self.lead_ms > 0 else "behind",
            )
        elif self._wrong and not wrong:
            log.warning("this node's clock agrees with the database's again")
        self._wrong = wrong
