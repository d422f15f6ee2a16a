"""Upstream keys that their vendor refuses, put aside for all gateways of a store.

The worker that meets the refusal acts at once, in memory (handlers/relay/routing/health.py); a row
is for other workers and nodes, those that start later, and the operator. A row is removed when a
probe succeeds, by an operator, and with the key itself. Blocking, except News.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import peewee

from store.db import audit, changes
from store.db.database import (
    first_row,
    insert_rows,
    lead_ms,
    select_rows,
    snapshot_read,
    transaction,
)
from store.db.tables.catalog import Channel, ChannelKey
from store.db.tables.catalog import KeyAside as Row
from store.values.errors import Refused, StoreUnavailable
from store.values.fields import Instant

log = logging.getLogger(__name__)

MAX_ASIDE_MS = 3_600_000
"""The longest time without a new refusal: a later end comes from a wrong clock."""
MAX_NEWS = 10_000
SHOWN_FINGERPRINT_CHARS = 8

KeyName = tuple[str, str]
"""Id of the channel and fingerprint of the key ("": the channel has no keys)."""

_INSTANT = Instant()


@dataclass(frozen=True, slots=True)
class KeyAside:
    """One row: aside since then, not asked before `until_ms`, by the database's clock; `times`:
    refusals in a row."""

    channel_id: str
    fingerprint: str
    since_ms: int
    until_ms: int
    times: int
    reason: str

    @property
    def name(self) -> KeyName:
        """What is put aside."""
        return self.channel_id, self.fingerprint


def load_keys_aside(db: peewee.Database) -> dict[KeyName, KeyAside]:
    """All rows; inside a snapshot read of the caller."""
    found = [KeyAside(*row) for row in select_rows(db, Row.select())]
    return {aside.name: aside for aside in found}


def put_aside(db: peewee.Database, aside: KeyAside) -> bool:
    """Note that a key was refused at `aside.since_ms`; True when that is news and not known yet.

    Nothing is written when another worker was first, or when the key is the channel's no more.
    `since_ms` of a row that is there stays. Idempotent.
    """

    def work() -> bool:
        changes.lock(db)
        found = load_keys_aside(db).get(aside.name)
        if found is not None:
            if aside.since_ms < found.until_ms <= aside.since_ms + MAX_ASIDE_MS:
                return found.until_ms == aside.until_ms  # this very row: the answer had been lost
        elif not _is_used(db, aside.name):
            return False
        since_ms = aside.since_ms if found is None else min(found.since_ms, aside.since_ms)
        row = asdict(replace(aside, since_ms=since_ms))
        insert_rows(db, Row, [row], replace=("since_ms", "until_ms", "times", "reason"))
        changes.bump(db, changes.CATALOG, [aside.channel_id])
        return True

    return transaction(db, work)


def take_back(db: peewee.Database, name: KeyName) -> bool:
    """A key answers again; False when it was not put aside. Idempotent."""

    def work() -> bool:
        changes.lock(db)
        gone = _delete(db, name)
        if gone:
            changes.bump(db, changes.CATALOG, [name[0]])
        return gone

    return transaction(db, work)


def reinstate(db: peewee.Database, channel: Mapping[str, Any], key: int | None, actor: str) -> int:
    """Take back a channel's key by its position (from 1; None: all of them); how many. Audited.

    `channel`: as list_objects shows it. Refused when no such key is put aside.
    """

    def work() -> int:
        changes.lock(db)
        shown = _by_channel(db).get(channel["id"], [])
        chosen = [one for one in shown if key in (None, one["position"])]
        if not chosen:
            which = "no key" if key is None else f"key {key}"
            verb = "is" if key is None else "is not"
            raise Refused([f'channel "{channel["name"]}": {which} {verb} put aside'])
        for one in chosen:
            _delete(db, (channel["id"], one["key"]))
        before = {"keys_aside": [_shortened(one) for one in chosen]}
        act = audit.Act(actor, "reinstate", "channel", channel["name"], before, None)
        audit.write(db, act)
        changes.bump(db, changes.CATALOG, [channel["id"]])
        return len(chosen)

    return transaction(db, work)


def with_keys_aside(
    db: peewee.Database, channels: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Channels of list_objects with `keys_aside`: for each position, since, until, times, reason,
    and the beginning of the key's fingerprint."""
    found = snapshot_read(db, lambda: _by_channel(db))
    return [
        {**channel, "keys_aside": [_shortened(one) for one in found.get(channel["id"], [])]}
        for channel in channels
    ]


def forget_keys(db: peewee.Database, channel_id: str, kept: Collection[str] = ()) -> None:
    """Remove the rows of a channel but those of these fingerprints; in the caller's transaction."""
    for name in load_keys_aside(db):
        if name[0] == channel_id and name[1] not in kept:
            _delete(db, name)


def _by_channel(db: peewee.Database) -> dict[str, list[dict[str, Any]]]:
    """Channel id -> its keys that are put aside, in order of their positions."""
    query = ChannelKey.select(ChannelKey.channel_id, ChannelKey.fingerprint, ChannelKey.position)
    positions = {(row[0], row[1]): row[2] + 1 for row in select_rows(db, query)}
    found: dict[str, list[dict[str, Any]]] = {}
    # Without keys: as if it had an empty one.
    shown = [(one, positions.get(name, 1)) for name, one in load_keys_aside(db).items()]
    for one, position in sorted(shown, key=lambda pair: pair[1]):
        found.setdefault(one.channel_id, []).append(_shown(one, position))
    return found


def _shown(aside: KeyAside, position: int) -> dict[str, Any]:
    return {
        "position": position,
        "key": aside.fingerprint,
        "since": _INSTANT.plain(aside.since_ms),
        "until": _INSTANT.plain(aside.until_ms),
        "times": aside.times,
        "reason": aside.reason,
    }


def _shortened(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {**shown, "key": shown["key"][:SHOWN_FINGERPRINT_CHARS]}


def _is_used(db: peewee.Database, name: KeyName) -> bool:
    """Whether the channel still has the key."""
    channel_id, fingerprint = name
    if not fingerprint:
        channel = Channel.select(Channel.id).where(Channel.id == channel_id)
        return first_row(db, channel) is not None
    own = (ChannelKey.channel_id == channel_id) & (ChannelKey.fingerprint == fingerprint)
    return first_row(db, ChannelKey.select(ChannelKey.id).where(own)) is not None


def _delete(db: peewee.Database, name: KeyName) -> bool:
    own = (Row.channel_id == name[0]) & (Row.fingerprint == name[1])
    return bool(Row.delete().where(own).execute(db))


class News:
    """What a worker reports of its keys: queued by the loop, written by the writer.

    While the store is away reports wait, at most MAX_NEWS of them, and the log line is written at
    once; else it is written with the row, by the one worker that was first.
    """

    def __init__(self, is_away: Callable[[], bool]) -> None:
        self._is_away = is_away
        self._waiting: deque[_News] = deque()

    def put_aside(self, aside: KeyAside, told: str) -> None:
        """A key was refused, by this process's clock; `told`: the line for the operator."""
        if self._is_away():
            log.error("%s", told)
            told = ""
        self._add(_News(aside.name, aside, told))

    def answers(self, name: KeyName) -> None:
        """A probe of a key that was put aside has succeeded."""
        self._add(_News(name))

    def _add(self, news: "_News") -> None:
        # Beyond that this worker's own memory has to do.
        if len(self._waiting) < MAX_NEWS:
            self._waiting.append(news)

    def write(self, db: peewee.Database) -> None:
        """Write what waits, in order. Blocking. Raises StoreUnavailable; the rest waits on then."""
        waiting = self._waiting
        while waiting:
            news = waiting.popleft()
            try:
                # Once: should the answer be lost, the same row is put again.
                news.take_lead(db)
                if news.aside is None:
                    take_back(db, news.name)
                elif put_aside(db, news.aside) and news.told:
                    log.error("%s", news.told)
            except StoreUnavailable:
                waiting.appendleft(news)
                raise


@dataclass(slots=True)
class _News:
    """What became of a key. `by_database`: the times are those of the database's clock."""

    name: KeyName
    aside: KeyAside | None = None
    told: str = ""
    by_database: bool = False

    def take_lead(self, db: peewee.Database) -> None:
        if self.aside is not None and not self.by_database:
            ahead_ms = lead_ms(db)
            since_ms, until_ms = self.aside.since_ms + ahead_ms, self.aside.until_ms + ahead_ms
            self.aside = replace(self.aside, since_ms=since_ms, until_ms=until_ms)
            self.by_database = True
