"""Passwords of users: checked at sign-in, and changed by their owners.

Hashing takes a tenth of a second and 64 MiB on purpose. Never do it on an event loop, and never
more than twice at a time in one process.
"""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import peewee

from store.db import audit
from store.db.database import first_row, transaction
from store.db.tables.users import User
from store.hub import administrators, sessions
from store.hub.membership import user_id_of
from store.values import texts
from store.values.errors import Refused
from store.values.passwords import FAULTS, fault_of, hash_password, verify_password

MARK_CHARS = 32


@dataclass(frozen=True, slots=True)
class Person:
    """A user who may sign in. `mark` differs for each password."""

    id: str
    name: str
    role: str
    mark: str


def check(db: peewee.Database, name: str, password: str) -> Person | None:
    """Return the user with this name and password, or None if either is wrong, or the user is
    disabled or has no password. Takes the same time in all cases."""
    columns = (User.id, User.name, User.role, User.password_hash, User.disabled)
    row = first_row(db, User.select(*columns).where(User.name == name))
    verified = verify_password((row and row[3]) or _nobody_hash(), password)
    if row is None or row[3] is None or row[4] or not verified:
        return None
    return Person(row[0], row[1], row[2], mark_of(row[3]))


def is_current(db: peewee.Database, user_id: str, mark: str) -> bool:
    """Return whether a user may still sign in and has the password with this mark."""
    query = User.select(User.password_hash, User.disabled).where(User.id == user_id)
    row = first_row(db, query)
    return row is not None and not row[1] and mark_of(row[0]) == mark


def mark_of(password_hash: str | None) -> str:
    """Return the mark of a password, which does not reveal anything about it."""
    return hashlib.sha256((password_hash or "").encode()).hexdigest()[:MARK_CHARS]


def change_password(db: peewee.Database, name: str, old: str, new: str) -> None:
    """Give a user who knows the old password a new one, and end the user's sessions and tokens.
    Raises Refused if the old one is wrong or the new one is invalid."""
    if check(db, name, old) is None:
        raise Refused(["the old password is wrong"])
    set_password(db, name, new, name)


def set_password(
    db: peewee.Database,
    name: str,
    new: str,
    actor: str,
    claim: Callable[[], object] | None = None,
) -> None:
    """Give a user a password, and end the user's sessions and tokens. `claim` is the first step of
    the transaction. Raises NotFound, and Refused if the password is invalid."""
    hashed = _hash_of_new(new, name)

    def work() -> None:
        if claim is not None:
            claim()
        with administrators.keep_one(db):
            user_id = user_id_of(db, name)
            User.update(password_hash=hashed).where(User.id == user_id).execute(db)
            sessions.end_all(db, user_id, actor)
            audit.write(db, audit.Act(actor, "set", "user", name, after={"password": new}))

    transaction(db, work, marked=True)


def _hash_of_new(password: str, user: str) -> str:
    """Return the hash of a user's new password. Raises Refused."""
    try:
        texts.password(password)
    except ValueError as error:
        raise Refused([f"the new password {error}"], ["password"]) from None
    if fault := fault_of(password, user):
        raise Refused([f"the new password {FAULTS[fault]}"], ["password"])
    return hash_password(password)


@functools.cache
def _nobody_hash() -> str:
    """Return the hash of a password that no user has. Checking it takes as long as checking a
    user's; a faster answer would reveal which names exist."""
    return hash_password("nobody has this password")
