"""`channel test`: a real call through one channel, as the relay would make it.

Nothing is charged and no usage record is made; the vendor of the channel does count the call.
"""

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from commands.output import FAILED, config_option, json_option, print_fields, print_json
from commands.store_access import Access, opened_store
from conf.settings import UpstreamSettings
from handlers.relay.routing import probe
from handlers.relay.upstream.client import UpstreamClient
from store.admin.export import show
from store.catalog.catalog import Channel, load_snapshot
from store.values.cipher import Cipher
from store.values.errors import Refused
from store.values.texts import nearest


@dataclass(slots=True)
class Result:
    """How a call went. `error` None: a whole answer of the family came; times from the start."""

    channel: str
    model: str
    upstream_model: str
    stream: bool
    status: int | None = None
    first_byte_ms: int | None = None
    total_ms: int = 0
    error: str | None = None


@click.command("test")
@click.argument("name")
@click.option("--model", help="Public name of the model.  [default: the channel's first]")
@click.option("--stream", is_flag=True, help="Ask for a stream.")
@config_option
@json_option
def command(name: str, model: str | None, stream: bool, config: Path | None, as_json: bool) -> int:
    """Make a real call through a channel; exit code 1 when it fails."""
    with opened_store(config) as access:
        channel = _channel(access, name)
        limits = access.loaded.settings.upstream
    public = _model(channel, model)
    key = channel.keys[0] if channel.keys else ""
    outcome = asyncio.run(_call(probe.Target(channel, public, key, stream), limits))
    result = Result(channel.name, public, channel.models[public], stream)
    result.status, result.first_byte_ms = outcome.status, outcome.first_byte_ms
    result.total_ms, result.error = outcome.total_ms, outcome.told
    if as_json:
        print_json({"ok": result.error is None, **asdict(result)})
    else:
        print_fields(asdict(result))
    return 0 if result.error is None else FAILED


def _channel(access: Access, name: str) -> Channel:
    """The channel with its keys opened, enabled or not."""
    show(access.db, "channel", name)  # its NotFound knows the nearest name
    snapshot = load_snapshot(access.db, Cipher(access.secrets().cipher_keys))
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


async def _call(target: probe.Target, limits: UpstreamSettings) -> probe.Outcome:
    client = UpstreamClient(force_instance=True, allow_private=limits.allow_private)
    try:
        return await probe.call(client, target, limits)
    finally:
        client.close()
