"""The books: bringing closed calls into them, and proving that they are right.

A batch of records, what they take from wallets, quotas and the journal's leases, the day lines of
the ledger and the journal's offset change in one transaction: that is what makes each record count
exactly once. For the writer; `verify` is for commands.

A record whose user has no wallet any more (a removed user) is kept with its cost and charges, but
nobody is charged: there is no ledger left that could show it.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import peewee

from store.calls.journal_lines import HandedLine
from store.calls.rollups import add_records
from store.calls.stored_responses import note_stored
from store.calls.usage_queries import next_day
from store.channels import status_sums
from store.db.database import (
    database_ms,
    execute,
    executemany,
    insert_columns,
    is_mysql,
    snapshot_read,
)
from store.db.partitions import pruned_before
from store.money import leases
from store.money.lease_upkeep import faults as lease_faults
from store.values.errors import StoreError
from store.values.ids import new_ulid
from store.values.pricing import format_money
from store.values.usage_record import WALLET, UsageRecord, charges_from_json, columns_of

log = logging.getLogger(__name__)

CHARGES = "charges"
"""Kind of the ledger line that sums up the charges of one user and UTC day."""

PAGE_ROWS = 1000
USERS_PER_QUERY = 500
FAULTS_MAX = 1000

_MOVE_OFFSET = 'UPDATE "journals" SET "offset" = ? WHERE "id" = ? AND "offset" = ?'
# One statement for all users of a batch: a statement for each costs a round trip for each.
_SET_BALANCE = 'INSERT INTO "wallets" ("user_id", "balance") VALUES (?, ?)'
_ADD_CHARGES = (
    'INSERT INTO "ledger" ("id", "user_id", "kind", "amount", "balance_after",'
    ' "idempotency_id", "reason", "at_ms", "day") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)'
)
_ON_WALLET = {
    True: ' ON DUPLICATE KEY UPDATE "balance" = VALUES("balance")',
    False: ' ON CONFLICT ("user_id") DO UPDATE SET "balance" = excluded."balance"',
}
_ON_CHARGES = {
    True: ' ON DUPLICATE KEY UPDATE "amount" = "amount" + VALUES("amount"),'
    ' "balance_after" = VALUES("balance_after"), "at_ms" = VALUES("at_ms")',
    False: ' ON CONFLICT ("idempotency_id") DO UPDATE SET "amount" = "amount" + excluded."amount",'
    ' "balance_after" = excluded."balance_after", "at_ms" = excluded."at_ms"',
}


class OffsetMoved(StoreError):
    """The journal's offset in the store is not what the writer took it for."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one journal between two of its offsets; `handed`: what calls that may still run
    have handed out."""

    journal_id: str
    old_offset: int
    new_offset: int
    records: Sequence[UsageRecord]
    handed: Sequence[HandedLine] = ()


def apply_batch(
    db: peewee.Database, batch: Batch, recorded_ms: int, lead_ms: int = 0
) -> dict[str, int]:
    """Bring a batch into the books, inside the caller's transaction: `apply_records`.

    Returns the journal's leases after it, by the ids of the accounts that were charged. Raises
    OffsetMoved when it has been applied already; driver errors pass to the transaction.
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
    """Insert records, charge their accounts, note what vendors keep, add to the roll-ups, in the
    caller's transaction.

    `recorded_ms` is the database's clock, `lead_ms` how far that is ahead of the records' own.
    The leases of the journal they come from shrink, and are returned as `apply_batch` does. Passes
    the driver's error when a record cannot be booked, after which the transaction must end.
    """
    left: dict[str, int] = {}
    if not records:
        return left
    columns = columns_of(records, recorded_ms)
    insert_columns(db, "usage_records", columns)
    if charged := account_charges(records):
        # The locks of wallets, then those of quotas, guard the leases on them.
        _charge_wallets(db, _day_charges(records, columns["day"]), recorded_ms)
        leases.charge_quotas(db, _quota_charges(records, charged))
        leases.spend(db, journal_id, charged)
        left = leases.own_leases(db, journal_id, list(charged))
    note_stored(db, records)
    # Last, since all writers want the same rows of the roll-ups.
    add_records(db, records)
    status_sums.add_records(db, records, lead_ms)
    return left


def account_charges(records: Iterable[UsageRecord]) -> dict[str, int]:
    """By account id, what records take from wallets and quotas; costs count against limits, too."""
    charged: defaultdict[str, int] = defaultdict(int)
    for record in records:
        for charge in record.charges:
            charged[charge.account or record.user_id] += charge.amount_nanos
        if record.limit_account is not None and record.cost_nanos:
            charged[record.limit_account] += record.cost_nanos
    return dict(charged)


def charges_id(user_id: str, day: int) -> str:
    """The idempotency id of the charges line of a user and day."""
    return f"{CHARGES}:{user_id}:{day}"


def _day_charges(records: Iterable[UsageRecord], days: Iterable[int]) -> dict[tuple[str, int], int]:
    sums: defaultdict[tuple[str, int], int] = defaultdict(int)
    for record, day in zip(records, days, strict=True):
        for charge in record.charges:
            if charge.to == WALLET:
                sums[record.user_id, day] += charge.amount_nanos
    return sums


def _quota_charges(records: Iterable[UsageRecord], charged: dict[str, int]) -> dict[str, int]:
    wallets = {record.user_id for record in records}
    return {account: amount for account, amount in charged.items() if account not in wallets}


def _charge_wallets(db: peewee.Database, sums: dict[tuple[str, int], int], at_ms: int) -> None:
    if not sums:
        return
    mysql = is_mysql(db)
    user_ids = sorted({user_id for user_id, _ in sums})
    # The row locks of the wallets, taken in order of id, also guard their ledgers' day lines.
    balances = _locked_balances(db, user_ids)
    lines = []
    # Days in order, so that the later day's line shows the later balance.
    for (user_id, day), amount in sorted(sums.items()):
        if user_id not in balances:
            log.warning("user %s has no wallet: %s not charged", user_id, format_money(amount))
            continue
        balances[user_id] -= amount
        key = charges_id(user_id, day)
        reason = f"usage of {day // 10_000}-{day // 100 % 100:02d}-{day % 100:02d}"
        after = balances[user_id]
        lines.append((new_ulid(), user_id, CHARGES, -amount, after, key, reason, at_ms, day))
    if lines:
        executemany(db, _SET_BALANCE + _ON_WALLET[mysql], list(balances.items()))
        executemany(db, _ADD_CHARGES + _ON_CHARGES[mysql], lines)


def _locked_balances(db: peewee.Database, user_ids: Sequence[str]) -> dict[str, int]:
    lock = " FOR UPDATE" if is_mysql(db) else ""
    found: dict[str, int] = {}
    for some, places in _in_parts(user_ids):
        query = (
            f'SELECT "user_id", "balance" FROM "wallets" WHERE "user_id" IN ({places})'
            f' ORDER BY "user_id"{lock}'
        )
        found.update(execute(db, query, some).fetchall())
    return found


def _in_parts(values: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    for start in range(0, len(values), USERS_PER_QUERY):
        some = values[start : start + USERS_PER_QUERY]
        yield some, ", ".join("?" * len(some))


def verify(db: peewee.Database) -> list[str]:
    """What is wrong with the books, one sentence each, at most FAULTS_MAX; empty: nothing.

    Every lease has an owner. Every wallet: sum of its ledger lines = balance. Every UTC day that
    was not pruned: the charges line of each user = the sum of what those records took from the
    wallet. All is read in one snapshot, so a running gateway does not disturb it. Memory: the users
    of one day.
    """

    def read() -> list[str]:
        faults = lease_faults(db, database_ms(db)) + _wallet_faults(db)
        totals = _ledger_days(db)
        # What comes late for a pruned day is alone there.
        day: int | None = pruned_before(db) - 1
        while day is not None and len(faults) < FAULTS_MAX:
            day = next_day(db, day)
            if day is not None:
                faults += _day_faults(db, day, totals.get(day, (0, 0)))
        return faults[:FAULTS_MAX]

    return snapshot_read(db, read)


def _wallet_faults(db: peewee.Database) -> list[str]:
    query = (
        'SELECT w."user_id", u."name", w."balance", COALESCE(SUM(l."amount"), 0) AS "total"'
        ' FROM "wallets" w LEFT JOIN "ledger" l ON l."user_id" = w."user_id"'
        ' LEFT JOIN "users" u ON u."id" = w."user_id"'
        ' GROUP BY w."user_id", u."name", w."balance" HAVING "total" <> w."balance"'
        ' ORDER BY w."user_id" LIMIT ?'
    )
    return [
        f"wallet of {name or user_id}: the balance is {format_money(balance)},"
        f" its ledger lines sum up to {format_money(int(total))}"
        for user_id, name, balance, total in execute(db, query, (FAULTS_MAX,)).fetchall()
    ]


def _ledger_days(db: peewee.Database) -> dict[int, tuple[int, int]]:
    query = 'SELECT "day", COUNT(*), SUM("amount") FROM "ledger" WHERE "kind" = ? GROUP BY "day"'
    return {day: (n, int(total)) for day, n, total in execute(db, query, (CHARGES,)).fetchall()}


def _day_faults(db: peewee.Database, day: int, total: tuple[int, int]) -> list[str]:
    users: dict[str, str] = {}
    spent: defaultdict[str, int] = defaultdict(int)
    for user_id, user, charges in _charged_rows(db, day):
        users[user_id] = user
        for charge in charges_from_json(charges):
            if charge.to == WALLET:
                spent[user_id] += charge.amount_nanos
    lines = _day_lines(db, day, list(spent))
    wallets = _with_wallet(db, list(spent))
    faults = [
        f"wallet of {users[user_id]}: its charges line of {day} says"
        f" {format_money(-lines.get(user_id, 0))}, the records of that day {format_money(amount)}"
        for user_id, amount in spent.items()
        if user_id in wallets and lines.get(user_id, 0) != -amount
    ]
    if total != (len(lines), sum(lines.values())):
        faults.append(
            f"day {day}: {total[0] - len(lines)} charges lines of the ledger, together"
            f" {format_money(sum(lines.values()) - total[1])}, have no records"
        )
    return faults


def _charged_rows(db: peewee.Database, day: int) -> Iterator[tuple[str, str, str]]:
    query = (
        'SELECT "id", "user_id", "user", "charges" FROM "usage_records"'
        ' WHERE "day" = ? AND "id" > ? AND "charges" <> \'[]\' ORDER BY "id" LIMIT ?'
    )
    after = ""
    while rows := execute(db, query, (day, after, PAGE_ROWS)).fetchall():
        for _, user_id, user, charges in rows:
            yield user_id, user, charges
        after = rows[-1][0]


def _day_lines(db: peewee.Database, day: int, user_ids: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some, places in _in_parts([charges_id(user_id, day) for user_id in user_ids]):
        query = f'SELECT "user_id", "amount" FROM "ledger" WHERE "idempotency_id" IN ({places})'
        found.update(execute(db, query, some).fetchall())
    return found


def _with_wallet(db: peewee.Database, user_ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for some, places in _in_parts(user_ids):
        query = f'SELECT "user_id" FROM "wallets" WHERE "user_id" IN ({places})'
        found.update(user_id for (user_id,) in execute(db, query, some).fetchall())
    return found
