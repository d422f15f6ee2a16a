"""The upkeep of a worker: a thread that looks now and then whether it is this process's turn, also
for the rounds of the alerts, which go on while old days are removed.

A thread of its own, since the writer's must not wait while old days are removed. It has a database
connection of its own and sleeps between portions.
"""

import logging
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType

import peewee

from store.db.database import discard
from store.upkeep import lease, retention
from store.upkeep.alerts import AlertRounds, Send
from store.upkeep.retention import Keep
from store.values.errors import StoreError, StoreUnavailable

log = logging.getLogger(__name__)

FIRST_LOOK_S = 5.0  # the first records of a start do not wait for it
LOOK_INTERVAL_S = 10.0
RENEW_INTERVAL_S = 10.0
PORTION_PAUSE_S = 0.2  # a portion on SQLite keeps all writers waiting for some 50 ms
STOP_S = 1.0  # what is left of a portion is rolled back when the process ends


class _Stopped(Exception):
    """The process is about to end."""


class Upkeep:
    """Does the upkeep when it is due and nobody else is at it. `seen` is how it stood when this
    process last looked, None: not yet; `last_done` of the jobs that operators start likewise."""

    seen: lease.UpkeepState | None = None
    last_done: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self,
        db: peewee.Database,
        owner: str,
        node: str,
        keep: Keep,
        *,
        send: Send | None = None,
        currency: str = "",
    ) -> None:
        self._db = db
        self._owner = owner
        self._node = node
        self._keep = keep
        self._renew_at = 0.0
        self._stopping = threading.Event()
        self._alerts: AlertRounds | None = None
        if send is not None:
            stopping = self._stopping.is_set
            self._alerts = AlertRounds(db, owner, node, send, currency=currency, stopping=stopping)
        self._alerts_at = 0.0
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        """Begin to look; the database may be unavailable."""
        self._thread.start()

    def stop(self) -> None:
        """End, within STOP_S; a run goes on in another process."""
        self._stopping.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        wait_s = FIRST_LOOK_S
        while not self._stopping.wait(wait_s):
            wait_s = LOOK_INTERVAL_S
            try:
                self.look()
            except _Stopped:
                break
            except StoreUnavailable:
                discard(self._db)  # the writer says so in the log
            except Exception:
                log.exception("the upkeep failed and is tried again")
                discard(self._db)
        discard(self._db)

    def look(self) -> None:
        """Do a run when it is due and nobody is at it, and a round of the alerts. Raises
        StoreError."""
        self._look_at_alerts()
        if lease.take(self._db, self._owner, self._node):
            self._run_once()
        self.seen = lease.state(self._db)
        self.last_done = lease.last_done(self._db)

    def _run_once(self) -> None:
        self._renew_at = time.monotonic() + RENEW_INTERVAL_S
        began = time.monotonic()
        try:
            removed = retention.run(self._db, self._keep, self._node, self._pause)
        except lease.Lost:
            log.warning("upkeep: another process has taken over")
        except _Stopped:
            lease.give_back(self._db, self._owner)
            raise
        except StoreUnavailable:
            raise  # the lease runs out, and whoever reaches the store goes on
        except StoreError as error:
            lease.finish(self._db, self._owner, {}, str(error))
            log.error("upkeep failed: %s", error)
        else:
            lease.finish(self._db, self._owner, removed)
            counts = ", ".join(f"{kind} {count}" for kind, count in removed.items()) or "nothing"
            log.info("upkeep: removed %s in %.1f s", counts, time.monotonic() - began)

    def _pause(self) -> None:
        if self._stopping.wait(PORTION_PAUSE_S):
            raise _Stopped
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + RENEW_INTERVAL_S
            lease.renew(self._db, self._owner)
        if now >= self._alerts_at:
            self._look_at_alerts()

    def _look_at_alerts(self) -> None:
        self._alerts_at = time.monotonic() + LOOK_INTERVAL_S
        if self._alerts is not None:
            self._alerts.look()
