"""The links of the first run: whoever holds one may become the first administrator.

`init` and each start of the gateway make one, which opens once and for LIFETIME_MS; all of them end
when anybody becomes administrator (`administrators.keep_one`).
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
MAX_LINKS = 20  # the oldest ends when there are more
PATH = "/first-run?token="


def make_link(db: peewee.Database) -> str | None:
    """Return the path of a new link; its token is not kept. None: there is an administrator."""
    if administrators.exist(db):  # a start writes nothing then: the database may be read-only
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
    """Return whether a token is one of a link that opens now."""
    query = FirstRunLink.select(FirstRunLink.digest).where(_is_open(db, token))
    return first_row(db, query) is not None and not administrators.exist(db)


def use_up(db: peewee.Database, token: str) -> None:
    """End a link, as the first step of the transaction that makes an administrator: of those who
    hold it one alone gets further. Raises NotFound when it opens nothing."""
    changes.lock(db)
    used = FirstRunLink.delete().where(_is_open(db, token)).execute(db)
    if not used or administrators.exist(db):
        raise NotFound("this link opens nothing")


def _is_open(db: peewee.Database, token: str) -> peewee.Expression:
    young = FirstRunLink.created_ms > database_ms(db) - LIFETIME_MS
    return (FirstRunLink.digest == digest_of(token)) & young
