"""What groups offer to keys: models, entries, multiplier; and in which a user may make keys.

Blocking; for the Hub.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import peewee

from store.catalog.catalog import EVERYTHING
from store.db.database import in_snapshot, select_rows
from store.db.tables.catalog import Channel, Group, Model
from store.hub.membership import assigned_groups


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """A group as the owner of a key sees it; `models`: those that some channel serves to it."""

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
    """All groups by name, in order of name."""
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
    """The groups in which a user may make or move keys, in order of name: an administrator in all,
    a member in those of its own that there are."""
    names = [name for (name,) in select_rows(db, Group.select(Group.name).order_by(Group.name))]
    if admin:
        return names
    own = assigned_groups(db, user_id)
    return [name for name in names if name in own]
