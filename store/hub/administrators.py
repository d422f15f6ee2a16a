"""Administrators who can sign in. The first one ends the first run; the last one cannot be removed.

An administrator can sign in if enabled, with a password or an account of an OpenID provider. Every
change that affects this goes through `keep_one`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import peewee

from store.db import changes
from store.db.database import first_row
from store.db.tables.hub import FirstRunLink, OpenIdLink
from store.db.tables.users import User
from store.values.errors import Refused


def exist(db: peewee.Database) -> bool:
    """Return whether any administrator can sign in. Until then the first run is open."""
    linked = OpenIdLink.select(OpenIdLink.user_id)
    query = User.select(User.id).where(
        User.role == "admin",
        User.disabled == False,  # noqa: E712 - SQL
        User.password_hash.is_null(False) | User.id.in_(linked),
    )
    return first_row(db, query) is not None


@contextmanager
def keep_one(db: peewee.Database) -> Iterator[None]:
    """Surround a change of users or of their ways to sign in, inside its transaction.

    Changes are serialized. Raises Refused, with nothing changed, if no administrator could sign in
    afterwards. Once one can, all links of the first run are removed.
    """
    changes.lock(db)
    before = exist(db)
    yield
    after = exist(db)
    if before and not after:
        raise Refused(
            [
                "nobody could administer this gateway any more: this is the last administrator"
                " who can sign in; give another administrator a password first"
            ]
        )
    if after:
        FirstRunLink.delete().execute(db)
