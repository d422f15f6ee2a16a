"""The use of a link: it creates the user of an invite, or sets a new password.

Both functions hash, so they must not run on an event loop. The link is used up in the transaction
of the change, so that it works only once.
"""

import peewee

from operations.edits import editor
from store.admin.edits import entry_of_values, faults_by_field
from store.admin.objects import Sealing
from store.db.database import first_row, transaction
from store.db.tables.users import User
from store.hub import invites, people
from store.hub.people import Person, mark_of
from store.values.errors import Conflict, NotFound
from store.values.pricing import format_money


def join(db: peewee.Database, sealing: Sealing, token: str, name: str, password: str) -> Person:
    """Create the user of an invite, as the person who made the invite. Raises NotFound if the link
    is invalid, Conflict if the name is in use, or Refused with the fields."""
    link = invites.find(db, token)
    if link is None or link.user is not None:
        raise NotFound("this link is no longer valid")
    user = {
        **{"name": name, "password": password, "role": link.terms.role},
        **{"groups": list(link.terms.groups), "balance": format_money(link.terms.balance_nanos)},
    }
    maker = editor(db, sealing, link.created_by, remote=True)
    own = User.select(User.id, User.role, User.password_hash).where(User.name == name)
    with faults_by_field():
        entries = [entry_of_values("user", user, None)]
        # Faults show and the password is hashed before others have to wait for the transaction.
        maker.apply(entries, dry_run=True)

        def work() -> Person:
            invites.use_up(db, token, name)
            if first_row(db, own) is not None:
                raise Conflict(f'there is a user "{name}" already; choose another name')
            maker.apply(entries)
            row = first_row(db, own)
            assert row is not None
            return Person(row[0], name, row[1], mark_of(row[2]))

        return transaction(db, work)


def set_password(db: peewee.Database, token: str, password: str) -> str:
    """Set the password of a reset link's user, and end the user's sessions and tokens. Return the
    user's name. Raises NotFound if the link is invalid, or Refused with the fields."""
    link = invites.find(db, token)
    if link is None or link.user is None:
        raise NotFound("this link is no longer valid")
    user = link.user
    people.set_password(db, user, password, user, claim=lambda: invites.use_up(db, token, user))
    return user
