"""Single edits: texts of the command line as entries, and values, with faults by field."""

import pytest

from store.admin import apply
from store.admin.document import Entry
from store.admin.edits import entry_of_texts, with_identity
from store.admin.export import show
from store.admin.objects import Stored, load
from store.values.errors import NotFound, Refused
from store.values.fields import Sealed

pytestmark = pytest.mark.databases("sqlite")


SEALED = {name: Sealed(name[-1]) for name in ("x-a", "x-b", "x-c")}
OPTIONS = {"images": True, "audio": True}
CHANNEL = Stored(
    *("channel", "id", ("c",)),
    {"models": {"gpt-4.1": "a", "other": "b"}, "extra_headers": SEALED, "options": OPTIONS}
    | {"cost": {"other": {"call": 0, "input": 10**9, "output": 5 * 10**9}}},
    {},
)


@pytest.mark.parametrize(
    ("kind", "edits", "identity", "fields"),
    [
        (
            "model",
            {"name": "m", "price.input": "2", "price.output": "3", "context_tokens": ""}
            | {"enabled": "false"},
            ("m",),
            {"price": {"call": 0, "input": 2 * 10**9, "output": 3 * 10**9}, "context_tokens": None}
            | {"enabled": False},
        ),
        (
            "key",
            {"user": "alice", "name": "k", "networks": "10.0.0.0/8,::1", "limit": "5"},
            ("alice", "k"),
            {"networks": ["10.0.0.0/8", "::1/128"], "limit": 5 * 10**9},
        ),
        # One name of a map is changed or removed, and the others stay.
        (
            "channel",
            {"models.gpt-4.1": "new", "models.other": "", "models.third": "c"},
            ("c",),
            {"models": {"gpt-4.1": "new", "third": "c"}},
        ),
        (
            "channel",
            {"extra_headers.X-A": "new, with a comma", "extra_headers.x-B": ""},
            ("c",),
            {"extra_headers": {"x-a": "new, with a comma", "x-c": SEALED["x-c"]}},
        ),
        (
            "channel",
            {"options.images": "false", "options.audio": "", "options.efforts": '["low","high"]'}
            | {"options.thinking": "budget"},
            ("c",),
            {"options": {"images": False, "efforts": ["low", "high"], "thinking": "budget"}},
        ),
        (
            "channel",
            {"options": "images=false,max_budget_tokens=9"},
            ("c",),
            {"options": {"images": False, "max_budget_tokens": 9}},
        ),
        (
            "channel",
            {"cost.gpt-4.1": "input=1, output=5,web_search=0.01", "cost_factor": "0.8"},
            ("c",),
            {
                "cost": {
                    "other": {"call": 0, "input": 10**9, "output": 5 * 10**9},
                    "gpt-4.1": {
                        "call": 0,
                        "input": 10**9,
                        "output": 5 * 10**9,
                        "web_search": 10**7,
                    },
                },
                "cost_factor": 800_000,
            },
        ),
        (
            "channel",
            {"cost.other": "", "cost_factor": ""},
            ("c",),
            {"cost": {}, "cost_factor": None},
        ),
        ("channel", {"keys": "env:A,plain"}, ("c",), {"keys": ["sk-a", "plain"]}),
    ],
    ids=[
        "model",
        "key",
        "models",
        "headers",
        "option",
        "options",
        "cost",
        "cost-removed",
        "environment",
    ],
)
def test_words_become_fields(kind, edits, identity, fields):
    stored = CHANNEL if kind == "channel" else None
    assert entry_of_texts(kind, edits, stored, {"A": "sk-a"}) == Entry(kind, identity, fields)
    assert CHANNEL.fields["models"]["other"] == "b"


def test_all_faults_at_once():
    edits = {"name": "d", "weigth": "1", "weight": "none", "models.x y": "z", "price.input": "1"}
    with pytest.raises(Refused) as caught:
        entry_of_texts("channel", edits, CHANNEL, {})
    text = "\n".join(caught.value.faults)
    for message in (
        "name cannot be changed",
        'unknown field "weigth"; did you mean "weight"?',
        "weight: must be a whole number",
        'models: entry "x y"',
        'unknown field "price.input"',
    ):
        assert message in text
    assert len(caught.value.faults) == 5


def test_a_missing_identity():
    with pytest.raises(Refused, match="user is missing"):
        entry_of_texts("key", {"name": "k"}, None, {})


@pytest.mark.parametrize(
    ("kind", "name", "edits", "identity"),
    [
        ("user", "a/b", {}, {"name": "a/b"}),
        ("subscription", "alice/monthly", {}, {"user": "alice", "plan": "monthly"}),
        ("subscription", "monthly", {"user": "alice"}, {"user": "alice", "plan": "monthly"}),
        ("subscription", "a/b", {"user": "c/d"}, {"user": "c/d", "plan": "a/b"}),
        ("subscription", "a/b/c", {}, {"plan": "a/b/c"}),
        ("subscription", "monthly", {}, {"plan": "monthly"}),
        ("key", "a/b", {"user": "alice"}, {"user": "alice", "name": "a/b"}),
    ],
)
def test_names_of_new_objects(kind, name, edits, identity):
    assert with_identity(kind, name, edits | {"rpm": "1"}) == identity | {"rpm": "1"}


@pytest.mark.parametrize(
    ("kind", "name", "values", "field"),
    [
        ("channel", "openai-main", {"keys": ["***"]}, "keys"),
        ("channel", "openai-main", {"extra_headers": {"x-org": "file:/etc/hostname"}}, None),
        ("channel", "openai-main", {"models": {"nothing": "x"}}, "models"),
        ("channel", "openai-main", {"options": {"images": True, "sound": True}}, "options"),
        ("user", "alice", {"balance": "5"}, "balance"),
        ("model", "gpt-4.1", {"price": {"input": None}}, "price"),
    ],
)
def test_a_fault_knows_its_field(applied, remote_editor, kind, name, values, field):
    with pytest.raises(Refused) as refused:
        remote_editor.change(kind, name, values)
    assert refused.value.field == (field or next(iter(values)))
    assert not any("\0" in fault for fault in refused.value.faults)


def test_a_change_loads_the_users_whom_it_is_about(
    applied, editor, remote_editor, database, monkeypatch
):
    loaded = []

    def noting(db, owner_id=None):
        state = load(db, owner_id)
        loaded.append(sorted(user for (user,) in state["user"]))
        return state

    monkeypatch.setattr(apply, "load", noting)
    for kind, name, field, users in (
        ("group", "default", "rpm", []),
        ("channel", "openai-main", "priority", []),
        ("user", "alice", "rpm", ["alice"]),
    ):
        loaded.clear()
        assert len(remote_editor.change(kind, name, {field: 5}).changes) == 1
        assert len(editor.change(kind, name, {field: "3"}).changes) == 1
        assert loaded and all(names == users for names in loaded)
        assert show(database, kind, name)[field] == 3
    loaded.clear()
    remote_editor.create("group", None, {"name": "fast"})
    assert loaded and not any(loaded)
    with pytest.raises(NotFound, match='"alice"'):
        remote_editor.change("user", "alise", {"rpm": 5})
    with pytest.raises(Refused, match="refers to it"):
        editor.remove("group", "default")
