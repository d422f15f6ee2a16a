"""Plans: strict priorities, weights as shares, keys in turn, and what health leaves out."""

import random
from collections import Counter

import pytest

from adapters.faults import Condition, Fault
from handlers.relay.routing import breaker, plan
from handlers.relay.routing.health import Health
from handlers.relay.routing.plan import Planner, Preference, not_candidates
from handlers.relay.routing.rendezvous import token_of
from handlers.relay.routing.suspended_keys import KeyRefusal
from store.catalog.catalog import Group, Snapshot
from tests.handlers.relay.routing.channels import MODEL, channel, fail, routing_request

OWN = KeyRefusal("")


def planner(seed=1):
    chance = random.Random(seed).random
    health = Health(chance)
    return Planner(health, chance), health


def preferences(count, **more):
    return [Preference(token_of(b"conversation %d" % number), **more) for number in range(count)]


def names(candidates):
    return [candidate.channel.name for candidate in candidates]


def test_higher_priority_always_comes_first():
    channels = [channel("a", 10), channel("b", 10), channel("c"), channel("d", -5)]
    make, _ = planner()
    for _ in range(200):
        order = names(make.plan(routing_request(channels), 0.0, 4))
        assert set(order[:2]) == {"a", "b"}
        assert order[2:] == ["c", "d"]


@pytest.mark.parametrize("ill", [False, True])
def test_first_place_is_shared_by_weight_and_so_is_that_of_one_left_out(ill):
    channels = [channel("ill", weight=4), channel("heavy", weight=3), channel("light", weight=1)]
    make, health = planner(2)
    if ill:
        fail(health, channels[0])
    firsts = Counter(names(make.plan(routing_request(channels), 0.0))[0] for _ in range(4000))
    others = firsts["heavy"] + firsts["light"]
    assert others == 4000 if ill else 0.45 < firsts["ill"] / 4000 < 0.55
    assert 0.70 < firsts["heavy"] / others < 0.80


def test_every_channel_is_there_once_whatever_the_weights():
    channels = [channel(str(i), 3 - i // 10, weight=i % 3) for i in range(40)]
    make, _ = planner(3)
    for _ in range(50):
        order = names(make.plan(routing_request(channels), 0.0, 40))
        assert sorted(order) == sorted(map(str, range(40)))


def test_all_weights_zero_means_equal_chances_and_one_beside_others_is_never_first():
    channels = [channel("a", weight=0), channel("b", weight=0)]
    make, _ = planner(4)
    firsts = Counter(names(make.plan(routing_request(channels), 0.0))[0] for _ in range(1000))
    assert 400 < firsts["a"] < 600
    channels = [channel("a", weight=0), channel("b", weight=1)]
    assert {tuple(names(make.plan(routing_request(channels), 0.0, 2))) for _ in range(300)} == {
        ("b", "a")
    }


def test_no_more_than_wanted_and_none_tried():
    channels = [channel(str(i)) for i in range(5)]
    make, _ = planner()
    assert len(make.plan(routing_request(channels), 0.0, 3)) == 3
    tried = {f"id-{number}": {0} for number in (0, 1, 3, 4)}
    assert names(make.plan(routing_request(channels), 0.0, 3, tried)) == ["2"]
    assert make.plan(routing_request(channels[:1]), 0.0, 3, tried) == []


def test_one_channel_needs_no_draw():
    def never():
        raise AssertionError("drawn")

    health = Health(never)
    only = channel("only")
    assert names(Planner(health, never).plan(routing_request([only]), 0.0)) == ["only"]


def test_upstream_keys_are_used_in_turn():
    make, health = planner()
    one = channel("a", keys=("x", "y", "z"))
    used = []
    for _ in range(6):
        (candidate,) = make.plan(routing_request([one]), 0.0)
        used.append(candidate.key)
        health.succeeded(health.begin(one, MODEL, candidate.key, 0.0), 0.0)
    assert used == [0, 1, 2, 0, 1, 2]


def test_a_suspended_key_is_skipped_for_all_models_and_the_others_go_on():
    make, health = planner()
    one = channel("a", keys=("x", "y"))
    fail(health, one, 1, fault=Fault(Condition.CHANNEL_MISCONFIGURED), refusal=OWN)
    for model in (MODEL, "another"):
        for _ in range(4):
            (candidate,) = make.plan(routing_request([one], model), 0.0)
            assert candidate.key == 1
            health.succeeded(health.begin(one, model, candidate.key, 0.0), 0.0)


def test_a_plan_changes_nothing():
    make, health = planner()
    channels = [channel("a", keys=("x", "y")), channel("b")]
    fail(health, channels[1])
    after = health.breakers[("id-b", MODEL, "k")].until_s
    for _ in range(3):
        (candidate,) = make.plan(routing_request(channels), after)[:1]
        assert candidate.key == 0
    assert not any(one.probe for one in health.breakers.values())


def test_reasons_and_waits_of_those_left_out():
    make, health = planner()
    failing, limited, refused, well = (channel(n) for n in ("failing", "limited", "refused", "w"))
    fail(health, failing)
    fail(health, limited, 1, fault=Fault(Condition.UPSTREAM_RATE_LIMITED, retry_after_s=30))
    fail(health, refused, 1, fault=Fault(Condition.CHANNEL_MISCONFIGURED), refusal=OWN)
    channels = [failing, limited, refused, well]
    assert names(make.plan(routing_request(channels), 1.0, 9)) == ["w"]
    found = {one.channel.name: one for one in make.left_out(routing_request(channels), 1.0)}
    assert {name: one.reason for name, one in found.items()} == {
        "failing": breaker.FAILING,
        "limited": breaker.RATE_LIMITED,
        "refused": breaker.KEY_SUSPENDED,
    }
    assert found["limited"].wait_s == 29.0
    assert 0 < found["failing"].wait_s < 5 < found["refused"].wait_s


def slow_down(health, one):
    health.started(health.begin(one, MODEL, 0, 0.0), 0.2, 0.2)  # usual for this channel
    for _ in range(breaker.CONSECUTIVE_FAULTS):
        health.started(health.begin(one, MODEL, 0, 0.0), 10.0, 10.0)
    assert health.fault_of(one, MODEL, 0, 10.0)[0] == breaker.SLOW


def test_slow_ones_are_asked_last_but_asked():
    make, health = planner()
    slow, quick = channel("slow", 10), channel("quick", 0)
    slow_down(health, slow)
    assert names(make.plan(routing_request([slow, quick]), 10.0, 2)) == ["quick", "slow"]
    assert names(make.plan(routing_request([slow]), 10.0)) == ["slow"]
    assert make.left_out(routing_request([slow, quick]), 10.0) == []
    # A conversation leaves its slow channel too.
    (preference,) = preferences(1, channel_id="id-slow", fingerprint="mark-k")
    request = routing_request([slow, channel("quick", -1)], preference=preference)
    assert names(make.plan(request, 10.0, 2)) == ["quick", "slow"]


def test_what_is_remembered_of_candidates_is_bounded():
    make, _ = planner()
    for _ in range(3 * plan._MAX_REMEMBERED):
        make.plan(routing_request((channel("a"), channel("b"))), 0.0)
    assert len(make._remembered) <= plan._MAX_REMEMBERED


OTHER = {"family": "messages", "losses": {"chat_completions": 1}}


@pytest.mark.parametrize(("translates", "fields", "reason"), [
    (True, {"enabled": False}, plan.DISABLED),
    (True, {"groups": frozenset({"others"})}, plan.OTHER_GROUP),
    (True, {"models": {"n": "up"}}, ""),
    (True, OTHER, ""),
    (False, OTHER, plan.TRANSLATE_OFF),
    (True, {**OTHER, "translate": False}, plan.TRANSLATE_OFF),
    (True, {**OTHER, "losses": {}}, plan.OTHER_FAMILY),
    (False, {**OTHER, "losses": {}, "draining": True}, plan.OTHER_FAMILY),
    (True, {**OTHER, "draining": True}, plan.DRAINING),
])  # fmt: skip
def test_reasons_of_channels_that_are_no_candidates(translates, fields, reason):
    group = Group("all", 10**6, None, frozenset(), False, translate=translates)
    snapshot = Snapshot(0, {"all": group}, {}, (channel("a", **fields), channel("b")))
    rows = not_candidates(snapshot, "all", MODEL, "chat_completions")
    assert [(row.channel.name, row.reason) for row in rows] == ([("a", reason)] if reason else [])


def test_a_call_fails_over_from_native_to_what_loses_less_then_to_what_loses_more():
    native = [channel("own", -5), channel("other", -5)]
    near = channel("near", family="responses", losses={"chat_completions": 1})
    far = channel("far", 50, family="messages", losses={"chat_completions": 2})
    channels = [*native, near, far]
    make, health = planner()
    for _ in range(50):
        order = names(make.plan(routing_request(channels), 0.0, 4))
        assert set(order[:2]) == {"own", "other"} and order[2:] == ["near", "far"]
    tried = {"id-own": [0], "id-other": [0]}
    assert names(make.plan(routing_request(channels), 0.0, tried=tried)) == ["near"]
    for one in native:
        fail(health, one)
    assert names(make.plan(routing_request(channels), 0.0, 2)) == ["near", "far"]
    fail(health, near)
    assert names(make.plan(routing_request(channels), 0.0)) == ["far"]


def first(make, channels, preference, now_s=0.0):
    return make.plan(routing_request(channels, preference=preference), now_s)[0]


def test_a_conversation_falls_to_one_channel_and_key_in_every_worker():
    channels = [channel("a", keys="xyz"), channel("b", keys="xyz"), channel("c", keys="xyz")]
    workers = [planner(seed)[0] for seed in range(3)]
    places = set()
    for preference in preferences(200):
        candidates = {
            (s.channel.name, s.key, s.moved)
            for s in (first(w, channels, preference) for w in workers)
        }
        assert len(candidates) == 1
        places |= candidates
    assert len(places) == 9 and not any(moved for *_, moved in places)


def test_conversations_fall_by_weight_and_so_does_the_share_of_one_left_out():
    channels = [channel("ill", 5, weight=4), channel("heavy", 5, weight=3),
                channel("light", 5, weight=1), channel("spare")]  # fmt: skip
    make, health = planner()
    asked, firsts = preferences(8000), Counter()
    for down in (False, True):
        if down:
            fail(health, channels[0])
        candidates = [first(make, channels, preference) for preference in asked]
        firsts = Counter(candidate.channel.name for candidate in candidates)
        assert set(firsts) == {"heavy", "light"} | (set() if down else {"ill"})
        assert 0.71 < firsts["heavy"] / (firsts["heavy"] + firsts["light"]) < 0.79
        assert all(candidate.moved is down for candidate in candidates)
        asked = [one for one, it in zip(asked, candidates, strict=True) if it.channel.name == "ill"]


def test_the_others_stay_when_one_is_left_out():
    channels = [channel(name) for name in "abc"]
    make, health = planner()
    before = {one: first(make, channels, one).channel.name for one in preferences(300)}
    fail(health, channels[0])
    for preference, name in before.items():
        candidate = first(make, channels, preference)
        assert candidate.channel.name == name or (name == "a" and candidate.moved)
    assert Counter(before.values())["a"] > 60


def test_all_channels_come_after_the_one_that_a_conversation_falls_to():
    channels = [channel(str(i), 3 - i // 10, weight=i % 3) for i in range(40)]
    make, _ = planner()
    for preference in preferences(50):
        request = routing_request(channels, preference=preference)
        candidates = make.plan(request, 0.0, 40)
        assert sorted(names(candidates)) == sorted(map(str, range(40)))
        assert [candidate.moved for candidate in candidates] == [False] + [True] * 39
        tried = {candidate.channel.id: {0} for candidate in candidates[:3]}
        assert make.plan(request, 0.0, tried=tried) == [candidates[3]]


def test_where_a_conversation_went_comes_first_whatever_the_priority():
    channels = [channel("a", 10), channel("b", 10), channel("c", keys="xyz")]
    make, health = planner()
    for preference in preferences(20, channel_id="id-c", fingerprint="mark-y"):
        candidates = make.plan(routing_request(channels, preference=preference), 0.0, 3)
        assert [(s.channel.name, s.moved) for s in candidates[:1]] == [("c", True)]
        assert candidates[0].key == 1 and set(names(candidates)) == {"a", "b", "c"}
    fail(health, channels[2], key=1)
    assert first(make, channels, preference).key != 1
    for key in (0, 2):
        fail(health, channels[2], key=key)
    assert first(make, channels, preference).channel.name in ("a", "b")


@pytest.mark.parametrize("place", [("id-gone", "mark-x"), ("id-c", "mark-gone")])
def test_where_a_conversation_went_may_be_gone(place):
    channels = [channel("a"), channel("c", keys="xyz")]
    make, _ = planner()
    for preference in preferences(20, channel_id=place[0], fingerprint=place[1]):
        candidate = first(make, channels, preference)
        if place[0] == "id-c":
            assert candidate.channel.name == "c"
        else:
            plain = first(make, channels, Preference(preference.token))
            assert (candidate.channel, candidate.key) == (plain.channel, plain.key)


def test_keys_of_the_only_channel_are_kept_to_and_one_that_goes_moves_its_own():
    make, health = planner()
    three, two = channel("a", keys="xyz"), channel("a", keys="xz")
    used = Counter()
    for preference in preferences(600):
        key = three.keys[first(make, [three], preference).key]
        used[key] += 1
        assert two.keys[first(make, [two], preference).key] == key or key == "y"
    assert all(150 < used[key] < 250 for key in "xyz")
    fail(health, three, 1, fault=Fault(Condition.CHANNEL_MISCONFIGURED), refusal=OWN)
    candidates = [first(make, [three], preference) for preference in preferences(600)]
    assert {candidate.key for candidate in candidates} == {1, 2}
    assert sum(candidate.moved for candidate in candidates) == used["x"]


def test_a_channel_without_keys():
    make, _ = planner()
    channels = [channel("a", keys=()), channel("b", keys=())]
    assert {first(make, channels, preference).key for preference in preferences(9)} == {0}
