"""Leases as operators see them: those without an owner, and those of a machine that is gone."""

from dataclasses import dataclass

import peewee

from store.db import audit
from store.db.database import database_ms, execute, transaction
from store.db.nodes import last_seen
from store.values.errors import NotFound, Refused
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

FAULTS_MAX = 1000
NODE_SILENT_MS = 600_000
NODE_ALIVE_MS = 60_000


def faults(db: peewee.Database, at_ms: int) -> list[str]:
    """Leases without an owner, one sentence each, at most FAULTS_MAX; in the caller's transaction.

    A process that was killed is still their owner while its node may start again and adopt its
    journal: until nothing was heard of that node for NODE_SILENT_MS.
    """
    query = (
        'SELECT l."account", l."amount", l."journal_id", j."node", j."finished_ms", n."seen_ms"'
        ' FROM "leases" l LEFT JOIN "journals" j ON j."id" = l."journal_id"'
        ' LEFT JOIN "nodes" n ON n."name" = j."node"'
        ' WHERE j."id" IS NULL OR j."finished_ms" IS NOT NULL OR l."amount" < 0'
        ' OR n."seen_ms" IS NULL OR n."seen_ms" < ?'
        ' ORDER BY l."account", l."journal_id" LIMIT ?'
    )
    rows = execute(db, query, (at_ms - NODE_SILENT_MS, FAULTS_MAX)).fetchall()
    return [_fault(row) for row in rows]


def _fault(row: tuple[str, int, str, str | None, int | None, int | None]) -> str:
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
    """What `release_node` gave back: how many leases, and their sum in nanos."""

    leases: int
    nanos: int


def release_node(db: peewee.Database, node: str, actor: str = "cli") -> Released:
    """Give up the leases of a machine that is gone for good.

    What its processes have spent and not yet written is never charged then. NotFound for a node
    that never served from this store, Refused for one that was heard of less than NODE_ALIVE_MS
    ago. Were it to come back, its records would be booked all the same, without a lease.
    """

    def work() -> Released:
        seen_ms = last_seen(db).get(node)
        if seen_ms is None:
            raise NotFound(f'no node "{node}" has served from this store')
        if database_ms(db) - seen_ms < NODE_ALIVE_MS:
            raise Refused([f"node {node} was heard of at {rfc3339(seen_ms)}: stop it first"])
        of_node = 'WHERE "journal_id" IN (SELECT "id" FROM "journals" WHERE "node" = ?)'
        sums = f'SELECT COUNT(*), COALESCE(SUM("amount"), 0) FROM "leases" {of_node}'
        count, nanos = map(int, execute(db, sums, (node,)).fetchone())
        execute(db, f'DELETE FROM "leases" {of_node}', (node,))
        before = {"leases": count, "amount": format_money(nanos)}
        audit.write(db, audit.Act(actor, "release", "node", node, before))
        return Released(count, nanos)

    return transaction(db, work)
