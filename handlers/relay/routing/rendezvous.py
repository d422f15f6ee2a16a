"""Weighted rendezvous hashing: the candidate of a conversation, the same in every process.

Each candidate gets a race time made of its own seed and the conversation's token, shorter for more
weight; the shortest wins. Workers and nodes agree without communication, also after a restart. When
a candidate is added or removed, only the conversations move that it wins or had won. Pure.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from math import log, log1p
from operator import mul, sub, truediv

TOKEN_BYTES = 16
MAX_RUNNERS = 16  # of one race; more are put into heats, so that one of 200 costs twice as much
HEATS = 16
_MAX_SEEDS = 16_384
_SPAN = sys.hash_info.modulus
_LOG_SPAN = log(_SPAN)

Runner = tuple[str, float]  # name, weight


def token_of(*parts: bytes) -> int:
    """Return a number that stands for the parts, none of which can be read from it."""
    return int.from_bytes(blake2b(b"\0".join(parts), digest_size=TOKEN_BYTES).digest())


@lru_cache(maxsize=_MAX_SEEDS)
def seed_of(name: str) -> int:
    """Return the seed of a candidate's races: by its name, wherever it stands."""
    return token_of(name.encode())


def first_of(token: int, seeds: Sequence[int]) -> int:
    """Return the place of the winner among candidates of equal weight."""
    runs = _runs(token, seeds)
    return runs.index(max(runs))


def _runs(token: int, seeds: Sequence[int]) -> list[int]:
    """Return for each seed a number below _SPAN, even over all tokens: the product modulo it."""
    # The hash of a number is its remainder by that prime, in every process, and all of this is
    # done without a line of Python for each.
    return list(map(hash, map(mul, repeat(token), seeds)))


class Race:
    """Few candidates by (name, weight); those of weight 0 never win."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        self._places = [place for place, (_, weight) in enumerate(runners) if weight]
        self._seeds = [seed_of(runners[place][0]) for place in self._places]
        self._weights = [runners[place][1] for place in self._places]
        self._equal = len(set(self._weights)) == 1

    def winner(self, token: int) -> int:
        """Return the place of the candidate that a conversation falls to."""
        if self._equal:
            return self._places[first_of(token, self._seeds)]
        # Of a number even in (0, 1), -log is the time until something that happens once a second.
        times = map(sub, repeat(_LOG_SPAN), map(log1p, _runs(token, self._seeds)))
        times_s = list(map(truediv, times, self._weights))
        return self._places[times_s.index(min(times_s))]


class Heats:
    """A race of many: heats of some of them each, which race by the sums of their weights."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        heats: defaultdict[int, list[int]] = defaultdict(list)
        for place, (name, _) in enumerate(runners):
            heats[seed_of(name) % HEATS].append(place)
        self._heats = [(Race([runners[p] for p in places]), places) for places in heats.values()]
        sums = [
            (f"heat {number}", sum(runners[place][1] for place in places))
            for number, places in heats.items()
        ]
        self._final = Race(sums)

    def winner(self, token: int) -> int:
        """Return the place of the candidate that a conversation falls to."""
        heat, places = self._heats[self._final.winner(token)]
        return places[heat.winner(token)]


def race_of(runners: Sequence[Runner]) -> Race | Heats:
    """Make the race of candidates by (name, weight); with weights of 0 alone all are equal."""
    if not any(weight for _, weight in runners):
        runners = [(name, 1) for name, _ in runners]
    return (Heats if len(runners) > MAX_RUNNERS else Race)(runners)
