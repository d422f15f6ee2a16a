"""The gateway's own calls through one channel, made as the relay makes them: the test of a model,
and the list of the upstream's models.

Nothing is charged and there is no usage record. The vendor does charge for the call of a test, but
not for a list. The upstream client is loaded at the first call: it takes 6 MB, which the Hub
otherwise does not need.
"""

import asyncio
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import peewee

from conf.settings import UpstreamSettings
from handlers.relay.upstream.addressing import Target
from operations import catalogue
from operations.price_sources import CURRENCY, vendor_word
from store.admin import listing
from store.admin.document import Entry
from store.admin.edits import entry_of_values, faults_by_field
from store.catalog.catalog import Channel, Snapshot, load_snapshot
from store.values.cipher import Cipher
from store.values.errors import Refused
from store.values.texts import MAX_UPSTREAM_NAME_CHARS, nearest
from store.values.usage import Usage

CALLS_AT_ONCE = 8  # in a test of several channels
MODELS_AT_ONCE = 4  # in a test of one channel's models
LIST_TIMEOUT_S = 20
MAX_MODELS = 1000  # of a list; no vendor has a longer page
PROBE, UPSTREAM = "handlers.relay.routing.probe", "handlers.relay.upstream.client"


@dataclass(frozen=True, slots=True)
class ChannelTest:
    """The outcome of a call; times are counted from the start.

    `error`: None if the whole answer arrived; `address`: None if there was nothing to call;
    `answer`: the beginning of its text; `usage`: tokens, None if not reported.
    """

    channel: str
    model: str
    upstream_model: str
    stream: bool
    status: int | None
    first_byte_ms: int | None
    total_ms: int
    error: str | None
    address: str | None = None
    answer: str | None = None
    usage: Usage | None = None


def to_plain(result: ChannelTest) -> dict[str, Any]:
    """Return the fields of a result as JSON."""
    plain = {name: value for name, value in asdict(result).items() if name != "usage"}
    return {"ok": result.error is None, **plain}


def target_of(
    db: peewee.Database, cipher: Cipher, name: str, model: str | None, *, stream: bool
) -> Target:
    """Return the target for the test of a channel, enabled or not. `model`: its public name; None:
    the first. Raises NotFound, Refused."""
    channel = load_channel(db, cipher, name)
    return Target(channel, _model(channel, model), first_key(channel), stream)


def targets_of(
    db: peewee.Database, cipher: Cipher, names: Sequence[str], *, stream: bool
) -> list[Target | ChannelTest]:
    """Return the target for each channel's first model, or a failed test for a channel that cannot
    be called. Raises NotFound."""
    snapshot = load_snapshot(db, cipher)
    targets: list[Target | ChannelTest] = []
    for name in names:
        try:
            channel = _channel_of(snapshot, db, name)
            targets.append(Target(channel, _model(channel, None), first_key(channel), stream))
        except Refused as error:
            targets.append(ChannelTest(name, "", "", stream, None, None, 0, str(error)))
    return targets


async def call_each(
    targets: Sequence[Target | ChannelTest], limits: UpstreamSettings
) -> list[ChannelTest]:
    """Make the calls, CALLS_AT_ONCE at a time. Return the results in the same order."""
    gate = asyncio.Semaphore(CALLS_AT_ONCE)

    async def result_of(target: Target | ChannelTest) -> ChannelTest:
        if isinstance(target, ChannelTest):
            return target
        async with gate:
            return await call(target, limits)

    return list(await asyncio.gather(*map(result_of, targets)))


async def call(target: Target, limits: UpstreamSettings) -> ChannelTest:
    """Make the call."""
    with _upstream_client(limits) as client:
        outcome = await importlib.import_module(PROBE).call(client, target, limits)
    return ChannelTest(
        channel=target.channel.name,
        model=target.model,
        upstream_model=target.upstream_model,
        stream=target.stream,
        status=outcome.status,
        first_byte_ms=outcome.first_byte_ms,
        total_ms=outcome.total_ms,
        error=outcome.message,
        address=outcome.address,
        answer=outcome.answer,
        usage=outcome.usage,
    )


@contextmanager
def _upstream_client(limits: UpstreamSettings) -> Iterator[Any]:
    """Open the relay's upstream client for one of the gateway's own calls."""
    upstream = importlib.import_module(UPSTREAM)
    client = upstream.UpstreamClient(force_instance=True, allow_private=limits.allow_private)
    try:
        yield client
    finally:
        client.close()


def load_channel(db: peewee.Database, cipher: Cipher, name: str) -> Channel:
    """Return a channel, enabled or not, with its keys decrypted. Raises NotFound, Refused."""
    return _channel_of(load_snapshot(db, cipher), db, name)


def first_key(channel: Channel) -> str:
    """Return the upstream key for the gateway's own calls; empty if there is none."""
    return channel.keys[0] if channel.keys else ""


def _channel_of(snapshot: Snapshot, db: peewee.Database, name: str) -> Channel:
    for channel in snapshot.channels:
        if channel.name == name:
            return channel
    listing.show_one(db, "channel", name)  # raises NotFound with the nearest name
    raise Refused(snapshot.faults)


def _model(channel: Channel, requested: str | None) -> str:
    label = f'channel "{channel.name}"'
    if not channel.models:
        remedy = f"./sluice channel set {channel.name} models.NAME=UPSTREAM"
        raise Refused([f"{label} serves no model: {remedy}"])
    if requested is not None and requested not in channel.models:
        hint = nearest(requested, channel.models)
        raise Refused([f'{label} does not serve model "{requested}"{hint}'])
    return requested or next(iter(channel.models))


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A model of an upstream. `served_as`: the names by which the channel serves it; `known`: a
    model of that name exists here, with prices; `proposed`: if not, the catalogue's prices for it.
    """

    name: str
    served_as: Sequence[str]
    known: bool
    proposed: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class UpstreamList:
    """The answer to a request for the list of models. `error`: None if there is a list; `status`:
    None if there was no answer."""

    names: Sequence[str]
    status: int | None
    error: str | None


async def list_upstream_models(channel: Channel, limits: UpstreamSettings) -> UpstreamList:
    """Request the list of models of a channel's upstream, over its own route (proxy, CA file)."""
    probe: Any = importlib.import_module(PROBE)
    try:
        with _upstream_client(limits) as client:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                answer = await probe.model_names(client, channel, first_key(channel), limits)
    except TimeoutError:
        return UpstreamList([], None, f"no list within {LIST_TIMEOUT_S} seconds")
    names = [
        name for name in answer.names if len(name) <= MAX_UPSTREAM_NAME_CHARS and name.isprintable()
    ]
    return UpstreamList(names[:MAX_MODELS], answer.status, answer.message)


def offers_of(
    db: peewee.Database, channel: Channel, names: Sequence[str], currency: str
) -> list[ModelOffer]:
    """Return the listed models sorted by name, each with its use here. Prices are proposed only if
    `currency` is the catalogue's."""
    served: dict[str, list[str]] = {}
    for public, upstream in channel.models.items():
        served.setdefault(upstream, []).append(public)
    existing = listing.existing(db, "model", names)

    def proposed(name: str) -> Mapping[str, str] | None:
        entry = None
        if name not in existing and currency == CURRENCY:
            entry = catalogue.of_channel(vendor_word(channel.vendor), name)
        return entry.price if entry is not None else None

    return [
        ModelOffer(name, served.get(name, []), name in existing, proposed(name))
        for name in sorted(names)
    ]


def with_models(
    db: peewee.Database, channel: Mapping[str, Any], chosen: Sequence[str]
) -> list[Entry]:
    """Return the edits with which a channel serves chosen models of its upstream by their own
    names. Models that do not exist are created from the catalogue. Raises Refused."""
    existing = listing.existing(db, "model", chosen)
    entries: dict[str, Mapping[str, object]] = {}
    for name in chosen:
        entry = catalogue.of_channel(vendor_word(channel["vendor"]), name)
        if name not in existing and entry is not None:
            entries[name] = {"name": name, **entry.fields()}
    models = {**{name: name for name in chosen}, **channel["models"]}
    edit = {"name": channel["name"], "models": models}
    with faults_by_field():
        return [
            *(entry_of_values("model", fields, None) for fields in entries.values()),
            entry_of_values("channel", edit, None),
        ]
