"""The links of the first run: whoever holds one may set the first administrator's password.

`init` and each start of the Hub make one; all of them end when an administrator has a password.
"""

import hashlib
import secrets

import peewee

from store.db.database import database_ms, first_row, select_rows, transaction
from store.db.tables.hub import FirstRunLink
from store.db.tables.users import User

TOKEN_BYTES = 32
MAX_LINKS = 20  # the oldest ends when there are more
PATH = "/first-run?token="


def make_link(db: peewee.Database) -> str | None:
    """The path of a new link; its token is not kept. None: an administrator has a password."""
    if admin_has_password(db):
        return None
    token = secrets.token_urlsafe(TOKEN_BYTES)

    def work() -> None:
        newest = FirstRunLink.select(FirstRunLink.digest).order_by(FirstRunLink.created_ms.desc())
        for (digest,) in select_rows(db, newest)[MAX_LINKS - 1 :]:
            FirstRunLink.delete().where(FirstRunLink.digest == digest).execute(db)
        row = {"digest": _digest(token), "created_ms": database_ms(db)}
        FirstRunLink.insert(row).execute(db)

    transaction(db, work)
    return PATH + token


def opens(db: peewee.Database, token: str) -> bool:
    """Whether a token is one of a link, and no administrator has a password yet."""
    query = FirstRunLink.select(FirstRunLink.digest).where(FirstRunLink.digest == _digest(token))
    return first_row(db, query) is not None and not admin_has_password(db)


def admin_has_password(db: peewee.Database) -> bool:
    """Whether some administrator can sign in: until then the first run is open."""
    query = User.select(User.id).where(
        User.role == "admin",
        User.password_hash.is_null(False),
        User.disabled == False,  # noqa: E712 - SQL
    )
    return first_row(db, query) is not None


def close(db: peewee.Database) -> None:
    """End all links."""
    transaction(db, lambda: FirstRunLink.delete().execute(db))


def _digest(token: str) -> bytes:
    """A token has 256 random bits: no pepper is needed to keep its digest."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
