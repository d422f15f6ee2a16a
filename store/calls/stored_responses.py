"""Objects that vendors store: the channel and upstream key that made each, and its user.

These are responses with their items, messages of threads, containers, conversations. A row is
written with the usage record of its call, in the same transaction. For a stream, and for objects
that an answer contains besides its own id, it is written as soon as the client knows the id. It
expires after the time that vendors keep a response. Only a digest of the id is stored. SQL is raw:
the writer runs it for each batch, and a call looks up all ids that it names at once.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
import peewee

from store.calls.journal_lines import HandedLine
from store.db.database import execute, executemany, in_snapshot, is_mysql, transaction, upsert_texts
from store.values.usage_record import StoredAt, UsageRecord

KEPT_MS = 30 * 86_400_000
"""The lifetime of a row: OpenAI keeps responses for thirty days."""

EXPIRED_ROWS = 1000
"""The rows of one batch: some 10 ms on SQLite, during which no other process writes."""

LAGGING_MS = 30_000
"""A node last seen this much earlier than this one may still have responses to report."""

GONE_MS = 600_000
"""A node not seen for this long is not waited for."""

_KEY = ("mark", "user_id")
_PLACE = ("channel_id", "fingerprint", "expires_ms")
_NEW_PLACE = {name: f"{{{name}}}" for name in _PLACE}
_PUT = upsert_texts("stored_responses", (*_KEY, *_PLACE), _KEY, _NEW_PLACE)
_DROP = 'DELETE FROM "stored_responses" WHERE "mark" = ? AND "user_id" = ?'
_FIND = """SELECT "mark", "user_id", "channel_id", "fingerprint" FROM "stored_responses"
  WHERE "mark" IN (%s) AND "expires_ms" > ?"""
_ELSEWHERE = """SELECT MAX(o."seen_ms" < n."seen_ms" - ?) FROM "nodes" n JOIN "nodes" o
  ON o."name" <> n."name" AND o."seen_ms" > n."seen_ms" - ?
  WHERE n."name" = ? AND EXISTS
  (SELECT 1 FROM "journals" j WHERE j."node" = o."name" AND j."finished_ms" IS NULL)"""
_EXPIRE = {
    True: 'DELETE FROM "stored_responses" WHERE "expires_ms" <= ? ORDER BY "expires_ms" LIMIT ?',
    False: """DELETE FROM "stored_responses" WHERE rowid IN (SELECT rowid FROM "stored_responses"
      WHERE "expires_ms" <= ? ORDER BY "expires_ms" LIMIT ?)""",
}


class Found(msgspec.Struct, frozen=True, gc=False):
    """The store's answer for some ids. `places` has the location of each by its mark, without a
    channel if it belongs to another user. Ids that are missing are unknown; `elsewhere` then says
    whether other nodes may soon report them, or are overdue."""

    places: dict[str, StoredAt]
    elsewhere: Literal["none", "soon", "overdue"] = "none"


def mark_of(response_id: str) -> str:
    """Return the digest of a response's id, in hexadecimal."""
    return hashlib.sha256(response_id.encode(errors="surrogatepass")).hexdigest()


def note_stored(
    db: peewee.Database, records: Iterable[UsageRecord], handed: Iterable[HandedLine] = ()
) -> None:
    """Write the objects handed out by running calls, then those that the calls of records had
    stored or deleted, in their order and in the caller's transaction. Idempotent."""
    last: dict[tuple[str, str], tuple[StoredAt, int]] = {}
    for line in handed:
        if line.sent.stored is not None:
            for mark in (line.sent.stored.mark, *line.sent.stored.more):
                last[mark, line.user_id] = line.sent.stored, line.at_ms + KEPT_MS
    for record in records:
        if (stored := record.stored) is not None:
            call = record.call
            last[stored.mark, call.user_id] = stored, call.started_ms + KEPT_MS
    put, drop = [], []
    # In order, so that concurrent writers do not deadlock.
    for (mark, user_id), (stored, until_ms) in sorted(last.items(), key=lambda one: one[0]):
        row = (bytes.fromhex(mark), user_id)
        if stored.channel_id:
            put.append((*row, stored.channel_id, stored.fingerprint, until_ms))
        else:
            drop.append(row)
    if put:
        executemany(db, _PUT[is_mysql(db)], put)
    if drop:
        executemany(db, _DROP, drop)


@in_snapshot
def find_stored(
    db: peewee.Database, node: str, user_id: str, marks: Sequence[str], at_ms: int
) -> Found:
    """Return the locations of a user's objects, for a process of `node`. Takes at least one mark,
    and no more than a statement allows (adapters.family.stored.MAX_REFS). Blocking. Raises
    StoreUnavailable."""
    query = _FIND % ", ".join("?" * len(marks))
    values = (*map(bytes.fromhex, marks), at_ms)
    places: dict[str, StoredAt] = {}
    for digest, owner, channel_id, fingerprint in execute(db, query, values).fetchall():
        mark = bytes(digest).hex()
        if owner == user_id:
            places[mark] = StoredAt(mark, channel_id, fingerprint)
        else:
            places.setdefault(mark, StoredAt(mark))
    if len(places) == len(set(marks)):
        return Found(places)
    (overdue,) = execute(db, _ELSEWHERE, (LAGGING_MS, GONE_MS, node)).fetchone()
    if overdue is None:
        return Found(places)
    return Found(places, "overdue" if overdue else "soon")


def forget_expired(db: peewee.Database, at_ms: int) -> bool:
    """Remove a batch of expired rows. Return whether there may be more."""
    values = (at_ms, EXPIRED_ROWS)
    count = transaction(db, lambda: execute(db, _EXPIRE[is_mysql(db)], values).rowcount)
    return bool(count == EXPIRED_ROWS)
