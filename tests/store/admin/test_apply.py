"""Administrative changes: all or nothing, idempotent, audited, logged for running gateways."""

import pytest

from store.admin.apply import Editor, ObjectChange
from store.admin.export import export, list_objects, show, to_toml
from store.admin.kinds import KINDS
from store.admin.objects import Sealing
from store.admin.plan import Upstreams
from store.calls import rollups
from store.catalog import keys
from store.catalog.catalog import Route, load_snapshot
from store.db import audit
from store.db.changes import CATALOG, KEYS, read_changes
from store.db.database import execute, transaction
from store.values import key_secrets
from store.values.cipher import Cipher
from store.values.errors import Conflict, NotFound, Refused
from tests.support.certificates import Authority
from tests.support.stores import balances, count
from tests.support.usage_records import charged

pytestmark = pytest.mark.databases("sqlite")

ALICE = "sk-given-0123456789"
PLANS = """
[[plan]]
name = "monthly"
quota = "20.00"
window = "month"

[[plan]]
name = "daily"
quota = "1"
window = "day"
days = 7

[[subscription]]
user = "alice"
plan = "monthly"

[[subscription]]
user = "bob"
plan = "monthly"

[[subscription]]
user = "alice"
plan = "daily"
"""


COUNTED = ("users", "groups", "models", "channels", "api_keys", "audit_log", "change_log")
ALICE_STAYS = '[[user]]\nname = "alice"\n[[group]]\nname = "default"'


def counts(database):
    return [count(database, table) for table in COUNTED]


def short(outcome):
    return [(change.kind, change.name, change.action) for change in outcome.changes]


def id_of(database, kind, name):
    return show(database, kind, name)["id"]


@pytest.mark.databases("sqlite", "mariadb")
def test_a_document_is_applied_and_again_writes_nothing(
    editor, read, applied, base_document, database
):
    assert ObjectChange("key", "bob/desk", "create") in applied.changes
    assert len(applied.changes) == 10
    before = counts(database)
    again = editor.apply(read(base_document))
    assert (again.changes, again.keys) == ([], [])
    editor.set_enabled("user", "alice", True)
    assert counts(database) == before


def test_made_keys_are_shown_once_given_ones_never(applied):
    given, made = applied.keys
    assert (given.user, given.name, given.secret) == ("alice", "laptop", None)
    assert (made.user, made.name) == ("bob", "desk")
    assert made.secret.startswith("sk-slc-") and key_secrets.checksum_ok(made.secret)
    assert made.secret not in repr(applied)


def test_a_dry_run_tells_and_writes_nothing_nor_does_a_refusal(
    editor, read, base_document, database
):
    outcome = editor.apply(read(base_document), dry_run=True)
    assert len(outcome.changes) == 10 and outcome.keys == []
    with pytest.raises(Refused, match='no group "nowhere"'):
        editor.apply(read('[[user]]\nname = "u"\n[[key]]\nuser = "u"\nname = "k"\ngroup="nowhere"'))
    assert counts(database) == [0] * 7


def test_a_failure_in_the_middle_leaves_nothing(editor, read, base_document, database, monkeypatch):
    real, calls = audit.write, []

    def fail(db, act):
        calls.append(act)
        if len(calls) == 7:
            raise ZeroDivisionError
        real(db, act)

    monkeypatch.setattr(audit, "write", fail)
    with pytest.raises(ZeroDivisionError):
        editor.apply(read(base_document))
    assert counts(database) == [0] * 7


def test_missing_fields_keep_their_values_and_the_balance_is_credited_once(
    editor, read, applied, database
):
    before = show(database, "channel", "openai-main")
    outcome = editor.apply(read('[[channel]]\nname = "openai-main"\npriority = 3'))
    assert short(outcome) == [("channel", "openai-main", "update")]
    assert show(database, "channel", "openai-main") == before | {"priority": 3}
    assert editor.apply(read('[[user]]\nname = "alice"\nbalance = "99"')).changes == []
    assert sorted(balances(database).values()) == [0, 10 * 10**9]


@pytest.mark.databases("sqlite", "mariadb")
def test_every_field_can_be_changed_and_is_kept(editor, read, applied, database):
    price = {
        "input": "1",
        "output": "2",
        "cache_read": "3",
        "cache_write": "4",
        "call": "0.000000007",
    }
    limits = {"rpm": 7, "tpm": 8, "concurrency": 9, "enabled": False}
    channel = {
        **{"vendor": "demo", "family": "messages", "base_url": "http://127.0.0.1:9"},
        **{"groups": ["plain"], "models": {"claude": "x"}, "priority": -1, "weight": 2},
        **{"proxy": "http://proxy.test:3128", "draining": True} | limits,
    }
    term = {"starts_at": "2026-01-01T00:00:00.001Z", "expires_at": "2026-01-01T00:00:00.002Z"}
    key = {"group": "plain", "expires_at": "2030-01-01T00:00:00.001Z", "models": ["claude"]}
    text = to_toml({
        "model": [{"name": "gpt-4.1", "context_tokens": 5, "max_output_tokens": 6, "enabled": False,
                   "price": price | {"cache_write_1h": "5", "reasoning": "6"}}],
        "group": [{"name": "plain", "multiplier": "0.000001", "models": ["claude", "*"],
                   "entries": [], "features": ["*", "-web_search"], **limits}],
        "channel": [{"name": "openai-main", **channel}],
        "user": [{"name": "alice", "role": "admin", "order": "wallet_only", "enabled": False,
                  "limit": "0", "limit_window": "week"}],
        "plan": [{"name": "weekly", "quota": "0.000000001", "window": "week", "days": 36500,
                  "enabled": False}],
        "subscription": [{"user": "alice", "plan": "weekly", **term, "enabled": False}],
        "key": [{"user": "alice", "name": "laptop", **key, "networks": ["10.0.0.0/8"],
                 "limit": "5", "limit_window": "month", **limits}],
    })  # fmt: skip
    editor.apply(read(text))
    document = export(database)
    for entry in read(text):
        spec = KINDS[entry.kind]
        pick = dict(zip(spec.identity, entry.identity, strict=True)).items()
        [shown] = [e for e in document[entry.kind] if pick <= e.items()]
        for name, value in entry.fields.items():
            assert shown[name] == spec.fields[name].type.plain(value), (entry.kind, name)
    assert editor.apply(read(text)).changes == []


ROUTED = """
[[channel]]
name = "openai-main"
extra_headers = { X-Title = "env:TITLE", x-org = "org-of-ours" }
proxy = "socks5://user:hunter2@proxy.test:1080"
"""


def test_secrets_of_a_channel_beside_its_keys(editor, read, applied, database, cipher):
    outcome = editor.apply(read(ROUTED, TITLE="secret title"))
    assert short(outcome) == [("channel", "openai-main", "update")]
    assert editor.apply(read(ROUTED, TITLE="secret title")).changes == []
    shown = show(database, "channel", "openai-main")
    assert shown["extra_headers"] == {"x-title": "***", "x-org": "***"}
    assert shown["proxy"] == "socks5://***@proxy.test:1080"
    [entry] = [one for one in export(database)["channel"] if one["name"] == "openai-main"]
    assert not {"extra_headers", "proxy"} & entry.keys()
    tables = ("channels", "audit_log", "change_log")
    rows = [execute(database, f'SELECT * FROM "{t}"').fetchall() for t in tables]
    for secret in ("secret title", "org-of-ours", "hunter2"):
        assert secret not in repr(rows) and secret not in repr(outcome), secret
    [audited] = audit.entries(database, 1)
    assert audited["after"] == {name: shown[name] for name in ("extra_headers", "proxy")}
    channel = _loaded(database, cipher)
    assert channel.extra_headers == {"x-title": "secret title", "x-org": "org-of-ours"}
    assert channel.route.proxy == "socks5://user:hunter2@proxy.test:1080"
    assert "hunter2" not in repr(channel) and "secret title" not in repr(channel)


def _loaded(database, cipher):
    channels = load_snapshot(database, cipher).channels
    return next(one for one in channels if one.name == "openai-main")


def test_single_edits_of_headers_and_of_the_way(editor, read, applied, database, cipher, tmp_path):
    editor.apply(read(ROUTED, TITLE="secret title"))
    change = {"extra_headers.X-Org": "", "extra_headers.x-new": "a, b"}
    editor.change("channel", "openai-main", change)
    headers = {"x-title": "secret title", "x-new": "a, b"}
    assert _loaded(database, cipher).extra_headers == headers
    assert editor.change("channel", "openai-main", {"extra_headers.x-new": "a, b"}).changes == []
    ca_file = str(Authority(tmp_path).ca_file)
    edits = {"ca_file": ca_file, "proxy": "", "extra_headers": ""}
    editor.change("channel", "openai-main", edits)
    channel = _loaded(database, cipher)
    assert (channel.extra_headers, channel.route) == ({}, Route(ca_file=ca_file))
    with pytest.raises(Refused, match="proxy: must be a URL"):
        editor.change("channel", "openai-main", {"proxy": "hunter2"})
    with pytest.raises(Refused, match="cannot be read"):
        editor.change("channel", "openai-main", {"ca_file": ca_file + "x"})
    editor.change("channel", "openai-main", {"ca_file": ""})
    assert _loaded(database, cipher).route is None


@pytest.mark.parametrize("field", ["extra_headers.x-a=secret", "proxy=http://a:b@c:1"])
def test_what_cannot_be_opened_leaves_the_channel_out_until_it_is_set_again(
    editor, database, cipher, field
):
    edits = {"vendor": "demo", "family": "messages", "base_url": "http://x", "groups": ""}
    name, _, value = field.partition("=")
    editor.create("channel", "c", {**edits, name: value})
    another = Cipher(["another"])
    snapshot = load_snapshot(database, another)
    assert snapshot.channels == () and 'channel "c" is left out' in snapshot.faults[0]
    renewed = Editor(database, Sealing(another, ["p"]), editor._upstreams, "tester")
    assert len(renewed.change("channel", "c", {name: value}).changes) == 1
    assert [one.name for one in load_snapshot(database, another).channels] == ["c"]


def test_a_new_secret_in_the_document_replaces_the_old_one(editor, read, applied, database, pepper):
    text = '[[key]]\nuser = "alice"\nname = "laptop"\nsecret = "another-0123456789"'
    outcome = editor.apply(read(text))
    assert short(outcome) == [("key", "alice/laptop", "update")] and outcome.keys == []
    assert keys.find_key(database, key_secrets.digests(ALICE, [pepper])) is None
    found = keys.find_key(database, key_secrets.digests("another-0123456789", [pepper]))
    assert found.user == "alice"
    assert show(database, "key", found.id)["last_four"] == "6789"


def test_reapplying_under_newer_secrets_changes_nothing(database, read, applied, base_document):
    newer = Sealing(Cipher(["new", "cipher key of the tests"]), ["new", "pepper of the tests"])
    vendors = {"openai": frozenset({"chat_completions"}), "anthropic": frozenset({"messages"})}
    editor = Editor(database, newer, Upstreams(vendors), "tester")
    assert editor.apply(read(base_document)).changes == []


def test_pruning_spares_wallets_and_revoked_keys_of_users_that_stay(
    editor, read, applied, database
):
    keys.revoke(database, id_of(database, "key", "alice/laptop"), "tester")
    outcome = editor.apply(read(ALICE_STAYS), prune=True)
    assert ("user", "bob", "remove") in short(outcome)
    assert counts(database)[:5] == [1, 1, 0, 0, 1]
    [left] = list_objects(database, "key")
    assert left["name"] == "laptop" and left["revoked_at"]
    editor.apply(read(""), prune=True)
    assert counts(database)[:5] == [0] * 5
    assert count(database, "wallets") == 2


def test_changes_are_logged_for_running_gateways(editor, read, applied, database):
    log = read_changes(database, 0)
    assert [change.kind for change in log.changes] == [CATALOG] * 6 + [KEYS] * 4
    editor.change("group", "plain", {"multiplier": "2"})
    editor.set_enabled("user", "alice", False)
    new = read_changes(database, log.version).changes
    alice = id_of(database, "user", "alice")
    assert [(c.kind, c.ref == alice) for c in new] == [(CATALOG, False), (KEYS, True)]


def test_every_change_is_audited_without_secrets(editor, applied, database):
    editor.change("channel", "openai-main", {"keys": "sk-new-key", "weight": "4"})
    editor.change("user", "alice", {"password": "new password"})
    rows = audit.entries(database, 100)
    assert len(rows) == 12 and {row["actor"] for row in rows} == {"tester"}
    changed = next(r for r in rows if r["kind"] == "channel" and r["action"] == "update")
    assert changed["before"] == {"keys": ["***", "***"], "weight": 1}
    assert changed["after"] == {"keys": ["***"], "weight": 4}
    text = repr(rows)
    for secret in ("sk-upstream", "sk-new", "correct horse", "new password", "argon2", "sk-given"):
        assert secret not in text


def test_single_edits_use_the_same_rules(editor, applied, database):
    edits = {"vendor": "demo", "family": "messages", "base_url": "http://127.0.0.1:1/"}
    created = editor.create(
        "channel", "second", edits | {"keys": "env:UPSTREAM", "models": "claude"}
    )
    assert short(created) == [("channel", "second", "create")]
    shown = show(database, "channel", "second")
    assert shown["models"] == {"claude": "claude"} and shown["groups"] == ["default"]
    assert shown["base_url"] == "http://127.0.0.1:1"
    with pytest.raises(Conflict, match="exists"):
        editor.create("channel", "second", {})
    for field, value, message in (
        ("family", "messages", "vendor openai speak"),
        ("name", "other", "cannot be changed"),
    ):
        with pytest.raises(Refused, match=message):
            editor.change("channel", "openai-main", {field: value})
    with pytest.raises(NotFound, match="openai-main"):
        editor.change("channel", "openai-mian", {"weight": "2"})
    editor.set_enabled("channel", "openai-main", False)
    assert show(database, "channel", "openai-main")["enabled"] is False
    assert short(editor.remove("channel", "second")) == [("channel", "second", "remove")]
    with pytest.raises(NotFound):
        editor.remove("channel", "second")


def test_a_revoked_key_stays_revoked(editor, read, applied, database, base_document, pepper):
    key_id = id_of(database, "key", "alice/laptop")
    keys.revoke(database, key_id, "tester")
    assert editor.apply(read(base_document)).changes == []
    with pytest.raises(Refused, match="revoked"):
        editor.set_enabled("key", key_id, True)
    with pytest.raises(Conflict, match="revoked"):
        editor.create("key", "laptop", {"user": "alice"})
    assert keys.find_key(database, key_secrets.digests(ALICE, [pepper])).revoked


@pytest.mark.parametrize(
    ("kind", "name", "user"),
    [
        ("user", "alice", 'key "alice/laptop"'),
        ("group", "plain", 'channel "openai-main"'),
        ("model", "claude", 'channel "anthropic-main"'),
    ],
)
def test_what_is_referred_to_stays(editor, applied, database, kind, name, user):
    with pytest.raises(Refused) as caught:
        editor.remove(kind, name)
    assert f'{kind} "{name}" cannot be removed: {user} refers to it' in caught.value.faults
    assert show(database, kind, name)["name"] == name


def test_the_groups_of_a_user_are_set_and_hold_a_group(editor, applied, database):
    assert show(database, "user", "alice")["groups"] == ["default"]
    editor.create("group", "idle", {})
    editor.change("user", "alice", {"groups": "default,idle"})
    assert show(database, "user", "alice")["groups"] == ["default", "idle"]
    with pytest.raises(Refused, match='user "alice" refers to it'):
        editor.remove("group", "idle")
    editor.change("user", "alice", {"groups": ""})
    assert show(database, "user", "alice")["groups"] == []
    editor.remove("group", "idle")


def test_a_revoked_key_holds_nobody_back(editor, applied, database, pepper):
    keys.revoke(database, id_of(database, "key", "bob/desk"), "tester")
    editor.remove("channel", "openai-main")
    editor.remove("group", "plain")
    assert show(database, "key", "bob/desk")["group"] == ""
    secret = applied.keys[1].secret
    assert keys.find_key(database, key_secrets.digests(secret, [pepper])).revoked
    editor.remove("user", "bob")
    assert keys.find_key(database, key_secrets.digests(secret, [pepper])) is None


@pytest.fixture
def subscribed(editor, read, applied, base_document):
    """Apply the base document with plans and subscriptions; return its text."""
    text = base_document + PLANS
    editor.apply(read(text))
    return text


@pytest.fixture
def user_ids(applied, database):
    return {user["name"]: user["id"] for user in list_objects(database, "user")}


@pytest.fixture
def logged(database):
    """Return the ids of the keys in an action's changes; the log must have no gaps."""

    def run(action):
        since = read_changes(database, 0).version
        action()
        log = read_changes(database, since)
        assert log.complete and {change.kind for change in log.changes} <= {KEYS}
        return [change.ref for change in log.changes]

    return run


def test_an_export_brings_subscriptions_back_as_they_were(editor, read, subscribed, database):
    before = export(database)
    assert [plan["days"] for plan in before["plan"]] == [7, 30]
    assert set(before["subscription"][0]) == {"user", "plan", "starts_at", "expires_at", "enabled"}
    for text in (subscribed, to_toml(before)):
        assert editor.apply(read(text), prune=True).changes == []
    editor.apply(read(""), prune=True)
    assert export(database) == {}
    editor.apply(read(to_toml(before)))
    assert export(database) == before


def test_a_user_takes_its_subscriptions_along(editor, subscribed, database):
    editor.remove("key", "alice/laptop")
    assert sorted(short(editor.remove("user", "alice"))) == [
        ("subscription", "alice/daily", "remove"),
        ("subscription", "alice/monthly", "remove"),
        ("user", "alice", "remove"),
    ]
    [left] = list_objects(database, "subscription")
    assert (left["user"], left["plan"]) == ("bob", "monthly")
    assert [row["action"] for row in audit.entries(database, 3)] == ["remove"] * 3


def test_changed_subscriptions_are_logged_as_their_users(editor, logged, subscribed, user_ids):
    edits = {"expires_at": "2100-01-01T00:00:00Z"}
    for user, act in (
        ("bob", lambda: editor.change("subscription", "bob/monthly", edits)),
        ("alice", lambda: editor.set_enabled("subscription", "alice/daily", False)),
        ("bob", lambda: editor.create("subscription", "bob/daily", {})),
        ("bob", lambda: editor.remove("subscription", "bob/daily")),
    ):
        assert logged(act) == [user_ids[user]]


@pytest.mark.parametrize(
    "edits", [{"quota": "2"}, {"window": "week"}, {"enabled": "false"}, {"quota": "3", "days": "1"}]
)
def test_changed_plans_are_logged_as_their_subscribers(editor, logged, subscribed, user_ids, edits):
    refs = logged(lambda: editor.change("plan", "monthly", edits))
    assert sorted(refs) == sorted(user_ids.values())
    assert logged(lambda: editor.change("plan", "daily", edits)) == [user_ids["alice"]]


def test_a_user_is_logged_once(editor, read, logged, subscribed, user_ids):
    text = PLANS.replace("20.00", "30").replace('"1"', '"2"') + '[[user]]\nname = "carol"\n'
    text += '[[subscription]]\nuser = "carol"\nplan = "daily"\n'
    refs = logged(lambda: editor.apply(read(text)))
    assert len(refs) == len(set(refs)) == 3 and {*user_ids.values()} < {*refs}
    plans_only = '[[plan]]\nname = "new"\nquota = "1"\nwindow = "day"'
    assert logged(lambda: editor.apply(read(plans_only))) == []


def test_the_name_of_a_removed_user_with_calls_is_not_given_again(editor, read, applied, database):
    called = charged("id of a removed user", 0)
    name = called.call.user
    transaction(database, lambda: rollups.add_records(database, [called]))
    document = read(f'[[user]]\nname = "{name}"')
    with pytest.raises(Refused, match="earlier user of this name"):
        editor.apply(document, dry_run=True)
    with pytest.raises(Refused, match="choose another name"):
        editor.create("user", name, {})
    assert editor.create("user", "another", {}).changes
    # an existing user is only changed
    assert editor.apply(read('[[user]]\nname = "alice"')).changes == []


@pytest.mark.parametrize("kind", ["user", "group"])
def test_names_that_no_address_of_a_page_can_hold_are_refused(editor, applied, kind):
    for name in (".", ".."):
        with pytest.raises(Refused, match=r"name: must not be \. or \.\."):
            editor.create(kind, name, {})
