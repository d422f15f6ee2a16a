"""The writer thread of a worker: brings journals into the store, and changes to the loop.

It reads closed calls from the files of its own journal and of adopted ones, from the offset that
the store has applied to the offset that is synced. Normal work, catching up after an outage and
adoption all work this way. It is the only writer of its process. It carries out the loop's orders
for leases, and reads what the process must know: changes (by a function given to it) and recalls of
leases.
"""

import functools
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import peewee

from store.calls.adoption import JournalTooOld, Orphan, find_orphans
from store.calls.journal import Journal
from store.calls.journal_reader import JournalReader
from store.calls.source import JournalSource
from store.channels import breakers, status_sums
from store.db.database import code_text, database_ms, discard, require_writable, transaction
from store.db.nodes import Process, note_seen
from store.money import leases
from store.money.leases import Answer, Order, Verdict
from store.values.errors import ReadOnly, StoreError, StoreUnavailable
from store.values.usage_record import UsageRecord

log = logging.getLogger(__name__)

WRITE_INTERVAL_S = 0.1
POLL_INTERVAL_S = 1.0
RECALL_INTERVAL_S = 0.25
HEARTBEAT_INTERVAL_S = 3.0  # limits are divided by the nodes with a heartbeat
ORDERS_PER_TRANSACTION = 100
ADOPT_INTERVAL_S = 2.0
FOLD_INTERVAL_S = 60.0
FOLD_FIRST_S = 5.0  # the first records after a start do not wait for it
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 1.0
UNAVAILABLE_LOG_S = 10.0  # between two log lines about the same outage
IDLE_STOP_S = 0.2  # with nothing to write; a thread that still waits ends with the process

UP = "up"
DOWN = "down"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of the writer's thread. They must hand over to functions of the loop thread-safely.

    `applied`, `answered` and `recalled` are those of Funds and must be handed over in order; `held`
    is its table. `open_breakers` returns the open circuits. `poll` is called once a second and may
    read the database. `tell` is called in every round and writes what the loop has for other
    workers. `reached` gets the time (of time.monotonic_ns) up to which the store has everything
    that this process wrote to its journal, `finished` each journal that the store has completely,
    `lost` the records of calls left open by dead processes. `describe` returns the process's report
    about itself.
    """

    applied: Callable[[dict[str, int], dict[str, int]], None]
    answered: Callable[[Order, Answer], None]
    recalled: Callable[[list[str]], None]
    held: Callable[[], dict[str, int]]
    open_breakers: Callable[[], Mapping[breakers.Name, breakers.Open]]
    poll: Callable[[peewee.Database], None]
    tell: Callable[[peewee.Database], None] = lambda db: None
    reached: Callable[[int], None] = lambda at_ns: None
    finished: Callable[[str], None] = lambda journal_id: None
    lost: Callable[[list[UsageRecord]], None] = lambda records: None
    describe: Callable[[], Process | None] = lambda: None


@dataclass(eq=False, slots=True)
class _Adopted:
    """A dead process's journal, and the end of its last line."""

    orphan: Orphan
    source: JournalSource
    end: int = 0


class Writer:
    """The one thread of a process that writes closed calls into the store.

    `state` is UP or DOWN: whether the store answered the last time. `was_up`: whether it ever did.
    `trouble`: why it does not answer, without secrets.
    """

    trouble = ""

    @property
    def waiting_records(self) -> int:
        """Return the number of records of this process that are not in the store yet."""
        return self._journal.records - self._own.records if self._journal.backlog_bytes else 0

    def __init__(self, db: peewee.Database, journal: Journal, node: str, hooks: Hooks) -> None:
        self.state = DOWN
        self._db = db
        self._journal = journal
        self._node = node
        self._hooks = hooks
        reader = JournalReader(journal.directory, journal.id)
        self._own = JournalSource(db, reader, node, self._own_applied)
        self._adopted: list[_Adopted] = []
        self._refused: set[str] = set()
        self._target = (0, 0)  # (time, end of the journal then): reached once that end is applied
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._failing = False
        self.was_up = False
        self.failures: Counter[str] = Counter()  # failed rounds, by `database.code_text`
        self._logged_at = -UNAVAILABLE_LOG_S
        self._held_shown: dict[str, int] = {}
        self._breakers_shown: dict[breakers.Name, breakers.Open] = {}
        self._poll_at = 0.0
        self._recall_at = 0.0
        self._heartbeat_at = 0.0
        self._adopt_at = 0.0
        self._fold_at = time.monotonic() + FOLD_FIRST_S
        self._retry_s = RETRY_FIRST_S
        self._stop_at: float | None = None
        self._needs_store = True  # when stopping: there is something that it does not have
        self._drained = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread. The database may still be unavailable."""
        self._thread.start()

    def note_unavailable(self, trouble: str) -> None:
        """Log that the store is unavailable, at once and then repeatedly while that lasts."""
        self.trouble = trouble
        now = time.monotonic()
        if self.state == UP or now >= self._logged_at + UNAVAILABLE_LOG_S:
            self._logged_at = now
            log.error("the store is unavailable: %s", trouble)

    def order(self, order: Order) -> bool:
        """Queue an order. Return False while the store is unavailable; no answer will come then."""
        if self._failing:
            return False
        self._orders.put(order)
        self._wake.set()
        return True

    def wake(self) -> None:
        """Run the next round now, because `tell` has something to write."""
        self._wake.set()

    def beat(self) -> None:
        """Report this process's state now, because it has changed for other nodes."""
        self._poll_at = self._heartbeat_at = 0.0
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Close the journal, apply what it holds, and end the thread. Return whether all was
        applied in time.

        If so, its leases have been returned and its files removed; otherwise they remain for
        adoption. Blocks. Hooks are not called any more afterwards. Call it once, when the loop has
        ended all calls. If the store was never available and nothing was written, it does not wait.
        """
        self._journal.finish()
        nothing = not self.was_up and not self._journal.written_offset
        self._needs_store = not nothing
        self._stop_at = time.monotonic() + timeout_s
        self._wake.set()
        self._thread.join(IDLE_STOP_S if nothing else timeout_s)
        self._journal.close(remove=self._drained or nothing)
        if nothing and not self._drained:
            self._hooks.finished(self._journal.id)  # nobody will find it to adopt it
        return self._drained or nothing

    def _run(self) -> None:
        while not self._drained and not self._is_late():
            wait_s = self._guarded_round()
            self._wake.wait(0 if self._drained else wait_s)
            self._wake.clear()
        self._own.reader.close()
        for adopted in self._adopted:
            adopted.orphan.release()
        discard(self._db)

    def _is_late(self) -> bool:
        if self._stop_at is None:
            return False
        # If a first round reached the store meanwhile, the journal has a row there, which must be
        # ended.
        idle = not self._needs_store and not self.was_up
        return idle or time.monotonic() >= self._stop_at

    def _guarded_round(self) -> float:
        """Run one round of work and handle all its errors. Return the time to wait before the
        next."""
        try:
            more = self._round()
        except Exception as error:
            self.failures[code_text(error)] += 1
            if not isinstance(error, StoreUnavailable):
                self.trouble = f"{type(error).__name__}: {error}"
                log.exception("the writer failed and tries again")
            else:
                # The next round checks the store before it does anything else.
                self._poll_at = 0.0
                self.note_unavailable(str(error))
            self.state, self._failing = DOWN, True
            if not isinstance(error, ReadOnly):  # its session is still readable, and ends by itself
                discard(self._db)
            self._refuse_orders()
            self._retry_s = min(RETRY_MAX_S, self._retry_s * 2)
            return self._retry_s
        if self.state == DOWN:
            log.info("the store is available")
        self.state, self._failing, self._retry_s = UP, False, RETRY_FIRST_S
        self.was_up, self.trouble = True, ""
        return 0.0 if more else WRITE_INTERVAL_S

    def _round(self) -> bool:
        """Poll, apply and adopt, each when due. Return whether there is more to apply at once."""
        stopping, now = self._stop_at is not None, time.monotonic()
        if stopping or now >= self._poll_at:
            self._poll_at = now + POLL_INTERVAL_S
            # First, since the leases read next may contain a batch whose outcome is unknown.
            self._own.resolve()
            if not stopping:
                self._poll()
        self._isolated(self._hooks.tell, "changes for other workers cannot be written")
        if not stopping:
            self._serve_orders()
            self._look_for_recalls()
        more = self._own.apply(self._journal.synced_offset)
        self._journal.applied_offset = self._own.position
        if stopping:
            # A call still open here was not ended by the loop: its journal is left for adoption.
            if not more and not self._journal.open_calls:
                self._finish(self._own)
                self._drained = True
            return more
        if now >= self._adopt_at:
            self._adopt_at = now + ADOPT_INTERVAL_S
            self._find_orphans()
        for adopted in list(self._adopted):
            more |= self._apply_adopted(adopted)
        self._note_reached()
        return more

    def _note_reached(self) -> None:
        """Report up to which time the store has what was written, including dead processes'
        journals."""
        moment, end = self._target
        if self._adopted or self._own.position < end:
            return
        if moment:
            self._hooks.reached(moment)
        moment = time.monotonic_ns()  # first, so that `end` includes all written before it
        self._target = moment, self._journal.written_offset

    def _poll(self) -> None:
        # First, and even from a read-only server, so that disabled keys stay disabled.
        self._isolated(self._hooks.poll, "changes of the store cannot be read")
        require_writable(self._db)
        now = time.monotonic()
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_INTERVAL_S
            note_seen(self._db, self._node, self._own.id, self._hooks.describe())
        self._show_held()
        self._isolated(self._keep_status, "the status of channels cannot be written")

    def _isolated(self, work: Callable[[peewee.Database], None], failure: str) -> None:
        """Run work whose failure must not stop the booking of closed calls."""
        try:
            work(self._db)
        except StoreUnavailable:
            raise
        except Exception:
            log.exception(failure)
            discard(self._db)

    def _keep_status(self, db: peewee.Database) -> None:
        circuits, written = self._hooks.open_breakers(), self._breakers_shown
        if circuits != written:
            offset_ms = database_ms(db) - time.monotonic_ns() // 1_000_000
            breakers.show(db, self._own.id, written, circuits, offset_ms)
        now = time.monotonic()
        if now >= self._fold_at:
            self._fold_at = now + FOLD_INTERVAL_S
            if status_sums.fold(db, database_ms(db) // 1000):
                self._fold_at = now  # continue in the next round: others can write in between

    def _serve_orders(self) -> None:
        """Carry out the orders of the loop, many in one transaction."""
        while orders := self._take_orders():
            try:
                work = functools.partial(leases.carry_out, self._db, self._own.id, orders)
                answers = transaction(self._db, work, marked=True)
            except Exception:
                # The outcome is unknown. The next order for the account reads the lease.
                for order in orders:
                    self._hooks.answered(order, Answer(Verdict.AWAY))
                raise
            for order, answer in zip(orders, answers, strict=True):
                self._hooks.answered(order, answer)

    def _take_orders(self) -> list[Order]:
        orders: list[Order] = []
        while len(orders) < ORDERS_PER_TRANSACTION and not self._orders.empty():
            orders.append(self._orders.get())
        return orders

    def _refuse_orders(self) -> None:
        while orders := self._take_orders():
            for order in orders:
                self._hooks.answered(order, Answer(Verdict.AWAY))

    def _look_for_recalls(self) -> None:
        now = time.monotonic()
        if now >= self._recall_at:
            self._recall_at = now + RECALL_INTERVAL_S
            if orders := leases.recalled(self._db, self._own.id):
                self._hooks.recalled(orders)

    def _show_held(self) -> None:
        held = self._hooks.held()
        changed = {
            account_id: held.get(account_id, 0)
            for account_id in held.keys() | self._held_shown.keys()
            if held.get(account_id, 0) != self._held_shown.get(account_id, 0)
        }
        if changed:
            transaction(self._db, lambda: leases.write_held(self._db, self._own.id, changed))
            self._held_shown = held

    def _own_applied(self, left: dict[str, int], charged: dict[str, int]) -> None:
        if self._stop_at is None:
            self._hooks.applied(left, charged)

    def _finish(self, source: JournalSource) -> None:
        source.finish()
        self._hooks.finished(source.id)

    def _find_orphans(self) -> None:
        ids = {self._own.id, *(adopted.orphan.id for adopted in self._adopted), *self._refused}
        for orphan in find_orphans(self._journal.directory, ids):
            log.info("adopting journal %s, whose process is gone", orphan.id)
            # Leases and charges of a dead process are not this process's own.
            source = JournalSource(self._db, orphan.reader, self._node, lambda *_: None)
            self._adopted.append(_Adopted(orphan, source))

    def _apply_adopted(self, adopted: _Adopted) -> bool:
        orphan, source = adopted.orphan, adopted.source
        try:
            if source.committed is None and source.resolve():
                adopted.end = orphan.close_open_calls(source.position, self._node)
                source.park_damaged(orphan.damaged)
                self._hooks.lost(orphan.lost)
            elif source.pending is not None:
                source.resolve()
            if source.apply(adopted.end):
                return True
            self._finish(source)
            orphan.remove()
            self._adopted.remove(adopted)
        except StoreUnavailable:
            raise
        except (OSError, StoreError) as error:
            if isinstance(error, JournalTooOld):
                self._refused.add(source.id)
                log.error("%s", error)
            else:
                log.error("journal %s cannot be adopted now: %s", source.id, error)
            orphan.release()
            self._adopted.remove(adopted)
        return False
