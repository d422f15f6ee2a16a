"""The channels as their status sees them: what they serve, to whom, by which upstream keys.

Without secrets, and with disabled ones, which the snapshot of the relay needs less often than this.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import peewee

from store.db.database import select_rows
from store.db.tables.catalog import Channel, ChannelKey


@dataclass(frozen=True, slots=True)
class ServingChannel:
    """A channel; `models` maps public to upstream names."""

    id: str
    name: str
    groups: frozenset[str]
    models: Mapping[str, str]
    family: str
    translate: bool
    enabled: bool
    draining: bool
    fingerprints: tuple[str, ...]  # ("",) for a channel without upstream keys


def load_serving(db: peewee.Database) -> list[ServingChannel]:
    """All channels, in the caller's transaction."""
    marks: defaultdict[str, list[str]] = defaultdict(list)
    for channel_id, mark in select_rows(
        db, ChannelKey.select(ChannelKey.channel_id, ChannelKey.fingerprint)
    ):
        marks[channel_id].append(mark)
    query = Channel.select(
        *(Channel.id, Channel.name, Channel.groups, Channel.models),
        *(Channel.family, Channel.translate, Channel.enabled, Channel.draining),
    )
    return [
        ServingChannel(key, name, frozenset(groups), *(*rest, tuple(marks.get(key, ("",)))))
        for key, name, groups, *rest in select_rows(db, query)
    ]
