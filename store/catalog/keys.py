"""API keys: finding one by the digest of its secret, rotating and revoking it.

edit.py and apply.py create, change and remove keys. Here is what is specific to keys.
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
"""The overlap of a rotated secret, unless it is given."""
REASON_CHARS = 200
MAX_DAYS = 400  # days with calls that are searched for the last use of keys
MAX_MOVES = 10_000
"""The most waiting moves. A key whose move is dropped is noted again at its next look-up."""
REST_S = 0.01  # between two batches of keys: others need the interpreter, too


@dataclass(frozen=True, slots=True)
class Subscription:
    """A user's subscription to a plan, by the plan's name. `window` is that of its quota."""

    id: str
    plan: str
    window: str
    starts_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A key as calls need it. `valid_until_ms` is the end of a rotated secret.

    `models` None: no restriction. `disabled` is also true if the user is disabled. `limit_window`
    and `user_limit_window` None: no spend limit. `subscriptions` are those of the user that were
    not over when this was read and that, like their plans, are not disabled, the first to end
    first. Some may start later. Limits of 0: none. Those of the user apply to all of the user's
    keys together.
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
# Raw SQL: a key's first call waits for this look-up, which takes 560 µs of CPU with the query
# builder and 21 µs this way (SQLite, Python 3.11).
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
    """Return the key that has one of these digests, or None. The end of a rotated secret is given
    by this process's clock and not checked here. Blocking: only in threads. Raises
    StoreUnavailable."""
    keys = snapshot_read(db, lambda: _read(db, _FIND, wanted))
    return keys[0][1] if keys else None


def keys_of(db: peewee.Database, ids: Sequence[str]) -> list[tuple[bytes, KeyEntry]]:
    """Return each digest that opens one of these keys, and the key, in the order of the ids. At
    most PORTION ids. Revoked and removed keys are left out. Blocking: only in threads. Raises
    StoreUnavailable."""
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
    """Return the digests that open a key, those without an end first, empty if there is no such
    key. Blocking. Raises StoreUnavailable."""
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
    """Let a secret open a key from now on. In a transaction. Raises Conflict if the secret is in
    use."""
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
    """The rotation of a secret: the new one (None: generated), and the overlap of the old one."""

    peppers: Sequence[str]
    overlap_s: int = 0
    secret: str | None = None


@in_transaction
def rotate(db: peewee.Database, key_id: str, rotation: Rotation, actor: str) -> str:
    """Give a key a new secret. The old ones work for another `overlap_s`. Return the new secret.
    Raises NotFound, and Refused if the key is revoked or the given secret is invalid."""
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
    """Revoke a key permanently. Does nothing if it is revoked already. `reason`: for its owner.
    Raises NotFound."""
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
    """Enable or disable a key. Does nothing if that is its state already. `reason`: for its owner.
    Raises NotFound, and Refused if the key is revoked."""
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
    """Return the row of a key, with its name in the audit log as `display`."""
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
    """Yield the last used keys, at most `limit` of them, latest first, in batches: each digest that
    opens one, with the key. Blocking: only in threads. Raises StoreUnavailable."""
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
    """Yield ids of keys by the last day of use. They repeat on earlier days."""
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
    """The keys whose digests must move to the first of these peppers. Without peppers none is
    moved.

    A digest can only be computed while the secret is seen. So the look-up of a used key notes it
    (in its thread), and the writer replaces the old one. Nothing else uses a digest.
    """

    def __init__(self, peppers: Sequence[str]) -> None:
        self._pepper_id = key_secrets.pepper_id(peppers[0]) if peppers else ""
        self._waiting: deque[_Move] = deque(maxlen=MAX_MOVES)

    def note(self, marks: Sequence[bytes]) -> None:
        """Note that a key was found by one of the digests of its secret, newest pepper first."""
        if len(marks) > 1 and self._pepper_id:
            self._waiting.append(_Move(marks[0], marks[1:]))

    def write(self, db: peewee.Database) -> None:
        """Replace the waiting digests. Blocking, idempotent. Raises StoreUnavailable; the rest
        stays queued."""
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
