"""Which groups a user has to do with: those in which it may make keys, and those of its keys."""

import peewee

from store.db.database import first_row, in_snapshot, select_rows
from store.db.tables.catalog import Group
from store.db.tables.usage import UsageByKey
from store.db.tables.users import ApiKey, User

DEFAULT_GROUP = "default"


@in_snapshot
def groups_of(db: peewee.Database, user_id: str, *, admin: bool) -> list[str]:
    """The groups whose models a user can use, the default one first; an administrator: all.

    Keys that are revoked do not count.
    """
    names: dict[str, str] = dict(select_rows(db, Group.select(Group.id, Group.name)))
    if admin:
        return _ordered(set(names.values()))
    row = first_row(db, User.select(User.groups).where(User.id == user_id))
    assigned = {DEFAULT_GROUP} if row is None or row[0] is None else set(row[0])
    living = (ApiKey.user_id == user_id) & ApiKey.revoked_ms.is_null()
    keys = select_rows(db, ApiKey.select(ApiKey.group_id).where(living).distinct())
    used = {names[group_id] for (group_id,) in keys if group_id in names}
    return _ordered((assigned & set(names.values())) | used)


def has_called_in(db: peewee.Database, user: str, group: str) -> bool:
    """Return whether any call of a user was made in a group."""
    called = (UsageByKey.user == user) & (UsageByKey.group == group)
    return first_row(db, UsageByKey.select(UsageByKey.day).where(called)) is not None


def _ordered(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != DEFAULT_GROUP, name))
