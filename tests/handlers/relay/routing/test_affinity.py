"""The memory of conversations: those served by another channel than the usual one, bounded in
number and time."""

import pytest

from handlers.relay.routing import affinity as module
from handlers.relay.routing.affinity import TTL_S, Affinity
from handlers.relay.routing.plan import Candidate, Preference
from store.catalog.keys import KeyEntry
from tests.handlers.relay.routing.channels import channel

CHAT = "chat_completions"
A, B = channel("a"), channel("b", keys=("x", "y"))


def preference_of(known, now_s, user="ann", group="all", family=CHAT, model="m", said=b"Hi"):
    key = KeyEntry("k", "n", user, user, group, False, False, None, None, (), "plan_first", None)
    return known.preference_of(key, family, model, said, now_s)


def test_users_groups_families_and_models_have_conversations_of_their_own():
    known = Affinity()
    others = [
        *({}, {"user": "bob"}, {"group": "vip"}, {"model": "n"}, {"said": b"Ho"}),
        {"family": "messages"},
    ]
    assert len({preference_of(known, 0.0, **other).token for other in others}) == len(others)
    assert preference_of(known, 0.0) == preference_of(known, 5.0)


def test_only_what_went_elsewhere_is_remembered_until_it_is_back():
    known = Affinity()
    preference = preference_of(known, 0.0)
    known.accepted(preference, Candidate(A, 0), 0.0)
    assert not known._moved
    known.accepted(preference, Candidate(B, 1, moved=True), 0.0)
    moved = preference_of(known, 1.0)
    assert moved == Preference(preference.token, "id-b", "mark-y")
    assert preference_of(known, 1.0, user="bob").channel_id == ""
    known.accepted(moved, Candidate(A, 0), 2.0)
    assert preference_of(known, 2.0) == preference and not known._moved


def test_it_ends_with_silence_and_every_answer_prolongs_it():
    known = Affinity()
    preference = preference_of(known, 0.0)
    known.accepted(preference, Candidate(B, 0, moved=True), 0.0)
    known.accepted(preference, Candidate(B, 0, moved=True), TTL_S - 1)
    assert preference_of(known, 2 * TTL_S - 2).channel_id == "id-b"
    assert preference_of(known, 2 * TTL_S - 1).channel_id == ""


def test_a_channel_without_keys_is_remembered_too():
    known, bare = Affinity(), channel("c", keys=())
    known.accepted(preference_of(known, 0.0), Candidate(bare, 0, moved=True), 0.0)
    assert preference_of(known, 0.0).channel_id == "id-c"


@pytest.mark.parametrize("most", [1, 10])
def test_the_one_that_was_silent_longest_is_forgotten_first(monkeypatch, most):
    monkeypatch.setattr(module, "MAX_MOVED", most)
    known = Affinity()
    for token in (*range(most), 0, *range(100, 100 + most - 1)):
        known.accepted(Preference(token), Candidate(B, 0, moved=True), 0.0)
    assert set(known._moved) == {0, *range(100, 100 + most - 1)}
