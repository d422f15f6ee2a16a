"""`explain`: whether a key may call a model at an endpoint now, why not, and by which channels.

It asks the very functions that decide a call, on the store alone: no gateway has to run, nothing is
spent and nothing recorded. What only a running gateway knows (health, rates, calls at one time, the
caller's address) is not judged.
"""

import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import peewee

from adapters.family import Family, Operation
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES, VENDORS
from commands.output import config_option, json_option, print_json, print_table
from commands.store_access import Access, opened_store
from handlers.relay import admit, faults
from handlers.relay.call import Arrival, Call
from handlers.relay.health import Health
from handlers.relay.plan import LeftOut, Planner, not_candidates
from store import leases
from store.accounts import payment_of
from store.catalog import Channel, Snapshot, load_snapshot
from store.cipher import Cipher
from store.funds import QuotaUsed, WalletEmpty
from store.ids import now_ms
from store.keys import digests, digests_of, find_key
from store.usage import WALLET

NO_COUNTING = "counts_no_tokens"
LIMITS = ("rpm", "tpm", "concurrency", "key_rpm", "key_tpm", "key_concurrency")
COLUMNS = ("channel", "state", "priority", "weight", "upstream_model")

_PLACEHOLDER = re.compile(r"\\\{[a-z_]+\\\}")
_LEAST_INPUT_TOKENS = 1


@click.command()
@click.option("--key", help="The secret of the key.")
@click.option("--key-id", help="Its id, instead of the secret.")
@click.option("--model", required=True, help="The model as clients name it.")
@click.option("--endpoint", required=True, help="The path of the call, like /v1/messages.")
@config_option
@json_option
def command(
    key: str | None,
    key_id: str | None,
    model: str,
    endpoint: str,
    config: Path | None,
    as_json: bool,
) -> None:
    """Say whether a key may call a model at an endpoint now, and by which channels.

    The channels stand in the order of their priority; those that cannot take the call have a
    reason. Exit code 0, whatever the answer is.
    """
    if (key is None) == (key_id is None):
        raise click.UsageError("give either --key or --key-id")
    with opened_store(config) as access:
        secrets = access.secrets()
        wanted = digests(key, secrets.peppers) if key is not None else []
        if key_id is not None:
            wanted = digests_of(access.db, key_id)[:1]
        snapshot = load_snapshot(access.db, Cipher(secrets.cipher_keys))
        said = _explained(access, snapshot, wanted, (model, endpoint))
    if as_json:
        print_json(said)
    else:
        _print(said)


def _explained(
    access: Access, snapshot: Snapshot, wanted: list[bytes], asked: tuple[str, str]
) -> dict[str, Any]:
    model, endpoint = asked
    channels: list[dict[str, Any]] = []
    try:
        family, operation = _entry_of(endpoint)
        key = find_key(access.db, wanted) if wanted else None
        if key is None:
            raise Fault(Condition.INVALID_KEY)
        call = Call(
            arrival=Arrival("", now_ms(), "", None, None),
            family=family,
            operation=operation,
            key=key,
            client_headers={},
            snapshot=snapshot,
        )
        channels = _channels(call, model)
        _admit(call, model)
        if not call.candidates:
            raise Fault(Condition.NO_CHANNEL, model=model)
        _check_money(access.db, call)
    except Fault as fault:
        return {"allowed": False, "reason": fault.code, "channels": channels}
    return {"allowed": True, "reason": None, "channels": channels}


def _entry_of(endpoint: str) -> tuple[Family, Operation]:
    """What a path asks for; E31 when the relay has no such endpoint that takes a model."""
    for family in FAMILIES.values():
        for operation in family.operations.values():
            if not operation.stored:
                pattern = _PLACEHOLDER.sub("[^/]+", re.escape(operation.endpoint))
                if re.fullmatch(pattern, endpoint) or endpoint == operation.endpoint:
                    return family, operation
    raise Fault(Condition.UNKNOWN_PATH)


def _admit(call: Call, model: str) -> None:
    """The checks of head and model as the relay makes them. Raises Fault."""
    admit.check_key(replace(call.key, networks=()), "", call.arrival.started_ms)
    call.group = admit.check_entry(call.snapshot, call.key, call.family)
    admit.check_model(call, model)
    if call.operation.counting:
        admit.check_counting(call)


def _channels(call: Call, model: str) -> list[dict[str, Any]]:
    """Those that can take the call, as a plan has them but for breakers; then the others."""
    snapshot, group, family = call.snapshot, call.key.group, call.family.name
    candidates = snapshot.candidates(group, model, family)
    counting = call.operation.counting
    able = [one for one in candidates if not counting or VENDORS[one.vendor].counts]
    health, now_s = Health(random.random), time.monotonic()
    health.take_keys_aside(snapshot, now_s, call.arrival.started_ms)
    planner = Planner(health, random.random)
    steps = planner.plan(able, model, now_s, len(able))
    shown = [_shown(step.channel, model, None) for step in steps]
    others = planner.left_out(able, model, now_s)
    others += [LeftOut(one, NO_COUNTING) for one in candidates if one not in able]
    others += not_candidates(snapshot, group, model, family)
    return shown + [_shown(one.channel, model, one.reason) for one in others]


def _check_money(db: peewee.Database, call: Call) -> None:
    """Whether the accounts cover a short answer to an empty question. Raises Fault E18, E19."""
    if call.operation.free:
        return
    assert call.model is not None
    call.input_bound_tokens = _LEAST_INPUT_TOKENS
    call.output_bound_tokens = call.model.max_output_tokens or admit.DEFAULT_OUTPUT_BOUND_TOKENS
    least = admit.least_hold(call)
    if not least:
        return
    payment = payment_of(call.key, call.arrival.started_ms)
    if not payment.payers:
        raise faults.from_store(QuotaUsed(None))
    if payment.limit is not None and leases.balance(db, payment.limit) < least:
        raise faults.from_store(QuotaUsed(payment.limit))
    if sum(max(0, leases.balance(db, account)) for account in payment.payers) >= least:
        return
    if any(account.kind == WALLET for account in payment.payers):
        raise faults.from_store(WalletEmpty())
    raise faults.from_store(QuotaUsed(payment.payers[0]))


def _shown(channel: Channel, model: str, reason: str | None) -> dict[str, Any]:
    return {
        "name": channel.name,
        "usable": reason is None,
        "reason": reason,
        "vendor": channel.vendor,
        "family": channel.family,
        "priority": channel.priority,
        "weight": channel.weight,
        "limits": {name: value for name in LIMITS if (value := getattr(channel, name))},
        "upstream_model": channel.models[model],
    }


def _print(said: dict[str, Any]) -> None:
    click.echo("allowed" if said["allowed"] else f"refused: {said['reason']}")
    rows = [
        {**one, "channel": one["name"], "state": one["reason"] or "usable"}
        for one in said["channels"]
    ]
    if rows:
        print_table(rows, COLUMNS)
