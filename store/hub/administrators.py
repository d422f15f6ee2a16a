"""Administrators who can sign in: with the first one the first run ends, and the last one stays.

Can sign in: enabled, with a password or an account of an OpenID provider. Everything that changes
who these are goes through `keep_one`.
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
    """Return whether some administrator can sign in: until then the first run is open."""
    linked = OpenIdLink.select(OpenIdLink.user_id)
    query = User.select(User.id).where(
        User.role == "admin",
        User.disabled == False,  # noqa: E712 - SQL
        User.password_hash.is_null(False) | User.id.in_(linked),
    )
    return first_row(db, query) is not None


@contextmanager
def keep_one(db: peewee.Database) -> Iterator[None]:
    """Surround a change of users or of their ways in, inside its transaction.

    Changes are made one after another. Raises Refused, and nothing has changed, when the last
    administrator who can sign in would be gone. Once there is one, no link of the first run is
    left.
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
