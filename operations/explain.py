"""Explanation of a call: what a key would get for a model at an endpoint now, by which channels.

The functions that decide a call are applied to the store, so no gateway has to run, and nothing is
charged or recorded. The store has the open circuits and suspended keys of all workers. What only a
running gateway knows (rates, concurrency, the caller's address) is not checked.
"""

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import peewee

from adapters.endpoints.endpoint import Endpoint
from adapters.endpoints.table import ENDPOINTS
from adapters.family import Family, Operation, Peek
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES, FAMILY_NAMES, LOSSES
from handlers.relay import admit, faults
from handlers.relay.call import Admitted, Arrival, Offer, RequestHead
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Limits
from handlers.relay.routing import plan
from handlers.relay.routing.breaker import restore
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import Candidate, LeftOut, Planner, RoutingRequest, not_candidates
from handlers.relay.routing.selector import Selector
from operations.availability import CALLABLE, Availability, ModelLookup
from store.catalog.catalog import Channel, Snapshot
from store.catalog.keys import KeyEntry
from store.channels.breakers import all_open
from store.channels.offers import load_offering
from store.db.database import database_ms, snapshot_read
from store.money import leases
from store.money.accounts import payment_of
from store.money.funds import QuotaUsed, WalletEmpty
from store.values.features import FEATURES, is_priced, needs_price
from store.values.ids import now_ms
from store.values.usage_record import WALLET, rfc3339

NO_COUNTING = "counts_no_tokens"
NO_ENDPOINT = "has_no_such_endpoint"
_NEVER_TRIED = frozenset(
    {
        plan.DISABLED,
        plan.OTHER_GROUP,
        plan.OTHER_FAMILY,
        plan.TRANSLATE_OFF,
        NO_COUNTING,
        NO_ENDPOINT,
    }
)
LIMITS = ("rpm", "tpm", "concurrency", "key_rpm", "key_tpm", "key_concurrency")

_PLACEHOLDER = re.compile(r"\\\{[a-z_]+\\\}")
_LEAST_INPUT_TOKENS = 1


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A channel in its present state for the call.

    `usable`: it may be tried, despite a `reason` if there is nothing better. `until`: RFC 3339.
    `translated_from`: its family, if it differs from the call's.
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
    """The explanation of a call.

    `first`: the channels that it may be sent to first; none if its tokens would be estimated
    without a channel. If the call would fail: its `reason`, a code of usage records, with status
    and message for the client. `why`: the look-up of a model that the key's group does not offer.
    """

    channels: Sequence[ChannelState] = ()
    first: Sequence[str] = ()
    reason: str | None = None
    status: int | None = None
    message: str | None = None
    why: ModelLookup | None = None

    @property
    def allowed(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True)
class _World:
    """The state of a worker that has just read the store."""

    snapshot: Snapshot
    planner: Planner
    selector: Selector
    now_s: float


def _world(db: peewee.Database, snapshot: Snapshot) -> _World:
    health, now_s = Health(random.random), time.monotonic()
    health.keys.take(snapshot, now_s, snapshot.read_ms)
    restore(health.breakers, snapshot, snapshot_read(db, lambda: all_open(db)), now_s)
    planner = Planner(health, random.random)
    selector = Selector(planner, Limits(private_cells()))
    return _World(snapshot, planner, selector, now_s)


def explain(
    db: peewee.Database, snapshot: Snapshot, key: KeyEntry | None, model: str, endpoint: str
) -> Explanation:
    """Explain a call. `key` is None if no key has its secret. Raises StoreError."""
    family = FAMILIES[FAMILY_NAMES[0]]
    states: list[ChannelState] = []
    try:
        family, operation = _entry_of(endpoint)
        if key is None:
            raise Fault(Condition.INVALID_KEY)
        world = _world(db, snapshot)
        arrival, group = Arrival("", now_ms(), "", None, None), snapshot.groups.get(key.group)
        head = RequestHead(arrival, family, operation, key, group, {}, snapshot)
        states = _channels(world, head, model)
        admit.check_key(replace(key, networks=()), "", arrival.started_ms)
        admit.check_entry(snapshot, key, family, operation)
        offer = admit.find_offer(head, model)
        channels, estimated = admit.channels_for(head, offer.channels)
        if estimated:
            return Explanation(states)
        candidate = world.selector.next(RoutingRequest(channels, family.name, model), world.now_s)
        if not isinstance(candidate, Candidate):
            raise faults.no_candidate_fault(candidate, model)
        _check_money(db, head, offer)
    except Fault as fault:
        status = family.client.encode_fault(fault, "").status
        why = _why(db, key, model) if fault.condition is Condition.MODEL_NOT_FOUND else None
        return Explanation(states, (), fault.code, status, fault.message, why)
    return Explanation(states, _first(family.name, channels, states, candidate))


def refused_features(
    snapshot: Snapshot, key: KeyEntry, name: str, policy: str
) -> tuple[list[str], list[str]]:
    """Return the features that calls of a key for a model may not ask for: those that its group
    lacks, and those others that have no price, by `money.unpriced`."""
    group, model = snapshot.groups.get(key.group), snapshot.models.get(name)
    prices = model.prices_at(now_ms()) if model is not None else None
    if group is None or prices is None:
        return [], []
    lacking = [feature for feature in FEATURES if feature not in group.features]
    unpriced = [
        feature
        for feature in FEATURES
        if feature in group.features
        and needs_price(feature, policy)
        and not is_priced(feature, prices)
    ]
    return lacking, unpriced


def _why(db: peewee.Database, key: KeyEntry | None, model: str) -> ModelLookup | None:
    """Look a model up for the group of a key. Searches all groups, because operators ask."""
    if key is None:
        return None
    world = load_offering(db, database_ms(db), None, LOSSES, figures_of=())
    why = Availability(world).look_up(key.group, model)
    return None if why.code == CALLABLE else why  # only this key may not use it


def _first(
    family: str, channels: Sequence[Channel], states: Sequence[ChannelState], candidate: Candidate
) -> list[str]:
    """Return the channels that a call may be sent to first. Weights decide among them."""
    if candidate.anyway:
        return [candidate.channel.name]
    rank = candidate.channel.rank(family)
    equals = {channel.name for channel in channels if channel.rank(family) == rank}
    usable = [state.name for state in states if state.usable and state.reason is None]
    return [name for name in usable if name in equals]


def _entry_of(endpoint: str) -> tuple[Family, Operation]:
    """Return the family and operation of a path. Raises E31 if no endpoint with a model has the
    path."""
    pairs: list[tuple[Family, Operation]] = [
        (family, operation)
        for family in FAMILIES.values()
        for operation in family.client.operations.values()
        if not operation.stored
    ]
    pairs += [(row.family, row) for row in ENDPOINTS.values()]
    for family, operation in pairs:
        pattern = _PLACEHOLDER.sub("[^/]+", re.escape(operation.endpoint))
        if re.fullmatch(pattern, endpoint) or endpoint == operation.endpoint:
            return family, operation
    endpoints = [operation.endpoint for _, operation in pairs]
    names = ", ".join(dict.fromkeys(endpoints))
    message = f"No endpoint that takes a model: {endpoint}; there are: {names}"
    raise Fault(Condition.UNKNOWN_PATH, message)


def _channels(world: _World, head: RequestHead, model: str) -> list[ChannelState]:
    """Return the candidates in the order of a plan, then the other channels."""
    snapshot, group, family = head.snapshot, head.key.group, head.family.name
    planner, now_s = world.planner, world.now_s
    channels = snapshot.candidates(group, model, family)
    if isinstance(head.operation, Endpoint):
        channels = snapshot.capable(group, model, admit.EndpointRule(head.operation))
    capable = _capable(head, channels)
    request = RoutingRequest(capable, family, model)
    last = planner.last_resort(request, now_s)
    candidates = planner.plan(request, now_s, len(capable)) if last is None else last.candidates
    left_out = planner.left_out(request, now_s)
    reasons = {row.channel.id: row for row in left_out}
    rows = [reasons.get(row.channel.id, LeftOut(row.channel, "")) for row in candidates]
    states = [_state(world, family, model, row, usable=True) for row in rows]
    planned = {candidate.channel.id for candidate in candidates}
    unplanned = [row for row in left_out if row.channel.id not in planned]
    reason = NO_COUNTING if head.operation.job == "count" else plan.OTHER_FAMILY
    unplanned += [LeftOut(channel, reason) for channel in channels if channel not in capable]
    unplanned += not_candidates(snapshot, group, model, family)
    if head.operation.row:
        named = {row.channel.id for row in unplanned} | planned
        rest = (c for c in snapshot.candidates(group, model, family) if c.id not in named)
        unplanned += [LeftOut(channel, NO_ENDPOINT) for channel in rest]
        unplanned = [row for row in unplanned if row.channel.id not in planned]
    return states + [_state(world, family, model, row, usable=False) for row in unplanned]


_PLAIN_REQUEST = Peek("", False, None, 1, include_usage=True)


def _capable(head: RequestHead, channels: Sequence[Channel]) -> list[Channel]:
    """Return the candidates that serve the endpoint."""
    family = head.family.name
    if head.operation.job == "count":
        return [channel for channel in channels if admit.counts(family, channel)]
    native = [channel for channel in channels if channel.family == family]
    return native if native and head.operation.job == "compact" else list(channels)


def _check_money(db: peewee.Database, head: RequestHead, offer: Offer) -> None:
    """Check that the accounts cover a short answer to an empty prompt. Raises Fault E18, E19."""
    if head.operation.free:
        return
    outputs = offer.model.max_output_tokens or admit.DEFAULT_OUTPUT_BOUND_TOKENS
    outputs = min(outputs, admit.LEAST_OUTPUT_TOKENS)
    short = Admitted(
        _PLAIN_REQUEST, offer, input_bound_tokens=_LEAST_INPUT_TOKENS, rates=offer.prices.alone
    )
    least = admit.hold_bound(offer, short, outputs)
    if not least:
        return
    payment = payment_of(head.key, head.arrival.started_ms)
    if not payment.payers:
        raise faults.from_store(QuotaUsed(None))
    for limit in payment.limits:
        if (left := leases.balance(db, limit)) < least:
            raise faults.from_store(QuotaUsed(limit, max(0, left), least))
    left = sum(max(0, leases.balance(db, account)) for account in payment.payers)
    if left >= least:
        return
    if any(account.kind == WALLET for account in payment.payers):
        raise faults.from_store(WalletEmpty(left, least))
    raise faults.from_store(QuotaUsed(payment.payers[0], left, least))


def _state(world: _World, family: str, model: str, row: LeftOut, *, usable: bool) -> ChannelState:
    """Return the state of a channel, with a reason if it has one."""
    channel, snapshot = row.channel, world.snapshot
    until = rfc3339(snapshot.read_ms + round(row.wait_s * 1000)) if row.wait_s else None
    translated = channel.family != family and row.reason not in _NEVER_TRIED
    return ChannelState(
        name=channel.name,
        usable=usable,
        reason=row.reason or None,
        until=until,
        vendor=channel.vendor,
        family=channel.family,
        translated_from=channel.family if translated else None,
        priority=channel.priority,
        weight=channel.weight,
        limits={name: value for name in LIMITS if (value := getattr(channel, name))},
        upstream_model=channel.models[model],
    )
