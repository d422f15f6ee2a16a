"""A journal that the writer brings into the store, its own or that of a dead process.

Closed calls are read from the offset that the store has applied, and booked batch by batch. Records
that can never be booked are written to a file, so that they do not block the others.
"""

import logging
import os
from collections.abc import Callable, Iterable

import msgspec
import peewee

from store.calls.booking import Batch, OffsetMoved, account_charges, apply_batch, apply_records
from store.calls.journal_reader import Closed, Damage, JournalReader
from store.calls.stored_responses import note_stored
from store.channels import breakers
from store.db.database import DRIVER_ERRORS, database_ms, first_row, lead_of, transaction
from store.db.tables.usage import JournalRow
from store.money import leases
from store.values.errors import StoreError
from store.values.ids import now_ms, ulid_ms
from store.values.usage_record import UsageRecord, clipped

log = logging.getLogger(__name__)

BATCH_RECORDS = 500
PARKED_FILE = "parked.ndjson"

Applied = Callable[[dict[str, int], dict[str, int]], None]


class JournalSource:
    """The progress in a journal: read up to `position`, in the store up to `committed` (None: not
    known yet). `pending` was read, but may not be in the store. `applied` is called for each batch
    with the journal's leases after it, and the charges."""

    def __init__(
        self, db: peewee.Database, reader: JournalReader, node: str, applied: Applied
    ) -> None:
        self.id = reader.journal_id
        self.reader = reader
        self.position = 0
        self.committed: int | None = None
        self.pending: Closed | None = None
        self.records = 0  # that this object brought into the store
        self._db = db
        self._node = node
        self._applied = applied

    def resolve(self) -> bool:
        """Read from the store how far the journal is applied. Return False if it is finished. If
        the outcome of a batch's transaction was unknown, the offset shows whether it was
        committed."""
        offset, finished = self._row()
        if self.committed is None:
            self.committed = self.position = offset
        elif self.pending is not None and offset == self.pending.offset:
            charged = account_charges(self.pending.records)
            left = leases.own_leases(self._db, self.id, list(charged))
            self._landed(self.pending, left)
        elif offset != self.committed:
            raise StoreError(
                f"the store says that journal {self.id} is applied up to {offset}, not"
                f" {self.committed}: was the database restored? Restart this gateway"
            )
        return not finished

    def apply(self, limit: int) -> bool:
        """Book one batch. Return whether there may be more before the limit."""
        if self.pending is None:
            closed = self.reader.read_closed(self.position, limit, BATCH_RECORDS)
            if closed.handed and not closed.records:
                transaction(self._db, lambda: note_stored(self._db, (), closed.handed))
            for line in closed.unreadable:
                self._park(line.decode(errors="replace"), "the journal line is unreadable")
            self.park_damaged(closed.damaged)
            if not closed.records:
                self.position = closed.offset
                return bool(closed.lines)
            self.pending = closed
        batch = self.pending
        try:
            left = self._book(batch)
        except OffsetMoved:
            # A COMMIT with a lost answer was carried out after `resolve` looked. Otherwise this
            # raises.
            self.resolve()
            if self.committed != batch.offset:
                raise
            log.info("journal %s: the batch of an unknown outcome is in the store", self.id)
        else:
            self._landed(batch, left)
        return batch.lines >= BATCH_RECORDS

    def finish(self) -> None:
        """Mark the journal as finished and release its remaining leases, after all its charges are
        booked."""

        def work() -> None:
            leases.give_all_back(self._db, self.id)
            breakers.forget(self._db, self.id)
            ended = JournalRow.update(finished_ms=database_ms(self._db))
            ended.where(JournalRow.id == self.id).execute(self._db)

        transaction(self._db, work)

    def _row(self) -> tuple[int, bool]:
        query = JournalRow.select(JournalRow.offset, JournalRow.finished_ms)
        row = first_row(self._db, query.where(JournalRow.id == self.id))
        if row is not None:
            return row[0], row[1] is not None
        new = {"id": self.id, "node": self._node, "offset": 0, "opened_ms": ulid_ms(self.id)}
        transaction(self._db, lambda: JournalRow.insert(new).execute(self._db))
        return 0, False

    def _book(self, closed: Closed) -> dict[str, int]:
        old = self.committed or 0
        try:
            return self._transact(Batch(self.id, old, closed.offset, closed.records, closed.handed))
        except _UNBOOKABLE as error:
            if not _blames_record(error):
                raise
            log.error("journal %s: a batch cannot be booked as it is: %s", self.id, error)
        bookable = self._bookable(closed.records)
        return self._transact(Batch(self.id, old, closed.offset, bookable, closed.handed))

    def _transact(self, batch: Batch) -> dict[str, int]:
        def work() -> dict[str, int]:
            at_ms = database_ms(self._db)
            return apply_batch(self._db, batch, at_ms, lead_of(at_ms))

        return transaction(self._db, work)

    def _landed(self, closed: Closed, left: dict[str, int]) -> None:
        self.committed = self.position = closed.offset
        self.records += len(closed.records)
        self.pending = None
        if left:
            self._applied(left, account_charges(closed.records))

    def _bookable(self, records: list[UsageRecord]) -> list[UsageRecord]:
        """Try each record alone. Return those that can be booked, with their texts cut if
        necessary. The others are parked before anything is committed."""
        bookable: list[UsageRecord] = []
        refused: list[tuple[UsageRecord, str]] = []

        def work() -> None:
            bookable.clear()
            refused.clear()
            for record in records:
                reason = self._try_booking(record)
                if reason is not None:
                    record = clipped(record)
                    reason = self._try_booking(record)
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

    def _try_booking(self, record: UsageRecord) -> str | None:
        try:
            apply_records(self._db, [record], database_ms(self._db), self.id)
        except (*DRIVER_ERRORS, *_UNBOOKABLE) as error:
            if not _blames_record(error):
                raise
            return str(error)
        return None

    def park_damaged(self, damaged: Iterable[Damage]) -> None:
        """Park lines that cannot be read."""
        for damage in damaged:
            place = f"journal {self.id} is damaged before offset {damage.end}"
            self._park(damage.data.decode("utf-8", "backslashreplace"), place)

    def _park(self, record: UsageRecord | str, reason: str) -> None:
        """Write a record that can never be booked to PARKED_FILE, for the operator, so that the
        rest can go on."""
        log.error("a record is parked in %s: %s", PARKED_FILE, reason)
        data = msgspec.json.encode({"at_ms": now_ms(), "reason": reason, "record": record}) + b"\n"
        path = self.reader.directory / PARKED_FILE
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _TriedOut(Exception):
    """A signal that rolls back a transaction in which bookings were only tried."""


_UNBOOKABLE = (StoreError, ArithmeticError, ValueError, TypeError)


def _blames_record(error: BaseException) -> bool:
    """Return whether an error comes from the content of a record. All other errors are retried. The
    names are those of PEP 249, which are the same in peewee and in both drivers."""
    if isinstance(error, (ArithmeticError, ValueError, TypeError)):
        return True
    origins = (error, error.__cause__)
    return any(type(origin).__name__ in ("DataError", "IntegrityError") for origin in origins)
