"""The models that a channel's upstream lists, and which of them can be served here.

Asked with the relay's own client, by the channel's own route; vendors charge nothing for a list.
"""

import asyncio
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from conf.settings import UpstreamSettings
from operations.channel_test import PROBE, first_key, upstream_client
from store.admin import listing
from store.catalog.catalog import Channel
from store.values.texts import MAX_UPSTREAM_NAME_CHARS

PATIENCE_S = 20
MAX_MODELS = 1000  # of a list; no vendor has a longer page


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A model of an upstream. `served_as`: the names by which the channel serves it; `known`:
    whether there is a model of its name here, with prices."""

    name: str
    served_as: Sequence[str]
    known: bool


@dataclass(frozen=True, slots=True)
class UpstreamList:
    """What an upstream said. `error` None: its list came; `status`: that of its answer, if any."""

    names: Sequence[str]
    status: int | None
    error: str | None


async def ask(channel: Channel, limits: UpstreamSettings) -> UpstreamList:
    """Ask an upstream for its list."""
    probe: Any = importlib.import_module(PROBE)
    try:
        with upstream_client(limits) as client:
            async with asyncio.timeout(PATIENCE_S):
                found = await probe.model_names(client, channel, first_key(channel), limits)
    except TimeoutError:
        return UpstreamList([], None, f"no list within {PATIENCE_S} seconds")
    names = [name for name in found.names if _can_be_named(name)]
    return UpstreamList(names[:MAX_MODELS], found.status, found.told)


def _can_be_named(name: str) -> bool:
    return len(name) <= MAX_UPSTREAM_NAME_CHARS and name.isprintable()


def offers(db: peewee.Database, channel: Channel, names: Sequence[str]) -> list[ModelOffer]:
    """The listed models in order of name, each with what it is here."""
    served: dict[str, list[str]] = {}
    for public, upstream in channel.models.items():
        served.setdefault(upstream, []).append(public)
    known = listing.existing(db, "model", names)
    return [ModelOffer(name, served.get(name, []), name in known) for name in sorted(names)]
