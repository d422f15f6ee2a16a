"""One-time codes of users (TOTP): the sealed secret, the last used period, and recovery codes.

Codes are computed elsewhere. Here each period, and each recovery code, can be used only once, even
by concurrent sign-ins. Recovery codes are stored as digests.
"""

import hashlib
import secrets
from dataclasses import dataclass, field

import peewee

from store.db import audit
from store.db.database import database_ms, first_row, in_transaction, transaction
from store.db.tables.hub import OneTimeCodes
from store.hub.membership import user_id_of
from store.values.cipher import Cipher
from store.values.errors import Refused

RECOVERY_CODES = 10
RECOVERY_BYTES = 8  # 64 random bits each: attempts are limited, so no pepper is needed


@dataclass(frozen=True, slots=True)
class Authenticator:
    """A user's secret. `recovery` is the number of unused recovery codes."""

    secret: str = field(repr=False)
    confirmed: bool
    recovery: int


def find(db: peewee.Database, cipher: Cipher, user_id: str) -> Authenticator | None:
    """Return the authenticator of a user, confirmed or not. Raises Unreadable if the cipher key has
    changed."""
    row = first_row(
        db,
        OneTimeCodes.select(
            OneTimeCodes.sealed, OneTimeCodes.confirmed_ms, OneTimeCodes.recovery
        ).where(OneTimeCodes.user_id == user_id),
    )
    if row is None:
        return None
    return Authenticator(cipher.decrypt(row[0]), row[1] is not None, len(row[2]))


def is_on(db: peewee.Database, user_id: str) -> bool:
    """Return whether a user needs a code to sign in."""
    query = OneTimeCodes.select(OneTimeCodes.user_id).where(
        OneTimeCodes.user_id == user_id, OneTimeCodes.confirmed_ms.is_null(False)
    )
    return first_row(db, query) is not None


@in_transaction
def begin(db: peewee.Database, cipher: Cipher, user_id: str, secret: str) -> None:
    """Store a secret until it is confirmed. Raises Refused if codes are already required."""
    if is_on(db, user_id):
        raise Refused(["one-time codes are set up already"])
    OneTimeCodes.delete().where(OneTimeCodes.user_id == user_id).execute(db)
    row = {"user_id": user_id, "sealed": cipher.encrypt(secret), "last_step": 0, "recovery": []}
    OneTimeCodes.insert(row).execute(db)


@in_transaction
def confirm(db: peewee.Database, user_id: str, user: str, step: int) -> list[str]:
    """Require codes from now on, since the user has entered a valid one of the period `step`.
    Return new recovery codes, which are stored only as digests. Raises Refused if no secret waits
    to be confirmed."""
    codes = [secrets.token_hex(RECOVERY_BYTES) for _ in range(RECOVERY_CODES)]
    changed = (
        OneTimeCodes.update(
            confirmed_ms=database_ms(db), last_step=step, recovery=[_digest(code) for code in codes]
        )
        .where(OneTimeCodes.user_id == user_id, OneTimeCodes.confirmed_ms.is_null())
        .execute(db)
    )
    if not changed:
        raise Refused(["there is no one-time code to confirm"])
    audit.write(db, audit.Act(user, "set", "user", user, {"totp": "off"}, {"totp": "on"}))
    return codes


def count(db: peewee.Database, user_id: str, step: int) -> bool:
    """Use the code of a period. Return False if it, or one of a later period, was used before."""
    update = OneTimeCodes.update(last_step=step).where(
        OneTimeCodes.user_id == user_id, OneTimeCodes.last_step < step
    )
    return bool(transaction(db, lambda: update.execute(db)))


@in_transaction
def count_recovery(db: peewee.Database, user_id: str, user: str, code: str) -> bool:
    """Use a recovery code. Return False if the user has no such code, or it was used before."""
    digest = _digest(code.replace("-", "").strip().lower())
    # The row is updated first, so that a concurrent sign-in waits here.
    OneTimeCodes.update(last_step=OneTimeCodes.last_step).where(
        OneTimeCodes.user_id == user_id
    ).execute(db)
    query = OneTimeCodes.select(OneTimeCodes.recovery).where(OneTimeCodes.user_id == user_id)
    row = first_row(db, query)
    if row is None or digest not in row[0]:
        return False
    left = [stored_digest for stored_digest in row[0] if stored_digest != digest]
    OneTimeCodes.update(recovery=left).where(OneTimeCodes.user_id == user_id).execute(db)
    after = {"recovery_codes_left": len(left)}
    audit.write(db, audit.Act(user, "recover", "user", user, after=after))
    return True


@in_transaction
def end(db: peewee.Database, user: str, actor: str) -> bool:
    """Turn a user's one-time codes off. Return False if they were off. Raises NotFound."""
    user_id = user_id_of(db, user)
    was_on = is_on(db, user_id)
    OneTimeCodes.delete().where(OneTimeCodes.user_id == user_id).execute(db)
    if was_on:
        audit.write(db, audit.Act(actor, "set", "user", user, {"totp": "on"}, {"totp": "off"}))
    return was_on


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
