"""Plans: what changes, what stays, and a check of every reference. No database."""

import json

import pytest

from store.admin.document import Entry, parse
from store.admin.kinds import KINDS
from store.admin.objects import Stored
from store.admin.plan import Upstreams, make_plan, warnings_of
from store.values.errors import Refused
from store.values.key_secrets import checksum_ok, digests
from store.values.passwords import hash_password, verify_password
from store.values.times import MAX_INSTANT_MS

OPENAI = frozenset({"chat_completions", "responses"})
VENDORS = {"openai": OPENAI, "local": OPENAI, "demo": frozenset({"messages"})}
PRICE = {"input": 1, "output": 2, "call": 0}
SECRET = "sk-given-0123456789"
NOW_MS = 1_795_000_000_000
DAY_MS = 86_400_000


@pytest.fixture
def stored(sealing, pepper):
    def make(kind, *identity, revoked=False, **fields):
        values = {n: f.default for n, f in KINDS[kind].fields.items() if not f.once}
        if kind == "key":
            values["secret"] = frozenset(digests(fields.pop("secret", "x" * 16), [pepper]))
        row = {"revoked_ms": 1 if revoked else None}
        return Stored(kind, f"id of {identity}", identity, {**values, **fields}, row)

    return make


@pytest.fixture
def state(stored, cipher):
    channel = {"vendor": "openai", "family": "responses", "base_url": "http://x", "groups": ["g"]}
    sealed = [cipher.encrypt("sk-1"), cipher.encrypt("sk-2")]
    objects = [
        stored("model", "m", price=PRICE),
        stored("group", "g"),
        stored("channel", "c", models={"m": "up"}, keys=sealed, **channel),
        stored("user", "alice"),
        stored("key", "alice", "laptop", group="g", secret=SECRET),
        stored("key", "alice", "old", group="g", revoked=True),
    ]
    state = {kind: {} for kind in KINDS}
    for item in objects:
        state[item.kind][item.identity] = item
    return state


@pytest.fixture
def plan(state, sealing):
    upstreams = Upstreams(
        VENDORS,
        {"images": "true or false"},
        lambda name, value: isinstance(value, bool),
        frozenset({"local"}),
    )
    return lambda *entries, prune=False: make_plan(
        state, list(entries), sealing, upstreams, at_ms=NOW_MS, prune=prune
    )


@pytest.fixture
def faults(plan):
    def run(*entries, prune=False):
        with pytest.raises(Refused) as caught:
            plan(*entries, prune=prune)
        return caught.value.faults

    return run


def entry(kind, *identity, **fields):
    return Entry(kind, identity, fields)


MODEL, GROUP = entry("model", "m"), entry("group", "g")
CHANNEL, ALICE = entry("channel", "c"), entry("user", "alice")
LAPTOP, TERM = entry("key", "alice", "laptop"), entry("subscription", "alice", "p")


def short(steps):
    return [(step.action, step.kind, "/".join(step.identity)) for step in steps]


def test_what_is_so_already_needs_no_step_and_only_changed_fields_are_written(plan):
    assert plan() == []
    same = [
        entry("model", "m", price=PRICE),
        entry("group", "g", multiplier=1_000_000, models=["*"]),
        entry("channel", "c", keys=["sk-1", "sk-2"], weight=1),
        entry("user", "alice", role="member", balance=10**12),
        entry("key", "alice", "laptop", secret=SECRET, rpm=0),
        # A revoked key is never touched.
        entry("key", "alice", "old", rpm=7, secret="z" * 16),
    ]
    assert plan(*same) == []
    [step] = plan(entry("group", "g", multiplier=1_000_000, rpm=5, tpm=0))
    assert short([step]) == [("update", "group", "g")]
    assert step.fields == {"rpm": 5}


@pytest.mark.parametrize("keys", [["sk-1"], ["sk-2", "sk-1"], ["sk-1", "sk-3"], []])
def test_other_upstream_keys_replace_the_old_ones(plan, keys):
    [step] = plan(entry("channel", "c", keys=keys))
    assert step.fields == {"keys": keys}


def test_prices_and_rates_are_replaced_and_a_new_object_takes_defaults(plan):
    price, rates = {"input": 3, "output": 2}, [{"when": {"tier": "flex"}, "factor": 500_000}]
    [step] = plan(entry("model", "m", price=price))
    assert step.fields == {"price": price}
    [step] = plan(entry("model", "m", rate=rates))
    assert step.fields == {"rate": rates}
    [step] = plan(entry("key", "alice", "new", group="g", rpm=3))
    assert short([step]) == [("create", "key", "alice/new")]
    secret = step.fields["secret"]
    assert step.made_secret and secret.startswith("sk-slc-") and checksum_ok(secret)
    values = {name: step.fields[name] for name in ("rpm", "limit_window", "networks")}
    assert values == {"rpm": 3, "limit_window": "never", "networks": []}


LONG = "a password of hers"


def test_passwords_are_hashed_once_and_compared_by_meaning(plan, state, sealing):
    [step] = plan(entry("user", "alice", password=LONG))
    stored_hash = step.fields["password"]
    assert verify_password(stored_hash, LONG)
    assert plan(entry("user", "alice", password=LONG))[0].fields["password"] == stored_hash
    state["user"][("alice",)].fields["password"] = stored_hash
    assert plan(entry("user", "alice", password=LONG)) == []
    assert len(plan(entry("user", "alice", password="another password"))) == 1
    assert plan(entry("user", "alice", password=None))[0].fields == {"password": None}


def test_a_password_from_before_the_rule_stays_good_and_no_new_one_is_taken(plan, state):
    state["user"][("alice",)].fields["password"] = hash_password("old")
    assert plan(entry("user", "alice", password="old")) == []
    for name, password in (("alice", "new"), ("a user of long name", "A user of long name")):
        with pytest.raises(Refused, match=f'user "{name}": password: must '):
            plan(entry("user", name, password=password))


@pytest.mark.parametrize(
    ("kind", "fields", "missing"),
    [
        ("channel", {"groups": ["g"]}, ["vendor", "family", "base_url"]),
        ("model", {}, ["price"]),
        ("plan", {}, ["quota", "window"]),
    ],
)
def test_missing_fields_of_a_new_object(faults, kind, fields, missing):
    expected = [f'{kind} "n": {name} is missing' for name in missing]
    assert faults(entry(kind, "n", **fields)) == expected


def test_references_must_exist(faults, subscribed):
    found = faults(
        entry("group", "g2", models=["*", "mm"]),
        entry("channel", "c", groups=["gg"], models={"m": "x", "zzz": "x"}),
        entry("key", "alicia", "k", group="g", models=["m", "yyy"]),
        entry("subscription", "alicia", "pp"),
    )
    assert sorted(found) == [
        'channel "c": groups: there is no group "gg"; did you mean "g"?',
        'channel "c": models: there is no model "zzz"',
        'group "g2": models: there is no model "mm"; did you mean "m"?',
        'key "alicia/k": models: there is no model "yyy"',
        'key "alicia/k": user: there is no user "alicia"; did you mean "alice"?',
        'subscription "alicia/pp": plan: there is no plan "pp"; did you mean "p"?',
        'subscription "alicia/pp": user: there is no user "alicia"; did you mean "alice"?',
    ]


def test_groups_of_a_user_must_exist_but_for_the_default_one(faults, plan):
    assert faults(entry("user", "bob", groups=["default", "g", "gg"])) == [
        'user "bob": groups: there is no group "gg"; did you mean "g"?'
    ]
    # A reference may be made by the same document.
    steps = plan(
        entry("model", "m2", price=PRICE),
        entry("group", "g2", models=["m2"]),
        entry("user", "bob"),
        entry("key", "bob", "k", group="g2"),
    )
    assert [step.action for step in steps] == ["create"] * 4
    assert steps[2].fields["groups"] == ["default"]


def test_vendors_and_their_families(faults, plan):
    assert "must" not in "".join(short(plan(entry("channel", "c", family="chat_completions")))[0])
    assert faults(entry("channel", "c", family="messages")) == [
        'channel "c": family: channels of vendor openai speak chat_completions, responses,'
        " not messages"
    ]
    [fault] = faults(entry("channel", "c", vendor="opnai"))
    assert 'no vendor "opnai"' in fault and 'did you mean "openai"' in fault
    assert "openai, local, demo" in fault


def test_pruning_removes_what_is_not_named(plan, faults):
    everything = [MODEL, GROUP, CHANNEL, ALICE]
    assert short(plan(*everything, prune=True)) == [("remove", "key", "alice/laptop")]
    assert plan(*everything) == []
    kinds = [("key", "alice/laptop"), ("user", "alice"), ("channel", "c"), ("group", "g")]
    kinds.append(("model", "m"))
    assert short(plan(prune=True)) == [("remove", *kind) for kind in kinds]
    # Objects that others refer to cannot be removed.
    assert sorted(faults(MODEL, CHANNEL, ALICE, LAPTOP, prune=True)) == [
        'group "g" cannot be removed: channel "c" refers to it',
        'group "g" cannot be removed: key "alice/laptop" refers to it',
    ]


def test_a_secret_belongs_to_one_key(faults, plan):
    used = 'key "alice/new": secret: it is in use by another key'
    assert faults(entry("key", "alice", "new", group="g", secret=SECRET)) == [used]
    assert faults(entry("key", "alice", "new", group="g", secret="x" * 16)) == [used]
    assert faults(
        entry("key", "alice", "one", group="g", secret="y" * 16),
        entry("key", "alice", "new", group="g", secret="y" * 16),
    ) == [used]
    moved = entry("key", "alice", "new", group="g", secret=SECRET)
    steps = plan(MODEL, GROUP, CHANNEL, ALICE, moved, prune=True)
    assert short(steps) == [("remove", "key", "alice/laptop"), ("create", "key", "alice/new")]


@pytest.fixture
def subscribed(state, stored):
    """Give alice a subscription of ten days to the plan "p" of 30 days."""
    times = {"starts_at": NOW_MS, "expires_at": NOW_MS + 10 * DAY_MS}
    for item in (
        stored("plan", "p", quota=1, window="day"),
        stored("subscription", "alice", "p", **times),
    ):
        state[item.kind][item.identity] = item


@pytest.mark.parametrize(
    ("given", "starts_ms", "expires_ms"),
    [
        ({}, NOW_MS, NOW_MS + 7 * DAY_MS),
        ({"starts_at": 5}, 5, 5 + 7 * DAY_MS),
        ({"expires_at": NOW_MS + 1}, NOW_MS, NOW_MS + 1),
        ({"starts_at": 5, "expires_at": 6}, 5, 6),
    ],
)
def test_a_new_subscription_has_a_beginning_and_an_end(plan, given, starts_ms, expires_ms):
    steps = plan(
        entry("plan", "week", quota=1, window="day", days=7),
        entry("subscription", "alice", "week", **given),
    )
    assert steps[1].fields == {"starts_at": starts_ms, "expires_at": expires_ms, "enabled": True}


def test_a_subscription_keeps_its_times(plan, subscribed):
    assert plan(TERM) == []
    assert short(plan(entry("plan", "p", days=90), TERM)) == [("update", "plan", "p")]
    [step] = plan(entry("subscription", "alice", "p", expires_at=NOW_MS + 20 * DAY_MS))
    assert step.fields == {"expires_at": NOW_MS + 20 * DAY_MS}


@pytest.mark.parametrize(
    ("name", "times", "message"),
    [
        ("p", {"expires_at": NOW_MS}, "must be later than starts_at"),
        ("p", {"starts_at": NOW_MS + 10 * DAY_MS}, "must be later than starts_at"),
        ("q", {"starts_at": NOW_MS + 1, "expires_at": NOW_MS}, "must be later than starts_at"),
        ("q", {"starts_at": MAX_INSTANT_MS}, "would lie beyond the year 9999; give it"),
    ],
)
def test_a_subscription_ends_after_it_began(faults, subscribed, name, times, message):
    plan_q = entry("plan", "q", quota=1, window="day")
    expected = [f'subscription "alice/{name}": expires_at: {message}']
    assert faults(plan_q, entry("subscription", "alice", name, **times)) == expected


def test_subscriptions_and_plans_are_pruned_in_that_order(faults, plan, subscribed):
    rest = [MODEL, GROUP, CHANNEL, ALICE, LAPTOP]
    assert short(plan(*rest, prune=True)) == [
        ("remove", "subscription", "alice/p"),
        ("remove", "plan", "p"),
    ]
    for named, referred in (
        ([*rest, TERM], 'plan "p"'),
        ([*rest[:3], entry("plan", "p"), TERM], 'user "alice"'),
    ):
        assert faults(*named, prune=True) == [
            f'{referred} cannot be removed: subscription "alice/p" refers to it'
        ]


def test_a_version_at_the_end_of_a_base_url_is_for_some_vendors(plan, faults):
    versioned = entry("channel", "c", base_url="http://x/some/v1")
    assert faults(versioned) == [
        'channel "c": base_url: must not end in a version path; write "http://x/some"'
    ]
    [step] = plan(entry("channel", "c", base_url="http://x/some/v1", vendor="local"))
    assert step.fields == {"base_url": "http://x/some/v1", "vendor": "local"}


def test_options_that_no_model_has_and_values_that_they_cannot_have(plan, faults):
    assert faults(entry("channel", "c", options={"imags": True, "images": "no"})) == [
        'channel "c": options: there is no option "imags" (known: images); did you mean "images"?',
        'channel "c": options: images must be true or false',
    ]
    [step] = plan(entry("channel", "c", options={"images": False}))
    assert step.fields == {"options": {"images": False}}


@pytest.mark.parametrize(
    ("shared", "warned"), [(["*"], True), (["vs_*"], False), ([], False), (["vs_*", "*"], True)]
)
def test_a_channel_that_shares_everything(tmp_path, shared, warned):
    entry = {"name": "main", "shared_ids": shared}
    document = parse(json.dumps({"channel": [entry]}), {}, tmp_path)
    fields = {"groups": ["all"], "models": {"m": "m"}, "keys": ["k"], "shared_ids": shared} | {
        "cost": {},
        "model_times": {},
    }
    found = warnings_of({("channel", ("main",)): {**fields, "cost": {}}}, document)
    assert [("shared_ids" in one) for one in found] == [True] * warned


def test_a_cost_of_a_model_that_the_channel_has_not(tmp_path):
    document = parse(json.dumps({"channel": [{"name": "main"}]}), {}, tmp_path)
    fields = {"groups": ["all"], "models": {"m": "m"}, "keys": ["k"], "shared_ids": []} | {
        "model_times": {}
    }
    for cost, count in ({"m": {}}, 0), ({"m": {}, "other": {}}, 1):
        found = warnings_of({("channel", ("main",)): {**fields, "cost": cost}}, document)
        assert [one.endswith("does not have: other") for one in found] == [True] * count
