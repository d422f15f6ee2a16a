"""Rate limits and concurrency of callers and channels: claims, reservations, refusals.

Key, user and group each have limits, and a call has to fit in all. Free calls (token counts, stored
things) have token buckets of their own with the same limits, so that they take nothing from paid
ones. A channel and its upstream keys count what is sent upstream, free or not. The counting itself
is in cells.py.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from adapters.family.rate_headers import RateLevel
from adapters.faults import Condition, Fault
from handlers.relay.limits.cells import (
    MINUTE_NS,
    Claim,
    IncompatibleMemory,
    LimitRefusal,
    Reservation,
    SharedCells,
    Slots,
    private_cells,
)
from store.catalog.catalog import Channel, Group
from store.catalog.keys import KeyEntry

log = logging.getLogger("sluice.relay")

WARN_EVERY_S = 60
MAX_REMEMBERED = 10_000  # keys, and channels, with claims in memory; 0.7 KB each
_SECOND_NS = 1_000_000_000
_LIMITS = {"requests": "rpm", "tokens": "tpm", "calls": "concurrency"}  # by kind of a refusal

_Claims = TypeVar("_Claims")


def shared_cells(descriptor: int, saved: Path | None = None) -> SharedCells:
    """Return the cells of the node; private ones when they cannot be shared. `saved`: the file that
    keeps buckets over a restart."""
    try:
        return SharedCells(descriptor, saved=saved)
    except IncompatibleMemory as error:
        log.error("%s; rate limits are counted in each worker apart until the next restart", error)
        return private_cells()


class Demand(Struct, frozen=True, gc=False):
    """The tokens that a call takes of limits: its input as estimated, with the answer that its
    client requests, and with the shortest that is worth starting."""

    input_tokens: int
    tokens: int
    least_tokens: int


NO_TOKENS = Demand(0, 0, 0)
"""Of calls that cost nothing."""


class AtLimit(Struct, frozen=True, gc=False):
    """An upstream key at a limit, for `wait_s`, 0 when that is unknown. `of_channel`: so are its
    other keys. `never`: waiting is no help, since the input alone exceeds a limit of tokens per
    minute."""

    wait_s: float
    of_channel: bool
    never: bool = False


class LimitLevel(Struct, frozen=True):
    """A limit of a caller, as `key_rpm`, and what is left of it; `reset_s`: the time until all of
    it is, None for calls at one time."""

    name: str
    allowed: int
    left: int
    reset_s: float | None


class _Callers(Struct, frozen=True, gc=False):
    """The claims of a key, its user and its group, valid for these objects; `tpm`: the smallest of
    their limits, 0 without any."""

    key: KeyEntry
    group: Group
    claims: tuple[Claim, ...]
    tpm: int


class _Upstreams(Struct, frozen=True, gc=False):
    """The claims of a channel and each of its upstream keys, valid for this object."""

    channel: Channel
    of_key: tuple[tuple[Claim, ...], ...]


class Limits:
    """The limits of one worker's calls. `on_refused` is called at each refusal with the name of the
    limit, as `key_rpm`."""

    def __init__(
        self, cells: SharedCells, on_refused: Callable[[str], None] = lambda limit: None
    ) -> None:
        self._cells = cells
        self._on_refused = on_refused
        self._paid: dict[str, _Callers] = {}
        self._free: dict[str, _Callers] = {}
        self._upstreams: dict[str, _Upstreams] = {}
        self._quiet_s = 0
        self._nodes = 1

    def divide(self, nodes: int) -> None:
        """Count by this node's share from now on: a part of each limit for each of these nodes."""
        if nodes != self._nodes:
            log.info("limits are divided by the nodes that serve: %d", nodes)
            self._nodes = nodes
            for remembered in (self._paid, self._free, self._upstreams):
                remembered.clear()

    def enter(
        self, key: KeyEntry, group: Group, demand: Demand, *, free: bool = False
    ) -> tuple[tuple[RateLevel, ...], Slots | Fault]:
        """Take what a call needs. Return what is left then, and the slots, or RATE_LIMITED when it
        may not go on."""
        remembered = self._free if free else self._paid
        callers = remembered.get(key.id)
        if callers is None or callers.key is not key or callers.group is not group:
            callers = _callers_of(key, group, "free" if free else "paid", self._nodes)
            _remember(remembered, key.id, callers)
        if 0 < callers.tpm < demand.input_tokens:
            least = next(claim for claim in callers.claims if claim.tpm == callers.tpm)
            self._on_refused(f"{_scope(least)}_tpm")
            return (), _beyond_a_minute(demand, callers.tpm)
        entered = self._cells.enter(callers.claims, demand.tokens, demand.least_tokens)
        if isinstance(entered, LimitRefusal):
            self._on_refused(f"{_scope(entered.claim)}_{_LIMITS[entered.kind]}")
            return _levels([entered]), _fault_of(entered)
        return _levels(entered.reservations), entered

    def first_use(self, subject: str) -> bool:
        """Return whether a subject comes for the first time within a minute, on this node; False
        when that cannot be counted."""
        entered = self._cells.enter((Claim(subject, rpm=1, tpm=0, concurrency=0),))
        if isinstance(entered, LimitRefusal) or not entered.reservations:
            return False
        self._cells.leave(entered, used_tokens=0)
        return True

    def enter_upstream(self, channel: Channel, key: int, demand: Demand) -> Slots | AtLimit:
        """Take what an attempt with an upstream key of a limited channel needs."""
        upstreams = self._upstreams.get(channel.id)
        if upstreams is None or upstreams.channel is not channel:
            upstreams = _upstreams_of(channel, self._nodes)
            _remember(self._upstreams, channel.id, upstreams)
        for tpm in (channel.tpm, channel.key_tpm):
            if 0 < tpm < demand.input_tokens:
                self._on_refused("channel_tpm" if tpm == channel.tpm else "upstream_key_tpm")
                return AtLimit(0, of_channel=True, never=True)
        entered = self._cells.enter(upstreams.of_key[key], demand.tokens, demand.least_tokens)
        if isinstance(entered, Slots):
            return entered
        of_channel = entered.claim.subject == _channel_subject(channel)
        scope = "channel" if of_channel else "upstream_key"
        self._on_refused(f"{scope}_{_LIMITS[entered.kind]}")
        return AtLimit((entered.wait_ns or 0) / _SECOND_NS, of_channel)

    def enter_alone(self, subject: str) -> Slots | Fault:
        """Take the one slot of a subject that may do something once at a time in the node."""
        entered = self._cells.enter((Claim(subject, 0, 0, 1),))
        return _fault_of(entered) if isinstance(entered, LimitRefusal) else entered

    def pass_one(self, subject: str, rpm: int) -> Fault | None:
        """Take one of the requests that a subject may make in a minute; return the refusal, if
        any."""
        entered = self._cells.enter((Claim(subject, rpm, 0, 0),))
        if isinstance(entered, LimitRefusal):
            return _fault_of(entered)
        self._cells.leave(entered, 0)
        return None

    def levels(self, key: KeyEntry, group: Group) -> list[LimitLevel]:
        """Return the limits that paid calls of a key have, and what is left of them."""
        levels = []
        for claim in _callers_of(key, group, "paid", self._nodes).claims:
            requests_ns, tokens_ns, running = self._cells.state(claim)
            for name, allowed, left, reset_ns in (
                ("rpm", claim.rpm, _requests_left(claim, requests_ns), requests_ns),
                ("tpm", claim.tpm, _tokens_left(claim, tokens_ns), tokens_ns),
                ("concurrency", claim.concurrency, _calls_left(claim, running), None),
            ):
                if allowed:
                    reset_s = None if reset_ns is None else reset_ns / _SECOND_NS
                    name = f"{_scope(claim)}_{name}"
                    levels.append(LimitLevel(name, allowed, max(0, left), reset_s))
        return levels

    def leave(self, slots: Slots, used_tokens: int | None) -> None:
        """Give slots back, settled by the tokens used; None: as if the call had never come.
        Idempotent."""
        self._cells.leave(slots, used_tokens)

    def sweep(self) -> None:
        """Free the slots of dead workers. Once a second."""
        warnings = self._cells.sweep()
        self._quiet_s -= 1
        if warnings and self._quiet_s <= 0:
            self._quiet_s = WARN_EVERY_S
            for warning in warnings:
                log.warning(warning)


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
    """Return the refusal of a call that never fits, however long its client waits."""
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
    """Return the limit with the least left of each kind."""
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


# What this node's share has left says what all shares have: callers come to all nodes alike.


def _requests_left(claim: Claim, requests_ns: int) -> int:
    left = claim.share_rpm - -(-requests_ns // claim.each_ns) if claim.rpm else 0
    return min(claim.rpm, left * claim.nodes)


def _tokens_left(claim: Claim, tokens_ns: int) -> int:
    return (MINUTE_NS - tokens_ns) * claim.tpm // MINUTE_NS


def _calls_left(claim: Claim, running: int) -> int:
    return min(claim.concurrency, (claim.share_concurrency - running) * claim.nodes)
