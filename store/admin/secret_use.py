"""Counts of the values in the store that need older secrets of the installation, and resealing.

The secrets themselves are files (conf/secrets.py). For `secrets` and `doctor`. Blocking.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from store.db import audit, changes
from store.db.database import database_ms, in_snapshot, select_rows, snapshot_read, transaction
from store.db.tables.alerts import AlertDestination
from store.db.tables.catalog import Channel, ChannelKey
from store.db.tables.money import RedeemCode
from store.db.tables.users import ApiKey, KeySecret, User
from store.values.cipher import Cipher
from store.values.key_secrets import pepper_id
from store.values.sealed_fields import proxy_token, with_proxy_token

BATCH_CHANNELS = 20
KEYS_SHOWN = 100

_OF_DESTINATIONS: Any = (AlertDestination.sealed, AlertDestination.secret)

Report = Callable[[int, int], None]
"""(finished channels, all channels)."""


@dataclass(frozen=True, slots=True)
class SealedUse:
    """Sealed values of channels and of alerts: by the newest key, by older ones, by none."""

    newest: int
    older: int
    unreadable: int


@dataclass(frozen=True, slots=True)
class PepperUse:
    """Keys and codes that can still be used, by the pepper of their digest. `keys`: the first ones
    that need an older pepper, as USER/NAME."""

    newest: int
    older_keys: int
    older_codes: int
    lost: int
    keys: tuple[str, ...]


def sealed_use(db: peewee.Database, cipher: Cipher) -> SealedUse:
    """Count sealed values by the cipher key that they need."""
    tokens = snapshot_read(db, lambda: list(_tokens(db)))
    newest = sum(map(cipher.by_newest, tokens))
    unreadable = sum(not cipher.opens(token) for token in tokens)
    return SealedUse(newest, len(tokens) - newest - unreadable, unreadable)


@in_snapshot
def pepper_use(db: peewee.Database, peppers: Sequence[str]) -> PepperUse:
    """Count keys and codes by the pepper that they need."""
    ids = [pepper_id(pepper) for pepper in peppers]
    at_ms = database_ms(db)
    keys = [(str(mark), f"{user}/{name}") for mark, user, name in _keys(db, at_ms)]
    codes = [str(mark) for (mark,) in _codes(db, at_ms)]
    older = [name for mark, name in keys if mark in ids[1:]]
    every = [mark for mark, _ in keys] + codes
    return PepperUse(
        newest=every.count(ids[0]),
        older_keys=len(older),
        older_codes=sum(mark in ids[1:] for mark in codes),
        lost=sum(mark not in ids for mark in every),
        keys=tuple(older[:KEYS_SHOWN]),
    )


def reseal(db: peewee.Database, cipher: Cipher, actor: str, report: Report) -> int:
    """Reseal with the newest key what older ones sealed. Return the number of values. Never raises
    Unreadable: values that no key opens stay as they are.

    Each transaction handles some channels, so it can be stopped and restarted at any time. Gateways
    continue to work, since they have both keys.
    """
    ids = snapshot_read(db, lambda: _ids(db))
    done = 0
    for begin in range(0, len(ids), BATCH_CHANNELS):
        batch = ids[begin : begin + BATCH_CHANNELS]
        done += transaction(db, lambda batch=batch: _reseal_some(db, cipher, batch))  # type: ignore[misc]
        report(min(begin + BATCH_CHANNELS, len(ids)), len(ids))
    done += transaction(db, lambda: _reseal_destinations(db, cipher))
    if done:
        audit.write(db, audit.Act(actor, "reseal", "channels", "all", after={"values": done}))
    return done


def note_rotation(db: peewee.Database, actor: str, action: str, kind: str) -> None:
    """Write the audit line of a change of the secrets file."""
    audit.write(db, audit.Act(actor, action, "secrets", kind))


# ---- sealed values -------------------------------------------------------------------------------


def _ids(db: peewee.Database) -> list[str]:
    return [str(row[0]) for row in select_rows(db, Channel.select(Channel.id).order_by(Channel.id))]


def _tokens(db: peewee.Database) -> Iterator[str]:
    for (token,) in select_rows(db, ChannelKey.select(ChannelKey.cipher)):
        yield token
    for headers, proxy in select_rows(db, Channel.select(Channel.extra_headers, Channel.proxy)):
        yield from (headers or {}).values()
        if token := proxy_token(proxy):
            yield token
    for pair in select_rows(db, AlertDestination.select(*_OF_DESTINATIONS)):
        yield from filter(None, pair)


def _reseal_destinations(db: peewee.Database, cipher: Cipher) -> int:
    """Reseal the addresses and signing secrets of alerts, in a transaction."""
    done = 0
    for row_id, *tokens in select_rows(
        db, AlertDestination.select(AlertDestination.id, *_OF_DESTINATIONS)
    ):
        renewed = [token and cipher.renewed(token) for token in tokens]
        columns = {
            column.name: token
            for column, token in zip(_OF_DESTINATIONS, renewed, strict=True)
            if token
        }
        if columns:
            own = AlertDestination.id == row_id
            AlertDestination.update(**columns).where(own).execute(db)
            done += len(columns)
    return done


def _reseal_some(db: peewee.Database, cipher: Cipher, ids: Sequence[str]) -> int:
    """Reseal the values of some channels, in a transaction."""
    changes.lock(db)  # nobody sets a key of these channels meanwhile
    done = 0
    own = ChannelKey.select(ChannelKey.id, ChannelKey.cipher)
    for key_id, token in select_rows(db, own.where(ChannelKey.channel_id << list(ids))):
        if (sealed := cipher.renewed(token)) is not None:
            ChannelKey.update(cipher=sealed).where(ChannelKey.id == key_id).execute(db)
            done += 1
    columns = Channel.select(Channel.id, Channel.extra_headers, Channel.proxy)
    for channel_id, headers, proxy in select_rows(db, columns.where(Channel.id << list(ids))):
        done += _reseal_columns(db, cipher, channel_id, headers or {}, proxy)
    return done


def _reseal_columns(
    db: peewee.Database, cipher: Cipher, channel_id: str, headers: dict[str, str], proxy: str | None
) -> int:
    renewed = {name: cipher.renewed(token) for name, token in headers.items()}
    fresh = {name: token for name, token in renewed.items() if token is not None}
    columns: dict[str, Any] = {"extra_headers": {**headers, **fresh}} if fresh else {}
    old = proxy_token(proxy)
    if old and (token := cipher.renewed(old)) is not None:
        columns["proxy"] = with_proxy_token(proxy, token)
    if columns:
        Channel.update(**columns).where(Channel.id == channel_id).execute(db)
    return len(fresh) + ("proxy" in columns)


# ---- digests -------------------------------------------------------------------------------------


def _keys(db: peewee.Database, at_ms: int) -> list[tuple[Any, ...]]:
    """Return pepper, user and name of each secret that still opens a key."""
    valid = KeySecret.valid_until_ms.is_null() | (KeySecret.valid_until_ms > at_ms)
    query = (
        KeySecret.select(KeySecret.pepper_id, User.name, ApiKey.name)
        .join(ApiKey, on=(ApiKey.id == KeySecret.key_id))
        .join(User, on=(User.id == ApiKey.user_id))
        .where(valid & ApiKey.revoked_ms.is_null())
        .order_by(User.name, ApiKey.name)
    )
    return select_rows(db, query)


def _codes(db: peewee.Database, at_ms: int) -> list[tuple[Any, ...]]:
    """Return the pepper of each code that can still be redeemed."""
    code = RedeemCode
    valid = code.expires_ms.is_null() | (code.expires_ms > at_ms)
    unused = code.redeemed_ms.is_null() & code.disabled_ms.is_null()
    return select_rows(db, code.select(code.pepper_id).where(unused & valid))
