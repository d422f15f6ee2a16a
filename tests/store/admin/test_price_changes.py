"""Prices that apply from a given time: edited, exported, applied again, and in force at that
time."""

import pytest

from store.admin import objects, price_list
from store.admin.export import export, show, to_toml
from store.admin.listing import price_history
from store.catalog.catalog import load_snapshot
from store.db.database import database_ms
from store.values.errors import Refused
from store.values.fields import Instant
from store.values.price_fields import PriceChanges

pytestmark = pytest.mark.databases("sqlite")

MODEL = "gpt-4.1"
FIRST, SECOND = "2098-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
FIRST_MS, SECOND_MS = map(Instant().parse, (FIRST, SECOND))
CHANGES = f"""
[[model]]
name = "{MODEL}"
price = {{ input = "2.00", output = "8.00" }}
price_changes = [
  {{ from = "{FIRST}", input = "3", output = "9" }},
  {{ from = "{SECOND}", input = "4", output = "10", cache_read = "1" }},
]
"""


@pytest.fixture
def at(monkeypatch):
    """Return at(ms), which sets the database's clock for later edits."""

    def stop(ms):
        monkeypatch.setattr(objects, "database_ms", lambda db: ms)
        monkeypatch.setattr("store.admin.apply.database_ms", lambda db: ms)

    return stop


def prices_at(database, cipher, ms):
    prices = load_snapshot(database, cipher).models[MODEL].prices_at(ms)
    return tuple(prices.plain.prices[name] // 10**9 for name in ("input", "output"))


def shown(database):
    model = show(database, "model", MODEL)
    return model["price"]["input"], [
        (change["from"], change["input"], change["output"]) for change in model["price_changes"]
    ]


def test_a_price_to_come_holds_from_its_time_on(database, editor, applied, cipher):
    editor.change("model", MODEL, {"price.input": "3", "from": SECOND})
    assert shown(database) == ("2", [(SECOND, "3", "8")])
    assert prices_at(database, cipher, database_ms(database)) == (2, 8)
    assert prices_at(database, cipher, SECOND_MS - 1000) == (2, 8)
    assert prices_at(database, cipher, SECOND_MS + 1000) == (3, 8)
    editor.change("model", MODEL, {"price.output": "9", "from": FIRST})
    assert shown(database) == ("2", [(FIRST, "2", "9"), (SECOND, "3", "8")])
    editor.change("model", MODEL, {"price.output": "11", "from": SECOND})
    assert shown(database) == ("2", [(FIRST, "2", "9"), (SECOND, "3", "11")])


def test_a_price_of_now_does_not_wait_behind_one_to_come(database, editor, applied, cipher):
    editor.change("model", MODEL, {"price.input": "3", "from": SECOND})
    editor.change("model", MODEL, {"price.input": "2.5"})
    assert shown(database) == ("2.5", [(SECOND, "3", "8")])
    assert prices_at(database, cipher, SECOND_MS + 1000) == (3, 8)
    assert [row["input"] for row in price_history(database, MODEL)] == ["3", "2.5", "2"]
    editor.change("model", MODEL, {"price_changes": ""})
    assert shown(database) == ("2.5", [])
    assert prices_at(database, cipher, SECOND_MS + 1000)[1] == 8


def test_a_document_says_all_that_is_to_come(database, editor, applied, read):
    assert [change.action for change in editor.apply(read(CHANGES)).changes] == ["update"]
    assert shown(database) == ("2", [(FIRST, "3", "9"), (SECOND, "4", "10")])
    assert editor.apply(read(CHANGES)).changes == []
    written = to_toml(export(database))
    assert f'from = "{SECOND}"' in written and editor.apply(read(written)).changes == []
    editor.apply(read(CHANGES.split("price_changes")[0]))
    assert len(shown(database)[1]) == 2, "what is not given stays"


def test_a_document_is_applied_again_when_the_time_has_come(
    database, editor, applied, read, cipher, at
):
    editor.apply(read(CHANGES))
    at(FIRST_MS + 5000)
    assert editor.apply(read(CHANGES)).changes == [], "the price is that of the change"
    assert shown(database) == ("3", [(SECOND, "4", "10")])
    at(SECOND_MS + 5000)
    assert editor.apply(read(CHANGES)).changes == []
    assert shown(database) == ("4", [])
    assert len(price_history(database, MODEL)) == 4


def test_a_new_model_with_prices_to_come(database, editor, applied, read, at):
    editor.apply(read(CHANGES.replace(MODEL, "new")))
    assert len(show(database, "model", "new")["price_changes"]) == 2
    at(FIRST_MS + 5000)
    editor.apply(read(CHANGES.replace(MODEL, "newer")))
    model = show(database, "model", "newer")
    assert model["price"]["input"] == "3" and len(model["price_changes"]) == 1


@pytest.mark.parametrize(
    ("edits", "fault"),
    [
        ({"from": SECOND}, "from: goes with the prices that change then"),
        ({"from": "tomorrow", "price.input": "3"}, 'from: must be a time like "2027'),
        ({"from": SECOND, "price.inptu": "3"}, 'did you mean "input"'),
        ({"price_changes": "x"}, "price_changes: must be a list of tables"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(editor, applied, edits, fault):
    with pytest.raises(Refused, match=fault):
        editor.change("model", MODEL, edits)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([{"input": "1", "output": "1"}], "element 1 must be a table with `from`"),
        ([{"from": SECOND, "input": "1"}], "element 1 output is missing"),
        ([{"from": SECOND, "input": "1", "output": "1"}] * 2, "the same `from`"),
        ([{}] * 101, "more than 100"),
    ],
)
def test_tables_that_say_no_change(value, fault):
    with pytest.raises(ValueError, match=fault):
        PriceChanges().parse(value)


def test_a_list_of_prices_is_taken_whole_or_not_at_all(applied, editor, database):
    def take(*rows, dry_run=False):
        return price_list.take(database, editor, rows, dry_run=dry_run)

    rows = price_list.read_csv("model,input,output\ngpt-4.1,3,\nclaude,,15\n")
    planned = take(*rows, dry_run=True)
    assert [
        (change.model, change.before["input"], change.after["input"]) for change in planned
    ] == [("gpt-4.1", "2", "3")]
    with pytest.raises(Refused, match='row 2: there is no model "cloud"; '):
        take(rows[0], {"model": "cloud"})
    assert shown(database)[0] == "2"
    assert take(*rows) == planned
    assert shown(database)[0] == "3"
    [back] = take({"model": "gpt-4.1", "cache_read": None})
    assert "cache_read" in back.before and "cache_read" not in back.after


def test_a_table_of_prices_is_read_with_any_line_end_or_refused():
    for end in ("\n", "\r\n", "\r"):
        assert price_list.read_csv(f"model,input{end}gpt,1{end}") == [
            {"model": "gpt", "input": "1"}
        ]
    with pytest.raises(Refused, match="cannot be read"):
        price_list.read_csv("model,input\n" + "x" * 200_000 + ",1\n")


def test_a_price_has_the_source_that_was_said_with_it(applied, editor, database):
    def source():
        return show(database, "model", MODEL)["price_source"]

    assert source() is None
    editor.change("model", MODEL, {"price.input": "3", "price_source": "litellm 2026-11-28"})
    assert source() == "litellm 2026-11-28"
    assert "litellm 2026-11-28" in to_toml(export(database))
    editor.change("model", MODEL, {"enabled": "false"})
    editor.change("model", MODEL, {"price_source": "litellm 2026-11-29"})
    assert source() == "litellm 2026-11-29" and shown(database)[0] == "3"
    editor.change("model", MODEL, {"price.input": "4"})
    assert source() is None
    sources = [row["source"] for row in price_history(database, MODEL)]
    assert sources == [None, "litellm 2026-11-29", "litellm 2026-11-28", None]
