"""A real call through one channel, as the relay would make it.

Nothing is charged and no usage record is made; the vendor of the channel does count the call. The
upstream client is loaded at the first call: it takes 6 MB, which the Hub has no use for otherwise.
"""

import asyncio
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import peewee

from conf.settings import UpstreamSettings
from handlers.relay.upstream.addressing import Target
from store.admin.listing import one
from store.catalog.catalog import Channel, Snapshot, load_snapshot
from store.values.cipher import Cipher
from store.values.errors import Refused
from store.values.texts import nearest

CALLS_AT_ONCE = 8  # in a test of several channels
PROBE, UPSTREAM = "handlers.relay.routing.probe", "handlers.relay.upstream.client"


@dataclass(frozen=True, slots=True)
class ChannelTest:
    """The outcome of a call. `error` None: a whole answer of the family came; times from the
    start."""

    channel: str
    model: str
    upstream_model: str
    stream: bool
    status: int | None
    first_byte_ms: int | None
    total_ms: int
    error: str | None


def to_plain(result: ChannelTest) -> dict[str, Any]:
    """Return the fields of a result as JSON shows them."""
    return {"ok": result.error is None, **asdict(result)}


def target_of(
    db: peewee.Database, cipher: Cipher, name: str, model: str | None, *, stream: bool
) -> Target:
    """What a test of a channel calls, enabled or not: a model by its public name, else the first.

    Raises NotFound and Refused.
    """
    channel = opened(db, cipher, name)
    return Target(channel, _model(channel, model), first_key(channel), stream)


def targets_of(
    db: peewee.Database, cipher: Cipher, names: Sequence[str], *, stream: bool
) -> list[Target | ChannelTest]:
    """The same of several channels, each by its first model; of one that cannot be called, how that
    went. Raises NotFound."""
    snapshot = load_snapshot(db, cipher)
    found: list[Target | ChannelTest] = []
    for name in names:
        try:
            channel = _in(snapshot, db, name)
            found.append(Target(channel, _model(channel, None), first_key(channel), stream))
        except Refused as error:
            found.append(ChannelTest(name, "", "", stream, None, None, 0, str(error)))
    return found


async def call_each(
    targets: Sequence[Target | ChannelTest], limits: UpstreamSettings
) -> list[ChannelTest]:
    """Make the calls, CALLS_AT_ONCE at a time; the results in their order."""
    gate = asyncio.Semaphore(CALLS_AT_ONCE)

    async def one(target: Target | ChannelTest) -> ChannelTest:
        if isinstance(target, ChannelTest):
            return target
        async with gate:
            return await call(target, limits)

    return list(await asyncio.gather(*map(one, targets)))


@contextmanager
def upstream_client(limits: UpstreamSettings) -> Iterator[Any]:
    """The relay's client of upstreams, for a call of ours."""
    upstream = importlib.import_module(UPSTREAM)
    client = upstream.UpstreamClient(force_instance=True, allow_private=limits.allow_private)
    try:
        yield client
    finally:
        client.close()


def opened(db: peewee.Database, cipher: Cipher, name: str) -> Channel:
    """A channel with its keys opened, enabled or not. Raises NotFound and Refused."""
    return _in(load_snapshot(db, cipher), db, name)


def first_key(channel: Channel) -> str:
    """The upstream key that a call of ours is made with; empty: without one."""
    return channel.keys[0] if channel.keys else ""


async def call(target: Target, limits: UpstreamSettings) -> ChannelTest:
    """Make the call."""
    with upstream_client(limits) as client:
        outcome = await importlib.import_module(PROBE).call(client, target, limits)
    return ChannelTest(
        channel=target.channel.name,
        model=target.model,
        upstream_model=target.upstream_model,
        stream=target.stream,
        status=outcome.status,
        first_byte_ms=outcome.first_byte_ms,
        total_ms=outcome.total_ms,
        error=outcome.told,
    )


def _in(snapshot: Snapshot, db: peewee.Database, name: str) -> Channel:
    for channel in snapshot.channels:
        if channel.name == name:
            return channel
    one(db, "channel", name)  # its NotFound knows the nearest name
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
