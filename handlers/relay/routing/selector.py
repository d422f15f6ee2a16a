"""The next attempt of a call: the first candidate of its plan within its limits, which are slots.

A limit is checked by taking from it, in the order of the plan: between a check and the taking
another worker could take the same. What is at its limit is passed over; that is no attempt and says
nothing of health. Another upstream key of a channel is tried before the next channel.
"""

from collections.abc import Iterable

from handlers.relay.limits.limits import AtLimit, Limits
from handlers.relay.routing.plan import (
    AT_ITS_LIMIT,
    BEYOND_ITS_LIMIT,
    NONE_TRIED,
    Candidate,
    LeftOut,
    Planner,
    RoutingRequest,
    Tried,
)
from store.catalog.catalog import Channel


class Selector:
    """The selection of attempts of one worker, with the limits of channels and upstream keys."""

    def __init__(self, planner: Planner, limits: Limits) -> None:
        self._planner = planner
        self._limits = limits

    def next(
        self,
        request: RoutingRequest,
        now_s: float,
        tried: Tried = NONE_TRIED,
        again: Channel | None = None,
    ) -> Candidate | list[LeftOut]:
        """Return the next attempt, with what it takes of limits; when there is none, the reasons.
        `again`: a tried channel of which another upstream key comes first."""
        planner = self._planner
        candidates = planner.plan(request, now_s, tried=tried)
        if again is not None:
            other_key = planner.next_key(again, request.model, now_s, tried[again.id])
            candidates = candidates if other_key is None else [other_key, *candidates]
        if candidates and not candidates[0].channel.limited:
            return candidates[0]
        full: dict[str, LeftOut] = {}
        candidate = self._first_within_limits(request, candidates, now_s, tried, full)
        if candidate is None and full:
            candidates = planner.plan(request, now_s, len(request.channels), tried)
            candidate = self._first_within_limits(request, candidates, now_s, tried, full)
        return candidate or self._last_resort(request, now_s, tried, full)

    def _last_resort(
        self, request: RoutingRequest, now_s: float, tried: Tried, full: dict[str, LeftOut]
    ) -> Candidate | list[LeftOut]:
        """Return the least bad candidate when all circuits are open; else the reasons."""
        planner = self._planner
        left = planner.last_resort(request, now_s, tried)
        if left is None:
            return [*planner.left_out(request, now_s), *full.values()]
        for candidate in left.candidates:
            entered = self._within_limits(request, candidate, now_s, {candidate.key})
            if isinstance(entered, Candidate):
                return entered
            full[candidate.channel.id] = entered
        for row in left.left_out:
            planner.health.last_resorts.note(row.channel.id, now_s)
        return [*left.left_out, *full.values()]

    def _first_within_limits(
        self,
        request: RoutingRequest,
        candidates: Iterable[Candidate],
        now_s: float,
        tried: Tried,
        full: dict[str, LeftOut],
    ) -> Candidate | None:
        """Return the first candidate within its limits, which are taken; add others to `full`."""
        for candidate in candidates:
            channel = candidate.channel
            if channel.id in full:
                continue
            out = set(tried.get(channel.id, ()))
            entered = self._within_limits(request, candidate, now_s, out)
            if isinstance(entered, Candidate):
                return entered
            full[channel.id] = entered
        return None

    def _within_limits(
        self, request: RoutingRequest, candidate: Candidate, now_s: float, out: set[int]
    ) -> Candidate | LeftOut:
        """Return the candidate, or one with another key of its channel, within its limits."""
        channel, waits_s = candidate.channel, []
        if not channel.limited:
            return candidate
        at: Candidate | None = candidate
        while at is not None:
            entered = self._limits.enter_upstream(channel, at.key, request.demand)
            if not isinstance(entered, AtLimit):
                return Candidate(channel, at.key, at.moved, at.anyway, entered)
            if entered.never:
                return LeftOut(channel, BEYOND_ITS_LIMIT)
            waits_s.append(entered.wait_s)
            if entered.of_channel:
                return LeftOut(channel, AT_ITS_LIMIT, entered.wait_s)
            out.add(at.key)
            at = self._planner.next_key(channel, request.model, now_s, out)
        return LeftOut(channel, AT_ITS_LIMIT, min(waits_s))
