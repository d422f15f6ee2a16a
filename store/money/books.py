"""Checks that wallets, ledger, leases and usage records agree, and the release of the leases of a
lost machine. For commands."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import JOIN, fn

from store.db import audit
from store.db.database import database_ms, in_snapshot, in_transaction, portions, select_rows
from store.db.nodes import NODE_ALIVE_MS, last_seen
from store.db.partitions import days_after, pruned_before
from store.db.tables.money import Lease, LedgerLine, Wallet
from store.db.tables.system import Node
from store.db.tables.usage import JournalRow, UsageRow
from store.db.tables.users import User
from store.money.ledger import CHARGES, charges_id
from store.values.errors import NotFound, Refused
from store.values.pricing import format_money
from store.values.usage_record import WALLET, charges_from_json, rfc3339

PAGE_ROWS = 1000
FAULTS_MAX = 1000
NODE_SILENT_MS = 600_000


@in_snapshot
def verify(
    db: peewee.Database, report: Callable[[int], None] = lambda _: None, since_day: int = 0
) -> list[str]:
    """Return the faults of the books, one sentence each, at most FAULTS_MAX.

    Checks that every lease has an owner; that each wallet's balance equals the sum of its ledger
    lines and is not less than what is lent of it; and that for each UTC day that was not pruned,
    each user's charges line equals the sum of what that day's records took from the wallet. Reads
    everything in one snapshot, so a running gateway does not disturb it. Memory: the users of one
    day. Calls `report` with each day (yyyymmdd) before reading it. Days before `since_day` are
    skipped.
    """
    faults = _lease_faults(db, database_ms(db)) + _wallet_faults(db) + _lent_faults(db)
    totals = _ledger_days(db)
    # A pruned day has only the records that arrived after the pruning.
    for day in days_after(db, max(pruned_before(db), since_day) - 1):
        if len(faults) >= FAULTS_MAX:
            break
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


def _lent_faults(db: peewee.Database) -> list[str]:
    """Return the wallets with less money than their leases, one sentence each."""
    lent = fn.SUM(Lease.amount)
    query = (
        Wallet.select(Wallet.user_id, User.name, Wallet.balance, lent)
        .join(Lease, on=(Lease.account == Wallet.user_id))
        .join_from(Wallet, User, JOIN.LEFT_OUTER, on=(User.id == Wallet.user_id))
        .group_by(Wallet.user_id, User.name, Wallet.balance)
        .having((lent > Wallet.balance) & (lent > 0))
        .order_by(Wallet.user_id)
        .limit(FAULTS_MAX)
    )
    return [
        f"wallet of {name or user_id}: gateways were lent {format_money(int(nanos))} of a balance"
        f" of {format_money(balance)}"
        for user_id, name, balance, nanos in select_rows(db, query)
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


def _lease_faults(db: peewee.Database, at_ms: int) -> list[str]:
    """Return the leases without an owner, one sentence each, at most FAULTS_MAX, in the caller's
    transaction. A killed process still counts as an owner until its node has been silent for
    NODE_SILENT_MS, because the node may restart and adopt its journal."""
    silent = Node.seen_ms.is_null() | (Node.seen_ms < at_ms - NODE_SILENT_MS)
    query = (
        Lease.select(
            *(Lease.account, Lease.amount, Lease.journal_id),
            *(JournalRow.node, JournalRow.finished_ms, Node.seen_ms),
        )
        .join(JournalRow, JOIN.LEFT_OUTER, on=(JournalRow.id == Lease.journal_id))
        .join(Node, JOIN.LEFT_OUTER, on=(Node.name == JournalRow.node))
        .where(JournalRow.finished_ms.is_null(False) | (Lease.amount < 0) | silent)
        .order_by(Lease.account, Lease.journal_id)
        .limit(FAULTS_MAX)
    )
    return [_lease_fault(row) for row in select_rows(db, query)]


def _lease_fault(row: tuple[Any, ...]) -> str:
    account, amount, journal, node, finished_ms, seen_ms = row
    lease = f"lease of {format_money(int(amount))} on account {account}"
    if node is None:
        return f"{lease}: there is no journal {journal}"
    if finished_ms is not None:
        return f"{lease}: journal {journal} of node {node} was closed without giving it back"
    if amount < 0:
        return f"{lease}: journal {journal} of node {node} has spent more than it had"
    since = "never heard of" if seen_ms is None else f"last heard of at {rfc3339(seen_ms)}"
    return (
        f"{lease}: node {node} is silent ({since}): start it again, or if it is permanently lost,"
        f" run: books release-node {node}"
    )


@dataclass(frozen=True, slots=True)
class Released:
    """The result of `release_node`: the number of leases, and their sum in nanos."""

    leases: int
    nanos: int


@in_transaction
def release_node(db: peewee.Database, node: str, actor: str = "cli") -> Released:
    """Release the leases of a machine that will not come back.

    Charges that its processes had not yet written are lost. If the machine comes back after all,
    its records are still booked, without a lease. Raises NotFound if the node never served from
    this store, Refused if it was last seen less than NODE_ALIVE_MS ago.
    """
    seen_ms = last_seen(db).get(node)
    if seen_ms is None:
        raise NotFound(f'no node "{node}" has served from this store')
    if database_ms(db) - seen_ms < NODE_ALIVE_MS:
        raise Refused([f"node {node} was last seen at {rfc3339(seen_ms)}: stop it first"])
    journals = JournalRow.select(JournalRow.id).where(JournalRow.node == node)
    of_node = Lease.journal_id.in_(journals)
    sums = Lease.select(fn.COUNT(Lease.account), fn.COALESCE(fn.SUM(Lease.amount), 0))
    [(count, nanos)] = select_rows(db, sums.where(of_node))
    Lease.delete().where(of_node).execute(db)
    before = {"leases": count, "amount": format_money(int(nanos))}
    audit.write(db, audit.Act(actor, "release", "node", node, before))
    return Released(count, int(nanos))
