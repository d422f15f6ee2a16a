"""The snapshot: who may call what, by which channels, at which prices."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.catalog import catalog
from store.catalog.keys import find_key
from store.db import database as database_module
from store.db.changes import current_version
from store.db.tables import catalog as tables
from store.values.cipher import Cipher
from store.values.features import FEATURES
from store.values.ids import now_ms
from store.values.key_secrets import digests
from tests.support.prices import prices_of
from tests.support.stores import change

pytestmark = pytest.mark.databases("sqlite")

FREE = prices_of(0, 0, 0, 0, 0, 0, 0)


@pytest.fixture
def snapshot(applied, database, cipher):
    return catalog.load_snapshot(database, cipher)


@pytest.fixture
def keys(database, pepper, applied):
    """Return the keys of alice (group default) and bob (group plain)."""
    secrets = ["sk-given-0123456789", applied.keys[1].secret]
    return [find_key(database, digests(secret, [pepper])) for secret in secrets]


def names(channels):
    return [channel.name for channel in channels]


def test_everything_is_read(snapshot, database, cipher):
    assert snapshot.version == current_version(database)
    assert snapshot.faults == ()
    plain = catalog.Group(
        "plain", 1_500_000, frozenset({"gpt-4.1"}), frozenset({"chat_completions"}), False
    )
    assert snapshot.groups["plain"] == plain
    assert snapshot.groups["default"].models is None
    model = snapshot.models["gpt-4.1"]
    assert (model.context_tokens, model.max_output_tokens) == (1_000_000, None)
    channel = next(c for c in snapshot.channels if c.name == "openai-main")
    expected = {
        **{"keys": ("sk-upstream-1", "sk-upstream-2"), "models": {"gpt-4.1": "gpt-4.1-2025-04-14"}},
        **{"vendor": "openai", "family": "chat_completions"},
        **{"base_url": "https://api.openai.com"},
        "fingerprints": tuple(map(cipher.fingerprint, ("sk-upstream-1", "sk-upstream-2"))),
    }
    assert {name: getattr(channel, name) for name in expected} == expected
    assert "sk-upstream" not in repr(snapshot) and "sk-upstream" not in str(snapshot.channels)


def test_defaults_of_prices(snapshot):
    billion = 10**9
    prices = snapshot.models["gpt-4.1"].prices_at(1 << 50)
    defaults = (2 * billion, 2 * billion, 8 * billion, 0)
    amounts = (2 * billion, 8 * billion, billion // 2, *defaults)
    assert dict(prices.plain.prices.items() - prices_of(*amounts).plain.prices.items()) == {}
    assert prices.plain.own == {"input", "output", "cache_read", "call"} and not prices.rates


def test_prices_hold_from_their_moment_on():
    rows = tuple((at, prices_of(0, 0, 0, 0, 0, 0, at)) for at in (100, 200))
    model = catalog.Model("m", None, None, False, 0, rows)
    moments = (50, 100, 199, 200, 999)
    calls = [model.prices_at(at).plain.prices["call"] for at in moments]
    assert calls == [100, 100, 100, 200, 200]
    assert catalog.Model("m", None, None, False, 0, ()).prices_at(1) is None


def test_candidates_of_a_group_model_and_family(snapshot):
    for group in ("default", "plain"):
        found = snapshot.candidates(group, "gpt-4.1", "chat_completions")
        assert names(found) == ["openai-main"]
    for asked in (
        ("plain", "claude", "messages"),
        ("default", "gpt-4.1", "messages"),
        ("default", "gpt-4.1-2025-04-14", "chat_completions"),
        ("nobody", "gpt-4.1", "chat_completions"),
    ):
        assert snapshot.candidates(*asked) == ()
    assert snapshot.serves("default", "claude", "messages")
    assert not snapshot.serves("plain", "claude", "messages")


def test_what_a_key_can_call_by_an_entry(snapshot, keys):
    alice, bob = keys

    narrow = dataclasses.replace(alice, models=frozenset({"claude", "gone"}))
    stray = dataclasses.replace(alice, group="gone")
    for key, family, expected in (
        (alice, "chat_completions", ["gpt-4.1"]),
        (alice, "messages", ["claude"]),
        (alice, "responses", []),
        (bob, "chat_completions", ["gpt-4.1"]),
        (bob, "messages", []),
        (narrow, "messages", ["claude"]),
        (narrow, "chat_completions", []),
        (stray, "messages", []),
    ):
        assert names(snapshot.listed(key, family)) == expected


@pytest.mark.parametrize(
    ("kind", "name"), [("model", "gpt-4.1"), ("group", "default"), ("channel", "openai-main")]
)
def test_what_is_disabled_is_not_offered(editor, applied, database, cipher, kind, name):
    editor.set_enabled(kind, name, False)
    snapshot = catalog.load_snapshot(database, cipher)
    assert snapshot.candidates("default", "gpt-4.1", "chat_completions") == ()
    assert not snapshot.serves("default", "gpt-4.1", "chat_completions")


def test_a_draining_channel_takes_no_calls_and_its_models_stay_offered(
    editor, applied, database, cipher, keys
):
    alice, _ = keys
    editor.drain("openai-main")
    snapshot = catalog.load_snapshot(database, cipher)
    asked = ("default", "gpt-4.1", "chat_completions")
    assert snapshot.candidates(*asked) == () and snapshot.serves(*asked)
    assert snapshot.serves("default", "gpt-4.1", "chat_completions")
    assert not snapshot.serves("default", "made up", "chat_completions")
    assert [m.name for m in snapshot.listed(alice, "chat_completions")] == ["gpt-4.1"]
    assert names(snapshot.native("default", "chat_completions")) == ["openai-main"]
    editor.set_enabled("channel", "openai-main", False)
    assert not catalog.load_snapshot(database, cipher).serves(*asked)
    editor.set_enabled("channel", "openai-main", True)
    assert names(catalog.load_snapshot(database, cipher).candidates(*asked)) == ["openai-main"]


def test_a_model_without_prices_is_not_offered(applied, database, cipher):
    change(database, 'DELETE FROM "prices"')
    snapshot = catalog.load_snapshot(database, cipher)
    assert not snapshot.serves("default", "gpt-4.1", "chat_completions")


def test_a_channel_whose_key_cannot_be_opened_is_left_out_and_named(applied, database, cipher):
    other = Cipher(["another"]).encrypt("sk-upstream-2")
    change(database, 'UPDATE "channel_keys" SET "cipher" = ? WHERE "position" = 1', other)
    snapshot = catalog.load_snapshot(database, cipher)
    assert names(snapshot.channels) == ["anthropic-main"]
    [fault] = snapshot.faults
    assert "openai-main" in fault and "sk-upstream" not in fault
    assert snapshot.serves("default", "claude", "messages")


def channel(name, **fields):
    values = {"id": name, "vendor": "demo", "family": "messages", "base_url": "http://x"}
    values |= {"keys": (), "groups": frozenset({"g"}), "models": {"m": "up"}}
    return catalog.Channel(
        name=name, **(values | {"priority": 0, "weight": 1, "enabled": True} | fields)
    )


@pytest.mark.parametrize(
    ("fields", "elsewhere"),
    [
        ({"base_url": "http://y"}, True),
        ({"route": catalog.Route(proxy="http://p:1")}, True),
        ({"extra_headers": {"x-a": "1"}}, True),
        ({"keys": ("another",), "weight": 3, "priority": 1, "enabled": False}, False),
    ],
)
def test_what_makes_a_channel_lead_elsewhere(fields, elsewhere):
    assert channel("a", **fields).leads_elsewhere(channel("a")) is elsewhere


def test_higher_priority_first_and_searched_once():
    channels = (channel("a"), channel("b", priority=5), channel("c", enabled=False), channel("d"))
    snapshot = offered(*channels)
    found = snapshot.candidates("g", "m", "messages")
    assert names(found) == ["b", "a", "d"]
    assert snapshot.candidates("g", "m", "messages") is found
    for n in range(100):
        assert snapshot.candidates("g", f"made up {n}", "messages") == ()
    assert len(snapshot._memo) == 1


def test_a_channel_with_one_of_its_keys():
    two = channel("a", keys=("x", "y"), fingerprints=("1", "2"))
    snapshot = catalog.Snapshot(1, {}, {}, (two, channel("b", enabled=False)))
    (one,) = snapshot.pinned(two, "2")
    assert (one.id, one.keys, one.fingerprints) == ("a", ("y",), ("2",))
    assert snapshot.pinned(two, "2")[0] is one
    assert snapshot.pinned(two, "gone") == snapshot.pinned(two, "") == (two,)
    bare = snapshot.channel("b")
    assert bare is snapshot.channels[1] and snapshot.pinned(bare, "") == (bare,)
    assert snapshot.channel("c") is None
    for number in range(50):
        snapshot.pinned(two, f"gone {number}")
    assert len(snapshot._memo) == 3


@pytest.mark.databases("sqlite", "mariadb")
def test_a_price_is_in_force_at_once_whatever_the_clocks_say(
    editor, applied, database, cipher, monkeypatch
):
    """The database's clock is ahead of this process's clock."""
    five_minutes_ms = 300_000
    ahead = f"{database_module._MYSQL_CLOCK} + {five_minutes_ms}"
    monkeypatch.setattr(database_module, "_MYSQL_CLOCK", ahead)
    editor.change("model", "claude", {"price.input": "7"})
    loaded = catalog.load_snapshot(database, cipher)
    prices = loaded.models["claude"].prices_at(now_ms())
    assert prices is not None and prices.plain.prices["input"] == 7 * 10**9
    assert abs(loaded.read_ms - database_module.database_ms(database)) < 60_000


LOSSES = {("chat_completions", "messages"): 2, ("chat_completions", "responses"): 1}
CHAT = ("g", "m", "chat_completions")


def offered(*channels, translate=True):
    group = catalog.Group("g", 1_000_000, None, frozenset({"messages"}), False, translate=translate)
    model = catalog.Model("m", None, None, False, 0, ((0, FREE),))
    return catalog.Snapshot(1, {"g": group}, {"m": model}, channels)


def of_family(name, family, **fields):
    return channel(name, family=family, losses=catalog.losses_to(family, LOSSES), **fields)


@pytest.mark.parametrize("forbids", ["group", "channel"])
def test_who_forbids_translation_serves_calls_of_its_own_family(forbids):
    alone = of_family("far", "messages", translate=forbids != "channel")
    snapshot = offered(alone, translate=forbids != "group")
    assert not snapshot.serves(*CHAT) and snapshot.candidates(*CHAT) == ()
    assert names(snapshot.candidates("g", "m", "messages")) == ["far"]
    assert not snapshot.takes("g", alone, "chat_completions")
    assert snapshot.takes("g", alone, "messages")
    assert offered(of_family("far", "messages")).serves(*CHAT)


def test_what_can_be_translated_is_told_to_those_who_load(editor, applied, database, cipher, keys):
    loaded = catalog.load_snapshot(database, cipher, LOSSES)
    assert names(loaded.candidates("default", "claude", "chat_completions")) == ["anthropic-main"]
    alice, _ = keys
    assert [one.name for one in loaded.listed(alice, "chat_completions")] == ["claude", "gpt-4.1"]
    editor.change("group", "default", {"translate": "false"})
    loaded = catalog.load_snapshot(database, cipher, LOSSES)
    assert not loaded.groups["default"].translate and loaded.groups["plain"].translate
    assert not loaded.serves("default", "claude", "chat_completions")
    editor.change("group", "default", {"translate": "true"})
    changes = {"translate": "false", "options.images": "false"}
    editor.change("channel", "anthropic-main", changes)
    loaded = catalog.load_snapshot(database, cipher, LOSSES)
    [changed] = [one for one in loaded.channels if one.name == "anthropic-main"]
    assert (changed.translate, changed.options) == (False, {"images": False})
    assert not loaded.serves("default", "claude", "chat_completions")
    assert loaded.serves("default", "claude", "messages")


FAMILIES = ("chat_completions", "responses", "messages", "generate_content")
SOME_CHANNELS = st.lists(
    st.fixed_dictionaries(
        {
            "family": st.sampled_from(FAMILIES),
            "priority": st.integers(-2, 2),
            "enabled": st.booleans(),
            "draining": st.booleans(),
            "translate": st.booleans(),
            "groups": st.sampled_from([frozenset({"g"}), frozenset({"h"}), frozenset({"g", "h"})]),
            "models": st.sampled_from([{"m": "up"}, {"other": "up"}, {"m": "a", "other": "b"}]),
        }
    ),
    max_size=8,
)
SOME_LOSSES = st.dictionaries(
    st.tuples(st.sampled_from(FAMILIES), st.sampled_from(FAMILIES)).filter(lambda p: p[0] != p[1]),
    st.integers(1, 3),
)


@settings(max_examples=200, deadline=None)
@given(SOME_CHANNELS, SOME_LOSSES, st.booleans(), st.sampled_from(FAMILIES))
def test_any_channels_are_offered_by_the_same_rules(fields, losses, translate, family):
    channels = [
        channel(f"c{place}", losses=catalog.losses_to(one["family"], losses), **one)
        for place, one in enumerate(fields)
    ]
    snapshot = offered(*channels, translate=translate)
    translated = {spoken for calling, spoken in losses if calling == family and translate}
    offers = {
        one.name: 0 if one.family == family else losses[family, one.family]
        for one in channels
        if one.enabled and "g" in one.groups and "m" in one.models
        and (one.family == family or (one.translate and one.family in translated))
    }  # fmt: skip
    found = snapshot.candidates("g", "m", family)
    assert {one.name for one in found} == {
        c.name for c in channels if c.name in offers and not c.draining
    }
    order = [(offers[one.name], -one.priority, one.name) for one in found]
    assert order == sorted(order)
    assert snapshot.serves("g", "m", family) is bool(offers)


@pytest.mark.parametrize(("stored", "removed"), [
    (None, {"fallbacks.default"}),
    ([], set(FEATURES)),
    (["*", "-geo"], {"geo"}),
])  # fmt: skip
def test_features_of_a_group(applied, database, stored, removed):
    tables.Group.update(features=stored).execute(database)
    groups = catalog.load_groups(database)
    assert {frozenset(FEATURES) - group.features for group in groups} == {frozenset(removed)}
