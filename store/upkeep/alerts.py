"""Rounds of the alerts: one process of all nodes evaluates the rules and sends what is due.

A round is short: it ends after ROUND_S even if messages are waiting, so that the lease can change
hands. A destination that does not answer is skipped for a while, so that its messages do not delay
all others.
"""

import logging
import time
from collections.abc import Callable

import peewee

from store.alerts import evaluation, outbox
from store.alerts.conditions import Scope
from store.alerts.outbox import Message, Result
from store.db.database import database_ms
from store.upkeep import lease
from store.upkeep.lease import ALERTS

log = logging.getLogger(__name__)

ROUND_S = 30.0
PASSED_BY_S = 60.0

Send = Callable[[peewee.Database, Message], Result]
"""Sends a message, in a few seconds. Raises only StoreError. Implemented in operations/alerts."""


class AlertRounds:
    """The rounds of a process. `stopping` is true if the process is about to end and sends nothing
    more."""

    def __init__(
        self,
        db: peewee.Database,
        owner: str,
        node: str,
        send: Send,
        *,
        currency: str,
        stopping: Callable[[], bool],
    ) -> None:
        self._db, self._owner, self._node = db, owner, node
        self._send, self._currency, self._stopping = send, currency, stopping
        self._passed_by: dict[str, float] = {}  # id of a destination -> end of the pause

    def look(self) -> None:
        """Run a round if one is due and no other process is running it. Raises StoreError."""
        last_ms = lease.last_end(self._db, ALERTS)
        if not lease.take(self._db, self._owner, self._node, ALERTS):
            return
        try:
            scope = Scope(database_ms(self._db), self._currency, last_ms)
            evaluation.run(self._db, scope, self._renew)
            self._send_due()
        except lease.Lost:
            log.warning("alerts: another process has taken over")
            return
        lease.finish(self._db, self._owner, {}, job=ALERTS)

    def _renew(self) -> None:
        lease.renew(self._db, self._owner, ALERTS)

    def _send_due(self) -> None:
        ends_at = time.monotonic() + ROUND_S
        while not self._stopping() and time.monotonic() < ends_at:
            now = time.monotonic()
            self._passed_by = {key: at for key, at in self._passed_by.items() if at > now}
            message = outbox.claim(self._db, self._owner, self._passed_by)
            if message is None:
                return
            result = self._send(self._db, message)
            outbox.finish(self._db, message, self._owner, result)
            if not result.ok and result.again:
                log.warning(
                    "alert %s not sent to %s: %s", message.id, message.receiver, result.text
                )
                self._passed_by[message.destination_id] = time.monotonic() + PASSED_BY_S
            self._renew()
