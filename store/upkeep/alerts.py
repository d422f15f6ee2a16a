"""Rounds of the alerts: one process of all evaluates the rules and sends what is due.

A round is short: it ends after ROUND_S even while messages wait, so that the lease goes round. A
destination that does not answer is passed by for a while, or its messages would hold up all others.
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
"""Sends a message, in a few seconds; raises nothing but StoreError. operations/alerts has it."""


class AlertRounds:
    """The rounds of a process. `stopping`: it is about to end, and sends nothing more."""

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
        self._passed_by: dict[str, float] = {}  # id of a destination -> until when

    def look(self) -> None:
        """Do a round when it is due and nobody is at it. Raises StoreError."""
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
