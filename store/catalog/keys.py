"""API keys: finding one by the digest of its secret, and exchanging or ending it.

Keys are made, changed and removed by edit.py and apply.py; here is what is special to keys.
"""

import ipaddress
import json
import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import peewee
from peewee import fn

from store.db import audit, changes, database
from store.db.database import (
    database_ms,
    execute,
    in_transaction,
    raw_rows,
    select_rows,
    snapshot_read,
)
from store.db.tables.usage import UsageByUser
from store.db.tables.users import ApiKey, KeySecret, User
from store.values import key_secrets
from store.values.errors import Conflict, NotFound, Refused, StoreUnavailable
from store.values.ids import now_ms

log = logging.getLogger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

OVERLAP_S = 24 * 3600
"""How long an exchanged secret works on, unless it is said."""
REASON_CHARS = 200
MAX_DAYS = 400  # with calls, that are looked at for the last use of keys
MAX_MOVES = 10_000
"""That wait; a key whose move is dropped is noted again at its next look-up."""
REST_S = 0.01  # between two portions of keys: others need the interpreter, too


@dataclass(frozen=True, slots=True)
class Subscription:
    """A user's subscription to a plan, by the plan's name; `window` is that of its quota."""

    id: str
    plan: str
    window: str
    starts_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A key as calls need it; `valid_until_ms`: the end of a rotated secret.

    models None: no narrowing. `disabled` is also true when the user is disabled. `limit_window` and
    `user_limit_window` None: no spend limit. `subscriptions`: those of the user that, like their
    plans, are not disabled and that were not over when this was read, soonest end first; some may
    start later. Limits of 0: none; those of the user hold for all its keys together.
    """

    id: str
    name: str
    user_id: str
    user: str
    group: str
    disabled: bool
    revoked: bool
    expires_ms: int | None
    models: frozenset[str] | None
    networks: tuple[Network, ...]
    spend_order: str
    valid_until_ms: int | None
    limit_window: str | None = None
    user_limit_window: str | None = None
    subscriptions: tuple[Subscription, ...] = ()
    rpm: int = 0
    tpm: int = 0
    concurrency: int = 0
    user_rpm: int = 0
    user_tpm: int = 0
    user_concurrency: int = 0
    limited: bool = field(init=False)

    def __post_init__(self) -> None:
        own = self.rpm or self.tpm or self.concurrency
        of_user = self.user_rpm or self.user_tpm or self.user_concurrency
        object.__setattr__(self, "limited", bool(own or of_user))


_COLUMNS = {
    **{name: f'k."{name}"' for name in ("id", "name", "user_id", "expires_ms", "revoked_ms")},
    **{name: f'k."{name}"' for name in ("models", "networks", "limit_nanos", "limit_window")},
    **{name: f'k."{name}"' for name in ("rpm", "tpm", "concurrency", "disabled")},
    **{f"user_{name}": f'u."{name}"' for name in ("rpm", "tpm", "concurrency", "disabled")},
    **{f"user_{name}": f'u."{name}"' for name in ("limit_nanos", "limit_window")},
    "user": 'u."name"',
    "spend_order": 'u."spend_order"',
    "group": "COALESCE(g.\"name\", '')",
    "valid_until_ms": 's."valid_until_ms"',
}
# Raw SQL: a key's first call waits for this look-up, which takes 560 µs of CPU by the query builder
# and 21 so (SQLite, Python 3.11).
_KEYS = f"""SELECT {", ".join(_COLUMNS.values())}, s."digest"
  FROM "key_secrets" s
  JOIN "api_keys" k ON k."id" = s."key_id"
  JOIN "users" u ON u."id" = k."user_id"
  LEFT JOIN "groups" g ON g."id" = k."group_id"
  WHERE """
_FIND = _KEYS + 's."digest" IN ({marks})'
_OF_IDS = _KEYS + 's."key_id" IN ({marks}) AND k."revoked_ms" IS NULL'
_SUBSCRIPTIONS = """SELECT s."id", p."name", p."window", s."starts_ms", s."expires_ms", s."user_id"
  FROM "subscriptions" s
  JOIN "plans" p ON p."id" = s."plan_id"
  WHERE s."user_id" IN ({marks}) AND s."disabled" = 0 AND p."disabled" = 0 AND s."expires_ms" > ?
  ORDER BY s."expires_ms", s."id"
"""


def find_key(db: peewee.Database, wanted: Sequence[bytes]) -> KeyEntry | None:
    """Return the key that has one of these digests, or None; the end of a rotated secret is not
    judged: it is given by the clock of this process. Blocking: in threads only. Raises
    StoreUnavailable."""
    keys = snapshot_read(db, lambda: _read(db, _FIND, wanted))
    return keys[0][1] if keys else None


def keys_of(db: peewee.Database, ids: Sequence[str]) -> list[tuple[bytes, KeyEntry]]:
    """Return each digest that opens one of these keys, at most PORTION of them, and the key; in the
    order of the ids. Those that are revoked, or gone, are left out. Blocking: in threads only.
    Raises StoreUnavailable."""
    keys = snapshot_read(db, lambda: _read(db, _OF_IDS, ids))
    place = {key_id: number for number, key_id in enumerate(ids)}
    return sorted(keys, key=lambda key: place[key[1].id])


def _read(db: peewee.Database, text: str, values: Sequence[Any]) -> list[tuple[bytes, KeyEntry]]:
    tuples = execute(db, _with_marks(text, values), values).fetchall()
    rows = [dict(zip(_COLUMNS, columns, strict=False)) for columns in tuples]
    if any(row["valid_until_ms"] is not None for row in rows):
        ahead_ms = database.lead_ms(db)
        for row in rows:
            if row["valid_until_ms"] is not None:
                row["valid_until_ms"] -= ahead_ms
    users = list({row["user_id"] for row in rows})
    plans: dict[str, list[Subscription]] = {}
    if users:
        text = _with_marks(_SUBSCRIPTIONS, users)
        for *plan, user_id in execute(db, text, (*users, now_ms())).fetchall():
            plans.setdefault(user_id, []).append(Subscription(*plan))
    entries = [_entry(row, tuple(plans.get(row["user_id"], ()))) for row in rows]
    return [(bytes(columns[-1]), entry) for columns, entry in zip(tuples, entries, strict=True)]


def _with_marks(text: str, values: Sequence[Any]) -> str:
    return text.format(marks=", ".join("?" * len(values)))


def _entry(row: dict[str, Any], subscriptions: tuple[Subscription, ...]) -> KeyEntry:
    disabled, user_disabled = row.pop("disabled"), row.pop("user_disabled")
    revoked_ms = row.pop("revoked_ms")
    row["models"] = frozenset(json.loads(row["models"])) or None
    row["networks"] = tuple(map(ipaddress.ip_network, json.loads(row["networks"])))
    for whose in ("", "user_"):
        if row.pop(f"{whose}limit_nanos") is None:
            row[f"{whose}limit_window"] = None
    return KeyEntry(
        **row,
        disabled=bool(disabled or user_disabled),
        revoked=revoked_ms is not None,
        subscriptions=subscriptions,
    )


def digests_of(db: peewee.Database, key_id: str) -> list[bytes]:
    """Return the digests that open a key, the ones without an end first; empty when there is no
    such key. Blocking. Raises StoreUnavailable."""
    end = KeySecret.valid_until_ms
    query = KeySecret.select(KeySecret.digest).where(KeySecret.key_id == key_id)
    rows = select_rows(db, query.order_by(end.is_null(False), end.desc()))
    return [bytes(row[0]) for row in rows]


def in_use(db: peewee.Database, secret: str, peppers: Sequence[str]) -> str | None:
    """Return the id of the key that has this secret under any pepper, or None."""
    query = KeySecret.select(KeySecret.key_id).where(
        KeySecret.digest << key_secrets.digests(secret, peppers)
    )
    row = query.bind(db).tuples().first()
    return None if row is None else str(row[0])


def add_secret(db: peewee.Database, key_id: str, secret: str, peppers: Sequence[str]) -> None:
    """Let a secret open a key from now on. In a transaction; Conflict when it is in use."""
    if in_use(db, secret, peppers) is not None:
        raise Conflict("this secret is in use already")
    row = {
        "digest": key_secrets.digest(secret, peppers[0]),
        "key_id": key_id,
        "pepper_id": key_secrets.pepper_id(peppers[0]),
        "valid_until_ms": None,
    }
    KeySecret.insert(row).execute(db)


def replace_secret(db: peewee.Database, key_id: str, secret: str, peppers: Sequence[str]) -> None:
    """Make a secret the only one of its key, at once. In a transaction."""
    KeySecret.delete().where(KeySecret.key_id == key_id).execute(db)
    add_secret(db, key_id, secret, peppers)
    ApiKey.update(**key_secrets.shown_parts(secret)).where(ApiKey.id == key_id).execute(db)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The exchange of a secret: the new one (None: generated), and the overlap of the old one."""

    peppers: Sequence[str]
    overlap_s: int = 0
    secret: str | None = None


@in_transaction
def rotate(db: peewee.Database, key_id: str, rotation: Rotation, actor: str) -> str:
    """Give a key a new secret; the old ones work for `overlap_s` more. The new secret. NotFound,
    Refused (revoked, or a given secret that cannot be taken)."""
    secret = key_secrets.make_secret() if rotation.secret is None else rotation.secret
    try:
        key_secrets.check_given(secret)
    except ValueError as error:
        raise Refused([f"secret {error}"]) from None
    row = _row(db, key_id)
    if row["revoked_ms"] is not None:
        raise Refused(["the key is revoked; make a new one"])
    at_ms = database_ms(db)
    until = at_ms + rotation.overlap_s * 1000
    old = KeySecret.key_id == key_id
    KeySecret.delete().where(old & (KeySecret.valid_until_ms <= at_ms)).execute(db)
    open_end = KeySecret.valid_until_ms.is_null() | (KeySecret.valid_until_ms > until)
    KeySecret.update(valid_until_ms=until).where(old & open_end).execute(db)
    try:
        add_secret(db, key_id, secret, rotation.peppers)
    except Conflict as error:
        raise Refused([str(error)]) from None
    ApiKey.update(**key_secrets.shown_parts(secret)).where(ApiKey.id == key_id).execute(db)
    after = {"secret": secret, "overlap_s": rotation.overlap_s}
    audit.write(db, audit.Act(actor, "rotate", "key", row["display"], None, after))
    changes.bump(db, changes.KEYS, [key_id])
    return secret


@in_transaction
def revoke(db: peewee.Database, key_id: str, actor: str, reason: str = "") -> None:
    """End a key for good; done already: changes nothing. NotFound. `reason`: for its owner."""
    row = _row(db, key_id)
    if row["revoked_ms"] is not None:
        return
    ApiKey.update(revoked_ms=now_ms()).where(ApiKey.id == key_id).execute(db)
    audit.write(db, _stop(actor, "revoke", row, reason))
    changes.bump(db, changes.KEYS, [key_id])


@in_transaction
def set_key_enabled(
    db: peewee.Database, key_id: str, enabled: bool, actor: str, reason: str = ""
) -> None:
    """Disable or enable a key; so already: changes nothing. NotFound; Refused when revoked.
    `reason`: for its owner."""
    row = _row(db, key_id)
    if row["revoked_ms"] is not None:
        raise Refused(["the key is revoked; that cannot be undone"])
    if row["disabled"] is not enabled:
        return
    ApiKey.update(disabled=not enabled).where(ApiKey.id == key_id).execute(db)
    action = "enable" if enabled else "disable"
    audit.write(db, _stop(actor, action, row, reason))
    changes.bump(db, changes.KEYS, [key_id])


def _stop(actor: str, action: str, row: Mapping[str, Any], reason: str) -> audit.Act:
    after = {"reason": reason[:REASON_CHARS]} if reason else None
    return audit.Act(actor, action, "key", row["display"], after=after)


def _row(db: peewee.Database, key_id: str) -> dict[str, Any]:
    """Return the row of a key with `display`, its name as the audit log has it."""
    query = (
        ApiKey.select(ApiKey, User.name.alias("user"))
        .join(User, on=(User.id == ApiKey.user_id))
        .where(ApiKey.id == key_id)
    )
    row: dict[str, Any] | None = query.bind(db).dicts().first()
    if row is None:
        raise NotFound(f"there is no key with the id {key_id}")
    return row | {"display": f"{row['user']}/{row['name']}"}


def recent_keys(db: peewee.Database, limit: int) -> Iterator[list[tuple[bytes, KeyEntry]]]:
    """Return the keys last used, at most ``limit`` of them, latest first, some at a time: each
    digest that opens one, with the key. Blocking: in threads only. Raises StoreUnavailable."""
    ids, pause = islice(_ids(db, limit), limit), threading.Event()
    while portion := list(islice(ids, database.PORTION)):
        yield keys_of(db, portion)
        pause.wait(REST_S)


def _ids(db: peewee.Database, limit: int) -> Iterator[str]:
    seen: set[str] = set()
    for key_id in chain(_used(db), _newest(db, limit)):
        if key_id not in seen:
            seen.add(key_id)
            yield key_id


def _used(db: peewee.Database) -> Iterator[str]:
    """Return ids of keys by the last day that they were used; they come again on earlier days."""
    table = UsageByUser
    last = raw_rows(db, table.select(fn.MAX(table.day)))
    for _ in range(MAX_DAYS):
        day = last[0][0]
        if day is None:
            return
        used = table.select(table.key_id).where(table.day == day).group_by(table.key_id)
        for row in raw_rows(db, used.order_by(fn.SUM(table.calls).desc())):
            yield row[0]
        last = raw_rows(db, table.select(fn.MAX(table.day)).where(table.day < day))


def _newest(db: peewee.Database, limit: int) -> Iterator[str]:
    newest = ApiKey.select(ApiKey.id).where(ApiKey.revoked_ms.is_null())
    for row in raw_rows(db, newest.order_by(ApiKey.created_ms.desc(), ApiKey.id).limit(limit)):
        yield row[0]


@dataclass(frozen=True, slots=True)
class _Move:
    newest: bytes
    older: Sequence[bytes]


class PepperMoves:
    """Keys whose digests are to move to the first of these peppers; without peppers none is moved.

    A digest can only be made again while the secret is seen, so the look-up of a used key notes it
    (in its thread), and the writer replaces the old one. Nothing else uses a digest.
    """

    def __init__(self, peppers: Sequence[str]) -> None:
        self._pepper_id = key_secrets.pepper_id(peppers[0]) if peppers else ""
        self._waiting: deque[_Move] = deque(maxlen=MAX_MOVES)

    def note(self, marks: Sequence[bytes]) -> None:
        """A key was found by one of the digests of its secret, newest pepper first."""
        if len(marks) > 1 and self._pepper_id:
            self._waiting.append(_Move(marks[0], marks[1:]))

    def write(self, db: peewee.Database) -> None:
        """Replace what waits. Blocking, idempotent. StoreUnavailable: the rest waits on."""
        while self._waiting:
            move = self._waiting.popleft()
            try:
                database.transaction(db, lambda move=move: self._replace(db, move))  # type: ignore[misc]
            except Conflict:
                log.warning("a key has digests under two peppers: the older one stays")
            except StoreUnavailable:
                self._waiting.appendleft(move)
                raise

    def _replace(self, db: peewee.Database, move: _Move) -> None:
        to = {"digest": move.newest, "pepper_id": self._pepper_id}
        KeySecret.update(**to).where(KeySecret.digest << list(move.older)).execute(db)
