"""What `doctor` asks of every channel: a real call, as the relay would make it."""

import asyncio
from collections.abc import Sequence

import click
import peewee

from adapters.registry import VENDORS
from commands.doctor.findings import Finding, failed, ok, skipped
from conf.settings import UpstreamSettings
from handlers.relay.routing import probe
from handlers.relay.upstream.addressing import Target
from operations import channel_test
from store.catalog.catalog import Channel, Snapshot, load_snapshot
from store.values.cipher import Cipher

AT_ONCE = 8
ASKED = "Call {count} channels now? A short call each, which its vendor charges."
_CHECK = "channel"


def look(
    db: peewee.Database, cipher: Cipher, limits: UpstreamSettings, *, spend: bool | None
) -> list[Finding]:
    """A finding for each channel. `spend` None: nobody can be asked; False: they said no."""
    snapshot = load_snapshot(db, cipher)
    found = [failed(_CHECK, fault, _cure_of_fault(fault)) for fault in snapshot.faults]
    enabled = [one for one in snapshot.channels if one.enabled]
    for channel in enabled:
        found += _doubled(channel)
    if not enabled:
        return [*found, skipped(_CHECK, "no channel is enabled", "make one: ./sluice apply FILE")]
    if spend is not True:
        why = "nobody can be asked here" if spend is None else "not wanted"
        told = f"{len(enabled)} channels not called ({why}): a real call costs money at the vendor"
        return [*found, skipped(_CHECK, told, "run: ./sluice doctor --yes")]
    found += [_empty(one) for one in enabled if not one.models]
    return found + asyncio.run(_call_all([one for one in enabled if one.models], limits))


def count(snapshot: Snapshot) -> int:
    """How many calls a look would make."""
    return sum(1 for one in snapshot.channels if one.enabled and one.models)


def ask(number: int) -> bool:
    """Whether the person at the terminal wants the calls."""
    return number == 0 or click.confirm(ASKED.format(count=number), err=True, default=False)


def _cure_of_fault(fault: str) -> str:
    if "secrets.toml" in fault:
        return "restore the cipher key in secrets.toml, or set the channel's keys again"
    return "edit the channel: ./sluice channel set NAME …"


def _doubled(channel: Channel) -> list[Finding]:
    """A base URL that ends with what the vendor's paths begin with."""
    prefix = VENDORS[channel.vendor].prefixes.get(channel.family, "")
    if not prefix or not channel.base_url.endswith(prefix):
        return []
    told = f"{channel.name}: base_url {channel.base_url} ends with {prefix}, which is added to it"
    right = channel.base_url.removesuffix(prefix)
    return [failed(_CHECK, told, f"./sluice channel set {channel.name} base_url={right}")]


def _empty(channel: Channel) -> Finding:
    cure = f"./sluice channel set {channel.name} models.NAME=UPSTREAM"
    return failed(_CHECK, f"{channel.name} serves no model", cure)


async def _call_all(channels: Sequence[Channel], limits: UpstreamSettings) -> list[Finding]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(channel: Channel) -> Finding:
        key = channel.keys[0] if channel.keys else ""
        target = Target(channel, next(iter(channel.models)), key, stream=False)
        async with turn:
            return _finding(await channel_test.call(target, limits))

    return list(await asyncio.gather(*map(one, channels)))


def _finding(result: channel_test.ChannelTest) -> Finding:
    name = f"{result.channel}: {result.model}"
    if result.error is None:
        return ok(_CHECK, f"{name} answered in {result.total_ms} ms")
    told = f"{name}: {result.error}"
    if result.status is not None:
        told += f" (status {result.status})"
    return failed(_CHECK, told, _cure(result))


def _cure(result: channel_test.ChannelTest) -> str:
    channel = result.channel
    if result.error is not None and result.error.startswith(probe.HTML_ANSWER):
        return (
            "base_url leads to a web site, a sign-in page or a proxy's error page, not to an API:"
            f" correct it: ./sluice channel set {channel} base_url=URL"
        )
    if result.status is None:
        return (
            "see whether base_url is right and reached from here (name, port, firewall, proxy);"
            f" take it out meanwhile: ./sluice channel disable {channel}"
        )
    if result.status in (401, 403):
        return f"its vendor refuses the key: ./sluice channel set {channel} keys=env:NEW_KEY"
    if result.status == 404:
        return "see whether base_url and the upstream's name of the model are right"
    return f"see what the vendor says; try again: ./sluice channel test {channel}"
