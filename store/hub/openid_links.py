"""Links from users of an OpenID provider to users of ours. Without a link nobody is signed in."""

import hashlib
from dataclasses import dataclass

import peewee

from store.db import audit
from store.db.database import database_ms, first_row, in_transaction, select_rows, transaction
from store.db.tables.fields import TEXT
from store.db.tables.hub import OpenIdLink
from store.db.tables.users import User
from store.hub import administrators
from store.hub.membership import user_id_of
from store.hub.people import Person, mark_of
from store.values.errors import Conflict, NotFound, Refused
from store.values.ids import new_ulid


@dataclass(frozen=True, slots=True)
class Link:
    """A link as its user sees it."""

    id: str
    issuer: str
    subject: str
    created_ms: int
    used_ms: int | None


@in_transaction
def link(db: peewee.Database, user: str, issuer: str, subject: str, actor: str) -> str:
    """Let a user of a provider sign in as one of our users. Return the link's id. Raises NotFound,
    Conflict if the provider's account is already linked, and Refused."""
    if not 0 < len(subject) <= TEXT or not 0 < len(issuer) <= TEXT:
        raise Refused([f"issuer and subject have 1 to {TEXT} characters"])
    account = {"issuer": issuer, "subject": subject}
    with administrators.keep_one(db):
        row = {"id": new_ulid(), "user_id": user_id_of(db, user), "created_ms": database_ms(db)}
        digest = _digest(issuer, subject)
        query = OpenIdLink.select(OpenIdLink.user_id).where(OpenIdLink.digest == digest)
        if first_row(db, query) is not None:
            raise Conflict("this account of the provider is linked already")
        OpenIdLink.insert({"digest": digest, **row, **account}).execute(db)
        audit.write(db, audit.Act(actor, "link", "user", user, after={"user": user, **account}))
    return str(row["id"])


def find(db: peewee.Database, issuer: str, subject: str) -> Person | None:
    """Return the linked user, and note the use of the link. None if nobody is linked, or the user
    is disabled."""
    digest = _digest(issuer, subject)
    query = (
        OpenIdLink.select(User.id, User.name, User.role, User.password_hash)
        .join(User, on=(User.id == OpenIdLink.user_id))
        .where(OpenIdLink.digest == digest, User.disabled == False)  # noqa: E712 - SQL
    )
    row = first_row(db, query)
    if row is None:
        return None
    used = OpenIdLink.update(used_ms=database_ms(db)).where(OpenIdLink.digest == digest)
    transaction(db, lambda: used.execute(db))
    return Person(row[0], row[1], row[2], mark_of(row[3]))


def of_user(db: peewee.Database, user_id: str) -> list[Link]:
    """Return the links of a user, newest first."""
    columns = (
        *(OpenIdLink.id, OpenIdLink.issuer, OpenIdLink.subject),
        *(OpenIdLink.created_ms, OpenIdLink.used_ms),
    )
    query = OpenIdLink.select(*columns).where(OpenIdLink.user_id == user_id)
    return [Link(*row) for row in select_rows(db, query.order_by(OpenIdLink.id.desc()))]


@in_transaction
def unlink(db: peewee.Database, user_id: str, user: str, link_id: str, actor: str) -> None:
    """Remove a link of a user. Raises NotFound, and Refused (`administrators.keep_one`)."""
    own = (OpenIdLink.id == link_id) & (OpenIdLink.user_id == user_id)
    with administrators.keep_one(db):
        query = OpenIdLink.select(OpenIdLink.issuer, OpenIdLink.subject).where(own)
        row = first_row(db, query)
        if row is None:
            raise NotFound(f"link {link_id!r} does not exist")
        OpenIdLink.delete().where(own).execute(db)
        before = {"issuer": row[0], "subject": row[1]}
        audit.write(db, audit.Act(actor, "unlink", "user", user, before=before))


@in_transaction
def unlink_all(db: peewee.Database, user: str, actor: str) -> int:
    """Remove all links of a user. Return how many. Raises NotFound, and Refused
    (`administrators.keep_one`)."""
    with administrators.keep_one(db):
        own = OpenIdLink.user_id == user_id_of(db, user)
        ended = int(OpenIdLink.delete().where(own).execute(db))
        if ended:
            audit.write(db, audit.Act(actor, "unlink", "user", user, before={"links": ended}))
        return ended


def _digest(issuer: str, subject: str) -> bytes:
    """Return a digest of both texts, which are too long for the key of an index."""
    text = f"{len(issuer)}:{issuer}{subject}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
