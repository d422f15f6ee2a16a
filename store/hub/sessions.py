"""Sessions of browsers: one row for each sign-in, found by the digest of its cookie.

The cookie's value is available once, when the session starts. A session ends when its owner or an
administrator ends it, when it was not used for IDLE_MS, or LIFETIME_MS after its start. All
sessions of a user end together with the user's tokens of the JSON API (`end_all`).
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

import peewee

from store.db import audit
from store.db.database import database_ms, first_row, in_transaction, select_rows, transaction
from store.db.tables.hub import ApiToken, Session
from store.db.tables.users import User
from store.values.ids import HOUR_MS, new_ulid

IDLE_MS = 24 * HOUR_MS
LIFETIME_MS = 30 * 24 * HOUR_MS
SEEN_EVERY_MS = 60_000  # the resolution of the time of last use
MAX_OF_USER = 50  # beyond that, the oldest ends
COOKIE_BYTES = 32
ADDRESS_CHARS, AGENT_CHARS = 64, 255


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The caller of the Hub: a session of a browser or a token of the JSON API. `session_id` is its
    id."""

    session_id: str
    user_id: str
    user: str
    role: str
    scopes: frozenset[str] | None = None  # of a token; None for a session

    @property
    def admin(self) -> bool:
        """Return whether the caller has the whole Hub: by role, and for a token also by its
        scopes."""
        return self.role == "admin" and (self.scopes is None or "admin" in self.scopes)


@dataclass(frozen=True, slots=True)
class Ended:
    """The numbers of a user's ended sessions and tokens."""

    sessions: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as its owner sees it."""

    id: str
    created_ms: int
    seen_ms: int
    address: str
    agent: str


@in_transaction
def begin(db: peewee.Database, user_id: str, address: str, agent: str) -> str:
    """Start a session of a user. Return the value of its cookie, which is not stored."""
    cookie, at_ms = secrets.token_urlsafe(COOKIE_BYTES), database_ms(db)
    _clear(db, user_id, at_ms)
    row: dict[str, Any] = {"digest": digest_of(cookie), "id": new_ulid(), "user_id": user_id}
    row |= {"created_ms": at_ms, "seen_ms": at_ms}
    row |= {"address": address[:ADDRESS_CHARS], "agent": agent[:AGENT_CHARS]}
    Session.insert(row).execute(db)
    return cookie


def find(db: peewee.Database, cookie: str, *, used: bool = True) -> SignedIn | None:
    """Return the session of a cookie. None if it ended or is unknown, or its user is disabled or
    removed. `used`: count this as use of the session."""
    digest = digest_of(cookie)
    query = (
        Session.select(
            Session.id, Session.created_ms, Session.seen_ms, User.id, User.name, User.role
        )
        .join(User, on=(User.id == Session.user_id))
        .where(Session.digest == digest, User.disabled == False)  # noqa: E712 - SQL
    )
    row = first_row(db, query)
    if row is None:
        return None
    session_id, created_ms, seen_ms, user_id, user, role = row
    at_ms = database_ms(db)
    if at_ms - seen_ms > IDLE_MS or at_ms - created_ms > LIFETIME_MS:
        return None
    if used and at_ms - seen_ms > SEEN_EVERY_MS:
        seen = Session.update(seen_ms=at_ms).where(Session.digest == digest)
        transaction(db, lambda: seen.execute(db))
    return SignedIn(session_id, user_id, user, role)


def of_user(db: peewee.Database, user_id: str) -> list[SessionRow]:
    """Return the active sessions of a user, last used first."""
    columns = (Session.id, Session.created_ms, Session.seen_ms, Session.address, Session.agent)
    at_ms = database_ms(db)
    query = (
        Session.select(*columns)
        .where(
            Session.user_id == user_id,
            Session.seen_ms >= at_ms - IDLE_MS,
            Session.created_ms >= at_ms - LIFETIME_MS,
        )
        .order_by(Session.seen_ms.desc(), Session.id.desc())
    )
    return [SessionRow(*row) for row in select_rows(db, query)]


def end(db: peewee.Database, user_id: str, session_id: str) -> bool:
    """End one session of a user. Return False if the user has no such session."""
    query = Session.delete().where(Session.id == session_id, Session.user_id == user_id)
    return bool(transaction(db, lambda: query.execute(db)))


@in_transaction
def end_all(db: peewee.Database, user_id: str, actor: str, kept_id: str = "") -> Ended:
    """End all sessions and tokens of a user except the one with `kept_id`. Return their numbers.
    Joins a running transaction."""
    session = Session.delete().where(Session.user_id == user_id, Session.id != kept_id)
    token = ApiToken.update(revoked_ms=database_ms(db)).where(
        ApiToken.user_id == user_id, ApiToken.revoked_ms.is_null(), ApiToken.id != kept_id
    )
    ended = Ended(int(session.execute(db)), int(token.execute(db)))
    row = first_row(db, User.select(User.name).where(User.id == user_id))
    if row is not None and ended != Ended(0, 0):
        after = {"sessions": ended.sessions, "tokens": ended.tokens}
        audit.write(db, audit.Act(actor, "end_session", "user", row[0], after=after))
    return ended


def _clear(db: peewee.Database, user_id: str, at_ms: int) -> None:
    """Remove expired sessions, and the oldest beyond MAX_OF_USER - 1."""
    over = (Session.seen_ms < at_ms - IDLE_MS) | (Session.created_ms < at_ms - LIFETIME_MS)
    Session.delete().where(Session.user_id == user_id, over).execute(db)
    query = (
        Session.select(Session.id)
        .where(Session.user_id == user_id)
        .order_by(Session.seen_ms.desc(), Session.id.desc())
    )
    if surplus := [row[0] for row in select_rows(db, query)][MAX_OF_USER - 1 :]:
        Session.delete().where(Session.id.in_(surplus)).execute(db)


def digest_of(secret: str) -> bytes:
    """Return the digest of a cookie or token. These have 240 random bits or more and need no
    pepper."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
