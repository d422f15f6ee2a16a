"""Keys as their owner sees them: limits and their use, last use, wrong paths.

The reads grow with the user's keys, not with those of others or with calls. Blocking; for the Hub.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import peewee
from peewee import fn

from store.catalog import wrong_paths
from store.catalog.wrong_paths import Noticed
from store.db.database import in_snapshot, portions, raw_rows, select_rows, snapshot_read
from store.db.tables.catalog import Group
from store.db.tables.usage import UsageByKey, UsageRow
from store.db.tables.users import ApiKey, KeySecret
from store.money.quota import current_use
from store.values.errors import NotFound
from store.values.ids import HOUR_MS, day_begin_ms, first_ulid
from store.values.times import MONTH, window_at

GONE_GROUP = ""
NEAR_LIMIT_PERCENT = 80


@dataclass(frozen=True, slots=True)
class LastUse:
    """The newest call of a key."""

    at_ms: int
    address: str | None
    agent: str | None


@dataclass(frozen=True, slots=True)
class OwnKey:
    """A key. `replaced_until_ms`: its secret was rotated, and the old one works until then.

    `spent_nanos` is the spending in the current window of its limit, or in the current month if it
    has no limit. `resets_ms` is the end of that window (None: never). `last_use` None: never used.
    `with_use` fills in the last use and the sum of the month.
    """

    id: str
    name: str
    prefix: str
    last_four: str
    group: str
    multiplier_ppm: int
    enabled: bool
    revoked_ms: int | None
    expires_ms: int | None
    created_ms: int
    models: Sequence[str]
    networks: Sequence[str]
    limit_nanos: int | None
    limit_window: str
    rpm: int
    tpm: int
    concurrency: int
    replaced_until_ms: int | None = None
    spent_nanos: int = 0
    resets_ms: int | None = None
    wrong: tuple[Noticed, ...] = ()
    last_use: LastUse | None = None

    @property
    def spent_window(self) -> str:
        """Return the window of `spent_nanos`."""
        return MONTH if self.limit_nanos is None else self.limit_window

    @property
    def near_limit(self) -> bool:
        """Return whether most of the limit is spent."""
        limit = self.limit_nanos
        return limit is not None and self.spent_nanos * 100 >= limit * NEAR_LIMIT_PERCENT


_COLUMNS = (
    *(ApiKey.id, ApiKey.name, ApiKey.prefix, ApiKey.last_four, Group.name, Group.multiplier_ppm),
    *(ApiKey.disabled, ApiKey.revoked_ms, ApiKey.expires_ms, ApiKey.created_ms, ApiKey.models),
    *(ApiKey.networks, ApiKey.limit_nanos, ApiKey.limit_window, ApiKey.rpm, ApiKey.tpm),
    ApiKey.concurrency,
)


def owned(db: peewee.Database, user_id: str, at_ms: int) -> list[OwnKey]:
    """Return all keys of a user, newest first, without what `with_use` adds."""
    return snapshot_read(db, lambda: _complete(db, _read(db, ApiKey.user_id == user_id), at_ms))


@in_snapshot
def show(db: peewee.Database, user_id: str, key_id: str, at_ms: int) -> OwnKey:
    """Return a key of a user with its use. Raises NotFound, also for another user's key."""
    own = (ApiKey.id == key_id) & (ApiKey.user_id == user_id)
    keys = snapshot_read(db, lambda: _complete(db, _read(db, own), at_ms))
    if not keys:
        raise NotFound(f"there is no key {key_id!r}")
    return with_use(db, keys, at_ms)[0]


def of_ids(db: peewee.Database, ids: Sequence[str], at_ms: int) -> list[OwnKey]:
    """Return keys by id, with their use, in the caller's transaction. Removed ones are missing."""
    return with_use(db, _complete(db, _read(db, ApiKey.id << list(ids)), at_ms), at_ms)


def owner_of(db: peewee.Database, user_id: str, key_id: str) -> str:
    """Return the id if it is a key of this user. Raises NotFound."""
    own = (ApiKey.id == key_id) & (ApiKey.user_id == user_id)
    if not select_rows(db, ApiKey.select(ApiKey.id).where(own)):
        raise NotFound(f"there is no key {key_id!r}")
    return key_id


def count_alive(db: peewee.Database, user_id: str) -> int:
    """Return the number of a user's keys that are not revoked."""
    query = ApiKey.select(fn.COUNT(ApiKey.id)).where(
        ApiKey.user_id == user_id, ApiKey.revoked_ms.is_null()
    )
    return int(select_rows(db, query)[0][0])


def count_by_group(db: peewee.Database, user_id: str) -> dict[str, int]:
    """Return the number of a user's keys that are not revoked, by the name of their group."""
    query = ApiKey.select(Group.name, fn.COUNT(ApiKey.id)).join(
        Group, on=(Group.id == ApiKey.group_id)
    )
    query = query.where(ApiKey.user_id == user_id, ApiKey.revoked_ms.is_null())
    return dict(select_rows(db, query.group_by(Group.name)))


@in_snapshot
def with_use(db: peewee.Database, keys: Sequence[OwnKey], at_ms: int) -> list[OwnKey]:
    """Return the keys, each with its newest call, found by the roll-ups' hour and an index, and,
    for keys without a limit, with the sum of the month. For one page: heavily used keys have many
    sums."""
    hours = _last_hours(db, [key.id for key in keys])
    used = [key.id for key in keys if key.limit_nanos is None and key.id in hours]
    month = _of_month(db, used, at_ms)
    return [
        replace(
            key,
            last_use=_last_use(db, key.id, hours[key.id]),
            spent_nanos=month.get(key.id, 0) if key.limit_nanos is None else key.spent_nanos,
        )
        if key.id in hours
        else key
        for key in keys
    ]


def _read(db: peewee.Database, condition: Any) -> list[OwnKey]:
    query = (
        ApiKey.select(*_COLUMNS)
        .join(Group, peewee.JOIN.LEFT_OUTER, on=(Group.id == ApiKey.group_id))
        .where(condition)
        .order_by(ApiKey.id.desc())
    )
    keys = []
    for row in select_rows(db, query):
        key_id, name, prefix, last_four, group, multiplier_ppm, disabled, *rest = row
        head = (key_id, name, prefix, last_four, group or GONE_GROUP, multiplier_ppm or 0)
        keys.append(OwnKey(*head, not disabled, *rest))
    return keys


def _complete(db: peewee.Database, keys: list[OwnKey], at_ms: int) -> list[OwnKey]:
    ids = [key.id for key in keys]
    replaced = _replaced(db, ids, at_ms)
    limited = {key.id: key.limit_window for key in keys if key.limit_nanos is not None}
    uses = current_use(db, limited, at_ms)
    wrong: dict[str, list[Noticed]] = {}
    for path in wrong_paths.of_keys(db, ids, at_ms - wrong_paths.KEPT_MS):
        wrong.setdefault(path.key_id, []).append(path)
    _, month_ends_ms = window_at(MONTH, at_ms)
    return [
        replace(
            key,
            replaced_until_ms=replaced.get(key.id),
            spent_nanos=uses[key.id].spent_nanos if key.id in uses else 0,
            resets_ms=uses[key.id].resets_ms if key.id in uses else month_ends_ms,
            wrong=tuple(wrong.get(key.id, ())),
        )
        for key in keys
    ]


def _replaced(db: peewee.Database, ids: Sequence[str], at_ms: int) -> dict[str, int]:
    """Return the end of the last rotated secret, by key id."""
    until_by_key: dict[str, int] = {}
    for portion in portions(ids):
        until = KeySecret.valid_until_ms
        query = KeySecret.select(KeySecret.key_id, fn.MAX(until)).where(
            KeySecret.key_id << portion, until > at_ms
        )
        until_by_key.update(select_rows(db, query.group_by(KeySecret.key_id)))
    return until_by_key


def _of_month(db: peewee.Database, ids: Sequence[str], at_ms: int) -> dict[str, int]:
    """Return the cost of the calls of the current UTC month, by key id."""
    first_day, _ = window_at(MONTH, at_ms)
    spent: dict[str, int] = {}
    for portion in portions(ids):
        query = UsageByKey.select(UsageByKey.key_id, fn.SUM(UsageByKey.cost_nanos)).where(
            UsageByKey.key_id << portion, UsageByKey.day >= first_day
        )
        rows = raw_rows(db, query.group_by(UsageByKey.key_id))
        spent.update((key_id, int(nanos)) for key_id, nanos in rows)
    return spent


def names_of(db: peewee.Database, user_id: str, limit: int) -> list[str]:
    """Return the names of a user's keys, each once, in order."""
    query = ApiKey.select(ApiKey.name).where(ApiKey.user_id == user_id).distinct()
    return [name for (name,) in select_rows(db, query.order_by(ApiKey.name).limit(limit))]


def ids_of(db: peewee.Database, user_id: str, user: str, key: str) -> list[str]:
    """Return the ids of a user's keys with this id or name, including a removed key that has calls
    of the user."""
    own, named = ApiKey.user_id == user_id, (ApiKey.id == key) | (ApiKey.name == key)
    if ids := [key_id for (key_id,) in select_rows(db, ApiKey.select(ApiKey.id).where(own, named))]:
        return ids
    called = (UsageByKey.key_id == key) & (UsageByKey.user == user)
    return [key] if raw_rows(db, UsageByKey.select(UsageByKey.day).where(called).limit(1)) else []


@dataclass(frozen=True, slots=True)
class _Hour:
    """The hour of a key's last call. `user` is the name in the records."""

    user: str
    day: int
    hour: int


def _last_hours(db: peewee.Database, ids: Sequence[str]) -> dict[str, _Hour]:
    by_day: dict[int, list[str]] = {}
    for portion in portions(ids):
        query = UsageByKey.select(UsageByKey.key_id, fn.MAX(UsageByKey.day))
        rows = raw_rows(db, query.where(UsageByKey.key_id << portion).group_by(UsageByKey.key_id))
        for key_id, day in rows:
            by_day.setdefault(day, []).append(key_id)
    hours: dict[str, _Hour] = {}
    for day, keys in by_day.items():
        columns = (UsageByKey.key_id, fn.MAX(UsageByKey.user), fn.MAX(UsageByKey.hour))
        for portion in portions(keys):
            query = UsageByKey.select(*columns).where(
                UsageByKey.key_id << portion, UsageByKey.day == day
            )
            for key_id, user, hour in raw_rows(db, query.group_by(UsageByKey.key_id)):
                hours[key_id] = _Hour(user, day, hour)
    return hours


def _last_use(db: peewee.Database, key_id: str, last: _Hour) -> LastUse | None:
    begin_ms = day_begin_ms(last.day) + last.hour * HOUR_MS
    first, end = first_ulid(begin_ms), first_ulid(begin_ms + HOUR_MS)
    query = UsageRow.select(UsageRow.started_ms, UsageRow.client_ip, UsageRow.user_agent).where(
        *(UsageRow.user == last.user, UsageRow.day == last.day, UsageRow.key_id == key_id),
        *(UsageRow.id >= first, UsageRow.id < end),
    )
    rows = raw_rows(db, query.order_by(UsageRow.id.desc()).limit(1))
    return LastUse(*rows[0]) if rows else None  # None: the records of that day were pruned
