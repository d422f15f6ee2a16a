"""Upstream keys that their vendor refuses, suspended for all gateways of a store.

The worker that gets the refusal acts at once, in memory (handlers/relay/routing/health.py). A row
is for other workers and nodes, those that start later, and the operator. A row is removed when a
probe succeeds, by an operator, and with the key itself. Blocking, except the methods of KeyReports
that queue.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import peewee

from store.db import audit, changes
from store.db.database import in_snapshot, in_transaction, insert_rows, lead_ms, select_rows
from store.db.tables.catalog import Channel, ChannelKey
from store.db.tables.catalog import SuspendedKey as Row
from store.values.errors import Refused, StoreUnavailable
from store.values.fields import Instant

log = logging.getLogger(__name__)

MAX_SUSPENDED_MS = 3_600_000
"""The longest time without a new refusal. A later end comes from a wrong clock."""
MAX_REPORTS = 10_000
SHOWN_FINGERPRINT_CHARS = 8

KeyName = tuple[str, str]
"""Id of the channel and fingerprint of the key ("" if the channel has no keys)."""

_INSTANT = Instant()


@dataclass(frozen=True, slots=True)
class SuspendedKey:
    """A key not used before `until_ms`, by the database's clock. `times` counts consecutive
    refusals."""

    channel_id: str
    fingerprint: str
    since_ms: int
    until_ms: int
    times: int
    reason: str

    @property
    def name(self) -> KeyName:
        """Return the identity of the key."""
        return self.channel_id, self.fingerprint


def load_suspended_keys(db: peewee.Database) -> dict[KeyName, SuspendedKey]:
    """Return all rows, inside a snapshot read of the caller."""
    rows = [SuspendedKey(*row) for row in select_rows(db, Row.select())]
    return {suspended.name: suspended for suspended in rows}


@in_transaction
def suspend(db: peewee.Database, suspended: SuspendedKey) -> bool:
    """Note that a key was refused at `suspended.since_ms`. Return whether that is new.

    Nothing is written if another worker was first, or if the channel no longer has the key.
    `since_ms` of an existing row stays. Idempotent.
    """
    changes.lock(db)
    before = load_suspended_keys(db).get(suspended.name)
    since_ms = suspended.since_ms
    if before is None:
        if not _is_used(db, suspended.name):
            return False
    elif since_ms < before.until_ms <= since_ms + MAX_SUSPENDED_MS:
        return before.until_ms == suspended.until_ms  # this very row: the answer had been lost
    else:
        since_ms = min(before.since_ms, since_ms)
    row = asdict(replace(suspended, since_ms=since_ms))
    insert_rows(db, Row, [row], replace=("since_ms", "until_ms", "times", "reason"))
    changes.bump(db, changes.CATALOG, [suspended.channel_id])
    return True


@in_transaction
def lift(db: peewee.Database, name: KeyName) -> bool:
    """Lift the suspension of a key that answers again. Return False if there was none.
    Idempotent."""
    changes.lock(db)
    deleted = _delete(db, name)
    if deleted:
        changes.bump(db, changes.CATALOG, [name[0]])
    return deleted


@in_transaction
def reinstate(db: peewee.Database, channel: Mapping[str, Any], key: int | None, actor: str) -> int:
    """Lift suspensions of a channel by position (from 1; None: all). Return how many. Audited.
    `channel` is as list_objects returns it. Raises Refused if no such key is suspended."""
    changes.lock(db)
    keys = _by_channel(db).get(channel["id"], [])
    chosen = [row for row in keys if key in (None, row["position"])]
    if not chosen:
        which = "no key" if key is None else f"key {key}"
        verb = "is" if key is None else "is not"
        raise Refused([f'channel "{channel["name"]}": {which} {verb} suspended'])
    for row in chosen:
        _delete(db, (channel["id"], row["key"]))
    before = {"keys_aside": [_shortened(row) for row in chosen]}
    audit.write(db, audit.Act(actor, "reinstate", "channel", channel["name"], before))
    changes.bump(db, changes.CATALOG, [channel["id"]])
    return len(chosen)


def with_suspended_keys(
    db: peewee.Database, channels: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Add `keys_aside` to channels of list_objects: for each position, since, until, times, reason,
    and the start of the key's fingerprint."""
    by_channel = _by_channel(db)
    return [
        {**channel, "keys_aside": [_shortened(row) for row in by_channel.get(channel["id"], [])]}
        for channel in channels
    ]


def forget_keys(db: peewee.Database, channel_id: str, remaining: Collection[str] = ()) -> None:
    """Remove the rows of a channel except those of the remaining fingerprints, in the caller's
    transaction."""
    for name in load_suspended_keys(db):
        if name[0] == channel_id and name[1] not in remaining:
            _delete(db, name)


@in_snapshot
def _by_channel(db: peewee.Database) -> dict[str, list[dict[str, Any]]]:
    """Return the suspended keys by channel id, in order of position."""
    query = ChannelKey.select(ChannelKey.channel_id, ChannelKey.fingerprint, ChannelKey.position)
    positions = {(row[0], row[1]): row[2] + 1 for row in select_rows(db, query)}
    by_channel: dict[str, list[dict[str, Any]]] = {}
    # A channel without keys counts as having one, which is empty.
    rows = [(row, positions.get(name, 1)) for name, row in load_suspended_keys(db).items()]
    for row, position in sorted(rows, key=lambda pair: pair[1]):
        by_channel.setdefault(row.channel_id, []).append(_plain(row, position))
    return by_channel


def _plain(suspended: SuspendedKey, position: int) -> dict[str, Any]:
    return {
        "position": position,
        "key": suspended.fingerprint,
        "since": _INSTANT.plain(suspended.since_ms),
        "until": _INSTANT.plain(suspended.until_ms),
        "times": suspended.times,
        "reason": suspended.reason,
    }


def _shortened(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {**plain, "key": plain["key"][:SHOWN_FINGERPRINT_CHARS]}


def _is_used(db: peewee.Database, name: KeyName) -> bool:
    """Return whether the channel still has the key."""
    channel_id, fingerprint = name
    if not fingerprint:
        return bool(select_rows(db, Channel.select(Channel.id).where(Channel.id == channel_id)))
    own = (ChannelKey.channel_id == channel_id) & (ChannelKey.fingerprint == fingerprint)
    return bool(select_rows(db, ChannelKey.select(ChannelKey.id).where(own)))


def _delete(db: peewee.Database, name: KeyName) -> bool:
    own = (Row.channel_id == name[0]) & (Row.fingerprint == name[1])
    return bool(Row.delete().where(own).execute(db))


class KeyReports:
    """The reports of a worker about its keys: queued by the loop, written by the writer.

    While the store is unreachable, reports wait, at most MAX_REPORTS, and the log line is written
    at once. Otherwise it is written with the row, by the worker that was first.
    """

    def __init__(self, is_unreachable: Callable[[], bool]) -> None:
        self._is_unreachable = is_unreachable
        self._waiting: deque[_Report] = deque()

    def suspend(self, suspended: SuspendedKey, line: str) -> None:
        """Report a refusal of a key, by this process's clock. `line` is the log line for the
        operator."""
        if self._is_unreachable():
            log.error("%s", line)
            line = ""
        self._add(_Report(suspended.name, suspended, line))

    def lift(self, name: KeyName) -> None:
        """Report a successful probe of a suspended key."""
        self._add(_Report(name))

    def _add(self, news: "_Report") -> None:
        # Beyond that, the worker's own memory must suffice.
        if len(self._waiting) < MAX_REPORTS:
            self._waiting.append(news)

    def write(self, db: peewee.Database) -> None:
        """Write the queued reports, in order. Blocking. Raises StoreUnavailable."""
        waiting = self._waiting
        while waiting:
            news = waiting.popleft()
            try:
                # Once. If the answer is lost, the same row is written again.
                news.take_lead(db)
                if news.suspended is None:
                    lift(db, news.name)
                elif suspend(db, news.suspended) and news.line:
                    log.error("%s", news.line)
            except StoreUnavailable:
                waiting.appendleft(news)
                raise


@dataclass(slots=True)
class _Report:
    """A refusal, or the success of a probe. `by_database`: the times are by the database's
    clock."""

    name: KeyName
    suspended: SuspendedKey | None = None
    line: str = ""
    by_database: bool = False

    def take_lead(self, db: peewee.Database) -> None:
        if self.suspended is not None and not self.by_database:
            ahead_ms = lead_ms(db)
            since_ms, until_ms = self.suspended.since_ms, self.suspended.until_ms
            self.suspended = replace(
                self.suspended, since_ms=since_ms + ahead_ms, until_ms=until_ms + ahead_ms
            )
            self.by_database = True
