"""Single edits given as values, and lists of prices: judged as a document, faults by field."""

import pytest

from store.admin import apply, price_list
from store.admin.export import show
from store.admin.objects import load
from store.values.errors import Conflict, NotFound, Refused


def test_what_is_made_and_changed_is_what_a_document_would_make(applied, editor, database):
    editor.make("group", {"name": "fast", "multiplier": "2", "models": ["gpt-4.1"]})
    with pytest.raises(Conflict, match="exists"):
        editor.make("group", {"name": "fast"})
    editor.change("group", "fast", {"name": "fast", "rpm": 5})
    group = show(database, "group", "fast")
    assert (group["multiplier"], group["models"], group["rpm"]) == ("2", ["gpt-4.1"], 5)
    assert editor.change("group", "fast", {"rpm": 5}).changes == []
    with pytest.raises(NotFound):
        editor.change("group", "slow", {"rpm": 5})


@pytest.mark.parametrize(
    ("kind", "name", "values", "field"),
    [
        ("channel", "openai-main", {"keys": ["***"]}, "keys"),
        ("channel", "openai-main", {"keys": ["env:UPSTREAM"]}, "keys"),
        ("channel", "openai-main", {"extra_headers": {"x-org": "file:/etc/hostname"}}, None),
        ("channel", "openai-main", {"models": {"nothing": "x"}}, "models"),
        ("channel", "openai-main", {"options": {"images": True, "sound": True}}, "options"),
        ("user", "alice", {"balance": "5"}, "balance"),
        ("user", "alice", {"name": "eve"}, "name"),
        ("model", "gpt-4.1", {"price": {"input": None}}, "price"),
    ],
)
def test_a_fault_knows_its_field(applied, editor, kind, name, values, field):
    with pytest.raises(Refused) as refused:
        editor.change(kind, name, values)
    assert refused.value.field == (field or next(iter(values)))
    assert not any("\0" in fault for fault in refused.value.faults)


def test_a_list_of_prices_is_taken_whole_or_not_at_all(applied, editor, database):
    rows = price_list.read_csv("model,input,output\ngpt-4.1,3,\nclaude,,15\n")
    shown = price_list.take(database, editor, rows, dry_run=True)
    assert [(one.model, one.before["input"], one.after["input"]) for one in shown] == [
        ("gpt-4.1", "2", "3")
    ]
    with pytest.raises(Refused, match='row 2: there is no model "cloud"; '):
        price_list.take(database, editor, [*rows[:1], {"model": "cloud"}], dry_run=False)
    assert show(database, "model", "gpt-4.1")["price"]["input"] == "2"
    assert price_list.take(database, editor, rows, dry_run=False) == shown
    assert show(database, "model", "gpt-4.1")["price"]["input"] == "3"
    [back] = price_list.take(
        database, editor, [{"model": "gpt-4.1", "cache_read": None}], dry_run=False
    )
    assert "cache_read" in back.before and "cache_read" not in back.after


def test_a_table_of_prices_is_read_with_any_line_end_or_refused():
    for end in ("\n", "\r\n", "\r"):
        assert price_list.read_csv(f"model,input{end}gpt,1{end}") == [
            {"model": "gpt", "input": "1"}
        ]
    with pytest.raises(Refused, match="cannot be read"):
        price_list.read_csv("model,input\n" + "x" * 200_000 + ",1\n")


def test_a_change_loads_the_users_whom_it_is_about(applied, editor, database, monkeypatch):
    loaded = []

    def noting(db, owner_id=None):
        state = load(db, owner_id)
        loaded.append(sorted(user for (user,) in state["user"]))
        return state

    monkeypatch.setattr(apply, "load", noting)
    for kind, name, values, users in (
        ("group", "default", {"rpm": 5}, []),
        ("model", "gpt-4.1", {"context_tokens": 9}, []),
        ("channel", "openai-main", {"priority": 7}, []),
        ("user", "alice", {"rpm": 5}, ["alice"]),
    ):
        loaded.clear()
        assert len(editor.change(kind, name, values).changes) == 1
        assert loaded and all(one == users for one in loaded)
        loaded.clear()
        field = next(iter(values))
        assert len(editor.set_fields(kind, name, {field: "3"}).changes) == 1
        assert loaded == [users]
        assert show(database, kind, name)[field] == 3
    loaded.clear()
    editor.make("group", {"name": "fast"})
    assert loaded and not any(loaded)
    with pytest.raises(NotFound, match='"alice"'):
        editor.change("user", "alise", {"rpm": 5})
    with pytest.raises(Refused, match="refers to it"):
        editor.remove("group", "default")
