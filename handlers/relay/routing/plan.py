"""The channels that a call may try, in order: by rank, then by a weighted draw.

From a routing request, health, the clock and a random source come candidates, and the reasons for
channels left out. Nothing is claimed or counted here (Health.begin does that, and selector.py for
limits), so a plan may also be made for display.
"""

import math
from bisect import bisect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from random import Random

from msgspec import Struct

from handlers.relay.limits.cells import Slots
from handlers.relay.limits.limits import NO_TOKENS, Demand
from handlers.relay.routing.breaker import KEY_SUSPENDED, SLOW
from handlers.relay.routing.health import HELD_BACK, Health
from handlers.relay.routing.rendezvous import Heats, Race, first_of, race_of, seed_of, token_of
from store.catalog.catalog import Channel, Snapshot

DISABLED = "disabled"
DRAINING = "draining"
OTHER_GROUP = "not_for_this_group"
OTHER_FAMILY = "other_family"
TRANSLATE_OFF = "translate_off"  # another family's channel; the group or the channel forbids it
AT_ITS_LIMIT = "at_its_limit"
BEYOND_ITS_LIMIT = "beyond_its_limit"  # the input alone exceeds its tokens per minute

_MAX_REMEMBERED = 1024
_MAX_DRAWS = 8

Tried = Mapping[str, Collection[int]]
"""The positions of tried upstream keys, by the channel's id."""
NONE_TRIED: Tried = {}


class Candidate(Struct, frozen=True, gc=False):
    """One attempt: a channel and the position of the upstream key to use (0 without keys). `moved`:
    not the place that the conversation's token selects. `anyway`: a last resort, whose circuit is
    open like all others. `slots`: the slots that the selector took."""

    channel: Channel
    key: int
    moved: bool = False
    anyway: bool = False
    slots: Slots | None = None


class Preference(Struct, frozen=True, gc=False):
    """A conversation's token, which decides its draws, and the place it moved to, if any."""

    token: int
    channel_id: str = ""
    fingerprint: str = ""


class RoutingRequest(Struct, frozen=True, gc=False):
    """A call's request for one of these channels for a model, within its limits. `channels` are
    sorted by rank, best first. `family`: the client's."""

    channels: Sequence[Channel]
    family: str
    model: str
    preference: Preference | None = None
    demand: Demand = NO_TOKENS


class LeftOut(Struct, frozen=True):
    """A channel that cannot take the call now. `wait_s`: until it can (0: waiting does not
    help)."""

    channel: Channel
    reason: str
    wait_s: float = 0.0


class LastResort(Struct, frozen=True):
    """The last resort when the circuits of all channels are open: candidates, the least bad one
    first, and the channels that cannot be tried now."""

    candidates: list[Candidate]
    left_out: list[LeftOut]


class Tier:
    """Channels of one rank. A draw costs the same however many there are."""

    __slots__ = ("_points", "_race", "channels")

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.channels = tuple(channels)
        weights = [channel.weight for channel in channels]
        # Equal chances when all weights are 0.
        self._points = list(accumulate(weights if sum(weights) > 0 else [1] * len(weights)))
        self._race: Race | Heats | None = None

    def draw(self, point: float) -> int:
        """Return the index of the channel that `point`, in [0, 1), falls on."""
        points = self._points
        return min(bisect(points, point * points[-1]), len(points) - 1)

    def winner(self, token: int) -> int:
        """Return the index of the channel that a conversation's token selects."""
        if self._race is None:
            self._race = race_of([(channel.id, channel.weight) for channel in self.channels])
        return self._race.winner(token)


class Planner:
    """A maker of plans. Only the tiers of a snapshot's channels are remembered."""

    def __init__(self, health: Health, random: Callable[[], float]) -> None:
        self.health = health
        self._random = random
        # By identity: a snapshot returns the same tuple for the same query. The tuple is stored
        # with its tiers, so that no other tuple gets the same id.
        self._remembered: dict[int, tuple[Sequence[Channel], list[Tier]]] = {}

    def plan(
        self, request: RoutingRequest, now_s: float, limit: int = 1, tried: Tried = NONE_TRIED
    ) -> list[Candidate]:
        """Return the next `limit` attempts of a call, best first, one for each channel; none if all
        channels are left out or `tried`.

        Within a rank the order is drawn without replacement, each draw in proportion to the
        weights: at random, or by the token of a preference. A channel that the preference names
        comes first, whatever its rank. Slow channels, and those with a tried key, come last.
        """
        health, channels, preference = self.health, request.channels, request.preference
        if len(channels) == 1 and not health.breakers and not tried and preference is None:
            return [Candidate(channels[0], health.turn(channels[0]))]
        candidates: list[Candidate] = []
        last: list[Candidate] = []
        moved = preference is not None and bool(preference.channel_id)
        for channel in self._order(request):
            out = tried.get(channel.id, ())
            usable = self._candidate_of(channel, request.model, now_s, out, preference)
            if usable is not None:
                candidate = Candidate(channel, usable[0].key, True) if moved else usable[0]
                (last if usable[1] or out else candidates).append(candidate)
            if len(candidates) >= limit:
                return candidates
            moved = preference is not None
        return (candidates + last)[:limit]

    def next_key(
        self, channel: Channel, model: str, now_s: float, out: Collection[int]
    ) -> Candidate | None:
        """Return a channel's candidate with a healthy key that is not in `out`; None if there is
        none."""
        usable = self._candidate_of(channel, model, now_s, out)
        return None if usable is None or usable[1] else Candidate(channel, usable[0].key, True)

    def last_resort(
        self, request: RoutingRequest, now_s: float, tried: Tried = NONE_TRIED
    ) -> LastResort | None:
        """Return the candidates of a call whose circuits are all open. None if one is closed: its
        channel was tried already, or is at its limit. Channels that fail quickly come first, in the
        order of a plan. Then come those that limit us or hang, if they may have one more call.
        Suspended upstream keys are not tried."""
        model, preference = request.model, request.preference
        if any(self._candidate_of(c, model, now_s) is not None for c in request.channels):
            return None
        ranked: list[tuple[bool, Candidate]] = []
        left_out: list[LeftOut] = []
        moved = preference is not None and bool(preference.channel_id)
        for channel in self._order(request):
            out = tried.get(channel.id, ())
            reason, candidate = self._least_bad(channel, model, out, preference)
            wait_s = (
                self.health.last_resorts.wait_s(channel.id, now_s) if reason in HELD_BACK else 0.0
            )
            if candidate is None:
                left_out.append(self._left_out(channel, model, now_s))
            elif wait_s:
                left_out.append(LeftOut(channel, reason, wait_s))
            else:
                candidate = Candidate(channel, candidate.key, moved or candidate.moved, True)
                ranked.append((reason in HELD_BACK or bool(out), candidate))
            moved = preference is not None
        ranked.sort(key=itemgetter(0))
        return LastResort([candidate for _, candidate in ranked], left_out)

    def left_out(self, request: RoutingRequest, now_s: float) -> list[LeftOut]:
        """Return the channels that health leaves out of all plans now, with the reasons."""
        model = request.model
        return [
            self._left_out(channel, model, now_s)
            for channel in request.channels
            if self._candidate_of(channel, model, now_s) is None
        ]

    def _left_out(self, channel: Channel, model: str, now_s: float) -> LeftOut:
        keys = range(max(1, len(channel.keys)))
        faults = [self.health.fault_of(channel, model, key, now_s) for key in keys]
        return LeftOut(channel, *min(faults, key=lambda fault: fault[1]))

    def _order(self, request: RoutingRequest) -> Iterator[Channel]:
        """Yield all channels in the order of preference."""
        preference, named = request.preference, ""
        if preference is not None and preference.channel_id:
            for channel in request.channels:
                if channel.id == preference.channel_id:
                    named = channel.id
                    yield channel
        for tier in self._tiers(request):
            for channel in _drawn(tier, self._random if preference is None else preference.token):
                if channel.id != named:
                    yield channel

    def _candidate_of(
        self,
        channel: Channel,
        model: str,
        now_s: float,
        out: Collection[int] = (),
        preference: Preference | None = None,
    ) -> tuple[Candidate, bool] | None:
        """Return a channel's candidate and whether it is slow; None if no key can be used."""
        health = self.health
        first = health.turn(channel) if preference is None else _key_of(channel, preference)
        if not (health.breakers or out):
            return Candidate(channel, first), False
        slow: tuple[Candidate, bool] | None = None
        count = max(1, len(channel.keys))
        for offset in range(count):
            key = (first + offset) % count
            if key in out:
                continue
            reason, _ = health.fault_of(channel, model, key, now_s)
            candidate = Candidate(channel, key, offset > 0 and preference is not None)
            if not reason:
                return candidate, False
            if reason == SLOW and slow is None:
                slow = candidate, True
        return slow

    def _least_bad(
        self, channel: Channel, model: str, out: Collection[int], preference: Preference | None
    ) -> tuple[str, Candidate | None]:
        """Return a channel's candidate with its best key, and the reason of that key's open
        circuit. The candidate is None if all keys are in `out` or suspended."""
        health = self.health
        first = health.turn(channel) if preference is None else _key_of(channel, preference)
        best: tuple[str, Candidate | None] = KEY_SUSPENDED, None
        count = max(1, len(channel.keys))
        for offset in range(count):
            key = (first + offset) % count
            reason, _ = health.fault_of(channel, model, key, -math.inf)
            if key in out or reason == KEY_SUSPENDED:
                continue
            if best[1] is None or (best[0] in HELD_BACK and reason not in HELD_BACK):
                best = reason, Candidate(channel, key, offset > 0 and preference is not None)
        return best

    def _tiers(self, request: RoutingRequest) -> list[Tier]:
        channels, family = request.channels, request.family
        remembered = self._remembered.get(id(channels))
        if remembered is not None:
            return remembered[1]
        by_rank = groupby(channels, key=lambda channel: channel.rank(family))
        tiers = [Tier(list(group)) for _, group in by_rank]
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[id(channels)] = (channels, tiers)
        return tiers


def _key_of(channel: Channel, preference: Preference) -> int:
    """Return the position of the upstream key that a conversation uses, by its token or because it
    moved there."""
    fingerprints = channel.fingerprints
    if len(fingerprints) < 2:
        return 0
    if preference.channel_id == channel.id and preference.fingerprint in fingerprints:
        return fingerprints.index(preference.fingerprint)
    return first_of(preference.token, [seed_of(fingerprint) for fingerprint in fingerprints])


def _drawn(tier: Tier, chance: Callable[[], float] | int) -> Iterator[Channel]:
    """Yield each channel of a tier once, in drawn order. `chance`: a random source, or a token."""
    channels = tier.channels
    if len(channels) == 1:
        yield channels[0]
        return
    tried: set[int] = set()
    # Drawing again is fast while most channels are left, and as fair as drawing among the rest.
    for number in range(_MAX_DRAWS):
        place = _draw(tier, chance, number)
        if place not in tried:
            tried.add(place)
            yield channels[place]
    rest = [channel for place, channel in enumerate(channels) if place not in tried]
    # The order of the rest is drawn at once; for a conversation it is always the same.
    random = Random(chance).random if isinstance(chance, int) else chance
    yield from sorted(rest, key=lambda channel: _lateness(channel.weight, random()))


def _lateness(weight: int, point: float) -> tuple[bool, float]:
    """Return a sort key that orders channels as if drawn one by one: an exponential waiting time
    with the weight as its rate (Efraimidis and Spirakis). `point` is random, in [0, 1)."""
    return weight == 0, -math.log1p(-point) / (weight or 1)


def _draw(tier: Tier, chance: Callable[[], float] | int, number: int) -> int:
    if not isinstance(chance, int):
        return tier.draw(chance())
    # Each draw is a separate race: the losers of one race are not independent of its winner.
    return tier.winner(token_of(b"%d %d" % (chance, number)) if number else chance)


def not_candidates(snapshot: Snapshot, group: str, model: str, family: str) -> list[LeftOut]:
    """Return the channels of a model that are not candidates of a call, with the reason."""
    left_out = []
    for channel in snapshot.channels:
        if model not in channel.models:
            continue
        reason = ""
        if not channel.enabled:
            reason = DISABLED
        elif group not in channel.groups:
            reason = OTHER_GROUP
        elif channel.family != family and family not in channel.losses:
            reason = OTHER_FAMILY
        elif not snapshot.takes(group, channel, family):
            reason = TRANSLATE_OFF
        elif channel.draining:
            reason = DRAINING
        if reason:
            left_out.append(LeftOut(channel, reason))
    return sorted(left_out, key=lambda row: row.channel.name)
