"""Users by name, the groups related to a user, and what groups offer to keys.

Blocking; for the Hub.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import peewee

from store.catalog.catalog import EVERYTHING
from store.db.database import first_row, in_snapshot, select_rows
from store.db.tables.catalog import Channel, Group, Model
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
    """Return the groups in which a user may create keys. Some of them may have been removed."""
    row = first_row(db, User.select(User.groups).where(User.id == user_id))
    return [DEFAULT_GROUP] if row is None or row[0] is None else list(row[0])


@in_snapshot
def groups_of(db: peewee.Database, user_id: str, *, admin: bool) -> list[str]:
    """Return the groups whose models a user can use, the default one first; for an administrator,
    all. Revoked keys do not count."""
    names: dict[str, str] = dict(select_rows(db, Group.select(Group.id, Group.name)))
    groups = set(names.values())
    if not admin:
        living = (ApiKey.user_id == user_id) & ApiKey.revoked_ms.is_null()
        keys = select_rows(db, ApiKey.select(ApiKey.group_id).where(living).distinct())
        used = {names[group_id] for (group_id,) in keys if group_id in names}
        groups = used | groups.intersection(assigned_groups(db, user_id))
    return sorted(groups, key=lambda name: (name != DEFAULT_GROUP, name))


def has_called_in(db: peewee.Database, user: str, group: str) -> bool:
    """Return whether a user has any call in a group."""
    called = (UsageByKey.user == user) & (UsageByKey.group == group)
    return first_row(db, UsageByKey.select(UsageByKey.day).where(called)) is not None


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """A group as the owner of a key sees it. `models` are those that some channel serves to it."""

    name: str
    multiplier_ppm: int
    entries: tuple[str, ...]
    models: tuple[str, ...]
    enabled: bool
    rpm: int
    tpm: int
    concurrency: int


@in_snapshot
def key_groups(db: peewee.Database) -> dict[str, KeyGroup]:
    """Return all groups by name, in order of name."""
    enabled_models = Model.select(Model.name).where(Model.disabled == False)  # noqa: E712 - SQL
    models = {name for (name,) in select_rows(db, enabled_models)}
    columns = (Channel.groups, Channel.models)
    on = Channel.select(*columns).where(Channel.enabled == True)  # noqa: E712 - SQL
    served: dict[str, set[str]] = {}
    for groups, names in select_rows(db, on):
        for group in groups:
            served.setdefault(group, set()).update(names)
    return {
        group.name: group
        for group in _groups(db, {name: names & models for name, names in served.items()})
    }


def _groups(db: peewee.Database, served: dict[str, set[str]]) -> Iterable[KeyGroup]:
    columns = (Group.name, Group.multiplier_ppm, Group.entries, Group.models, Group.disabled)
    limits = (Group.rpm, Group.tpm, Group.concurrency)
    for row in select_rows(db, Group.select(*columns, *limits).order_by(Group.name)):
        name, multiplier_ppm, entries, allowed, disabled, *rates = row
        served_models = served.get(name, set())
        models = served_models if EVERYTHING in allowed else served_models & set(allowed)
        yield KeyGroup(
            name, multiplier_ppm, tuple(entries), tuple(sorted(models)), not disabled, *rates
        )


@in_snapshot
def groups_for_keys(db: peewee.Database, user_id: str, *, admin: bool) -> list[str]:
    """Return the groups in which a user may create keys or move them to, in order of name: all for
    an administrator, the assigned ones that exist for a member."""
    names = [name for (name,) in select_rows(db, Group.select(Group.name).order_by(Group.name))]
    if admin:
        return names
    own = assigned_groups(db, user_id)
    return [name for name in names if name in own]
