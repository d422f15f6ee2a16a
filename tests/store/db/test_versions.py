"""Edits based on a version of an object: refused if somebody has changed it since, showing both
changes; nothing is reverted."""

import pytest

from store.admin.export import show
from store.db.versions import Outdated, last_revision

PRICE = {"input": "2", "output": "8", "cache_read": "0.5"}


def version_of(database, kind, name):
    return last_revision(database, kind, name).id


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("kind", "name", "theirs", "mine", "merged"),
    [
        ("user", "bob", {"rpm": 200}, {"rpm": 0, "tpm": 5}, {"rpm": 200, "tpm": 5}),
        ("user", "bob", {"rpm": 200}, {"rpm": 300}, {"rpm": 300}),
        ("user", "bob", {"rpm": 200, "tpm": 7}, {"rpm": 300}, {"rpm": 300, "tpm": 7}),
        (
            *("model", "gpt-4.1", {"price": {"input": "3"}}),
            {"price": {**PRICE, "output": "9"}},
            {"price": {"input": "3", "output": "9", "call": "0", "cache_read": "0.5"}},
        ),
        (
            *("channel", "openai-main", {"models": {"gpt-4.1": "new"}}),
            {"models": {"gpt-4.1": "gpt-4.1-2025-04-14", "claude": "claude"}},
            {"models": {"gpt-4.1": "new", "claude": "claude"}},
        ),
    ],
)
def test_a_change_that_was_not_seen_refuses_the_edit(
    applied, remote_editor, database, kind, name, theirs, mine, merged
):
    version = version_of(database, kind, name)
    remote_editor.change(kind, name, theirs)
    before = show(database, kind, name)
    with pytest.raises(Outdated, match="was changed by tester since") as caught:
        remote_editor.change(kind, name, mine, version)
    outdated = caught.value
    assert show(database, kind, name) == before, "nothing is written"
    assert {item.name: item.merged for item in outdated.differences} == merged
    assert {item.name for item in outdated.differences if item.changed} == set(theirs)
    remote_editor.change(kind, name, merged, outdated.last.id)
    after = show(database, kind, name)
    assert {field: after[field] for field in merged} == merged


@pytest.mark.databases("sqlite")
def test_what_nobody_else_changed_is_no_conflict(applied, remote_editor, database):
    version = version_of(database, "user", "bob")
    remote_editor.change("user", "alice", {"rpm": 200})
    remote_editor.change("user", "bob", {"rpm": 200}, version)
    remote_editor.change("user", "bob", {"rpm": 200}, version)  # the same value: no change
    with pytest.raises(Outdated):
        remote_editor.change("user", "bob", {"rpm": 201}, version)
    remote_editor.change("user", "bob", {"rpm": 201})  # without a version, as commands do


@pytest.mark.databases("sqlite")
def test_secrets_are_touched_when_typed_and_stay_masked(applied, remote_editor, database):
    version = version_of(database, "channel", "openai-main")
    remote_editor.change("channel", "openai-main", {"weight": 3})
    with pytest.raises(Outdated) as caught:
        remote_editor.change("channel", "openai-main", {"keys": ["sk-typed"]}, version)
    [weight, keys] = caught.value.differences
    assert (weight.name, weight.changed, weight.touched) == ("weight", True, False)
    assert (keys.name, keys.changed, keys.touched, keys.secret) == ("keys", False, True, True)
    assert "sk-typed" not in repr(caught.value.differences)
