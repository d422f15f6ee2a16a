"""Users by their names, and the groups that a user has to do with."""

import peewee

from store.db.database import first_row, in_snapshot, select_rows
from store.db.tables.catalog import Group
from store.db.tables.usage import UsageByKey
from store.db.tables.users import ApiKey, User
from store.values.errors import NotFound

DEFAULT_GROUP = "default"


def user_id_of(db: peewee.Database, name: str) -> str:
    """Return the id of a user. Raises NotFound."""
    row = first_row(db, User.select(User.id).where(User.name == name))
    if row is None:
        raise NotFound(f"user {name!r} does not exist")
    return str(row[0])


def assigned_groups(db: peewee.Database, user_id: str) -> list[str]:
    """Return the groups in which a user may make keys; some of them may be gone."""
    row = first_row(db, User.select(User.groups).where(User.id == user_id))
    return [DEFAULT_GROUP] if row is None or row[0] is None else list(row[0])


@in_snapshot
def groups_of(db: peewee.Database, user_id: str, *, admin: bool) -> list[str]:
    """The groups whose models a user can use, the default one first; an administrator: all.

    Keys that are revoked do not count.
    """
    names: dict[str, str] = dict(select_rows(db, Group.select(Group.id, Group.name)))
    groups = set(names.values())
    if not admin:
        living = (ApiKey.user_id == user_id) & ApiKey.revoked_ms.is_null()
        keys = select_rows(db, ApiKey.select(ApiKey.group_id).where(living).distinct())
        used = {names[group_id] for (group_id,) in keys if group_id in names}
        groups = used | groups.intersection(assigned_groups(db, user_id))
    return sorted(groups, key=lambda name: (name != DEFAULT_GROUP, name))


def has_called_in(db: peewee.Database, user: str, group: str) -> bool:
    """Return whether any call of a user was made in a group."""
    called = (UsageByKey.user == user) & (UsageByKey.group == group)
    return first_row(db, UsageByKey.select(UsageByKey.day).where(called)) is not None
