"""Channels in the form that their status needs: what they serve, to which groups, with which
upstream keys and by which entries.

Without secrets, but with disabled channels, which the relay's snapshot rarely needs. Calls are
decided by the snapshot (`store.catalog.catalog`), with the same rules.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import peewee

from store.catalog.catalog import Group, Losses, losses_to
from store.db.database import select_rows
from store.db.tables.catalog import Channel, ChannelKey

NATIVE = "native"
TRANSLATED = "translated from "


@dataclass(frozen=True, slots=True)
class ServingChannel:
    """A channel. `models` maps public to upstream names."""

    id: str
    name: str
    groups: frozenset[str]
    models: Mapping[str, str]
    family: str
    translate: bool
    enabled: bool
    draining: bool
    fingerprints: tuple[str, ...]  # ("",) for a channel without upstream keys
    vendor: str = ""


def load_serving(db: peewee.Database) -> list[ServingChannel]:
    """Return all channels, in the caller's transaction."""
    marks: defaultdict[str, list[str]] = defaultdict(list)
    for channel_id, mark in select_rows(
        db, ChannelKey.select(ChannelKey.channel_id, ChannelKey.fingerprint)
    ):
        marks[channel_id].append(mark)
    query = Channel.select(
        *(Channel.id, Channel.name, Channel.groups, Channel.models),
        *(Channel.family, Channel.translate, Channel.enabled, Channel.draining, Channel.vendor),
    )
    return [
        ServingChannel(key, name, frozenset(groups), *(*rest, tuple(marks.get(key, ("",))), vendor))
        for key, name, groups, *rest, vendor in select_rows(db, query)
    ]


class Entries:
    """The entries by which channels can be called. `groups` are by name; for `losses` see
    Losses."""

    def __init__(self, groups: Iterable[Group], losses: Losses) -> None:
        self._groups = {group.name: group for group in groups}
        self._losses = losses
        self._known: dict[tuple[str, bool, frozenset[str]], Mapping[str, str]] = {}

    def of(
        self, family: str, groups: frozenset[str], model: str, *, translate: bool
    ) -> Mapping[str, str]:
        """Return family of the entry -> native, or the family from which it is translated, for a
        model of a channel that speaks `family` and takes calls of these groups."""
        # There are many channels, and few differ in this.
        serving = frozenset(name for name in groups if self._permits(name, model))
        key = (family, translate, serving)
        entries = self._known.get(key)
        if entries is None:
            entries = self._known[key] = self._of(family, serving, translate=translate)
        return entries

    def _permits(self, name: str, model: str) -> bool:
        group = self._groups.get(name)
        return group is not None and (group.models is None or model in group.models)

    def _of(self, family: str, names: Iterable[str], *, translate: bool) -> Mapping[str, str]:
        open_to = losses_to(family, self._losses) if translate else {}
        entries = {}
        for group in (self._groups[name] for name in names):
            if family in group.entries:
                entries[family] = NATIVE
            if group.translate:
                # of equals, the first by name, so that the result is always the same
                for entry in sorted(group.entries & open_to.keys()):
                    entries[entry] = f"{TRANSLATED}{family}"
        return dict(sorted(entries.items(), key=lambda item: (item[1] != NATIVE, item[0])))
