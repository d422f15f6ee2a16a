"""`explain`: the same texts as the gateway, with every reason, and no cost."""

import json
import re
import time
from types import SimpleNamespace

import pytest

from adapters.codecs import TRANSLATORS
from commands.nouns import explain as explain_command
from store.channels import breakers
from store.db.database import execute
from tests.commands.conftest import document

SECRET = "sk-given-by-the-operator-1"
CHAT, COUNT = "/v1/chat/completions", "/v1/messages/count_tokens"
TRANSLATED = {("chat_completions", "messages"): 1, ("responses", "messages"): 1}
ARGS = ("--model", "gpt-4.1", "--endpoint", CHAT)


def channel(name, **more):
    return {
        "name": name,
        "vendor": "demo",
        "family": "chat_completions",
        "base_url": "http://127.0.0.1:1",
        "keys": ["sk-up"],
        "models": {"gpt-4.1": f"up-{name}"},
        **more,
    }


def key(name, user="alice", **more):
    return {"user": user, "name": name, **more}


def content():
    made = document()
    prices = {"free": "0", "off": "1", "alone": "1", "counted": "1"}
    made["model"] += [
        {"name": name, "price": {"input": price, "output": price}} for name, price in prices.items()
    ]
    made["group"] += [{"name": "chats", "entries": ["chat_completions"]}]
    made["channel"][0]["models"] |= {"free": "up-free", "off": "up-off"}
    router = {"family": "messages", "vendor": "openrouter"}
    counting = {"gpt-4.1": "up", "counted": "up"}
    made["channel"] += [
        channel("first", priority=5, rpm=60, key_concurrency=5),
        channel("others", groups=["chats"]),
        channel("talks", family="messages", models=counting, translate=False),
        channel("countless", models={"alone": "up"}, **router),
        channel("talks-only", models={"counted": "up"}, **router),
        channel("resting"),
        channel("last", models={"alone": "up"}),
    ]
    made["user"] += [{"name": "poor"}, {"name": "planned", "order": "plan_only"}]
    made["user"] += [{"name": "capped", "balance": "5", "limit": "0.000001"}]
    made["plan"] = [{"name": "basic", "quota": "5", "window": "day"}]
    made["key"] = [
        key("laptop", secret=SECRET),
        key("narrow", models=["free"]),
        key("chats", group="chats"),
        key("old", expires_at="2020-01-01T00:00:00Z"),
        key("near", networks=["203.0.113.0/24"]),
        key("tight", limit="0.000001", limit_window="day"),
        key("k", user="poor"),
        key("k", user="planned"),
        key("k", user="capped"),
    ]
    return made


@pytest.fixture
def world(installation, monkeypatch):
    monkeypatch.setattr(explain_command, "LOSSES", TRANSLATED)
    for pair in TRANSLATED:
        monkeypatch.setitem(TRANSLATORS, pair, SimpleNamespace(counts=True))
    installation.apply(content())
    for name in ("resting", "last", "countless"):
        installation.ok("channel", "disable", name)
    installation.ok("model", "disable", "off")
    return installation


def key_id(world, user, name):
    keys = world.json("key", "list")
    return next(one["id"] for one in keys if (one["user"], one["name"]) == (user, name))


def explain(world, user="alice", name="laptop", model="gpt-4.1", endpoint=CHAT):
    args = ("--key-id", key_id(world, user, name), "--model", model, "--endpoint", endpoint)
    return world.json("explain", *args)


def reasons(answer):
    """Return name and reason of each channel; usable ones have no reason."""
    assert all(one["usable"] for one in answer["channels"] if one["reason"] is None)
    return {one["name"]: one["reason"] for one in answer["channels"]}


def test_channels_in_order_and_why_others_are_out(world):
    answer = explain(world)
    assert (answer["allowed"], answer["reason"]) == (True, None)
    assert list(reasons(answer).items()) == [
        ("first", None),
        ("main", None),
        ("others", "not_for_this_group"),
        ("resting", "disabled"),
        ("talks", "translate_off"),
    ]
    assert [one["usable"] for one in answer["channels"]] == [True, True, False, False, False]
    first, main, *_ = answer["channels"]
    assert first["upstream_model"] == "up-first"
    assert (first["limits"], main["limits"]) == ({"rpm": 60, "key_concurrency": 5}, {})
    # the secret, or user and name, give the same as the id
    assert world.json("explain", "--key", SECRET, *ARGS) == answer
    assert world.json("explain", "--key-id", "alice/laptop", *ARGS) == answer
    # a disabled channel is listed if there is no other
    assert reasons(explain(world, model="alone")) == {"countless": "disabled", "last": "disabled"}
    # channels of vendors that cannot count tokens are left out for counting
    counted = explain(world, model="counted", endpoint=COUNT)
    assert reasons(counted) == {"talks": None, "talks-only": "counts_no_tokens"}


REASONS = [
    ({"model": "off"}, "model_not_found"),
    ({"model": "alone"}, "model_not_found"),
    ({"name": "narrow"}, "model_not_found"),
    ({"name": "chats", "endpoint": "/v1/messages"}, "entry_point_not_allowed"),
    ({"name": "old"}, "api_key_expired"),
    ({"name": "tight"}, "subscription_quota_exceeded"),
    ({"user": "capped", "name": "k"}, "subscription_quota_exceeded"),
    ({"user": "poor", "name": "k"}, "insufficient_quota"),
    ({"user": "planned", "name": "k"}, "subscription_quota_exceeded"),
    ({"endpoint": "/v1/chat/completion"}, "unknown_path"),
    ({"name": "narrow", "model": "free"}, None),
    ({"name": "near"}, None),
    ({"user": "poor", "name": "k", "model": "free"}, None),
    ({"model": "counted", "endpoint": COUNT}, None),
]


def test_reasons(world):
    """Each reason comes from another part of the code; the relay's tests cover the others."""
    subscription = {"user": "planned", "plan": "basic", "expires_at": "2099-01-01T00:00:00Z"}
    for call, reason in REASONS:
        answer = explain(world, **call)
        assert (answer["allowed"], answer["reason"]) == (reason is None, reason), call
    world.apply({"subscription": [subscription]})
    assert explain(world, user="planned", name="k")["allowed"]


def test_a_path_that_names_a_model(world):
    world.apply({"channel": [channel("g", family="generate_content")]})
    for path in ("/v1beta/models/gpt-4.1:generateContent", "/v1beta/models/{model}:countTokens"):
        answer = explain(world, endpoint=path)
        assert answer["allowed"] and answer["channels"][0]["name"] == "g"


def test_a_path_without_a_model_is_told_with_those_that_have_one(world):
    for path in ("/v1/models", "v1/messages"):
        answer = explain(world, endpoint=path)["message"]
        assert answer.startswith(f"No endpoint that takes a model: {path}; there are: /v1/chat/")
        known = answer.partition("there are: ")[2].split(", ")
        assert "/v1/messages" in known and len(known) == len(set(known))


def test_from_which_family_it_is_translated(world):
    """A native call has no such remark."""

    def told(answer):
        return re.search(r"translated.{0,12}messages", json.dumps(answer)) is not None

    world.ok("channel", "set", "talks", "translate=true")
    assert not told(explain(world, endpoint="/v1/messages"))
    compact = explain(world, endpoint="/v1/responses/compact")
    assert compact["allowed"] and "talks" in {row["name"] for row in compact["channels"]}, (
        "the model itself writes a summary where no channel is native"
    )
    shown = {one["name"]: one["translated_from"] for one in explain(world)["channels"]}
    assert list(shown)[:3] == ["first", "main", "talks"]
    assert {name for name, family in shown.items() if family} == {"talks"}
    world.ok("channel", "disable", "main")
    world.ok("channel", "disable", "first")
    assert explain(world)["first"] == ["talks"]
    text = world.ok("explain", "--key", SECRET, *ARGS)
    assert re.search(r"^talks +usable, translated from messages +0 ", text, re.M)
    world.ok("group", "set", "default", "translate=false")
    answer = explain(world)
    assert (answer["reason"], answer["status"]) == ("model_not_found", 404)
    assert answer["message"].endswith("call it at /v1/messages.")
    assert reasons(answer)["talks"] == "translate_off"


def test_a_count_that_is_estimated_is_sent_to_no_channel(world):
    world.ok("channel", "enable", "countless")
    asked = {"model": "alone", "endpoint": "/v1/responses/input_tokens"}
    answer = explain(world, **asked)
    assert (answer["allowed"], answer["first"]) == (True, [])
    assert states(answer)["countless"] == (False, "counts_no_tokens")
    args = ("--key", SECRET, "--model", "alone", "--endpoint", asked["endpoint"])
    assert "would be estimated" in world.ok("explain", *args)


def test_revoked_keys_and_unknown_ones(world):
    world.ok("key", "revoke", "alice/laptop")
    assert explain(world)["reason"] == "api_key_disabled"
    answer = world.json("explain", "--key-id", "nobodys", *ARGS)
    refusal = [answer[name] for name in ("allowed", "reason", "status", "channels")]
    assert refusal == [False, "invalid_api_key", 401, []]
    assert "nobody" in world.refused("explain", "--key-id", "alice/nobody", *ARGS)


def test_nothing_is_spent_or_written(world):
    with world.store() as db:
        before = list(db.execute_sql("SELECT * FROM quotas").fetchall())
    explain(world)
    explain(world, name="tight")
    with world.store() as db:
        assert list(db.execute_sql("SELECT * FROM quotas").fetchall()) == before
    assert world.json("wallet", "show", "--user", "alice")["leased"] == "0"
    assert world.ok("usage", "export", "--format", "ndjson") == ""


def test_text_for_people_and_misuse(world):
    text = world.ok("explain", "--key", SECRET, *ARGS)
    assert text.startswith("allowed\n") and "not_for_this_group" in text
    assert text.endswith("\nwould be sent to first\n") and "sk-up" not in text
    wrong = world.ok("explain", "--key", "sk-wrong", *ARGS)
    assert "refused: invalid_api_key" in wrong
    assert "\nwould fail: 401 invalid_api_key: " in wrong
    lines = world.ok("explain", "--key", SECRET, "--model", "gpt-4.2", *ARGS[2:]).splitlines()
    assert lines[-1].startswith("nearest names: gpt-4.1")
    assert "--key-id" in world.misused("explain", *ARGS)
    assert "--key-id" in world.misused("explain", "--key", "a", "--key-id", "b", *ARGS)


DEARER = ["tier.priority", "tier.ultrafast", "speed.fast", "geo", "audio_output", "image_output"]


def test_features_that_a_call_may_not_ask_for(world):
    answer = explain(world)
    assert answer["features_not_allowed"] == ["fallbacks.default"]
    assert answer["features_unpriced"] == DEARER
    world.ok("group", "set", "default", "features=*,-geo,-web_search")
    world.ok("model", "set", "gpt-4.1", "price.output_image=40")
    answer = explain(world)
    assert answer["features_not_allowed"] == ["geo", "web_search"]
    assert answer["features_unpriced"] == [n for n in DEARER if n not in ("geo", "image_output")]
    lines = world.ok("explain", "--key", SECRET, *ARGS).splitlines()
    assert "would refuse, not allowed for the group: geo, web_search" in lines
    assert (
        "would refuse, without a price: tier.priority, tier.ultrafast, speed.fast, audio_output"
        in lines
    )
    assert "features_unpriced" not in explain(world, model="off")


def open_breaker(world, channel_name, reason, left_ms=30_000, model="gpt-4.1"):
    """Store that a worker's breaker is open for a channel."""
    channel_id = world.json("channel", "show", channel_name)["id"]
    with world.store() as db:
        query = 'SELECT "fingerprint" FROM "channel_keys" WHERE "channel_id" = ?'
        [(fingerprint,)] = execute(db, query, (channel_id,)).fetchall()
        at_ms = time.time_ns() // 1_000_000
        now = {(channel_id, model, fingerprint): (reason, at_ms, at_ms + left_ms)}
        breakers.show(db, "journal-of-a-worker", {}, now)


def states(answer):
    return {one["name"]: (one["usable"], one["reason"]) for one in answer["channels"]}


@pytest.mark.parametrize("reason", ["failing", "timing_out", "rate_limited"])
def test_what_workers_hold_against_a_channel_is_there(world, reason):
    open_breaker(world, "first", reason)
    answer = explain(world)
    assert states(answer)["first"] == (False, reason) and answer["first"] == ["main"]
    [until] = [one["until"] for one in answer["channels"] if one["name"] == "first"]
    assert until is not None
    # No better channel is left, so it is tried nevertheless.
    world.ok("channel", "disable", "main")
    answer = explain(world)
    assert (answer["allowed"], answer["first"]) == (True, ["first"])
    assert states(answer)["first"] == (True, reason)
    text = world.ok("explain", "--key", SECRET, *ARGS)
    assert f"{reason} until 20" in text and "tried anyway" in text
    assert text.endswith("\nwould be sent to first\n")


def test_what_is_over_or_of_another_model_or_key_counts_for_nothing(world):
    open_breaker(world, "first", "failing", left_ms=-1)
    open_breaker(world, "main", "failing", model="other")
    assert states(explain(world))["first"] == states(explain(world))["main"] == (True, None)
    open_breaker(world, "first", "failing")
    world.ok("channel", "set", "first", "keys=sk-another")
    assert explain(world)["first"] == ["first"]


def test_slow_channels_are_asked_last_and_equals_are_named_together(world):
    world.apply({"channel": [channel("second", priority=5)]})
    assert sorted(explain(world)["first"]) == ["first", "second"]
    world.ok("channel", "disable", "second")
    open_breaker(world, "first", "slow")
    assert [one["name"] for one in explain(world)["channels"]][:2] == ["main", "first"]
