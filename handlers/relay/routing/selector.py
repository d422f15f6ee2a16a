"""The next attempt of a call: the first candidate of its plan whose limits have room.

A limit is checked by taking from it, in the order of the plan, because another worker could take
the same slot between a check and the taking. Candidates at their limit are passed over; that is not
an attempt and does not affect health. Another upstream key of a channel is tried before the next
channel.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import islice

from handlers.relay.limits.limits import AtLimit, Entering, Limits
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

MOST_PLACES = 8  # places requested at once when all nodes count


class _Search:
    """The places of one selection in order, and the channels that were full."""

    def __init__(self, planner: Planner, request: RoutingRequest, now_s: float) -> None:
        self._planner, self._request, self._now_s = planner, request, now_s
        self._seen: set[str] = set()
        self._closed: set[str] = set()  # channels whose other keys need not be checked
        self.full: dict[str, LeftOut] = {}

    def places(self, candidates: Sequence[Candidate], tried: Tried) -> Iterator[Candidate]:
        """Yield the candidates of channels not yet seen, each followed by those with other keys of
        its channel."""
        for candidate in candidates:
            channel = candidate.channel
            if channel.id in self._seen:
                continue
            self._seen.add(channel.id)
            at: Candidate | None = candidate
            out = set(tried.get(channel.id, ()))
            while at is not None and channel.id not in self._closed:
                yield Candidate(channel, at.key, at.moved, at.anyway)
                out.add(at.key)
                at = self._planner.next_key(channel, self._request.model, self._now_s, out)

    def refuse(self, channel: Channel, at_limit: AtLimit) -> None:
        """Note that a place is full."""
        before = self.full.get(channel.id)
        reason, wait_s = AT_ITS_LIMIT, at_limit.wait_s
        if at_limit.never:
            reason = BEYOND_ITS_LIMIT
        elif before is not None and not at_limit.of_channel:
            wait_s = min(wait_s, before.wait_s)
        self.full[channel.id] = LeftOut(channel, reason, wait_s)
        if at_limit.of_channel:
            self._closed.add(channel.id)


_Steps = Generator[Iterator[Candidate], Candidate | None, Candidate | list[LeftOut]]
"""A selection: yields places in order, and is sent the first one with room, or None."""


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
        """Return the next attempt with the slots it takes, or the reasons if there is none.
        `again`: a tried channel; another of its upstream keys comes first."""
        candidates = self._candidates(request, now_s, tried, again)
        if candidates and not candidates[0].channel.limited:
            return candidates[0]
        search = _Search(self._planner, request, now_s)
        steps = self._steps(search, candidates, request, now_s, tried)
        places = next(steps)
        while True:
            try:
                places = steps.send(self._enter(search, places, request))
            except StopIteration as end:
                chosen: Candidate | list[LeftOut] = end.value
                return chosen

    async def next_everywhere(
        self,
        request: RoutingRequest,
        now_s: float,
        tried: Tried = NONE_TRIED,
        again: Channel | None = None,
        entering: Entering | None = None,
    ) -> Candidate | list[LeftOut]:
        """Return the same as `next`, counted by all nodes. `entering`: the call's callers, who are
        counted with its first place. Raises Fault if they are at a limit."""
        candidates = self._candidates(request, now_s, tried, again, MOST_PLACES)
        counted = entering is None or entering.slots is not None
        if counted and candidates and not candidates[0].channel.limited:
            return candidates[0]
        search = _Search(self._planner, request, now_s)
        steps = self._steps(search, candidates, request, now_s, tried)
        places = next(steps)
        while True:
            try:
                entered = await self._enter_everywhere(search, places, request, entering)
                places = steps.send(entered)
            except StopIteration as end:
                chosen: Candidate | list[LeftOut] = end.value
                return chosen

    def _candidates(
        self,
        request: RoutingRequest,
        now_s: float,
        tried: Tried,
        again: Channel | None,
        limit: int = 1,
    ) -> list[Candidate]:
        candidates = self._planner.plan(request, now_s, limit, tried)
        if again is not None:
            other_key = self._planner.next_key(again, request.model, now_s, tried[again.id])
            candidates = candidates if other_key is None else [other_key, *candidates]
        return candidates

    def _steps(
        self,
        search: _Search,
        candidates: list[Candidate],
        request: RoutingRequest,
        now_s: float,
        tried: Tried,
    ) -> _Steps:
        """Yield the best candidates, then all, then, if all circuits are open, the least bad
        ones."""
        planner = self._planner
        if entered := (yield search.places(candidates, tried)):
            return entered
        if search.full:
            candidates = planner.plan(request, now_s, len(request.channels), tried)
            if entered := (yield search.places(candidates, tried)):
                return entered
        left = planner.last_resort(request, now_s, tried)
        if left is None:
            return [*planner.left_out(request, now_s), *search.full.values()]
        for candidate in left.candidates:
            only = {candidate.channel.id: {candidate.key}}
            if entered := (yield search.places([candidate], only)):
                return entered
        for row in left.left_out:
            planner.health.last_resorts.note(row.channel.id, now_s)
        return [*left.left_out, *search.full.values()]

    def _enter(
        self, search: _Search, places: Iterator[Candidate], request: RoutingRequest
    ) -> Candidate | None:
        """Take the first place with room and return it."""
        for place in places:
            channel = place.channel
            if not channel.limited:
                return place
            entered = self._limits.enter_upstream(channel, place.key, request.demand)
            if not isinstance(entered, AtLimit):
                return Candidate(channel, place.key, place.moved, place.anyway, entered)
            search.refuse(channel, entered)
        return None

    async def _enter_everywhere(
        self,
        search: _Search,
        places: Iterator[Candidate],
        request: RoutingRequest,
        entering: Entering | None,
    ) -> Candidate | None:
        while batch := [*islice(places, MOST_PLACES)]:
            rows = [(place.channel, place.key) for place in batch]
            entered = await self._limits.enter_places(entering, rows, request.demand)
            if not isinstance(entered, list):
                place = batch[entered[0]]
                return Candidate(place.channel, place.key, place.moved, place.anyway, entered[1])
            for place, at_limit in zip(batch, entered, strict=True):
                search.refuse(place.channel, at_limit)
        return None
