"""The status of channels and models: states, since when and why, figures, who sees what."""

import json

import pytest

from store.catalog.suspended_keys import SuspendedKey, lift, suspend
from store.channels import breakers
from store.channels.status import (
    DEGRADED_CALLS,
    DOWN_CALLS,
    RECENT_MS,
    of_channels,
    of_models,
    to_public,
    worst,
)
from store.channels.status_sums import Probed, add_probes, fold
from store.db.database import transaction
from store.values.ids import new_ulid
from store.values.usage_record import AttemptRecord
from tests.support import usage_records
from tests.support.stores import select
from tests.support.usage_records import record_at

pytestmark = pytest.mark.databases("sqlite")

NOW_MS = 1_767_571_290_000  # 2026-01-05T00:01:30Z


@pytest.fixture
def db(applied, editor, database, read):
    """Return a store with a second channel for gpt-4.1, and none for a model that one group
    names."""
    spare = {"name": "spare", "vendor": "openai", "family": "chat_completions"}
    spare |= {"base_url": "https://spare.example", "keys": ["sk-spare"]}
    document = {
        "model": [{"name": "lonely", "price": {"input": "1", "output": "1"}}],
        "group": [{"name": "plain", "models": ["gpt-4.1", "lonely"]}],
        "channel": [spare | {"models": {"gpt-4.1": "gpt-4.1"}}],
    }
    editor.apply(read(json.dumps(document)))
    return database


def call(outcome="ok", ago_s=0, channel="openai-main", code=None, **fields):
    error = None if outcome == "ok" else code
    facts = {"group": "default", "model": "gpt-4.1", "started_ms": NOW_MS - ago_s * 1000}
    facts |= {"duration_ms": 900, "ttft_ms": 150, "stream": True, "output_tokens": 30}
    facts |= {"channel": channel, "attempts": (AttemptRecord(channel, 200, error, 900),)}
    return record_at(NOW_MS, **(facts | {"outcome": outcome, "error_code": code} | fields))


def store(db, *records):
    usage_records.store(db, records, NOW_MS)


def failed(ago_s=0, code="upstream_error", **fields):
    return call("upstream_error", ago_s, code=code, **fields)


def channel_of(db, name="openai-main", model="gpt-4.1", at_ms=NOW_MS):
    [found] = [one for one in of_channels(db, at_ms) if (one.name, one.model) == (name, model)]
    return found


def model_of(db, group="default", model="gpt-4.1", at_ms=NOW_MS):
    [found] = [one for one in of_models(db, at_ms, [group]) if one.model == model]
    return found


def said(status):
    return status.state, status.reason, status.since_ms


def spare(db, at_ms=NOW_MS):
    return said(channel_of(db, "spare", at_ms=at_ms))


QUIET = ("available", "no_recent_traffic", None)


def keys_of(db, channel):
    query = (
        'SELECT c."id", k."fingerprint" FROM "channels" c JOIN "channel_keys" k'
        ' ON k."channel_id" = c."id" WHERE c."name" = ? ORDER BY k."position"'
    )
    return select(db, query, channel)


def show(db, channel, *keys, model="gpt-4.1", reason="failing", ago_s=10, worker="", **fields):
    """Store that a worker's breakers are open for these upstream keys (by position) of a
    channel."""
    rows = keys_of(db, channel)
    until_ms = fields.get("until_ms", NOW_MS + 5000)
    names = [(rows[key][0], model, rows[key][1]) for key in keys]
    now = dict.fromkeys(names, (reason, NOW_MS - ago_s * 1000, until_ms))
    breakers.show(db, worker or new_ulid(), {}, now)


# ---- channels ------------------------------------------------------------------------------------


def test_nothing_known_is_available(db):
    assert [(one.name, one.model) for one in of_channels(db, NOW_MS)] == [
        ("anthropic-main", "claude"),
        ("openai-main", "gpt-4.1"),
        ("spare", "gpt-4.1"),
    ]
    assert said(channel_of(db)) == QUIET
    assert said(model_of(db)) == QUIET


def test_traffic_that_is_well(db):
    store(db, *[call() for _ in range(20)], failed())
    status = channel_of(db)
    assert said(status) == ("available", None, None)
    assert status.last_ok_ms == status.last_error_ms == NOW_MS + 900
    assert status.last_error == "upstream_error"


def test_switched_off_or_draining(db, editor):
    editor.change("channel", "openai-main", {"draining": "true"})
    store(db, *[failed() for _ in range(5)])
    assert said(channel_of(db)) == ("disabled", "draining", None)
    editor.set_enabled("channel", "openai-main", False)
    assert said(channel_of(db)) == ("disabled", None, None)


def test_a_refused_key_is_known_while_no_gateway_runs(db):
    (channel_id, first), (_, second) = keys_of(db, "openai-main")
    until_ms = NOW_MS + 600_000
    suspend(db, SuspendedKey(channel_id, first, NOW_MS, until_ms, 1, "upstream status 401"))
    assert said(channel_of(db)) == ("degraded", "key_suspended", NOW_MS)
    suspend(db, SuspendedKey(channel_id, second, NOW_MS + 1, until_ms, 1, "upstream status 401"))
    assert said(channel_of(db)) == ("down", "key_suspended", NOW_MS + 1)
    assert said(model_of(db))[:2] == ("degraded", "fewer_channels")
    lift(db, (channel_id, first))
    lift(db, (channel_id, second))
    assert said(channel_of(db))[0] == "available"


@pytest.mark.parametrize("bad", [DOWN_CALLS - 1, DOWN_CALLS])
def test_calls_that_have_all_failed(db, bad):
    store(db, *[failed(ago_s=ago_s) for ago_s in range(bad)])
    down = ("down", "failing", NOW_MS - 30_000)  # the minute of the first failure
    assert said(channel_of(db)) == (down if bad >= DOWN_CALLS else ("available", None, None))


def test_down_since_the_first_failure_that_no_success_has_followed(db):
    records = [call(ago_s=400), failed(ago_s=290), failed(ago_s=200), failed(), failed()]
    store(db, *records)
    assert said(channel_of(db)) == ("down", "failing", NOW_MS - 330_000)
    store(db, call(ago_s=100))
    assert channel_of(db).state == "available"  # one of five succeeded: too few to tell a rate


def test_a_rate_of_failures(db):
    store(db, *[failed(ago_s=400) for _ in range(5)])  # old ones say nothing about the present
    assert said(channel_of(db)) == QUIET
    assert channel_of(db).windows()["24h"].calls == 5
    store(db, *[call() for _ in range(DEGRADED_CALLS - 2)], failed())
    assert channel_of(db).state == "available"
    store(db, failed())
    assert said(channel_of(db)) == ("degraded", "errors", NOW_MS - 30_000)
    store(db, *[call() for _ in range(40)])
    assert channel_of(db).state == "available"


def test_one_of_two_keys_left_alone_is_degraded_both_are_down(db):
    show(db, "openai-main", 0, reason="key_suspended", model="", ago_s=60)
    assert said(channel_of(db)) == ("degraded", "key_suspended", NOW_MS - 60_000)
    show(db, "openai-main", 1)
    assert said(channel_of(db)) == ("down", "failing", NOW_MS - 10_000)
    assert spare(db) == QUIET


def test_what_another_worker_served_since_makes_it_degraded(db):
    show(db, "spare", 0, ago_s=20)
    store(db, call(ago_s=30, channel="spare"))
    assert channel_of(db, "spare").state == "down"
    store(db, call(ago_s=10, channel="spare"))
    assert spare(db) == ("degraded", "failing", NOW_MS - 20_000)
    show(db, "spare", 0, ago_s=5)  # this worker has an open breaker too
    assert spare(db) == ("down", "failing", NOW_MS - 5_000)


def test_workers_together_tell_the_earliest_and_forget_with_them(db):
    one, two = new_ulid(), new_ulid()
    show(db, "spare", 0, ago_s=20, worker=one)
    show(db, "spare", 0, ago_s=50, worker=two)
    assert spare(db) == ("down", "failing", NOW_MS - 50_000)
    transaction(db, lambda: breakers.forget(db, two))
    assert spare(db) == ("down", "failing", NOW_MS - 20_000)
    transaction(db, lambda: breakers.forget(db, one))
    assert spare(db) == QUIET


def test_slow_starts_never_mean_down_nor_does_a_breaker_of_another_model(db, editor):
    show(db, "spare", 0, model="other")
    assert spare(db) == QUIET
    show(db, "spare", 0, reason="slow")
    assert spare(db) == ("degraded", "slow", NOW_MS - 10_000)
    assert worst(of_channels(db, NOW_MS)).name == "spare"
    editor.set_enabled("channel", "spare", False)
    assert worst(of_channels(db, NOW_MS)).state == "available" and worst([]) is None


def test_a_breaker_that_nobody_has_tried_again_gets_old_and_goes_with_its_key(db, editor, read):
    show(db, "spare", 0, until_ms=NOW_MS - RECENT_MS + 1)
    assert spare(db)[0] == "down"
    assert spare(db, NOW_MS + 1)[0] == "available"
    for keys, state in (("sk-new", "available"), ("", "down")):
        editor.change("channel", "spare", {"keys": keys})
        if not keys:  # a channel without keys has one breaker
            [(channel_id,)] = select(db, 'SELECT "id" FROM "channels" WHERE "name" = \'spare\'')
            row = {(channel_id, "gpt-4.1", ""): ("failing", NOW_MS - 5, NOW_MS + 5)}
            breakers.show(db, new_ulid(), {}, row)
        assert spare(db)[0] == state


# ---- probes --------------------------------------------------------------------------------------


def probe(db, *errors, ago_s=600):
    probes = [
        Probed("spare", "gpt-4.1", NOW_MS - (ago_s - number) * 1000, error, 70, 500)
        for number, error in enumerate(errors)
    ]
    add_probes(db, probes)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    ("errors", "state", "reason"),
    [
        ((None,), "available", None),
        (("connect",), "degraded", "probe_failed"),
        (("connect", None), "available", None),
        ((None, "connect"), "degraded", "probe_failed"),
        (("connect",) * DOWN_CALLS, "down", "probe_failed"),
    ],
)
def test_probes_speak_where_there_is_no_traffic(db, errors, state, reason, folded):
    probe(db, *errors)
    if folded:
        fold(db, NOW_MS // 1000)
    status = channel_of(db, "spare")
    assert (status.state, status.reason) == (state, reason)
    assert status.probes.calls == len(errors)
    assert all(figures.calls == 0 for figures in status.windows().values())
    probes = to_public(model_of(db))["probes_24h"]
    assert probes == {"calls": len(errors), "success": errors.count(None) / len(errors)}


def test_traffic_is_believed_before_probes_and_those_of_yesterday_say_nothing(db):
    probe(db, *["connect"] * 5, ago_s=3 * 3600)
    fold(db, NOW_MS // 1000)
    assert spare(db) == QUIET
    probe(db, *["connect"] * 5)
    store(db, call(channel="spare"))
    assert spare(db) == ("available", None, None)


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.databases("sqlite", "mariadb")
def test_a_model_is_down_when_all_its_channels_are(db):
    show(db, "openai-main", 0, 1, ago_s=30)
    assert said(model_of(db)) == ("degraded", "fewer_channels", NOW_MS - 30_000)
    # The other group has only this channel.
    assert said(model_of(db, "plain")) == ("down", "failing", NOW_MS - 30_000)
    show(db, "spare", 0, ago_s=20)
    assert said(model_of(db)) == ("down", "failing", NOW_MS - 20_000)


def test_a_call_that_another_channel_served_is_a_success_for_its_users(db):
    tries = (
        AttemptRecord("openai-main", 500, "upstream_error", 10),
        AttemptRecord("spare", 200, None, 800),
    )
    store(db, *[call(attempts=tries, channel="spare") for _ in range(5)])
    assert channel_of(db).state == "down"
    status = model_of(db)
    assert said(status) == ("degraded", "fewer_channels", NOW_MS - 30_000)
    assert (status.windows()["5m"].calls, status.windows()["5m"].success) == (5, 1.0)
    assert status.last_error is None


def test_refusals_for_want_of_a_channel_are_failures(db):
    refused = {"attempts": (), "code": "no_channel_available", "channel": None}
    store(db, *[call("refused", **refused) for _ in range(DOWN_CALLS)])
    assert said(model_of(db)) == ("down", "failing", NOW_MS - 30_000)
    assert model_of(db).last_error == "no_channel_available"
    assert model_of(db, "plain").state == "available"


def test_models_that_cannot_be_called(db, editor):
    assert said(model_of(db, "plain", "lonely")) == ("disabled", "no_channel", None)
    assert [one.model for one in of_models(db, NOW_MS, ["plain"])] == ["gpt-4.1", "lonely"]
    # A user of a group with all models does not see those that no channel serves.
    assert [one.model for one in of_models(db, NOW_MS, ["default"])] == ["claude", "gpt-4.1"]
    editor.set_enabled("channel", "openai-main", False)
    assert said(model_of(db, "plain")) == ("disabled", "no_channel", None)
    assert model_of(db).state == "available"
    editor.set_enabled("model", "gpt-4.1", False)
    assert said(model_of(db)) == ("disabled", "model_disabled", None)


def test_users_see_their_groups_and_no_accounts(db):
    show(db, "openai-main", 0, 1, reason="key_suspended", model="")
    store(db, *[failed(code="channel_misconfigured") for _ in range(5)], call(channel="spare"))
    probe(db, "connect")
    found = of_models(db, NOW_MS, ["plain", "nobody"])
    assert {one.name for one in found} == {"plain"}
    assert {one.name for one in of_models(db, NOW_MS)} == {"default", "plain"}
    text = json.dumps([to_public(one) for one in of_models(db, NOW_MS)])
    for secret in ("openai", "spare", "anthropic", "sk-", "https", "key_suspended"):
        assert secret not in text
    for _, fingerprint in keys_of(db, "openai-main"):
        assert fingerprint not in text


# ---- figures -------------------------------------------------------------------------------------


def test_windows_hold_what_lies_in_them(db):
    store(db, call(), call(ago_s=200), failed(ago_s=500), call(ago_s=7200), call(ago_s=86_400 * 3))
    for _ in range(2):
        fold(db, NOW_MS // 1000)
        found = {name: (one.calls, one.success) for name, one in channel_of(db).windows().items()}
        assert found == {"5m": (2, 1.0), "24h": (4, 0.75), "30d": (5, 0.8)}


def test_the_public_form(db):
    store(db, *[call(ttft_ms=ms, duration_ms=1000 + ms) for ms in (60, 90, 300, 1000)])
    status = to_public(channel_of(db))
    assert status["windows"]["24h"] == {
        **{"calls": 4, "success": 1.0, "tokens_per_s": 30.0},
        **{"first_byte_p50_ms": 100, "first_byte_p95_ms": 1120},
        **{"total_p50_ms": 1200, "total_p95_ms": 2240},
    }
    assert status["last_ok_at"] == "2026-01-05T00:01:32.000Z"
    empty = to_public(channel_of(db, "spare"))
    assert empty["windows"]["30d"] == dict.fromkeys(status["windows"]["24h"], None) | {"calls": 0}
    assert (empty["since"], empty["last_error"], empty["last_error_at"]) == (None, None, None)


def test_many_channels_are_asked_for_in_parts(db, monkeypatch):
    monkeypatch.setattr("store.db.database.PORTION", 1)
    store(db, call(), call(channel="spare"))
    found = {one.name: one.windows()["24h"].calls for one in of_channels(db, NOW_MS)}
    assert found == {"anthropic-main": 0, "openai-main": 1, "spare": 1}


def test_by_which_entries_a_channel_is_asked_is_for_operators(db):
    losses = {("chat_completions", "messages"): 1}
    found = {one.name: to_public(one)["entries"] for one in of_channels(db, NOW_MS, losses)}
    assert found["openai-main"] == {"chat_completions": "native"}
    assert found["anthropic-main"] == {
        "messages": "native",
        "chat_completions": "translated from messages",
    }
    assert all("entries" not in to_public(one) for one in of_models(db, NOW_MS))
