"""What a call of a key for a model at an endpoint would get now, and by which channels.

It asks the very functions that decide a call, on the store alone: no gateway has to run, nothing is
spent and nothing recorded. What workers hold against channels and upstream keys is there, too: what
one of them has met counts as met. What only a running gateway knows (rates, calls at one time, the
caller's address) is not judged.
"""

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import peewee

from adapters.family import Family, Operation, Peek
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES, FAMILY_NAMES, LOSSES
from handlers.relay import admit, faults
from handlers.relay.call import Arrival, Call
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Limits
from handlers.relay.routing.health import Health
from handlers.relay.routing.open_breakers import restore
from handlers.relay.routing.plan import (
    DISABLED,
    OTHER_FAMILY,
    OTHER_GROUP,
    TRANSLATE_OFF,
    Candidate,
    LeftOut,
    Planner,
    Wanted,
    not_candidates,
)
from handlers.relay.routing.selector import Selector
from operations.availability import CALLABLE, Availability, Why
from store.catalog.catalog import Channel, Snapshot
from store.catalog.keys import KeyEntry
from store.channels.breakers import all_open
from store.channels.offers import load_world
from store.db.database import database_ms, snapshot_read
from store.money import leases
from store.money.accounts import payment_of
from store.money.funds import QuotaUsed, WalletEmpty
from store.values.ids import now_ms
from store.values.usage_record import WALLET, rfc3339

NO_COUNTING = "counts_no_tokens"
_NEVER_ASKED = frozenset({DISABLED, OTHER_GROUP, OTHER_FAMILY, TRANSLATE_OFF, NO_COUNTING})
LIMITS = ("rpm", "tpm", "concurrency", "key_rpm", "key_tpm", "key_concurrency")

_PLACEHOLDER = re.compile(r"\\\{[a-z_]+\\\}")
_LEAST_INPUT_TOKENS = 1


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A channel as the call would find it now.

    `usable`: it would be asked, in spite of a reason when nothing better is left. `until` is RFC
    3339. `translated_from`: its family, when it speaks another than the call.
    """

    name: str
    usable: bool
    reason: str | None
    until: str | None
    vendor: str
    family: str
    translated_from: str | None
    priority: int
    weight: int
    limits: Mapping[str, int]
    upstream_model: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`first`: the channels that the call may be sent to first; none when its tokens would be
    estimated without asking one. When it would fail: the `reason`, a code of usage records, with
    status and message as the client would get them; and of a model that is not offered to the key's
    group `why`: where it is, which name was meant."""

    channels: Sequence[ChannelState] = ()
    first: Sequence[str] = ()
    reason: str | None = None
    status: int | None = None
    message: str | None = None
    why: Why | None = None

    @property
    def allowed(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True)
class _World:
    """What a worker would decide with that has read the store just now."""

    snapshot: Snapshot
    planner: Planner
    selector: Selector
    now_s: float


def _world(db: peewee.Database, snapshot: Snapshot) -> _World:
    health, now_s = Health(random.random), time.monotonic()
    health.keys.take(snapshot, now_s, snapshot.read_ms)
    restore(health, snapshot, snapshot_read(db, lambda: all_open(db)), now_s)
    planner = Planner(health, random.random)
    selector = Selector(planner, Limits(private_cells()))
    return _World(snapshot, planner, selector, now_s)


def explain(
    db: peewee.Database, snapshot: Snapshot, key: KeyEntry | None, model: str, endpoint: str
) -> Explanation:
    """What a call would get now; `key` None: one that nobody has. Raises StoreError."""
    family = FAMILIES[FAMILY_NAMES[0]]
    shown: list[ChannelState] = []
    try:
        family, operation = _entry_of(endpoint)
        if key is None:
            raise Fault(Condition.INVALID_KEY)
        world = _world(db, snapshot)
        call = Call(
            arrival=Arrival("", now_ms(), "", None, None),
            family=family,
            operation=operation,
            key=key,
            client_headers={},
            snapshot=snapshot,
            peek=Peek(model, False, 1, 1, include_usage=True),
        )
        shown = _channels(world, call, model)
        _admit(call, model)
        if call.estimated:
            return Explanation(shown)
        candidate = world.selector.next(Wanted(call.candidates, family.name, model), world.now_s)
        if not isinstance(candidate, Candidate):
            raise faults.no_candidate_fault(candidate, model)
        _check_money(db, call)
    except Fault as fault:
        status = family.client.encode_fault(fault, "").status
        why = _why(db, key, model) if fault.condition is Condition.MODEL_NOT_FOUND else None
        return Explanation(shown, (), fault.code, status, fault.message, why)
    return Explanation(shown, _first(call, shown, candidate))


def _why(db: peewee.Database, key: KeyEntry | None, model: str) -> Why | None:
    """Why the group of a key does not offer a model; among all groups, since operators ask."""
    if key is None:
        return None
    world = load_world(db, database_ms(db), None, LOSSES, figures_of=())
    why = Availability(world).why(key.group, model)
    return None if why.code == CALLABLE else why  # the key alone may not use it


def _first(call: Call, shown: Sequence[ChannelState], candidate: Candidate) -> list[str]:
    """The channels that a call may be sent to first: which one is drawn by weight."""
    if candidate.anyway:
        return [candidate.channel.name]
    family = call.family.name
    rank = candidate.channel.rank(family)
    equals = {one.name for one in call.candidates if one.rank(family) == rank}
    return [one.name for one in shown if one.usable and one.reason is None and one.name in equals]


def _entry_of(endpoint: str) -> tuple[Family, Operation]:
    """What a path asks for; E31 when the relay has no such endpoint that takes a model."""
    known = []
    for family in FAMILIES.values():
        for operation in family.client.operations.values():
            if not operation.stored:
                pattern = _PLACEHOLDER.sub("[^/]+", re.escape(operation.endpoint))
                if re.fullmatch(pattern, endpoint) or endpoint == operation.endpoint:
                    return family, operation
                known.append(operation.endpoint)
    told = (
        f"No endpoint that takes a model: {endpoint}; there are: {', '.join(dict.fromkeys(known))}"
    )
    raise Fault(Condition.UNKNOWN_PATH, told)


def _admit(call: Call, model: str) -> None:
    """The checks of head and model as the relay makes them. Raises Fault."""
    admit.check_key(replace(call.key, networks=()), "", call.arrival.started_ms)
    call.group = admit.check_entry(call.snapshot, call.key, call.family)
    admit.check_model(call, model)
    if call.operation.job == "count":
        admit.check_counting(call)
    elif call.operation.job == "compact":
        admit.check_native(call)


def _channels(world: _World, call: Call, model: str) -> list[ChannelState]:
    """Those that would be asked, in the order of a plan; then the others."""
    snapshot, group, family = call.snapshot, call.key.group, call.family.name
    planner, now_s = world.planner, world.now_s
    channels = snapshot.candidates(group, model, family)
    able = [one for one in channels if _can(call, one)]
    wanted = Wanted(able, family, model)
    last = planner.last_resort(wanted, now_s)
    candidates = planner.plan(wanted, now_s, len(able)) if last is None else last.candidates
    left_out = planner.left_out(wanted, now_s)
    reasons = {one.channel.id: one for one in left_out}
    usable = [LeftOut(one.channel, "") for one in candidates]
    shown = [_shown(world, call, reasons.get(one.channel.id, one), True) for one in usable]
    asked = {candidate.channel.id for candidate in candidates}
    others = [one for one in left_out if one.channel.id not in asked]
    why = NO_COUNTING if call.operation.job == "count" else OTHER_FAMILY
    others += [LeftOut(one, why) for one in channels if one not in able]
    others += not_candidates(snapshot, group, model, family)
    return shown + [_shown(world, call, one, False) for one in others]


def _can(call: Call, channel: Channel) -> bool:
    """Whether a candidate for answers can do what the endpoint asks for."""
    if call.operation.job == "count":
        return admit.counts(call.family.name, channel)
    return call.operation.job != "compact" or channel.family == call.family.name


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
    if payment.limit is not None and (left := leases.balance(db, payment.limit)) < least:
        raise faults.from_store(QuotaUsed(payment.limit, max(0, left), least))
    left = sum(max(0, leases.balance(db, account)) for account in payment.payers)
    if left >= least:
        return
    if any(account.kind == WALLET for account in payment.payers):
        raise faults.from_store(WalletEmpty(left, least))
    raise faults.from_store(QuotaUsed(payment.payers[0], left, least))


def _shown(world: _World, call: Call, one: LeftOut, usable: bool) -> ChannelState:
    """A channel with the reason, if any."""
    assert call.peek is not None
    channel, snapshot, family = one.channel, world.snapshot, call.family.name
    until = rfc3339(snapshot.read_ms + round(one.wait_s * 1000)) if one.wait_s else None
    translated = channel.family != family and one.reason not in _NEVER_ASKED
    return ChannelState(
        name=channel.name,
        usable=usable,
        reason=one.reason or None,
        until=until,
        vendor=channel.vendor,
        family=channel.family,
        translated_from=channel.family if translated else None,
        priority=channel.priority,
        weight=channel.weight,
        limits={name: value for name in LIMITS if (value := getattr(channel, name))},
        upstream_model=channel.models[call.peek.model],
    )
