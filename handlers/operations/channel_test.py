"""A real call through one channel, as the relay would make it.

Nothing is charged and no usage record is made; the vendor of the channel does count the call. The
upstream client is loaded at the first call: it takes 6 MB, which the Hub has no use for otherwise.
"""

import importlib
from dataclasses import dataclass

import peewee

from conf.settings import UpstreamSettings
from handlers.relay.upstream.target import Target
from store.admin.export import show
from store.catalog.catalog import Channel, load_snapshot
from store.values.cipher import Cipher
from store.values.errors import Refused
from store.values.texts import nearest

PROBE, UPSTREAM = "handlers.relay.routing.probe", "handlers.relay.upstream.client"


@dataclass(frozen=True, slots=True)
class Result:
    """How a call went. `error` None: a whole answer of the family came; times from the start."""

    channel: str
    model: str
    upstream_model: str
    stream: bool
    status: int | None
    first_byte_ms: int | None
    total_ms: int
    error: str | None


def target_of(
    db: peewee.Database, cipher: Cipher, name: str, model: str | None, *, stream: bool
) -> Target:
    """What a test of a channel calls, enabled or not: a model by its public name, else the first.

    Raises NotFound and Refused.
    """
    channel = _channel(db, cipher, name)
    key = channel.keys[0] if channel.keys else ""
    return Target(channel, _model(channel, model), key, stream)


async def call(target: Target, limits: UpstreamSettings) -> Result:
    """Make the call."""
    probe, upstream = importlib.import_module(PROBE), importlib.import_module(UPSTREAM)
    client = upstream.UpstreamClient(force_instance=True, allow_private=limits.allow_private)
    try:
        outcome = await probe.call(client, target, limits)
    finally:
        client.close()
    return Result(
        channel=target.channel.name,
        model=target.model,
        upstream_model=target.upstream_model,
        stream=target.stream,
        status=outcome.status,
        first_byte_ms=outcome.first_byte_ms,
        total_ms=outcome.total_ms,
        error=outcome.told,
    )


def _channel(db: peewee.Database, cipher: Cipher, name: str) -> Channel:
    """The channel with its keys opened, enabled or not."""
    show(db, "channel", name)  # its NotFound knows the nearest name
    snapshot = load_snapshot(db, cipher)
    for channel in snapshot.channels:
        if channel.name == name:
            return channel
    raise Refused(snapshot.faults)


def _model(channel: Channel, asked: str | None) -> str:
    where = f'channel "{channel.name}"'
    if not channel.models:
        raise Refused(
            [f"{where} serves no model: ./sluice channel set {channel.name} models.NAME=UPSTREAM"]
        )
    if asked is not None and asked not in channel.models:
        raise Refused([f'{where} does not serve model "{asked}"{nearest(asked, channel.models)}'])
    return asked or next(iter(channel.models))
