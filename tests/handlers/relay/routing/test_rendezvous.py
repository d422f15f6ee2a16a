"""Rendezvous races: by weight, the same in every process, and few calls move when a candidate is
added or removed."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from handlers.relay.routing import rendezvous

ROOT = Path(__file__).parents[4]
CALLS = 20_000
TOKENS = [rendezvous.token_of(b"conversation %d" % number) for number in range(CALLS)]


def named(weights):
    return [(f"channel-{number}", weight) for number, weight in enumerate(weights)]


def too_far_off(wins, weights):
    """Return how far chi squared is from its expectation, in standard deviations."""
    expected = {p: len(TOKENS) * w / sum(weights) for p, w in enumerate(weights) if w}
    chi = sum((wins[place] - n) ** 2 / n for place, n in expected.items())
    freedom = len(expected) - 1
    return (chi - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize("weights", [
    [1, 1],
    [3, 1],
    [1, 2, 3],
    [100, 1],
    [5] * 10,
    [1 + n % 4 for n in range(rendezvous.MAX_RUNNERS)],
    [7] * (rendezvous.MAX_RUNNERS + 1),
    [1 + n % 5 for n in range(200)],
    [0, 1, 0, 3],
    [1 if n % 2 else 0 for n in range(40)],
])  # fmt: skip
def test_shares_are_those_of_the_weights(weights):
    race = rendezvous.race_of(named(weights))
    wins = Counter(map(race.winner, TOKENS))
    assert all(weights[place] for place in wins)
    assert too_far_off(wins, weights) < 4


@pytest.mark.parametrize("count", [2, 40])
def test_with_weights_of_0_alone_all_are_equal(count):
    wins = Counter(map(rendezvous.race_of(named([0] * count)).winner, TOKENS))
    assert too_far_off(wins, [1] * count) < 4


def test_equal_candidates_share_evenly():
    seeds = [rendezvous.seed_of(f"key-{number}") for number in range(7)]
    wins = Counter(rendezvous.first_of(token, seeds) for token in TOKENS)
    assert too_far_off(wins, [1] * 7) < 4


@pytest.mark.parametrize("count", [3, 12, 60])
def test_only_what_it_wins_moves_to_a_candidate_that_comes(count):
    weights = [1 + n % 3 for n in range(count + 1)]
    before, after = rendezvous.race_of(named(weights[:-1])), rendezvous.race_of(named(weights))
    moved = [token for token in TOKENS if before.winner(token) != after.winner(token)]
    share = weights[-1] / sum(weights)
    if count < rendezvous.MAX_RUNNERS:
        assert {after.winner(token) for token in moved} == {count}
        assert len(moved) < 1.3 * share * CALLS
    else:  # its heat wins more often, and it wins its heat
        assert 0 < len(moved) < 2.6 * share * CALLS


def test_the_order_of_candidates_says_nothing():
    weights = [1 + n % 4 for n in range(30)]
    one, other = rendezvous.race_of(named(weights)), rendezvous.race_of(named(weights)[::-1])
    assert all(one.winner(token) == 29 - other.winner(token) for token in TOKENS[:500])
    assert rendezvous.HEATS > 1


def test_other_processes_find_the_same():
    code = (
        "from handlers.relay.routing.rendezvous import *\n"
        "race = race_of([(f'channel-{n}', 1 + n % 3) for n in range(9)])\n"
        "print([race.winner(token_of(b'conversation %d' % n)) for n in range(50)])"
    )
    race = rendezvous.race_of([(f"channel-{n}", 1 + n % 3) for n in range(9)])
    here = [race.winner(token) for token in TOKENS[:50]]
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.stdout.strip() == str(here)


def test_parts_of_a_token():
    parts = [b"ann", b"all", b"m", b"x"]
    tokens = {rendezvous.token_of(*parts)} | {
        rendezvous.token_of(*parts[:n], b"y", *parts[n + 1 :]) for n in range(4)
    }
    assert len(tokens) == 5 and all(0 <= token < 1 << 128 for token in tokens)
