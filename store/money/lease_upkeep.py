"""Leases as operators see them: those without an owner, and those of a machine that is gone."""

from dataclasses import dataclass
from typing import Any

import peewee
from peewee import JOIN, fn

from store.db import audit
from store.db.database import database_ms, in_transaction, select_rows
from store.db.nodes import NODE_ALIVE_MS, last_seen
from store.db.tables.money import Lease
from store.db.tables.system import Node
from store.db.tables.usage import JournalRow
from store.values.errors import NotFound, Refused
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

FAULTS_MAX = 1000
NODE_SILENT_MS = 600_000


def faults(db: peewee.Database, at_ms: int) -> list[str]:
    """Leases without an owner, one sentence each, at most FAULTS_MAX; in the caller's transaction.

    A process that was killed is still their owner while its node may start again and adopt its
    journal: until nothing was heard of that node for NODE_SILENT_MS.
    """
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
    return [_fault(row) for row in select_rows(db, query)]


def _fault(row: tuple[Any, ...]) -> str:
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
        f"{lease}: node {node} is silent ({since}): start it again, or if it is gone for good,"
        f" run: books release-node {node}"
    )


@dataclass(frozen=True, slots=True)
class Released:
    """The result of `release_node`: the number of leases, and their sum in nanos."""

    leases: int
    nanos: int


@in_transaction
def release_node(db: peewee.Database, node: str, actor: str = "cli") -> Released:
    """Give up the leases of a machine that is gone for good.

    What its processes have spent and not yet written is never charged then. NotFound for a node
    that never served from this store, Refused for one that was heard of less than NODE_ALIVE_MS
    ago. Were it to come back, its records would be booked all the same, without a lease.
    """
    seen_ms = last_seen(db).get(node)
    if seen_ms is None:
        raise NotFound(f'no node "{node}" has served from this store')
    if database_ms(db) - seen_ms < NODE_ALIVE_MS:
        raise Refused([f"node {node} was heard of at {rfc3339(seen_ms)}: stop it first"])
    journals = JournalRow.select(JournalRow.id).where(JournalRow.node == node)
    of_node = Lease.journal_id.in_(journals)
    sums = Lease.select(fn.COUNT(Lease.account), fn.COALESCE(fn.SUM(Lease.amount), 0))
    [(count, nanos)] = select_rows(db, sums.where(of_node))
    Lease.delete().where(of_node).execute(db)
    before = {"leases": count, "amount": format_money(int(nanos))}
    audit.write(db, audit.Act(actor, "release", "node", node, before))
    return Released(count, int(nanos))
