"""Words of the command line as entries."""

import pytest

from store.admin.edits import entry_of_edits, with_identity
from store.admin.objects import Stored
from store.values.errors import Refused
from store.values.fields import Sealed

CHANNEL = Stored("channel", "id", ("c",), {"models": {"gpt-4.1": "a", "other": "b"}}, {})


def test_words_become_fields():
    edits = {
        "name": "m",
        "price.input": "2",
        "price.cache_read": "",
        "context_tokens": "",
        "enabled": "false",
    }
    entry = entry_of_edits("model", edits, None, {})
    assert entry.identity == ("m",)
    assert entry.fields == {
        "price": {"input": 2 * 10**9, "cache_read": None},
        "context_tokens": None,
        "enabled": False,
    }


def test_one_name_of_a_map_is_changed_or_taken_away():
    edits = {"models.gpt-4.1": "new", "models.other": "", "models.third": "c"}
    entry = entry_of_edits("channel", edits, CHANNEL, {})
    assert entry.identity == ("c",)
    assert entry.fields == {"models": {"gpt-4.1": "new", "third": "c"}}
    assert CHANNEL.fields["models"]["other"] == "b"


def test_a_key_has_its_user_in_the_words():
    edits = {"user": "alice", "name": "k", "networks": "10.0.0.0/8,::1", "limit": "5"}
    entry = entry_of_edits("key", edits, None, {})
    assert entry.identity == ("alice", "k")
    assert entry.fields == {"networks": ["10.0.0.0/8", "::1/128"], "limit": 5 * 10**9}


def test_secrets_may_come_from_the_environment():
    entry = entry_of_edits("channel", {"keys": "env:A,plain"}, CHANNEL, {"A": "sk-a"})
    assert entry.fields == {"keys": ["sk-a", "plain"]}


def test_all_faults_at_once():
    edits = {"name": "d", "weigth": "1", "weight": "none", "models.x y": "z", "price.input": "1"}
    with pytest.raises(Refused) as caught:
        entry_of_edits("channel", edits, CHANNEL, {})
    text = "\n".join(caught.value.faults)
    assert "name cannot be changed" in text
    assert 'unknown field "weigth"; did you mean "weight"?' in text
    assert "weight: must be a whole number" in text
    assert 'models: entry "x y"' in text
    assert 'unknown field "price.input"' in text
    assert len(caught.value.faults) == 5


def test_a_missing_identity():
    with pytest.raises(Refused, match="user is missing"):
        entry_of_edits("key", {"name": "k"}, None, {})


@pytest.mark.parametrize(
    ("kind", "name", "edits", "identity"),
    [
        ("user", "a/b", {}, {"name": "a/b"}),
        ("subscription", "alice/monthly", {}, {"user": "alice", "plan": "monthly"}),
        ("subscription", "monthly", {"user": "alice"}, {"user": "alice", "plan": "monthly"}),
        ("subscription", "a/b", {"user": "c/d"}, {"user": "c/d", "plan": "a/b"}),
        ("subscription", "a/b/c", {}, {"plan": "a/b/c"}),
        ("subscription", "monthly", {}, {"plan": "monthly"}),
        ("key", "alice/laptop", {}, {"user": "alice", "name": "laptop"}),
        ("key", "a/b", {"user": "alice"}, {"user": "alice", "name": "a/b"}),
    ],
)
def test_names_of_new_objects(kind, name, edits, identity):
    assert with_identity(kind, name, edits | {"rpm": "1"}) == identity | {"rpm": "1"}


def test_one_header_is_changed_or_taken_away_and_the_others_stay_sealed():
    kept = {"x-a": Sealed("a"), "x-b": Sealed("b"), "x-c": Sealed("c")}
    stored = Stored("channel", "id", ("c",), {"extra_headers": kept}, {})
    edits = {"extra_headers.X-A": "new, with a comma", "extra_headers.x-B": ""}
    entry = entry_of_edits("channel", edits, stored, {})
    assert entry.fields == {"extra_headers": {"x-a": "new, with a comma", "x-c": Sealed("c")}}


def test_one_option_is_changed_or_taken_away():
    stored = Stored("channel", "id", ("c",), {"options": {"images": True, "audio": True}}, {})
    edits = {"options.images": "false", "options.audio": "", "options.efforts": '["low","high"]'}
    entry = entry_of_edits("channel", {**edits, "options.thinking": "budget"}, stored, {})
    given = {"images": False, "efforts": ["low", "high"], "thinking": "budget"}
    assert entry.fields == {"options": given}
    entry = entry_of_edits("channel", {"options": "images=false,max_budget_tokens=9"}, stored, {})
    assert entry.fields == {"options": {"images": False, "max_budget_tokens": 9}}
