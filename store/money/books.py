"""The proof of the books: wallets, ledger, leases and usage records agree. For commands."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import peewee
from peewee import JOIN, fn

from store.db.database import database_ms, in_snapshot, portions, select_rows
from store.db.partitions import next_day, pruned_before
from store.db.tables.money import LedgerLine, Wallet
from store.db.tables.usage import UsageRow
from store.db.tables.users import User
from store.money.lease_upkeep import faults as lease_faults
from store.money.ledger import CHARGES, charges_id
from store.values.pricing import format_money
from store.values.usage_record import WALLET, charges_from_json

PAGE_ROWS = 1000
FAULTS_MAX = 1000


@in_snapshot
def verify(
    db: peewee.Database, report: Callable[[int], None] = lambda _: None, since_day: int = 0
) -> list[str]:
    """Return the faults of the books, one sentence each, at most FAULTS_MAX.

    Every lease has an owner. Every wallet: sum of its ledger lines = balance. Every UTC day that
    was not pruned: the charges line of each user = the sum of what those records took from the
    wallet. All is read in one snapshot, so a running gateway does not disturb it. Memory: the users
    of one day. `report` is told each day (yyyymmdd) before it is read; days before `since_day` are
    not.
    """
    faults = lease_faults(db, database_ms(db)) + _wallet_faults(db)
    totals = _ledger_days(db)
    # Of a pruned day only what came late is there.
    day: int | None = max(pruned_before(db), since_day) - 1
    while day is not None and len(faults) < FAULTS_MAX:
        day = next_day(db, day)
        if day is not None:
            report(day)
            faults += _day_faults(db, day, totals.get(day, (0, 0)))
    return faults[:FAULTS_MAX]


def _wallet_faults(db: peewee.Database) -> list[str]:
    total = fn.COALESCE(fn.SUM(LedgerLine.amount), 0)
    query = (
        Wallet.select(Wallet.user_id, User.name, Wallet.balance, total)
        .join(LedgerLine, JOIN.LEFT_OUTER, on=(LedgerLine.user_id == Wallet.user_id))
        .join_from(Wallet, User, JOIN.LEFT_OUTER, on=(User.id == Wallet.user_id))
        .group_by(Wallet.user_id, User.name, Wallet.balance)
        .having(total != Wallet.balance)
        .order_by(Wallet.user_id)
        .limit(FAULTS_MAX)
    )
    return [
        f"wallet of {name or user_id}: the balance is {format_money(balance)},"
        f" its ledger lines sum up to {format_money(int(lines))}"
        for user_id, name, balance, lines in select_rows(db, query)
    ]


def _ledger_days(db: peewee.Database) -> dict[int, tuple[int, int]]:
    query = (
        LedgerLine.select(LedgerLine.day, fn.COUNT(LedgerLine.id), fn.SUM(LedgerLine.amount))
        .where(LedgerLine.kind == CHARGES)
        .group_by(LedgerLine.day)
    )
    return {day: (count, int(total)) for day, count, total in select_rows(db, query)}


def _day_faults(db: peewee.Database, day: int, total: tuple[int, int]) -> list[str]:
    users: dict[str, str] = {}
    spent: defaultdict[str, int] = defaultdict(int)
    for user_id, user, charges in _charged_rows(db, day):
        users[user_id] = user
        for charge in charges_from_json(charges):
            if charge.to == WALLET:
                spent[user_id] += charge.amount_nanos
    lines = _day_lines(db, day, spent)
    wallets = _with_wallet(db, spent)
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
        UsageRow.select(UsageRow.id, UsageRow.user_id, UsageRow.user, UsageRow.charges)
        .where(UsageRow.day == day, UsageRow.charges != "[]")
        .order_by(UsageRow.id)
        .limit(PAGE_ROWS)
    )
    after = ""
    while rows := select_rows(db, query.where(UsageRow.id > after)):
        for _, user_id, user, charges in rows:
            yield user_id, user, charges
        after = rows[-1][0]


def _day_lines(db: peewee.Database, day: int, user_ids: Iterable[str]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for portion in portions([charges_id(user_id, day) for user_id in user_ids]):
        query = LedgerLine.select(LedgerLine.user_id, LedgerLine.amount)
        sums.update(select_rows(db, query.where(LedgerLine.idempotency_id << portion)))
    return sums


def _with_wallet(db: peewee.Database, user_ids: Iterable[str]) -> set[str]:
    owners: set[str] = set()
    for portion in portions(list(user_ids)):
        query = Wallet.select(Wallet.user_id).where(Wallet.user_id << portion)
        owners.update(user_id for (user_id,) in select_rows(db, query))
    return owners
