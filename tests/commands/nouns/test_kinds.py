"""list, show, create, set, disable, enable, remove."""

import subprocess
import sys
from pathlib import Path

import pytest

from store.db.database import transaction
from store.db.tables.money import Quota
from store.values.fields import Instant
from store.values.times import window_at
from tests.commands.conftest import UPSTREAM_KEY

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("user", "group", "model", "channel", "plan", "subscription")
IDENTITY = {"subscription": ["user", "plan"]}
PLANS = {
    "plan": [{"name": "monthly", "quota": "20", "window": "month"}],
    "subscription": [{"user": "alice", "plan": "monthly"}],
}


@pytest.fixture
def filled(filled):
    """Return an installation with one object of each kind."""
    filled.apply(PLANS)
    return filled


def name_of(kind, item):
    return "/".join(item[part] for part in IDENTITY.get(kind, ["name"]))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_listed_shown_disabled_and_enabled(filled, kind):
    [item] = filled.json(kind, "list")
    assert len(item["id"]) == 26 and item["enabled"] is True
    name = name_of(kind, item)
    assert filled.json(kind, "show", name) == item
    head, line = filled.ok(kind, "list").splitlines()
    parts = IDENTITY.get(kind, ["name"])
    assert head.split()[: len(parts)] == parts
    assert line.split()[: len(parts)] == [item[part] for part in parts]
    assert item["id"] in filled.ok(kind, "show", name)
    assert UPSTREAM_KEY not in str(item)
    done = filled.json(kind, "disable", name)
    assert done["changes"] == [{"kind": kind, "name": name, "action": "update"}]
    assert filled.json(kind, "show", name)["enabled"] is False
    assert filled.ok(kind, "disable", name) == f'{kind} "{name}": already disabled\n'
    assert filled.ok(kind, "enable", name) == f'{kind} "{name}": enabled\n'
    assert filled.json(kind, "show", name) == item


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_list_says_how_to_begin(installation, kind):
    written = "USER/PLAN" if kind == "subscription" else "NAME"
    ended = installation.run(kind, "list")
    assert ended.code == 0 and f"./sluice {kind} create {written}" in ended.err
    assert installation.run(kind, "list", "--json") == (0, "[]\n", "")


def test_unknown_names_are_answered_with_the_nearest(filled):
    for verb in ("show", "disable", "enable", "remove", "set"):
        words = ["enabled=true"] if verb == "set" else []
        text = filled.refused("user", verb, "alicx", *words)
        assert 'did you mean "alice"?' in text and "the store" not in text


def test_users_are_made_and_removed(filled):
    assert filled.ok("user", "create", "bob", "balance=5", "role=admin") == 'user "bob" created\n'
    shown = filled.json("user", "show", "bob")
    assert (shown["role"], shown["enabled"]) == ("admin", True)
    assert 'user "bob" exists' in filled.refused("user", "create", "bob")
    assert "./sluice wallet credit" in filled.refused("user", "set", "bob", "balance=7")
    removed = filled.json("user", "remove", "bob")["changes"]
    assert removed == [{"kind": "user", "name": "bob", "action": "remove"}]


def test_values_are_lists_and_may_come_from_the_environment(filled, monkeypatch):
    monkeypatch.setenv("NEW_KEY", "another-upstream-key")
    filled.ok("channel", "set", "main", "priority=-1", "keys=env:NEW_KEY,two")
    channel = filled.json("channel", "show", "main")
    assert (channel["priority"], channel["keys"]) == (-1, ["***", "***"])
    # the same keys again change nothing, which shows that they were read
    same = ("channel", "set", "main", "keys=another-upstream-key,two")
    assert filled.ok(*same) == "nothing to change\n"
    assert "MISSING_KEY" in filled.refused("channel", "set", "main", "keys=env:MISSING_KEY")


def test_subscriptions_show_what_their_window_spent(filled):
    [item] = filled.json("subscription", "list")
    assert item["spent"] == "0"
    first_day, _ = window_at("month", Instant().parse(item["resets_at"]) - 1)
    with filled.store() as db:
        account = f"{item['id']}:month:{first_day}"
        transaction(db, lambda: Quota.insert(account=account, spent=12 * 10**8).execute(db))
    spent = item | {"spent": "1.2"}
    assert filled.json("subscription", "list") == [spent]
    assert filled.json("subscription", "show", "alice/monthly") == spent


def test_wrong_usage_ends_with_2(filled):
    assert "FIELD=VALUE" in filled.misused("user", "set", "alice", "role")
    assert "twice" in filled.misused("user", "set", "alice", "role=admin", "role=member")
    assert "FIELD=VALUE" in filled.misused("user", "set", "alice")
    assert "NAME" in filled.misused("user", "show")
    assert "did you mean 'list'" in filled.misused("user", "lst")


def test_a_list_starts_without_the_heavy_libraries(filled):
    program = (
        "import sys, app; code = app.main(sys.argv[1:]);"
        "sys.exit(code or sum(name in sys.modules for name in ('tornado', 'pycurl', 'asyncio')))"
    )
    for kind in ("channel", "user"):
        argv = [sys.executable, "-c", program, kind, "list", "--config", str(filled.config)]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
