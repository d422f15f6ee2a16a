"""What is remembered of conversations: those that went elsewhere, bounded, and not for ever."""

import json

import pytest

from adapters.json.jsonio import top_level
from adapters.registry import FAMILIES
from handlers.relay.call import Arrival, Call
from handlers.relay.routing import affinity as module
from handlers.relay.routing.affinity import TTL_S, Affinity
from handlers.relay.routing.plan import Candidate, Preference
from store.catalog.catalog import Channel, Snapshot
from store.catalog.keys import KeyEntry

CHAT = FAMILIES["chat_completions"]


def channel(name, keys=("k",)):
    return Channel(
        id=f"id-{name}", name=name, vendor="demo", family=CHAT.name, base_url="http://x",
        keys=keys, groups=frozenset({"all"}), models={"m": "up"}, priority=0, weight=1,
        enabled=True, fingerprints=tuple(f"mark-{key}" for key in keys),
    )  # fmt: skip


A, B = channel("a"), channel("b", ("x", "y"))


def call_of(candidates=(A, B), user="ann", group="all", model="m", family=CHAT, **body):
    key = KeyEntry("k", "n", user, user, group, False, False, None, None, (), "plan_first", None)
    operation = family.operations["create"]
    call = Call(
        arrival=Arrival("", 0, "", None, None), family=family, operation=operation,
        key=key, client_headers={}, snapshot=Snapshot(1, {}, {}, tuple(candidates)),
    )  # fmt: skip
    call.candidates, call.model_name = tuple(candidates), model
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], **body}
    call.spans = top_level(json.dumps(body).encode())
    return call


def test_nothing_is_read_where_there_is_nothing_to_choose():
    known = Affinity()
    for candidates in ((), (A,), (channel("c", ()),)):
        call = call_of(candidates)
        call.family = None  # would raise
        assert known.preference_of(call, 0.0) is None
    assert known.preference_of(call_of((B,)), 0.0) is not None


def test_counts_and_what_says_nothing_have_no_wish():
    known = Affinity()
    call = call_of()
    call.spans = None
    assert known.preference_of(call, 0.0) is None
    assert known.preference_of(call_of(messages=[]), 0.0) is None
    messages = FAMILIES["messages"]
    counting = call_of(family=messages)
    counting.operation = messages.operations["count_tokens"]
    assert known.preference_of(counting, 0.0) is None


def test_users_groups_and_models_have_conversations_of_their_own():
    known = Affinity()
    calls = [call_of(), call_of(user="bob"), call_of(group="vip"), call_of(model="n"),
             call_of(prompt_cache_key="K"), call_of(messages=[{"content": "Ho"}])]  # fmt: skip
    assert len({known.preference_of(call, 0.0).token for call in calls}) == len(calls)
    assert known.preference_of(call_of(), 0.0) == known.preference_of(call_of(), 5.0)


def test_only_what_went_elsewhere_is_remembered_until_it_is_back():
    known = Affinity()
    preference = known.preference_of(call_of(), 0.0)
    known.accepted(preference, Candidate(A, 0), 0.0)
    assert not known._moved
    known.accepted(preference, Candidate(B, 1, moved=True), 0.0)
    moved = known.preference_of(call_of(), 1.0)
    assert moved == Preference(preference.token, "id-b", "mark-y")
    assert known.preference_of(call_of(user="bob"), 1.0).channel_id == ""
    known.accepted(moved, Candidate(A, 0), 2.0)
    assert known.preference_of(call_of(), 2.0) == preference and not known._moved


def test_it_ends_with_silence_and_every_answer_prolongs_it():
    known = Affinity()
    preference = known.preference_of(call_of(), 0.0)
    known.accepted(preference, Candidate(B, 0, moved=True), 0.0)
    known.accepted(preference, Candidate(B, 0, moved=True), TTL_S - 1)
    assert known.preference_of(call_of(), 2 * TTL_S - 2).channel_id == "id-b"
    assert known.preference_of(call_of(), 2 * TTL_S - 1).channel_id == ""


def test_a_channel_without_keys_is_remembered_too():
    known, bare = Affinity(), channel("c", ())
    call = call_of((A, bare))
    known.accepted(known.preference_of(call, 0.0), Candidate(bare, 0, moved=True), 0.0)
    assert known.preference_of(call, 0.0).channel_id == "id-c"


@pytest.mark.parametrize("most", [1, 10])
def test_the_one_that_was_silent_longest_is_forgotten_first(monkeypatch, most):
    monkeypatch.setattr(module, "MAX_MOVED", most)
    known = Affinity()
    for token in (*range(most), 0, *range(100, 100 + most - 1)):
        known.accepted(Preference(token), Candidate(B, 0, moved=True), 0.0)
    assert set(known._moved) == {0, *range(100, 100 + most - 1)}
