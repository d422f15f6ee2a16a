"""Tokens of the JSON API: created once, found by the digest of their secret, revoked one by one, or
all with the sessions of their user (`sessions.end_all`).

A token acts for its user, within its scopes: "read" allows reading, "keys" also changes of keys and
account, "admin" also everything that the user may do as an administrator.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from store.db import audit
from store.db.database import database_ms, first_row, in_transaction, select_rows, transaction
from store.db.tables.hub import ApiToken
from store.db.tables.users import User
from store.hub.membership import user_id_of
from store.hub.sessions import SignedIn, digest_of
from store.values.errors import NotFound, Refused
from store.values.ids import new_ulid
from store.values.usage_record import rfc3339, rfc3339_or_none

PREFIX = "slt-"
SECRET_BYTES = 30
SCOPES = ("read", "keys", "admin")
USED_EVERY_MS = 60_000  # the resolution of the time of last use
MAX_NAME_CHARS = 128


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as its owner sees it."""

    id: str
    user: str
    name: str
    scopes: tuple[str, ...]
    last_four: str
    created_ms: int
    used_ms: int | None
    revoked_ms: int | None


def scopes_of(role: str) -> list[str]:
    """Return the scopes that a token of a user with this role may have."""
    return [scope for scope in SCOPES if scope != "admin" or role == "admin"]


@in_transaction
def create(
    db: peewee.Database, user: str, scopes: Sequence[str], *, name: str = "", actor: str
) -> tuple[str, str]:
    """Create a token of a user. Return (id, token). The token is not stored. Raises NotFound for
    the user, and Refused for unknown scopes or those that the user's role does not have."""
    owner = first_row(db, User.select(User.id, User.role).where(User.name == user))
    if owner is None:
        raise NotFound(f"user {user!r} does not exist")
    user_id, role = owner
    unknown = [scope for scope in scopes if scope not in SCOPES]
    allowed = ", ".join(scopes_of(role))
    if unknown:
        raise Refused([f"scope: {unknown[0]!r} is not one of {allowed}"])
    if not scopes:
        raise Refused([f"scope: choose one or more of {allowed}"])
    if len(name) > MAX_NAME_CHARS:
        raise Refused([f"name: at most {MAX_NAME_CHARS} characters"])
    token = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    token_id = new_ulid()
    if not set(scopes) <= set(scopes_of(role)):
        raise Refused([f"scope: {user!r} is not an admin"])
    ordered = [scope for scope in SCOPES if scope in scopes]
    row = {
        "id": token_id,
        "digest": digest_of(token),
        "user_id": user_id,
        "name": name,
        "scopes": ordered,
        "last_four": token[-4:],
        "created_ms": database_ms(db),
    }
    ApiToken.insert(row).execute(db)
    after = {"user": user, "name": name, "scopes": ordered}
    audit.write(db, audit.Act(actor, "create", "token", token_id, after=after))
    return token_id, token


def find(db: peewee.Database, token: str) -> SignedIn | None:
    """Return the caller of a token and note its use. None if it is unknown or revoked, or its user
    is disabled or removed."""
    if not token.startswith(PREFIX):
        return None
    digest = digest_of(token)
    query = (
        ApiToken.select(
            ApiToken.id, ApiToken.scopes, ApiToken.used_ms, User.id, User.name, User.role
        )
        .join(User, on=(User.id == ApiToken.user_id))
        .where(
            ApiToken.digest == digest,
            ApiToken.revoked_ms.is_null(),
            User.disabled == False,  # noqa: E712 - SQL
        )
    )
    row = first_row(db, query)
    if row is None:
        return None
    token_id, scopes, used_ms, user_id, user, role = row
    at_ms = database_ms(db)
    if used_ms is None or at_ms - used_ms > USED_EVERY_MS:
        used = ApiToken.update(used_ms=at_ms).where(ApiToken.id == token_id)
        transaction(db, lambda: used.execute(db))
    return SignedIn(token_id, user_id, user, role, frozenset(scopes))


def listed(
    db: peewee.Database, user: str | None = None, limit: int | None = None, before: str = ""
) -> list[TokenRow]:
    """Return the tokens of a user, or of all users, including revoked ones, newest first. At most
    `limit`, of those created before the one with the id `before`. Raises NotFound."""
    columns = (
        *(ApiToken.id, User.name, ApiToken.name, ApiToken.scopes, ApiToken.last_four),
        *(ApiToken.created_ms, ApiToken.used_ms, ApiToken.revoked_ms),
    )
    query = ApiToken.select(*columns).join(User, on=(User.id == ApiToken.user_id))
    if user is not None:
        user_id_of(db, user)
        query = query.where(User.name == user)
    if before:
        query = query.where(ApiToken.id < before)
    rows = select_rows(db, query.order_by(ApiToken.id.desc()).limit(limit))
    return [TokenRow(row[0], row[1], row[2], tuple(row[3]), *row[4:]) for row in rows]


def public(row: TokenRow) -> dict[str, Any]:
    """Return a token as lists show it, without its secret. Times are RFC 3339."""
    return {
        "id": row.id,
        "user": row.user,
        "name": row.name,
        "scopes": list(row.scopes),
        "token": f"{PREFIX}…{row.last_four}",
        "created_at": rfc3339(row.created_ms),
        "used_at": rfc3339_or_none(row.used_ms),
        "revoked_at": rfc3339_or_none(row.revoked_ms),
    }


@in_transaction
def revoke(db: peewee.Database, token_id: str, *, user_id: str | None = None, actor: str) -> None:
    """Revoke a token of any user, or of the user `user_id`. Idempotent. Raises NotFound."""
    query = ApiToken.select(ApiToken.revoked_ms).where(ApiToken.id == token_id)
    if user_id is not None:
        query = query.where(ApiToken.user_id == user_id)
    row = first_row(db, query)
    if row is None:
        raise NotFound(f"token {token_id!r} does not exist")
    if row[0] is None:
        ended = ApiToken.update(revoked_ms=database_ms(db)).where(ApiToken.id == token_id)
        ended.execute(db)
        audit.write(db, audit.Act(actor, "revoke", "token", token_id))
