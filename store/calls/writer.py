"""The writer thread of a worker: brings journals into the store, and news to the loop.

It reads closed calls from the files of its own journal and of adopted ones, from the offset the
store has applied to the offset that is synced: the same way in normal work, when it catches up
after an outage, and for the dead. It alone writes for its process. It carries out what the loop
orders of leases, and reads what the process must know: changes (a function given to it) and the
leases that others want back.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import peewee

from store.calls.adoption import Orphan, find_orphans
from store.calls.booking import Batch, account_charges, apply_batch, apply_records
from store.calls.journal import Journal
from store.calls.journal_reader import Closed, Damage, JournalReader
from store.calls.stored_responses import forget_expired, note_stored
from store.channels import breakers, probes, status_sums
from store.db.database import (
    DRIVER_ERRORS,
    database_ms,
    discard,
    execute,
    lead_of,
    snapshot_read,
    transaction,
)
from store.db.nodes import note_seen
from store.db.partitions import keep_ahead
from store.money import leases
from store.money.leases import Answer, Order, Verdict
from store.values.errors import StoreError, StoreUnavailable
from store.values.ids import now_ms, ulid_ms
from store.values.usage_record import UsageRecord, clipped

log = logging.getLogger(__name__)

WRITE_INTERVAL_S = 0.1
BATCH_RECORDS = 500
POLL_INTERVAL_S = 1.0
RECALL_INTERVAL_S = 0.25
HEARTBEAT_INTERVAL_S = 10.0
ORDERS_PER_TRANSACTION = 100
ADOPT_INTERVAL_S = 2.0
UPKEEP_INTERVAL_S = 3600.0
FOLD_INTERVAL_S = 60.0
UPKEEP_FIRST_S = 5.0  # the first records of a start do not wait for it
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 1.0
AWAY_TOLD_S = 10.0  # between two lines that say so
NOTHING_STOP_S = 0.2  # the thread may wait for a connection: it ends with the process
PARKED_FILE = "parked.ndjson"

UP = "up"
DOWN = "down"


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the writer's thread calls; the loop's functions must be handed over thread-safely.

    `applied`, `answered` and `recalled` are those of Funds and must be handed over in order; `held`
    is its table; `open_breakers` is what health has against channels; `poll` is called once a
    second and may read the database; `tell` is called in every round and writes what the loop has
    to tell, if there is something. `reached` hears up to which moment (of time.monotonic_ns) the
    store has all that this process wrote to its journal, `finished` which journals it has whole.
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


class _Source:
    """A journal that is being applied: how far it was read and how far the store has it."""

    def __init__(self, journal_id: str, reader: JournalReader, orphan: Orphan | None) -> None:
        self.id = journal_id
        self.reader = reader
        self.orphan = orphan
        self.end = 0
        self.position = 0
        # None: not known yet.
        self.committed: int | None = None
        # Read, but not known to be in the store.
        self.pending: Closed | None = None


class Writer:
    """The one thread of a process that writes closed calls into the store.

    `state` is UP or DOWN: whether the store answered when it was last asked. `was_up`: whether it
    ever did. `trouble`: why it does not, without secrets.
    """

    trouble = ""

    def __init__(self, db: peewee.Database, journal: Journal, node: str, hooks: Hooks) -> None:
        self.state = DOWN
        self._db = db
        self._journal = journal
        self._node = node
        self._hooks = hooks
        self._own = _Source(journal.id, JournalReader(journal.directory, journal.id), None)
        self._adopted: list[_Source] = []
        self._target = (0, 0)  # (moment, end of the journal then): reached when that is applied
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._failing = False
        self.was_up = False
        self._told_at = -AWAY_TOLD_S
        self._held_shown: dict[str, int] = {}
        self._breakers_shown: dict[breakers.Name, breakers.Open] = {}
        self._poll_at = 0.0
        self._recall_at = 0.0
        self._heartbeat_at = 0.0
        self._adopt_at = 0.0
        self._upkeep_at = self._fold_at = time.monotonic() + UPKEEP_FIRST_S
        self._expiring = False
        self._retry_s = RETRY_FIRST_S
        self._stop_at: float | None = None
        self._drained = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Begin to work; the database may still be away."""
        self._thread.start()

    def note_away(self, trouble: str) -> None:
        """The store cannot be had: the log says so at once, and again while it lasts."""
        self.trouble = trouble
        now = time.monotonic()
        if self.state == UP or now >= self._told_at + AWAY_TOLD_S:
            self._told_at = now
            log.error("the store is away: %s", trouble)

    def order(self, order: Order) -> bool:
        """Have an order carried out soon; False, and no answer, while the store is away."""
        if self._failing:
            return False
        self._orders.put(order)
        self._wake.set()
        return True

    def wake(self) -> None:
        """There is something to tell."""
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """End the journal, apply what it holds and end; whether all of it was applied in time.

        Then its leases are given back.

        Then the journal's files are removed; else they stay for adoption. Blocks. Nothing is
        posted any more. To be called once, when the loop has ended all calls. Where the store has
        never been there is nothing to wait for.
        """
        self._journal.finish()
        nothing = not self.was_up and not self._journal.written_offset
        self._stop_at = time.monotonic() + (0 if nothing else timeout_s)
        self._wake.set()
        self._thread.join(NOTHING_STOP_S if nothing else timeout_s)
        self._journal.close(remove=self._drained or nothing)
        if nothing:
            self._hooks.finished(self._journal.id)  # nobody will find it to adopt it
        return self._drained or nothing

    def _run(self) -> None:
        while not self._drained and not self._is_late():
            wait_s = self._guarded_round()
            self._wake.wait(0 if self._drained else wait_s)
            self._wake.clear()
        self._own.reader.close()
        for source in self._adopted:
            self._let_go(source)
        discard(self._db)

    def _is_late(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def _guarded_round(self) -> float:
        """One round of work, whatever happens in it; how long to wait before the next."""
        try:
            more = self._round()
        except Exception as error:
            if not isinstance(error, StoreUnavailable):
                self.trouble = f"{type(error).__name__}: {error}"
                log.exception("the writer cannot go on and tries again")
            else:
                # The next round asks the store before it does anything.
                self._poll_at = 0.0
                self.note_away(str(error))
            self.state, self._failing = DOWN, True
            discard(self._db)
            self._refuse_orders()
            self._retry_s = min(RETRY_MAX_S, self._retry_s * 2)
            return self._retry_s
        if self.state == DOWN:
            log.info("the store is up")
        self.state, self._failing, self._retry_s = UP, False, RETRY_FIRST_S
        self.was_up, self.trouble = True, ""
        return 0.0 if more else WRITE_INTERVAL_S

    def _round(self) -> bool:
        """Poll, apply, adopt, each when it is due; whether there is more to apply at once."""
        stopping, now = self._stop_at is not None, time.monotonic()
        if stopping or now >= self._poll_at:
            self._poll_at = now + POLL_INTERVAL_S
            # First, since the leases read next may contain a batch whose outcome is unknown.
            self._resolve(self._own)
            if not stopping:
                self._poll()
        self._beside(self._tell, "what other workers shall know cannot be told")
        if not stopping:
            self._serve_orders()
            self._look_for_recalls()
        more = self._apply(self._own, self._journal.synced_offset)
        self._journal.applied_offset = self._own.position
        if stopping:
            # A call still open here was not ended by the loop: its journal is left for adoption.
            if not more and not self._journal.open_calls:
                self._mark_finished(self._own)
                self._drained = True
            return more
        if now >= self._adopt_at:
            self._adopt_at = now + ADOPT_INTERVAL_S
            self._find_orphans()
        for source in list(self._adopted):
            more |= self._apply_adopted(source)
        self._note_reached()
        return more

    def _note_reached(self) -> None:
        """What the dead of before this start have handed out has to be in the store, too."""
        moment, end = self._target
        if self._adopted or self._own.position < end:
            return
        if moment:
            self._hooks.reached(moment)
        moment = time.monotonic_ns()  # before the end is read: what is written now is not behind it
        self._target = moment, self._journal.written_offset

    def _poll(self) -> None:
        now = time.monotonic()
        if now >= self._upkeep_at:
            self._upkeep_at = now + UPKEEP_INTERVAL_S
            keep_ahead(self._db)
            at_ms = database_ms(self._db)
            leases.forget_ended(self._db, at_ms)
            breakers.forget_old(self._db, at_ms)
            probes.forget_old(self._db, at_ms)
            status_sums.forget_empty(self._db)
            self._expiring = True
        if self._expiring:  # a portion at a time, for closed calls must not wait for it
            self._expiring = forget_expired(self._db, database_ms(self._db))
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_INTERVAL_S
            note_seen(self._db, self._node)
        self._show_held()
        self._beside(self._keep_status, "the status of channels cannot be kept")
        self._beside(self._take_news, "the news of the store cannot be taken in")

    def _beside(self, work: Callable[[], None], told: str) -> None:
        """Do what must not keep closed calls from being booked when it cannot be done."""
        try:
            work()
        except StoreUnavailable:
            raise
        except Exception:
            log.exception(told)
            discard(self._db)

    def _take_news(self) -> None:
        self._hooks.poll(self._db)

    def _tell(self) -> None:
        self._hooks.tell(self._db)

    def _keep_status(self) -> None:
        found, shown = self._hooks.open_breakers(), self._breakers_shown
        if found != shown:
            offset_ms = database_ms(self._db) - time.monotonic_ns() // 1_000_000
            breakers.show(self._db, self._own.id, shown, found, offset_ms)
        now = time.monotonic()
        if now >= self._fold_at:
            self._fold_at = now + FOLD_INTERVAL_S
            if status_sums.fold(self._db, database_ms(self._db) // 1000):
                self._fold_at = now  # go on in a second: others write meanwhile

    def _serve_orders(self) -> None:
        """Carry out what the loop has ordered, many orders in one transaction."""
        while orders := self._take_orders():
            try:
                answers = transaction(self._db, lambda: self._carry_out(orders))
            except Exception:
                # Perhaps it has happened: the next order for the account reads the lease.
                for order in orders:
                    self._hooks.answered(order, Answer(Verdict.AWAY))
                raise
            for order, answer in zip(orders, answers, strict=True):
                self._hooks.answered(order, answer)

    def _carry_out(self, orders: list[Order]) -> list[Answer]:
        return leases.carry_out(self._db, self._own.id, orders)

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
            if wanted := leases.recalled(self._db, self._own.id):
                self._hooks.recalled(wanted)

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

    def _resolve(self, source: _Source) -> bool:
        """Learn from the store how far a journal is applied; False when it was finished.

        A batch whose transaction ended in an unknown way has happened if the offset says so.
        """
        offset, finished = self._journal_row(source)
        if source.committed is None:
            source.committed = source.position = offset
        elif source.pending is not None and offset == source.pending.offset:
            charged = account_charges(source.pending.records)
            left = leases.own_leases(self._db, source.id, list(charged))
            self._landed(source, source.pending, left)
        elif offset != source.committed:
            raise StoreError(
                f"the store says that journal {source.id} is applied up to {offset}, not"
                f" {source.committed}: was the database restored? Restart this gateway"
            )
        return not finished

    def _journal_row(self, source: _Source) -> tuple[int, bool]:
        query = 'SELECT "offset", "finished_ms" FROM "journals" WHERE "id" = ?'
        insert = 'INSERT INTO "journals" ("id", "node", "offset", "opened_ms") VALUES (?, ?, 0, ?)'
        row = snapshot_read(self._db, lambda: execute(self._db, query, (source.id,)).fetchone())
        if row is not None:
            return row[0], row[1] is not None
        values = (source.id, self._node, ulid_ms(source.id))
        transaction(self._db, lambda: execute(self._db, insert, values))
        return 0, False

    def _apply(self, source: _Source, limit: int) -> bool:
        """Bring one batch into the store; whether there may be more before the limit."""
        if source.pending is None:
            closed = source.reader.read_closed(source.position, limit, BATCH_RECORDS)
            if closed.handed and not closed.records:
                transaction(self._db, lambda: note_stored(self._db, (), closed.handed))
            for line in closed.unreadable:
                self._park(line.decode(errors="replace"), "the journal line is unreadable")
            self._park_damaged(source, closed.damaged)
            if not closed.records:
                source.position = closed.offset
                return bool(closed.lines)
            source.pending = closed
        batch = source.pending
        self._landed(source, batch, self._book(source, batch))
        return batch.lines >= BATCH_RECORDS

    def _book(self, source: _Source, closed: Closed) -> dict[str, int]:
        old, ended = source.committed or 0, {record.id for record in closed.records}
        handed = [line for line in closed.handed if line.id not in ended]
        try:
            return self._transact(Batch(source.id, old, closed.offset, closed.records, handed))
        except _UNBOOKABLE as error:
            if not _blames_record(error):
                raise
            log.error("journal %s: a batch cannot be booked as it is: %s", source.id, error)
        bookable = self._bookable(source, closed.records)
        return self._transact(Batch(source.id, old, closed.offset, bookable, handed))

    def _transact(self, batch: Batch) -> dict[str, int]:
        def work() -> dict[str, int]:
            at_ms = database_ms(self._db)
            return apply_batch(self._db, batch, at_ms, lead_of(at_ms))

        return transaction(self._db, work)

    def _landed(self, source: _Source, closed: Closed, left: dict[str, int]) -> None:
        source.committed = source.position = closed.offset
        source.pending = None
        # Leases and charges of the dead are not this process's own.
        if self._stop_at is None and left and source.orphan is None:
            self._hooks.applied(left, account_charges(closed.records))

    def _bookable(self, source: _Source, records: list[UsageRecord]) -> list[UsageRecord]:
        """Try each record alone; those that can be booked, if need be with their texts cut.

        The others are parked before anything is committed.
        """
        bookable: list[UsageRecord] = []
        refused: list[tuple[UsageRecord, str]] = []

        def work() -> None:
            bookable.clear()
            refused.clear()
            for record in records:
                reason = self._try_booking(source, record)
                if reason is not None:
                    record = clipped(record)
                    reason = self._try_booking(source, record)
                if reason is None:
                    bookable.append(record)
                else:
                    refused.append((record, reason))
            raise _TriedOut

        try:
            transaction(self._db, work)
        except _TriedOut:
            pass
        for record, reason in refused:
            self._park(record, reason)
        return bookable

    def _try_booking(self, source: _Source, record: UsageRecord) -> str | None:
        try:
            apply_records(self._db, [record], database_ms(self._db), source.id)
        except (*DRIVER_ERRORS, *_UNBOOKABLE) as error:
            if not _blames_record(error):
                raise
            return str(error)
        return None

    def _park_damaged(self, source: _Source, damaged: Iterable[Damage]) -> None:
        for damage in damaged:
            place = f"journal {source.id} is damaged before offset {damage.end}"
            self._park(damage.data.decode("utf-8", "backslashreplace"), place)

    def _park(self, record: UsageRecord | str, reason: str) -> None:
        """Put aside what can never be booked, so that an operator can; the rest goes on."""
        log.error("a record is parked in %s: %s", PARKED_FILE, reason)
        data = msgspec.json.encode({"at_ms": now_ms(), "reason": reason, "record": record}) + b"\n"
        path = self._journal.directory / PARKED_FILE
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _mark_finished(self, source: _Source) -> None:
        """All its charges are booked: what is left of its leases is free again."""

        def work() -> None:
            leases.give_all_back(self._db, source.id)
            breakers.forget(self._db, source.id)
            update = 'UPDATE "journals" SET "finished_ms" = ? WHERE "id" = ?'
            execute(self._db, update, (database_ms(self._db), source.id))

        transaction(self._db, work)
        self._hooks.finished(source.id)

    def _find_orphans(self) -> None:
        known = {self._own.id, *(source.id for source in self._adopted)}
        for orphan in find_orphans(self._journal.directory, known):
            log.info("adopting journal %s, whose process is gone", orphan.id)
            self._adopted.append(_Source(orphan.id, orphan.reader, orphan))

    def _apply_adopted(self, source: _Source) -> bool:
        orphan = source.orphan
        assert orphan is not None
        try:
            if source.committed is None and self._resolve(source):
                source.end = orphan.close_open_calls(source.position, self._node)
                self._park_damaged(source, orphan.damaged)
            elif source.pending is not None:
                self._resolve(source)
            if self._apply(source, source.end):
                return True
            self._mark_finished(source)
            orphan.remove()
            self._adopted.remove(source)
        except StoreUnavailable:
            raise
        except (OSError, StoreError) as error:
            log.error("journal %s cannot be adopted now: %s", source.id, error)
            self._let_go(source)
        return False

    def _let_go(self, source: _Source) -> None:
        if source.orphan is not None:
            source.orphan.release()
        self._adopted = [other for other in self._adopted if other is not source]


class _TriedOut(Exception):
    """Rolls back a transaction in which everything was only tried."""


_UNBOOKABLE = (StoreError, ArithmeticError, ValueError, TypeError)


def _blames_record(error: BaseException) -> bool:
    """Whether an error comes from what a record holds; all others are waited out.

    The names are those of PEP 249, the same in peewee and in both drivers.
    """
    if isinstance(error, (ArithmeticError, ValueError, TypeError)):
        return True
    origins = (error, error.__cause__)
    return any(type(origin).__name__ in ("DataError", "IntegrityError") for origin in origins)
