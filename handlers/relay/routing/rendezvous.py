"""Weighted rendezvous hashing: the candidate of a conversation, the same in every process.

Each candidate gets a race time computed from its own seed and the conversation's token, shorter for
more weight; the shortest wins. Workers and nodes agree without communication, even after a restart.
When a candidate is added or removed, only the conversations that it wins or had won move. Pure.
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
MAX_RUNNERS = 16  # in one race; more are split into heats, so that 200 cost only twice as much
HEATS = 16
_MAX_SEEDS = 16_384
_SPAN = sys.hash_info.modulus
_LOG_SPAN = log(_SPAN)

Runner = tuple[str, float]  # name, weight


def token_of(*parts: bytes) -> int:
    """Return a number that stands for the parts, which cannot be recovered from it."""
    return int.from_bytes(blake2b(b"\0".join(parts), digest_size=TOKEN_BYTES).digest())


@lru_cache(maxsize=_MAX_SEEDS)
def seed_of(name: str) -> int:
    """Return the seed of a candidate's races, which depends only on its name."""
    return token_of(name.encode())


def first_of(token: int, seeds: Sequence[int]) -> int:
    """Return the index of the winner among candidates of equal weight."""
    runs = _runs(token, seeds)
    return runs.index(max(runs))


def _runs(token: int, seeds: Sequence[int]) -> list[int]:
    """Return for each seed its product with the token modulo _SPAN, which is uniform over all
    tokens."""
    # The hash of an integer is its remainder by that prime, in every process. This way no Python
    # code runs for each seed.
    return list(map(hash, map(mul, repeat(token), seeds)))


class Race:
    """A race of few candidates, given by (name, weight). Those of weight 0 never win."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        self._places = [place for place, (_, weight) in enumerate(runners) if weight]
        self._seeds = [seed_of(runners[place][0]) for place in self._places]
        self._weights = [runners[place][1] for place in self._places]
        self._equal = len(set(self._weights)) == 1

    def winner(self, token: int) -> int:
        """Return the place of the candidate that a conversation falls to."""
        if self._equal:
            return self._places[first_of(token, self._seeds)]
        # For a number uniform in (0, 1), -log is the waiting time for an event of rate 1 per s.
        times = map(sub, repeat(_LOG_SPAN), map(log1p, _runs(token, self._seeds)))
        times_s = list(map(truediv, times, self._weights))
        return self._places[times_s.index(min(times_s))]


class Heats:
    """A race of many candidates, split into heats, which race by the sums of their weights."""

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
    """Make the race of candidates by (name, weight). If all weights are 0, all are equal."""
    if not any(weight for _, weight in runners):
        runners = [(name, 1) for name, _ in runners]
    return (Heats if len(runners) > MAX_RUNNERS else Race)(runners)
