"""Rate limits and concurrency of callers and channels: claims, reservations, refusals.

Key, user and group each have limits, and a call must fit in all of them. Free calls (token counts,
stored responses) have separate token buckets with the same limits, so that they take nothing from
paid calls. A channel and its upstream keys count everything that is sent upstream, free or not. The
counting itself is in cells.py.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct

from adapters.family.rate_headers import RateLevel
from adapters.faults import Condition, Fault
from handlers.relay.limits.cells import (
    MINUTE_NS,
    Claim,
    LimitRefusal,
    Reservation,
    SharedCells,
    Slots,
)
from store.catalog.catalog import Channel, Group
from store.catalog.keys import KeyEntry

if TYPE_CHECKING:
    from handlers.relay.limits.remote import RemoteCells

log = logging.getLogger("sluice.relay")

WARN_EVERY_S = 60
MAX_REMEMBERED = 10_000  # keys, and channels, with claims in memory; 0.7 KB each
_SECOND_NS = 1_000_000_000
_LIMITS = {"requests": "rpm", "tokens": "tpm", "calls": "concurrency"}  # by a refusal's kind

_Claims = TypeVar("_Claims")


class Demand(Struct, frozen=True, gc=False):
    """The tokens that a call takes from limits: its estimated input alone, with the answer that its
    client requests, and with the shortest answer that is worth starting."""

    input_tokens: int
    tokens: int
    least_tokens: int


NO_TOKENS = Demand(0, 0, 0)
"""The demand of calls that cost nothing."""


class AtLimit(Struct, frozen=True, gc=False):
    """An upstream key at a limit for `wait_s`, 0 if unknown. `of_channel`: the channel's other keys
    are, too. `never`: waiting does not help, since the input alone exceeds a limit of tokens per
    minute."""

    wait_s: float
    of_channel: bool
    never: bool = False


class LimitLevel(Struct, frozen=True):
    """A limit of a caller, such as `key_rpm`, and the part of it that is left. `reset_s`: the time
    until all of it is available again, None for concurrency."""

    name: str
    allowed: int
    left: int
    reset_s: float | None


class _Callers(Struct, frozen=True, gc=False):
    """The claims of a key, its user and its group, valid for these objects. `tpm`: the smallest of
    their token limits, 0 if there is none."""

    key: KeyEntry
    group: Group
    claims: tuple[Claim, ...]
    tpm: int


class _Upstreams(Struct, frozen=True, gc=False):
    """The claims of a channel and each of its upstream keys, valid for this object."""

    channel: Channel
    of_key: tuple[tuple[Claim, ...], ...]


Fallback = Literal["share", "each", "refuse"]
"""The rule while Redis is away: each node counts its share of a limit, each node counts the whole
limit, or calls are refused."""


class Entering(Struct, eq=False):
    """A call that is not yet counted for its callers: that happens together with its first channel,
    in one step. `slots`: its slots of the callers since then. `levels`: the parts of their limits
    that were left."""

    key: KeyEntry
    group: Group
    free: bool
    slots: Slots | None = None
    levels: tuple[RateLevel, ...] = ()


class FallbackCells:
    """This node's cells while Redis is away. They continue from the counts of Redis, with a share
    of each limit. Redis counts what they let through when it is back."""

    def __init__(self, cells: SharedCells, remote: "RemoteCells") -> None:
        self._cells, self._remote = cells, remote

    def enter(self, claims: Sequence[Claim], demand: Demand, nodes: int) -> Slots | LimitRefusal:
        """Enter as in SharedCells.enter, by the share of these claims that one of `nodes` has."""
        shares = [Claim(c.subject, c.rpm, c.tpm, c.concurrency, nodes) for c in claims]
        entered = self._cells.enter(shares, demand.tokens, demand.least_tokens)
        if isinstance(entered, Slots):
            entered.everywhere = self
            self._remote.owe(claims, 1, 0)
        return entered

    def leave(self, slots: Slots, used_tokens: int | None) -> None:
        """Note for Redis the tokens that a call used, or, for None, one request less."""
        requests, tokens = (-1, 0) if used_tokens is None else (0, used_tokens)
        self._remote.owe([row.claim for row in slots.reservations], requests, tokens)


class Limits:
    """The limits of one worker's calls. `on_refused` is called at each refusal with the name of the
    limit, such as `key_rpm`. With `remote`, the async methods count for all nodes together; the
    others count on this node."""

    def __init__(
        self,
        cells: SharedCells,
        on_refused: Callable[[str], None] = lambda limit: None,
        remote: "RemoteCells | None" = None,
        fallback: Fallback = "share",
    ) -> None:
        self._cells = cells
        self._on_refused = on_refused
        self.remote, self._fallback = remote, fallback
        self._here = FallbackCells(cells, remote) if remote is not None else None
        self._paid: dict[str, _Callers] = {}
        self._free: dict[str, _Callers] = {}
        self._upstreams: dict[str, _Upstreams] = {}
        self._quiet_s = 0
        self._nodes = 1

    def divide(self, nodes: int) -> None:
        """Count by this node's share from now on: each limit is divided by the number of nodes."""
        if nodes != self._nodes:
            log.info("limits are divided by the nodes that serve: %d", nodes)
            self._nodes = nodes
            if self.remote is not None:  # shares count only while Redis is away
                return
            for remembered in (self._paid, self._free, self._upstreams):
                remembered.clear()

    def enter(
        self, key: KeyEntry, group: Group, demand: Demand, *, free: bool = False
    ) -> tuple[tuple[RateLevel, ...], Slots | Fault]:
        """Take the call's part of its callers' limits. Return the levels left afterwards, and the
        slots, or RATE_LIMITED if a limit is reached."""
        callers = self._callers(key, group, free=free)
        if 0 < callers.tpm < demand.input_tokens:
            return (), self._beyond_a_minute(callers, demand)
        entered = self._cells.enter(callers.claims, demand.tokens, demand.least_tokens)
        if isinstance(entered, LimitRefusal):
            return _levels([entered]), self._refused(entered)
        return _levels(entered.reservations), entered

    def _callers(self, key: KeyEntry, group: Group, *, free: bool) -> _Callers:
        remembered = self._free if free else self._paid
        callers = remembered.get(key.id)
        if callers is None or callers.key is not key or callers.group is not group:
            callers = _callers_of(key, group, "free" if free else "paid", self._share())
            _remember(remembered, key.id, callers)
        return callers

    def _refused(self, refusal: LimitRefusal) -> Fault:
        self._on_refused(f"{_scope(refusal.claim)}_{_LIMITS[refusal.kind]}")
        return _fault_of(refusal)

    def _beyond_a_minute(self, callers: _Callers, demand: Demand) -> Fault:
        least = next(claim for claim in callers.claims if claim.tpm == callers.tpm)
        self._on_refused(f"{_scope(least)}_tpm")
        return _beyond_a_minute(demand, callers.tpm)

    def first_use(self, subject: str) -> bool:
        """Return whether this is the subject's first use within a minute on this node; False if
        that cannot be counted."""
        entered = self._cells.enter((Claim(subject, rpm=1, tpm=0, concurrency=0),))
        if isinstance(entered, LimitRefusal) or not entered.reservations:
            return False
        self._cells.leave(entered, used_tokens=0)
        return True

    def enter_upstream(self, channel: Channel, key: int, demand: Demand) -> Slots | AtLimit:
        """Take the slots that an attempt with an upstream key of a limited channel needs."""
        claims = self._place_claims(channel, key, demand)
        if isinstance(claims, AtLimit):
            return claims
        entered = self._cells.enter(claims, demand.tokens, demand.least_tokens)
        return entered if isinstance(entered, Slots) else self._place_full(channel, entered)

    def _place_claims(
        self, channel: Channel, key: int, demand: Demand
    ) -> tuple[Claim, ...] | AtLimit:
        """Return the claims of an upstream key of a channel, unless the call never fits."""
        upstreams = self._upstreams.get(channel.id)
        if upstreams is None or upstreams.channel is not channel:
            upstreams = _upstreams_of(channel, self._share())
            _remember(self._upstreams, channel.id, upstreams)
        for tpm in (channel.tpm, channel.key_tpm):
            if 0 < tpm < demand.input_tokens:
                self._on_refused("channel_tpm" if tpm == channel.tpm else "upstream_key_tpm")
                return AtLimit(0, of_channel=True, never=True)
        return upstreams.of_key[key]

    def _place_full(self, channel: Channel, refusal: LimitRefusal) -> AtLimit:
        of_channel = refusal.claim.subject == _channel_subject(channel)
        scope = "channel" if of_channel else "upstream_key"
        self._on_refused(f"{scope}_{_LIMITS[refusal.kind]}")
        return AtLimit((refusal.wait_ns or 0) / _SECOND_NS, of_channel)

    # ---- counted by all nodes --------------------------------------------------------------------

    async def enter_everywhere(self, entering: Entering, demand: Demand) -> None:
        """Enter as in `enter`, counted by all nodes. Raises Fault."""
        await self._enter_both(entering, (), demand)

    async def enter_places(
        self, entering: Entering | None, places: Sequence[tuple[Channel, int]], demand: Demand
    ) -> tuple[int, Slots | None] | list[AtLimit]:
        """Take the slots of the first of these channels and upstream keys that has room, counted by
        all nodes, and those of its callers if they are not yet counted. Return the position and the
        slots, or the reason for each place if none has room. Raises Fault if the callers are at a
        limit."""
        if entering is not None and entering.slots is not None:
            entering = None
        refusals: dict[int, AtLimit] = {}
        fitting: dict[int, tuple[Channel, tuple[Claim, ...]]] = {}
        for position, (channel, key) in enumerate(places):
            claims = self._place_claims(channel, key, demand) if channel.limited else ()
            if isinstance(claims, AtLimit):
                refusals[position] = claims
            else:
                fitting[position] = channel, claims
        if fitting:
            entered = await self._enter_both(entering, [*fitting.values()], demand)
            if not isinstance(entered, list):
                number, slots = entered
                return [*fitting][number], slots if slots and slots.reservations else None
            refusals.update(zip(fitting, entered, strict=True))
        return [refusals[position] for position in range(len(places))]

    async def _enter_both(
        self,
        entering: Entering | None,
        places: Sequence[tuple[Channel, tuple[Claim, ...]]],
        demand: Demand,
    ) -> tuple[int, Slots | None] | list[AtLimit]:
        callers: tuple[Claim, ...] = ()
        if entering is not None:
            of_call = self._callers(entering.key, entering.group, free=entering.free)
            if 0 < of_call.tpm < demand.input_tokens:
                raise self._beyond_a_minute(of_call, demand)
            callers = of_call.claims
        assert self.remote is not None
        claims = [of_place for _, of_place in places]
        try:
            entered = await self.remote.enter(callers, claims, demand.tokens, demand.least_tokens)
        except TimeoutError:
            return self._enter_here(entering, callers, places, demand)
        if isinstance(entered, LimitRefusal):
            assert entering is not None
            entering.levels = _levels([entered])
            raise self._refused(entered)
        if isinstance(entered, list):
            return [
                self._place_full(channel, refusal)
                for (channel, _), refusal in zip(places, entered, strict=True)
            ]
        self._cells.follow([*entered.callers.reservations, *entered.place.reservations])
        if entering is not None:
            entering.slots, entering.levels = entered.callers, _levels(entered.callers.reservations)
        return entered.position, entered.place

    def _enter_here(
        self,
        entering: Entering | None,
        callers: tuple[Claim, ...],
        places: Sequence[tuple[Channel, tuple[Claim, ...]]],
        demand: Demand,
    ) -> tuple[int, Slots | None] | list[AtLimit]:
        """Take the same slots as _enter_both by the counts of this node, while Redis is away."""
        if self._fallback == "refuse":
            raise Fault(Condition.UNAVAILABLE)
        here = self._here
        assert here is not None
        nodes = self._nodes if self._fallback == "share" else 1
        slots = here.enter(callers, demand, nodes)
        if isinstance(slots, LimitRefusal):
            assert entering is not None
            entering.levels = _levels([slots])
            raise self._refused(slots)
        if entering is not None:
            entering.slots, entering.levels = slots, _levels(slots.reservations)
        refusals: list[AtLimit] = []
        for position, (channel, claims) in enumerate(places):
            of_place = here.enter(claims, demand, nodes)
            if isinstance(of_place, Slots):
                return position, of_place
            refusals.append(self._place_full(channel, of_place))
        if entering is not None and refusals:
            self.leave(slots, None)
            entering.slots = None
        return refusals or (0, None)

    def enter_alone(self, subject: str) -> Slots | Fault:
        """Take the only slot of a subject that may run one operation at a time on this node."""
        entered = self._cells.enter((Claim(subject, 0, 0, 1),))
        return _fault_of(entered) if isinstance(entered, LimitRefusal) else entered

    def pass_one(self, subject: str, rpm: int) -> Fault | None:
        """Take one of the requests that a subject may make in a minute. Return the refusal, if
        any."""
        entered = self._cells.enter((Claim(subject, rpm, 0, 0),))
        if isinstance(entered, LimitRefusal):
            return _fault_of(entered)
        self._cells.leave(entered, 0)
        return None

    def levels(self, key: KeyEntry, group: Group) -> list[LimitLevel]:
        """Return the limits that apply to paid calls of a key, and what is left of them."""
        claims = _callers_of(key, group, "paid", self._share()).claims
        return _level_rows((claim, self._cells.state(claim)) for claim in claims)

    async def levels_everywhere(self, key: KeyEntry, group: Group) -> list[LimitLevel]:
        """Return the same as `levels`, counted by all nodes."""
        assert self.remote is not None
        claims = _callers_of(key, group, "paid", 1).claims
        try:
            return _level_rows([(claim, await self.remote.state(claim)) for claim in claims])
        except TimeoutError:
            return self.levels(key, group)

    def _share(self) -> int:
        """Return the number by which each limit is divided on this node."""
        return self._nodes if self.remote is None else 1

    def leave(self, slots: Slots, used_tokens: int | None) -> None:
        """Return slots and settle the tokens used. None: undo, as if there had been no call.
        Idempotent."""
        if not slots.left:
            self._cells.leave(slots, used_tokens)
            if slots.everywhere is not None:
                slots.everywhere.leave(slots, used_tokens)

    def sweep(self) -> None:
        """Free the slots of dead workers. Called once a second."""
        warnings = self._cells.sweep()
        self._quiet_s -= 1
        if warnings and self._quiet_s <= 0:
            self._quiet_s = WARN_EVERY_S
            for warning in warnings:
                log.warning(warning)


def _level_rows(states: Iterable[tuple[Claim, tuple[int, int, int]]]) -> list[LimitLevel]:
    levels = []
    for claim, (requests_ns, tokens_ns, running) in states:
        for name, allowed, left, reset_ns in (
            ("rpm", claim.rpm, _requests_left(claim, requests_ns), requests_ns),
            ("tpm", claim.tpm, _tokens_left(claim, tokens_ns), tokens_ns),
            ("concurrency", claim.concurrency, _calls_left(claim, running), None),
        ):
            if allowed:
                reset_s = None if reset_ns is None else reset_ns / _SECOND_NS
                levels.append(LimitLevel(f"{_scope(claim)}_{name}", allowed, max(0, left), reset_s))
    return levels


def _scope(claim: Claim) -> str:
    """Return the owner of a limit: key, user or group."""
    return claim.subject.split(" ", 2)[1]


def _remember(remembered: dict[str, _Claims], name: str, claims: _Claims) -> None:
    if len(remembered) >= MAX_REMEMBERED:
        remembered.clear()
    remembered[name] = claims


def _callers_of(key: KeyEntry, group: Group, kind: str, nodes: int) -> _Callers:
    claims = _claims(
        nodes,
        (f"{kind} key {key.id}", key.rpm, key.tpm, key.concurrency),
        (f"{kind} user {key.user_id}", key.user_rpm, key.user_tpm, key.user_concurrency),
        (f"{kind} group {group.name}", group.rpm, group.tpm, group.concurrency),
    )
    return _Callers(
        key, group, claims, min((claim.tpm for claim in claims if claim.tpm), default=0)
    )


def _upstreams_of(channel: Channel, nodes: int) -> _Upstreams:
    own = (_channel_subject(channel), channel.rpm, channel.tpm, channel.concurrency)
    each = (channel.key_rpm, channel.key_tpm, channel.key_concurrency)
    of_key = [
        _claims(nodes, own, (f"upstream key {channel.id} {fingerprint}", *each))
        for fingerprint in channel.fingerprints or ("",)
    ]
    return _Upstreams(channel, tuple(of_key))


def _channel_subject(channel: Channel) -> str:
    return f"channel {channel.id}"


def _claims(nodes: int, *subjects: tuple[str, int, int, int]) -> tuple[Claim, ...]:
    """Return a claim for each subject (its name, rpm, tpm, concurrency) that has a limit."""
    return tuple(Claim(*subject, nodes) for subject in subjects if any(subject[1:]))


def _beyond_a_minute(demand: Demand, tpm: int) -> Fault:
    """Return the refusal of a call that never fits, however long the client waits."""
    fault = Fault(
        Condition.RATE_LIMITED,
        "The request is larger than the limit allows in a minute: about"
        f" {demand.input_tokens} input tokens, the limit is {tpm} tokens per minute."
        " Send a shorter one.",
    )
    fault.permanent = True
    return fault


def _fault_of(refusal: LimitRefusal) -> Fault:
    claim, wait_ns = refusal.claim, refusal.wait_ns
    fault = Fault(Condition.RATE_LIMITED)
    if wait_ns is not None:
        fault.retry_after_s = -(-wait_ns // _SECOND_NS)
    limit, what = {
        "requests": (claim.rpm, "request{s} per minute"),
        "tokens": (claim.tpm, "token{s} per minute"),
        "calls": (claim.concurrency, "concurrent call{s}"),
    }[refusal.kind]
    what = what.format(s="" if limit == 1 else "s")
    fault.message = f"Rate limit reached: {limit} {what}. Try again in {fault.wait_s}s."
    return fault


def _levels(entered: Sequence[Reservation | LimitRefusal]) -> tuple[RateLevel, ...]:
    """Return, for requests and for tokens, the limit with the least left."""
    of_requests = of_tokens = None
    requests = tokens = 0
    for level in entered:
        claim = level.claim
        if claim.rpm:
            left = _requests_left(claim, level.requests_ns)
            if of_requests is None or left < requests:
                of_requests, requests = level, left
        if claim.tpm:
            left = _tokens_left(claim, level.tokens_ns)
            if of_tokens is None or left < tokens:
                of_tokens, tokens = level, left
    levels: tuple[RateLevel, ...] = ()
    if of_requests is not None:
        limit, reset_s = of_requests.claim.rpm, of_requests.requests_ns / _SECOND_NS
        levels = (RateLevel("requests", limit, max(0, requests), reset_s),)
    if of_tokens is not None:
        limit, reset_s = of_tokens.claim.tpm, of_tokens.tokens_ns / _SECOND_NS
        levels += (RateLevel("tokens", limit, max(0, tokens), reset_s),)
    return levels


# The remainder of this node's share, times the nodes, stands for all shares: callers spread evenly
# over the nodes.


def _requests_left(claim: Claim, requests_ns: int) -> int:
    left = claim.share_rpm - -(-requests_ns // claim.each_ns) if claim.rpm else 0
    return min(claim.rpm, left * claim.nodes)


def _tokens_left(claim: Claim, tokens_ns: int) -> int:
    return (MINUTE_NS - tokens_ns) * claim.tpm // MINUTE_NS


def _calls_left(claim: Claim, running: int) -> int:
    return min(claim.concurrency, (claim.share_concurrency - running) * claim.nodes)
