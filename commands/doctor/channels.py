"""Checks of channels: a real call through each, as the relay would make it."""

import asyncio

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

QUESTION = "Make a short call to each of {count} channels now? Their vendors charge for it."
_CHECK = "channel"


def look(
    db: peewee.Database, cipher: Cipher, limits: UpstreamSettings, *, spend: bool | None
) -> list[Finding]:
    """Return a finding for each channel. `spend`: None without a terminal, False if declined."""
    snapshot = load_snapshot(db, cipher)
    findings = [failed(_CHECK, fault, _remedy_for_fault(fault)) for fault in snapshot.faults]
    enabled = [channel for channel in snapshot.channels if channel.enabled]
    for channel in enabled:
        findings += _doubled(channel)
    if not enabled:
        remedy = "create one: ./sluice apply FILE"
        return [*findings, skipped(_CHECK, "no channel is enabled", remedy)]
    if spend is not True:
        why = "no terminal to ask on" if spend is None else "declined"
        message = (
            f"{len(enabled)} channels not called ({why}): a real call costs money at the vendor"
        )
        return [*findings, skipped(_CHECK, message, "run: ./sluice doctor --yes")]
    findings += [_without_models(channel) for channel in enabled if not channel.models]
    targets = [
        Target(channel, next(iter(channel.models)), channel_test.first_key(channel), stream=False)
        for channel in enabled
        if channel.models
    ]
    results = asyncio.run(channel_test.call_each(targets, limits))
    return findings + [_finding(result) for result in results]


def count(snapshot: Snapshot) -> int:
    """Return the number of calls that the checks would make."""
    return sum(1 for channel in snapshot.channels if channel.enabled and channel.models)


def ask(number: int) -> bool:
    """Ask at the terminal whether to make the calls."""
    return number == 0 or click.confirm(QUESTION.format(count=number), err=True, default=False)


def _remedy_for_fault(fault: str) -> str:
    if "secrets.toml" in fault:
        return "restore the cipher key in secrets.toml, or set the channel's keys again"
    return "edit the channel: ./sluice channel set NAME …"


def _doubled(channel: Channel) -> list[Finding]:
    """Find a base URL whose end is also the beginning of the vendor's paths."""
    root = VENDORS[channel.vendor].roots.get(channel.family, "").rpartition("/v1")[0]
    if not root or not channel.base_url.endswith(root):
        return []
    message = f"{channel.name}: base_url {channel.base_url} ends with {root}, which is appended"
    base_url = channel.base_url.removesuffix(root)
    return [failed(_CHECK, message, f"./sluice channel set {channel.name} base_url={base_url}")]


def _without_models(channel: Channel) -> Finding:
    remedy = f"./sluice channel set {channel.name} models.NAME=UPSTREAM"
    return failed(_CHECK, f"{channel.name} serves no model", remedy)


def _finding(result: channel_test.ChannelTest) -> Finding:
    name = f"{result.channel}: {result.model}"
    if result.error is None:
        return ok(_CHECK, f"{name} answered in {result.total_ms} ms at {result.address}")
    message = f"{name}: {result.error}"
    if result.status is not None:
        message += f" (status {result.status})"
    return failed(_CHECK, message, _remedy(result))


def _remedy(result: channel_test.ChannelTest) -> str:
    channel = result.channel
    if result.error is not None and result.error.startswith(probe.HTML_ANSWER):
        return (
            "base_url leads to a web site, a sign-in page or a proxy's error page, not to an API:"
            f" correct it: ./sluice channel set {channel} base_url=URL"
        )
    if result.status is None:
        return (
            "check that base_url is right and reachable from here (name, port, firewall, proxy);"
            f" until then disable it: ./sluice channel disable {channel}"
        )
    if result.status in (401, 403):
        return f"the vendor refuses the key: ./sluice channel set {channel} keys=env:NEW_KEY"
    if result.status == 404:
        return "check base_url and the upstream's name of the model"
    return f"see the vendor's message; try again: ./sluice channel test {channel}"
