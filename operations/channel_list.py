"""Channels with what is known of them: the state of each model, upstream keys put aside."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import peewee

from adapters.registry import LOSSES
from store.catalog.keys_aside import with_keys_aside
from store.channels.status import Status, of_channels, to_public, worst
from store.db.database import database_ms
from store.values.usage_record import rfc3339


def with_status(db: peewee.Database, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each channel with the worst state of its models, and its status for each of them."""
    by_name: defaultdict[str, list[Status]] = defaultdict(list)
    for status in of_channels(db, database_ms(db), LOSSES):
        by_name[status.name].append(status)
    found = with_keys_aside(db, found)
    return [{**channel, **_status(by_name[channel["name"]])} for channel in found]


def _status(models: list[Status]) -> dict[str, object]:
    first = worst(models)
    return {
        "state": first.state if first else None,
        "since": rfc3339(first.since_ms) if first and first.since_ms else None,
        "reason": first.reason if first else None,
        "entries": {name: how for one in models for name, how in (one.entries or {}).items()},
        "windows": to_public(_together(models))["windows"],
        "status": [to_public(one) for one in models],
    }


def _together(models: list[Status]) -> Status:
    """All models of a channel as if they were one."""
    return Status("", "", parts=[part for one in models for part in one.parts])
