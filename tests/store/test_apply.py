"""Administrative changes on both databases: whole, idempotent, audited, noticed."""

import dataclasses
import threading
import time

import pytest

from store import audit, keys
from store.apply import Change, Editor
from store.changes import CATALOG, KEYS, read_changes
from store.cipher import Cipher
from store.database import discard, execute
from store.document_kinds import KINDS
from store.errors import NotFound, Refused
from store.export import export, list_objects, show
from store.objects import Sealing, load

ALICE = "sk-given-0123456789"


def counts(database):
    tables = ("users", "groups", "models", "channels", "api_keys", "audit_log", "change_log")
    return [execute(database, f'SELECT COUNT(*) FROM "{t}"').fetchone()[0] for t in tables]


def short(outcome):
    return [(change.kind, change.name, change.action) for change in outcome.changes]


def test_a_document_is_applied_and_again_changes_nothing(editor, read, applied, base_document):
    assert Change("key", "bob/desk", "create") in applied.changes
    assert len(applied.changes) == 10
    again = editor.apply(read(base_document))
    assert (again.changes, again.keys) == ([], [])


def test_made_keys_are_shown_once_given_ones_never(applied):
    given, made = applied.keys
    assert (given.user, given.name, given.secret) == ("alice", "laptop", None)
    assert (made.user, made.name) == ("bob", "desk")
    assert made.secret.startswith("sk-slc-") and keys.checksum_ok(made.secret)
    assert made.secret not in repr(applied)


def test_nothing_is_written_when_nothing_changes(editor, read, applied, base_document, database):
    before = counts(database)
    editor.apply(read(base_document))
    editor.set_enabled("user", "alice", True)
    assert counts(database) == before


def test_a_dry_run_tells_and_writes_nothing(editor, read, base_document, database):
    outcome = editor.apply(read(base_document), dry_run=True)
    assert len(outcome.changes) == 10 and outcome.keys == []
    assert counts(database) == [0] * 7


def test_all_or_nothing(editor, read, database):
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


def test_missing_fields_keep_their_values(editor, read, applied, database):
    outcome = editor.apply(read('[[channel]]\nname = "openai-main"\npriority = 3'))
    assert short(outcome) == [("channel", "openai-main", "update")]
    shown = show(database, "channel", "openai-main")
    assert shown["priority"] == 3
    assert shown["base_url"] == "https://api.openai.com"
    assert len(shown["keys"]) == 2


def test_every_field_can_be_changed_and_is_kept(editor, read, applied, database):
    text = """
    [[model]]
    name = "gpt-4.1"
    context_tokens = 5
    max_output_tokens = 6
    enabled = false
    price = { input = "1", output = "2", cache_read = "3", cache_write = "4", \
cache_write_1h = "5", reasoning = "6", call = "0.000000007" }
    [[group]]
    name = "plain"
    multiplier = "0.000001"
    models = ["claude", "*"]
    entries = []
    rpm = 1
    tpm = 2
    concurrency = 3
    enabled = false
    [[channel]]
    name = "openai-main"
    vendor = "demo"
    family = "messages"
    base_url = "http://127.0.0.1:9"
    groups = ["plain"]
    models = { claude = "x" }
    priority = -1
    weight = 2
    concurrency = 4
    rpm = 5
    tpm = 6
    enabled = false
    [[user]]
    name = "alice"
    role = "admin"
    order = "wallet_only"
    enabled = false
    [[key]]
    user = "alice"
    name = "laptop"
    group = "plain"
    expires_at = "2030-01-01T00:00:00.001Z"
    models = ["claude"]
    networks = ["10.0.0.0/8"]
    limit = "5"
    limit_window = "month"
    rpm = 7
    tpm = 8
    concurrency = 9
    enabled = false
    """
    editor.apply(read(text))
    document = export(database)
    for entry in read(text):
        spec = KINDS[entry.kind]
        pick = dict(zip(spec.identity, entry.identity, strict=True)).items()
        [shown] = [e for e in document[entry.kind] if pick <= e.items()]
        for name, value in entry.fields.items():
            assert shown[name] == spec.fields[name].type.plain(value), (entry.kind, name)
    assert editor.apply(read(text)).changes == []


def test_the_balance_is_credited_once(editor, read, applied, database):
    assert editor.apply(read('[[user]]\nname = "alice"\nbalance = "99"')).changes == []
    rows = execute(database, 'SELECT "balance" FROM "wallets" ORDER BY "balance"').fetchall()
    assert [row[0] for row in rows] == [0, 10 * 10**9]


def test_a_new_secret_in_the_document_replaces_the_old_one(editor, read, applied, database, pepper):
    text = '[[key]]\nuser = "alice"\nname = "laptop"\nsecret = "another-0123456789"'
    outcome = editor.apply(read(text))
    assert short(outcome) == [("key", "alice/laptop", "update")] and outcome.keys == []
    assert keys.find_key(database, keys.digests(ALICE, [pepper])) is None
    found = keys.find_key(database, keys.digests("another-0123456789", [pepper]))
    assert found.user == "alice"
    assert show(database, "key", found.id)["last_four"] == "6789"


def test_reapplying_under_newer_secrets_changes_nothing(database, read, applied, base_document):
    newer = Sealing(Cipher(["new", "cipher key of the tests"]), ["new", "pepper of the tests"])
    vendors = {"openai": frozenset({"chat_completions"}), "anthropic": frozenset({"messages"})}
    editor = Editor(database, newer, vendors, "tester")
    assert editor.apply(read(base_document)).changes == []


def test_pruning_and_the_books(editor, read, applied, database):
    keep = '[[user]]\nname = "alice"\n[[group]]\nname = "default"'
    outcome = editor.apply(read(keep), prune=True)
    assert ("user", "bob", "remove") in short(outcome)
    assert counts(database)[:5] == [1, 1, 0, 0, 0]
    assert execute(database, 'SELECT COUNT(*) FROM "wallets"').fetchone()[0] == 2


def test_pruning_spares_revoked_keys_of_users_that_stay(editor, read, applied, database):
    keys.revoke(database, show(database, "key", "alice/laptop")["id"], "tester")
    keep = '[[user]]\nname = "alice"\n[[group]]\nname = "default"'
    editor.apply(read(keep), prune=True)
    [left] = list_objects(database, "key")
    assert left["name"] == "laptop" and left["revoked_at"]
    editor.apply(read(""), prune=True)
    assert counts(database)[:5] == [0] * 5


def test_changes_are_logged_for_running_gateways(editor, read, applied, database):
    log = read_changes(database, 0)
    assert [change.kind for change in log.changes] == [CATALOG] * 6 + [KEYS] * 4
    editor.set_fields("group", "plain", {"multiplier": "2"})
    editor.set_enabled("user", "alice", False)
    new = read_changes(database, log.version).changes
    alice = show(database, "user", "alice")["id"]
    assert [(change.kind, change.ref == alice) for change in new] == [
        (CATALOG, False),
        (KEYS, True),
    ]


def test_every_change_is_audited_without_secrets(editor, applied, database):
    editor.set_fields("channel", "openai-main", {"keys": "sk-new-key", "weight": "4"})
    editor.set_fields("user", "alice", {"password": "new password"})
    rows = audit.entries(database, 100)
    assert len(rows) == 12 and {row["actor"] for row in rows} == {"tester"}
    changed = next(r for r in rows if r["kind"] == "channel" and r["action"] == "update")
    assert changed["before"] == {"keys": ["***", "***"], "weight": 1}
    assert changed["after"] == {"keys": ["***"], "weight": 4}
    text = repr(rows)
    for secret in ("sk-upstream", "sk-new", "correct horse", "new password", "argon2", "sk-given"):
        assert secret not in text


def test_single_edits_use_the_same_rules(editor, applied, database):
    made = editor.create(
        "channel",
        "second",
        {
            "vendor": "demo",
            "family": "messages",
            "base_url": "http://127.0.0.1:1/",
            "keys": "env:UPSTREAM",
            "models": "claude",
        },
    )
    assert short(made) == [("channel", "second", "create")]
    shown = show(database, "channel", "second")
    assert shown["models"] == {"claude": "claude"} and shown["groups"] == ["default"]
    assert shown["base_url"] == "http://127.0.0.1:1"
    with pytest.raises(Refused, match="exists"):
        editor.create("channel", "second", {})
    with pytest.raises(Refused, match="vendor openai speak"):
        editor.set_fields("channel", "openai-main", {"family": "messages"})
    with pytest.raises(Refused, match="cannot be changed"):
        editor.set_fields("channel", "openai-main", {"name": "other"})
    with pytest.raises(NotFound, match="openai-main"):
        editor.set_fields("channel", "openai-mian", {"weight": "2"})
    editor.set_enabled("channel", "openai-main", False)
    assert show(database, "channel", "openai-main")["enabled"] is False
    assert short(editor.remove("channel", "second")) == [("channel", "second", "remove")]
    with pytest.raises(NotFound):
        editor.remove("channel", "second")


def test_a_key_is_made_by_name(editor, applied, database, pepper):
    [key] = editor.create("key", "phone", {"user": "bob", "group": "plain"}).keys
    assert keys.find_key(database, keys.digests(key.secret, [pepper])).id == key.id
    given = {"user": "bob", "group": "plain", "secret": "given-0123456789"}
    [key] = editor.create("key", "tablet", given).keys
    assert key.secret is None
    with pytest.raises(Refused, match="in use"):
        editor.create("key", "watch", given)
    with pytest.raises(Refused, match=r"user: there is no user"):
        editor.create("key", "watch", {"user": "nobody", "group": "plain"})
    with pytest.raises(Refused, match="user is missing"):
        editor.create("key", "watch", {"group": "plain"})


def test_a_revoked_key_stays_revoked(editor, read, applied, database, base_document, pepper):
    key_id = show(database, "key", "alice/laptop")["id"]
    keys.revoke(database, key_id, "tester")
    assert editor.apply(read(base_document)).changes == []
    with pytest.raises(Refused, match="revoked"):
        editor.set_enabled("key", key_id, True)
    with pytest.raises(Refused, match="revoked"):
        editor.create("key", "laptop", {"user": "alice"})
    assert keys.find_key(database, keys.digests(ALICE, [pepper])).revoked


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


def test_a_revoked_key_holds_nobody_back(editor, applied, database, pepper):
    keys.revoke(database, show(database, "key", "bob/desk")["id"], "tester")
    editor.remove("channel", "openai-main")
    editor.remove("group", "plain")
    assert show(database, "key", "bob/desk")["group"] == ""
    secret = applied.keys[1].secret
    assert keys.find_key(database, keys.digests(secret, [pepper])).revoked
    editor.remove("user", "bob")
    assert keys.find_key(database, keys.digests(secret, [pepper])) is None


def test_administrators_work_one_after_another(editor, read, database, monkeypatch):
    """A group is removed while a channel is being made in it: the removal sees the channel."""
    editor.apply(read('[[group]]\nname = "g"'))
    loaded, outcomes = threading.Event(), []

    def slow_load(db):
        state = load(db)
        if threading.current_thread() is creator:
            loaded.set()
            time.sleep(0.3)
        return state

    monkeypatch.setattr("store.apply.load", slow_load)
    words = {"vendor": "demo", "family": "messages", "base_url": "http://x", "groups": "g"}

    def create():
        outcomes.append(short(editor.create("channel", "c", words)))
        discard(database)

    creator = threading.Thread(target=create)
    creator.start()
    assert loaded.wait(5)
    with pytest.raises(Refused, match='channel "c" refers to it'):
        editor.remove("group", "g")
    creator.join()
    assert outcomes == [[("channel", "c", "create")]]


def test_outcomes_cannot_be_altered(applied):
    with pytest.raises(dataclasses.FrozenInstanceError):
        applied.keys[0].secret = "x"
