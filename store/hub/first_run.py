"""The links of the first run. The holder of one may become the first administrator.

`init` and each start of the gateway create one, which can be used once and for LIFETIME_MS. All of
them end when there is an administrator (`administrators.keep_one`).
"""

import secrets

import peewee

from store.db import changes
from store.db.database import database_ms, first_row, select_rows, transaction
from store.db.tables.hub import FirstRunLink
from store.hub import administrators
from store.hub.sessions import digest_of
from store.values.errors import NotFound
from store.values.ids import DAY_MS

TOKEN_BYTES = 32
LIFETIME_MS = DAY_MS
MAX_LINKS = 20  # beyond that, the oldest ends
PATH = "/first-run?token="


def make_link(db: peewee.Database) -> str | None:
    """Return the path of a new link, whose token is not stored, or None if there is an
    administrator."""
    if administrators.exist(db):  # then a start writes nothing, since the database may be read-only
        return None
    token = secrets.token_urlsafe(TOKEN_BYTES)

    def work() -> str | None:
        changes.lock(db)  # nobody becomes administrator meanwhile
        if administrators.exist(db):
            return None
        at_ms = database_ms(db)
        FirstRunLink.delete().where(FirstRunLink.created_ms <= at_ms - LIFETIME_MS).execute(db)
        newest = FirstRunLink.select(FirstRunLink.digest).order_by(FirstRunLink.created_ms.desc())
        for (digest,) in select_rows(db, newest)[MAX_LINKS - 1 :]:
            FirstRunLink.delete().where(FirstRunLink.digest == digest).execute(db)
        FirstRunLink.insert({"digest": digest_of(token), "created_ms": at_ms}).execute(db)
        return PATH + token

    return transaction(db, work, marked=True)


def opens(db: peewee.Database, token: str) -> bool:
    """Return whether a token is that of a link that can be used now."""
    query = FirstRunLink.select(FirstRunLink.digest).where(_is_open(db, token))
    return first_row(db, query) is not None and not administrators.exist(db)


def use_up(db: peewee.Database, token: str) -> None:
    """End a link, as the first step of the transaction that creates an administrator, so that only
    one of its holders succeeds. Raises NotFound if the token is not valid."""
    changes.lock(db)
    used = FirstRunLink.delete().where(_is_open(db, token)).execute(db)
    if not used or administrators.exist(db):
        raise NotFound("this link is no longer valid")


def _is_open(db: peewee.Database, token: str) -> peewee.Expression:
    young = FirstRunLink.created_ms > database_ms(db) - LIFETIME_MS
    return (FirstRunLink.digest == digest_of(token)) & young
