"""The next attempt of a call: the first of its plan that has room, and the room is taken.

A limit is asked by taking from it, in the order of the plan: between a look and a taking another
worker could take the same. What is full is passed over; that is no attempt and says nothing of
health. Another upstream key of a channel is asked before the next channel.
"""

from collections.abc import Iterable

from adapters.faults import Fault
from handlers.relay import faults
from handlers.relay.call import Call
from handlers.relay.limits.limits import Limits
from handlers.relay.routing.plan import (
    AT_ITS_LIMIT,
    BEYOND_ITS_LIMIT,
    NOTHING,
    Candidate,
    LeftOut,
    Planner,
    Tried,
)
from store.catalog.catalog import Channel


class Selector:
    """Plans of one worker's calls, with the limits of channels and upstream keys."""

    def __init__(self, planner: Planner, limits: Limits) -> None:
        self._planner = planner
        self._limits = limits

    def next(
        self, call: Call, now_s: float, tried: Tried = NOTHING, again: Channel | None = None
    ) -> Candidate | Fault:
        """The next attempt, with what it needs of limits; E09, E24, E25 when there is none.

        `again`: a tried channel of which another upstream key comes first.
        """
        planner, model = self._planner, call.model_name or ""
        candidates = planner.plan(
            call.candidates, model, now_s, tried=tried, preference=call.preference
        )
        if again is not None:
            better = planner.next_key(again, model, now_s, tried[again.id])
            candidates = candidates if better is None else [better, *candidates]
        if candidates and not candidates[0].channel.limited:
            return candidates[0]
        full: dict[str, LeftOut] = {}
        candidate = self._first_with_room(call, candidates, now_s, tried, full)
        if candidate is None and full:
            most = len(call.candidates)
            candidates = planner.plan(
                call.candidates, model, now_s, most, tried, preference=call.preference
            )
            candidate = self._first_with_room(call, candidates, now_s, tried, full)
        if candidate is not None:
            return candidate
        return self._last_resort(call, now_s, tried, full)

    def _last_resort(
        self, call: Call, now_s: float, tried: Tried, full: dict[str, LeftOut]
    ) -> Candidate | Fault:
        """The least bad candidate when all circuits are open; else why there is none."""
        planner, model = self._planner, call.model_name or ""
        left = planner.last_resort(call.candidates, model, now_s, tried, preference=call.preference)
        if left is None:
            left_out = planner.left_out(call.candidates, model, now_s)
            return faults.of_none_left([*left_out, *full.values()], call.model_name)
        for candidate in left.candidates:
            if not candidate.channel.limited:
                return candidate
            found = self._with_room(call, candidate, now_s, {candidate.key})
            if isinstance(found, Candidate):
                return found
            full[candidate.channel.id] = found
        for one in left.left_out:
            planner.health.trials.note(one.channel.id, now_s)
        return faults.of_none_left([*left.left_out, *full.values()], call.model_name)

    def _first_with_room(
        self,
        call: Call,
        candidates: Iterable[Candidate],
        now_s: float,
        tried: Tried,
        full: dict[str, LeftOut],
    ) -> Candidate | None:
        """The first candidate that has room, which is taken; notes what is `full` on the way."""
        for candidate in candidates:
            channel = candidate.channel
            if channel.id in full:
                continue
            found = self._with_room(call, candidate, now_s, set(tried.get(channel.id, ())))
            if isinstance(found, Candidate):
                return found
            full[channel.id] = found
        return None

    def _with_room(
        self, call: Call, candidate: Candidate, now_s: float, out: set[int]
    ) -> Candidate | LeftOut:
        """The candidate, or that of another upstream key of its channel that has room."""
        channel, waits_s = candidate.channel, []
        at: Candidate | None = candidate
        while at is not None:
            refused = self._limits.enter_upstream(call, at) if channel.limited else None
            if refused is None:
                return at
            if refused.never:
                return LeftOut(channel, BEYOND_ITS_LIMIT)
            waits_s.append(refused.wait_s)
            if refused.of_channel:
                return LeftOut(channel, AT_ITS_LIMIT, refused.wait_s)
            out.add(at.key)
            at = self._planner.next_key(channel, call.model_name or "", now_s, out)
        return LeftOut(channel, AT_ITS_LIMIT, min(waits_s))
