"""`explain`: the explanation of a key's call for a model at an endpoint."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from adapters.registry import LOSSES
from commands.output import data_options, print_json, print_table
from commands.store_access import opened_store
from operations import availability
from operations.availability import ModelLookup
from operations.explain import ChannelState, Explanation, explain, refused_features
from store.admin.export import show
from store.catalog.catalog import load_snapshot
from store.catalog.keys import digests_of, find_key
from store.values.cipher import Cipher
from store.values.key_secrets import digests

Refused = tuple[list[str], list[str]]
"""Features that a call may not ask for: those not allowed, and those without a price."""

COLUMNS = ("channel", "state", "priority", "weight", "upstream_model")


@click.command()
@click.option("--key", help="The secret of the key.")
@click.option("--key-id", help="Id of the key or USER/NAME, instead of the secret.")
@click.option("--model", required=True, help="Model as clients name it.")
@click.option("--endpoint", required=True, help="Path of the call, like /v1/messages.")
@data_options
def command(
    key: str | None,
    key_id: str | None,
    model: str,
    endpoint: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Show whether a key may call a model at an endpoint now, and through which channels.

    Channels are listed by priority, with the reason if one would not be tried. Features for which
    the call would be refused are named. The last line says where the call would go, or how it would
    fail. The exit code is 0 in both cases.
    """
    if (key is None) == (key_id is None):
        raise click.UsageError("give either --key or --key-id")
    with opened_store(config) as access:
        secrets = access.secrets()
        hashes = digests(key, secrets.peppers) if key is not None else []
        if key_id is not None:
            if "/" in key_id:
                key_id = show(access.db, "key", key_id)["id"]
            hashes = digests_of(access.db, key_id)[:1]
        snapshot = load_snapshot(access.db, Cipher(secrets.cipher_keys), LOSSES)
        caller = find_key(access.db, hashes) if hashes else None
        explanation = explain(access.db, snapshot, caller, model, endpoint)
        policy = access.loaded.settings.money.unpriced
    refused: Refused = ([], [])
    if caller is not None and explanation.allowed:
        refused = refused_features(snapshot, caller, model, policy)
    if as_json:
        _print_json(explanation, refused)
    else:
        _print(explanation, refused)


def _print_json(explanation: Explanation, refused: Refused) -> None:
    channels = [asdict(channel) for channel in explanation.channels]
    if explanation.allowed:
        lacking, unpriced = refused
        outcome: dict[str, object] = {
            "first": explanation.first,
            "features_not_allowed": lacking,
            "features_unpriced": unpriced,
        }
    else:
        outcome = {"status": explanation.status, "message": explanation.message}
        if explanation.why is not None:
            outcome["why"] = availability.to_plain(explanation.why)
    head = {"allowed": explanation.allowed, "reason": explanation.reason, "channels": channels}
    print_json({**head, **outcome})


def _print(explanation: Explanation, refused: Refused) -> None:
    click.echo("allowed" if explanation.allowed else f"refused: {explanation.reason}")
    rows = [
        {**asdict(channel), "channel": channel.name, "state": _state(channel)}
        for channel in explanation.channels
    ]
    if rows:
        print_table(rows, COLUMNS)
    labels = ("not allowed for the group", "without a price")
    for label, features in zip(labels, refused, strict=True):
        if features:
            click.echo(f"would refuse, {label}: {', '.join(features)}")
    if explanation.allowed and not explanation.first:
        click.echo("would be estimated: no channel of this model counts tokens for this endpoint")
    elif explanation.allowed:
        by_weight = ", by weight" if len(explanation.first) > 1 else ""
        click.echo(f"would be sent to {' or '.join(explanation.first)}{by_weight}")
    else:
        click.echo(f"would fail: {explanation.status} {explanation.reason}: {explanation.message}")
        for label, names in _remedies(explanation.why):
            click.echo(f"{label}: {', '.join(names)}")


def _remedies(why: ModelLookup | None) -> list[tuple[str, Sequence[str]]]:
    """Return labelled remedies for a model that is not offered."""
    if why is None:
        return []
    nearest = "public name" if why.code == availability.UPSTREAM_NAME else "nearest names"
    remedies = (("offered in", why.elsewhere), (nearest, why.nearest))
    return [(label, names) for label, names in remedies if names]


def _state(channel: ChannelState) -> str:
    translated = ""
    if channel.translated_from is not None:
        translated = f", translated from {channel.translated_from}"
    return _usable(channel) + translated


def _usable(channel: ChannelState) -> str:
    if channel.reason is None:
        return "usable"
    until = f" until {channel.until}" if channel.until else ""
    anyway = ", tried anyway" if channel.usable else ""
    return f"{channel.reason}{until}{anyway}"
