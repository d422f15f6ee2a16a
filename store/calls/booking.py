"""Booking closed calls: the changes that one batch of the writer makes in the store.

The records, what they take from wallets, quotas and the journal's leases, the charges lines of the
ledger, the roll-ups and the journal's offset change in one transaction. Therefore each record
counts exactly once. All SQL here is the writer's, and raw because it runs for each batch.

A record whose user no longer has a wallet (because removed) keeps its cost and charges, but nobody
is charged, since there is no ledger left to show it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import peewee

from store.calls.journal_lines import HandedLine
from store.calls.rollups import add_records
from store.calls.stored_responses import note_stored
from store.channels import status_sums
from store.db.database import execute, insert_columns
from store.money import leases
from store.money.ledger import charge_wallets
from store.values.errors import StoreError
from store.values.usage_record import WALLET, UsageRecord, columns_of

_MOVE_OFFSET = 'UPDATE "journals" SET "offset" = ? WHERE "id" = ? AND "offset" = ?'


class OffsetMoved(StoreError):
    """A difference between the journal's offset in the store and the one that the writer
    expected."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one journal between two offsets. `handed` are lines of calls that may still be
    running."""

    journal_id: str
    old_offset: int
    new_offset: int
    records: Sequence[UsageRecord]
    handed: Sequence[HandedLine] = ()


def apply_batch(
    db: peewee.Database, batch: Batch, recorded_ms: int, lead_ms: int = 0
) -> dict[str, int]:
    """Book a batch inside the caller's transaction, by `apply_records`.

    Returns the journal's leases after it, by the ids of the accounts that were charged. Raises
    OffsetMoved if the batch has already been applied. Driver errors propagate to the transaction.
    """
    moved = execute(db, _MOVE_OFFSET, (batch.new_offset, batch.journal_id, batch.old_offset))
    if moved.rowcount != 1:
        raise OffsetMoved(f"the offset of journal {batch.journal_id} is not {batch.old_offset}")
    if batch.handed:
        note_stored(db, (), batch.handed)  # before the records: one of them may be its deletion
    return apply_records(db, batch.records, recorded_ms, batch.journal_id, lead_ms)


def apply_records(
    db: peewee.Database,
    records: Sequence[UsageRecord],
    recorded_ms: int,
    journal_id: str = "",
    lead_ms: int = 0,
) -> dict[str, int]:
    """Insert records, charge their accounts, note what vendors store, add to the roll-ups, in the
    caller's transaction.

    `recorded_ms` is the database's clock, `lead_ms` how far it is ahead of the records' own.
    Charges the leases of the journal that the records come from, and returns them as `apply_batch`
    does. Driver errors propagate if a record cannot be booked; the transaction must then end.
    """
    left: dict[str, int] = {}
    if not records:
        return left
    columns = columns_of(records, recorded_ms)
    insert_columns(db, "usage_records", columns)
    if charged := account_charges(records):
        # The locks of wallets, then those of quotas, protect the leases on them.
        charge_wallets(db, _day_charges(records, columns["day"]), recorded_ms)
        leases.charge_quotas(db, _quota_charges(records, charged))
        leases.spend(db, journal_id, charged)
        left = leases.own_leases(db, journal_id, list(charged))
    note_stored(db, records)
    # Last, since all writers contend for the same rows of the roll-ups.
    add_records(db, records)
    status_sums.add_records(db, records, lead_ms)
    return left


def account_charges(records: Iterable[UsageRecord]) -> dict[str, int]:
    """Return what records take from wallets and quotas, by account id. Costs also count against
    spend limits."""
    charged: defaultdict[str, int] = defaultdict(int)
    for record in records:
        call = record.call
        for charge in record.charges:
            charged[charge.account or call.user_id] += charge.amount_nanos
        for limit in (call.limit_account, call.user_limit_account):
            if limit is not None and record.cost_nanos:
                charged[limit] += record.cost_nanos
    return dict(charged)


def _day_charges(records: Iterable[UsageRecord], days: Iterable[int]) -> dict[tuple[str, int], int]:
    sums: defaultdict[tuple[str, int], int] = defaultdict(int)
    for record, day in zip(records, days, strict=True):
        for charge in record.charges:
            if charge.to == WALLET:
                sums[record.call.user_id, day] += charge.amount_nanos
    return sums


def _quota_charges(records: Iterable[UsageRecord], charged: dict[str, int]) -> dict[str, int]:
    wallets = {record.call.user_id for record in records}
    return {account: amount for account, amount in charged.items() if account not in wallets}
