"""The upkeep of a worker: a thread that regularly checks whether a run is due for this process. It
also runs the rounds of the alerts, which continue while old days are removed.

It has a thread of its own, since the writer's must not wait for removals, and a database connection
of its own. It sleeps between batches.
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

FIRST_LOOK_S = 5.0  # the first records after a start do not wait for it
LOOK_INTERVAL_S = 10.0
RENEW_INTERVAL_S = 10.0
PORTION_PAUSE_S = 0.2  # a batch on SQLite blocks all writers for some 50 ms
STOP_S = 1.0  # an unfinished batch is rolled back when the process ends


class _Stopped(Exception):
    """A sign that the process is about to end."""


class Upkeep:
    """The upkeep, run if it is due and no other process is running it. `seen` is its state when
    this process last checked, None before that. `last_done` has the last success of the jobs that
    operators start."""

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
        """Start checking. The database may be unavailable."""
        self._thread.start()

    def stop(self) -> None:
        """Stop within STOP_S. Another process continues the run."""
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
                discard(self._db)  # the writer logs it
            except Exception:
                log.exception("the upkeep failed and is tried again")
                discard(self._db)
        discard(self._db)

    def look(self) -> None:
        """Run the upkeep if it is due and no other process is running it, and a round of the
        alerts. Raises StoreError."""
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
            raise  # the lease expires, and a process that reaches the store takes over
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
