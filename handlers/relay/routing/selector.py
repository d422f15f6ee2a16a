"""The next attempt of a call: the first candidate of its plan within its limits, which are taken.

A limit is asked by taking from it, in the order of the plan: between a look and a taking another
worker could take the same. What is at its limit is passed over; that is no attempt and says nothing
of health. Another upstream key of a channel is asked before the next channel.
"""

from collections.abc import Iterable

from handlers.relay.limits.limits import Full, Limits
from handlers.relay.routing.plan import (
    AT_ITS_LIMIT,
    BEYOND_ITS_LIMIT,
    NOTHING,
    Candidate,
    LeftOut,
    Planner,
    Tried,
    Wanted,
)
from store.catalog.catalog import Channel


class Selector:
    """Plans of one worker's calls, with the limits of channels and upstream keys."""

    def __init__(self, planner: Planner, limits: Limits) -> None:
        self._planner = planner
        self._limits = limits

    def next(
        self, wanted: Wanted, now_s: float, tried: Tried = NOTHING, again: Channel | None = None
    ) -> Candidate | list[LeftOut]:
        """The next attempt, with what it takes of limits; when there is none, why not.

        `again`: a tried channel of which another upstream key comes first.
        """
        planner = self._planner
        candidates = planner.plan(wanted, now_s, tried=tried)
        if again is not None:
            better = planner.next_key(again, wanted.model, now_s, tried[again.id])
            candidates = candidates if better is None else [better, *candidates]
        if candidates and not candidates[0].channel.limited:
            return candidates[0]
        full: dict[str, LeftOut] = {}
        found = self._first_with_room(wanted, candidates, now_s, tried, full)
        if found is None and full:
            candidates = planner.plan(wanted, now_s, len(wanted.channels), tried)
            found = self._first_with_room(wanted, candidates, now_s, tried, full)
        return self._last_resort(wanted, now_s, tried, full) if found is None else found

    def _last_resort(
        self, wanted: Wanted, now_s: float, tried: Tried, full: dict[str, LeftOut]
    ) -> Candidate | list[LeftOut]:
        """The least bad candidate when all circuits are open; else why there is none."""
        planner = self._planner
        left = planner.last_resort(wanted, now_s, tried)
        if left is None:
            return [*planner.left_out(wanted, now_s), *full.values()]
        for candidate in left.candidates:
            found = self._with_room(wanted, candidate, now_s, {candidate.key})
            if isinstance(found, Candidate):
                return found
            full[candidate.channel.id] = found
        for one in left.left_out:
            planner.health.last_resorts.note(one.channel.id, now_s)
        return [*left.left_out, *full.values()]

    def _first_with_room(
        self,
        wanted: Wanted,
        candidates: Iterable[Candidate],
        now_s: float,
        tried: Tried,
        full: dict[str, LeftOut],
    ) -> Candidate | None:
        """The first candidate within its limits, which are taken; notes what is `full`."""
        for candidate in candidates:
            channel = candidate.channel
            if channel.id in full:
                continue
            found = self._with_room(wanted, candidate, now_s, set(tried.get(channel.id, ())))
            if isinstance(found, Candidate):
                return found
            full[channel.id] = found
        return None

    def _with_room(
        self, wanted: Wanted, candidate: Candidate, now_s: float, out: set[int]
    ) -> Candidate | LeftOut:
        """The candidate, or one with another upstream key of its channel, within its limits."""
        channel, waits_s = candidate.channel, []
        if not channel.limited:
            return candidate
        at: Candidate | None = candidate
        while at is not None:
            taken = self._limits.enter_upstream(channel, at.key, wanted.demand)
            if not isinstance(taken, Full):
                return Candidate(channel, at.key, at.moved, at.anyway, taken)
            if taken.never:
                return LeftOut(channel, BEYOND_ITS_LIMIT)
            waits_s.append(taken.wait_s)
            if taken.of_channel:
                return LeftOut(channel, AT_ITS_LIMIT, taken.wait_s)
            out.add(at.key)
            at = self._planner.next_key(channel, wanted.model, now_s, out)
        return LeftOut(channel, AT_ITS_LIMIT, min(waits_s))
