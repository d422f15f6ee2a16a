"""Prices: the list with rates as rows, editing of many models in cells, the comparison with a
list.

An outdated form or tick changes nothing, and both prices are shown.
"""

import html
import json
import re
from decimal import Decimal

import pytest

from operations import catalogue
from store.admin.export import show
from store.calls.rate_sums import UsageByRate
from store.db.database import database_ms
from store.values.ids import day_at
from tests.handlers.hub.browser import submitted_by
from tests.handlers.hub.script import MODEL

EDIT, COMPARE = "/admin/prices/edit", "/admin/prices/compare"
API = "/api/admin/prices/compare"
LISTED = next(
    entry
    for entry in catalogue.entries()
    if entry.of_maker and entry.vendor == "openai" and entry.name != MODEL["name"]
)
NAME = LISTED.name


@pytest.fixture(autouse=True)
def two_models(api):
    low = {name: str(Decimal(LISTED.price[name]) / 2) for name in ("input", "output")}
    api.create("models", MODEL, MODEL | {"name": NAME, "price": low})


def price(db, name="gpt-4.1"):
    return show(db, "model", name)["price"]


def text_of(answer):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text))


def test_rates_are_rows_with_their_prices_and_source(boss, api):
    flex = {"when": {"tier": "flex"}, "factor": "0.5"}
    long = {"when": {"input_over": 200000}, "input": "7", "output": "9", "web_search": "0.02"}
    changed = {"rate": [flex, long], "price": {"web_search": "0.01"}, "price_source": "list 5"}
    api.call("PATCH", "/api/admin/models/gpt-4.1", changed)
    text = text_of(boss.get("/admin/models?search=gpt-4.1"))
    for line in ("tier flex ×0.5 1", "input over 200,000 7", "Web search 0.01", "list 5,"):
        assert line in text, (line, text)


def test_uses_without_a_price_stand_above(boss, db):
    assert "Used without a price" not in boss.get("/admin/models").text
    row = {"day": day_at(database_ms(db)), "model": "gpt-4.1", "rate": "", "meter": "web_search"}
    UsageByRate.insert({**row, "uses": 412, "calls": 1, "cost_nanos": 0}).execute(db)
    page = boss.get("/admin/models")
    above = text_of(page).partition("New model")[2].partition("Cached")[0]
    assert "gpt-4.1 Web search 412" in above and "Set price" in above


# ---- cells


def word(name):
    return name.replace(".", "_").replace("-", "_")


def with_values(fields, **values):
    return [(name, values.get(word(name), value)) for name, value in fields]


def fields_of(answer):
    return [field for field in submitted_by(answer.text) if field[0] not in ("do", "factor")]


def sent(boss, do="save", factor="", chosen=(), **values):
    fields = fields_of(boss.get(EDIT))
    fields = with_values(fields, **values)
    more = [("do", do), ("factor", factor), *(("chosen", name) for name in chosen)]
    return boss.send(EDIT, [*fields, *more])


def test_cells_are_saved_together_and_other_rows_stay(boss, db, api):
    fields = fields_of(boss.get(EDIT))
    api.call("PATCH", f"/api/admin/models/{NAME}", {"price": {"input": "77"}})  # meanwhile
    fields = with_values(fields, input_gpt_4_1="3.5", cache_read_gpt_4_1="0.1")
    answer = boss.send(EDIT, [*fields, ("do", "save")])
    assert answer.status == 303, answer.text
    changed = price(db)
    assert (changed["input"], changed["cache_read"], changed["output"]) == ("3.5", "0.1", "8")
    assert price(db, NAME)["input"] == "77"
    assert sent(boss, cache_read_gpt_4_1="").status == 303
    assert "cache_read" not in price(db)


def test_a_row_that_somebody_changed_is_409_and_shows_both(boss, db, api):
    fields = fields_of(boss.get(EDIT))
    api.call("PATCH", "/api/admin/models/gpt-4.1", {"price": {"input": "3", "output": "12"}})
    answer = boss.send(EDIT, [*with_values(fields, input_gpt_4_1="4"), ("do", "save")])
    assert answer.status == 409 and "boss changed gpt-4.1 at" in text_of(answer)
    assert price(db)["input"] == "3", "prices go back silently"
    again = dict(submitted_by(answer.text))
    assert (again["input.gpt-4.1"], again["output.gpt-4.1"]) == ("4", "12")
    assert boss.send(EDIT, [*fields_of(answer), ("do", "save")]).status == 303
    assert (price(db)["input"], price(db)["output"]) == ("4", "12")


@pytest.mark.parametrize(
    ("do", "factor", "expected"),
    [
        ("times", "1.5", {"input": "3", "output": "12"}),
        ("free", "", {"input": "0", "output": "0"}),
    ],
)
def test_actions_change_the_cells_of_chosen_rows_alone(boss, db, do, factor, expected):
    answer = sent(boss, do, factor, ["gpt-4.1"])
    cells = dict(submitted_by(answer.text))
    assert answer.status == 200 and price(db)["input"] == "2"  # not before Save
    assert {name: cells[f"{name}.gpt-4.1"] for name in expected} == expected
    assert cells[f"input.{NAME}"] == price(db, NAME)["input"]


def test_list_prices_fill_the_cells_of_chosen_rows(boss, db):
    cells = dict(submitted_by(sent(boss, "take", "", [NAME]).text))
    assert cells[f"input.{NAME}"] == LISTED.price["input"] != price(db, NAME)["input"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"input_gpt_4_1": ""}, "gpt-4.1: input is missing; 0 is free"),
        ({"input_gpt_4_1": "cheap"}, "Row 1"),
    ],
)
def test_a_faulty_cell_keeps_all_prices(boss, db, values, problem):
    answer = sent(boss, **{f"output_{word(NAME)}": "9"}, **values)
    assert answer.status == 400 and problem in answer.text
    assert price(db)["input"] == "2" and price(db, NAME)["output"] != "9"
    assert sent(boss, "times", "none", ["gpt-4.1"]).status == 400


# ---- the catalogue


def difference(rows, meter="input"):
    [row] = [row for row in rows if (row["model"], row["rate"], row["meter"]) == (NAME, "", meter)]
    return row


def ticks_of(page):
    boxes = re.findall(r'<input type="checkbox" name="take" value="([^"]*)"([^>]*)', page)
    values = [(json.loads(html.unescape(value)), "checked" in more) for value, more in boxes]
    return {tuple(value[:3]): (value, checked) for value, checked in values if value[0] == NAME}


def test_steep_rises_are_not_ticked_and_need_one_more(boss, db):
    page = boss.get(f"{COMPARE}?model={NAME}")
    value, checked = ticks_of(page.text)[NAME, "", "input"]
    assert not checked and "+100" in page.text and "Accept rise" in page.text
    fields = [("take", json.dumps(value))]
    answer = boss.send(COMPARE, fields)
    assert answer.status == 400 and "needs its second tick" in answer.text
    before = price(db, NAME)
    assert boss.send(COMPARE, [*fields, ("rise", json.dumps(value))]).status == 303
    assert price(db, NAME) == before | {"input": LISTED.price["input"]}  # only this one
    assert show(db, "model", NAME)["price_source"].startswith("catalogue 20")
    assert boss.send(COMPARE, []).status == 400


def test_a_tick_of_a_price_that_changed_is_409(boss, db, api):
    boss.get(COMPARE)
    value, _ = ticks_of(boss.get(COMPARE).text)[NAME, "", "input"]
    api.call("PATCH", f"/api/admin/models/{NAME}", {"price": {"input": "123"}})
    tick = json.dumps(value)
    answer = boss.send(COMPARE, [("take", tick), ("rise", tick)])
    assert answer.status == 409 and "Prices have changed since this comparison" in answer.text
    assert price(db, NAME)["input"] == "123", "prices go back silently"


def test_the_api_compares_and_takes(api, db):
    rows = api.get(f"{API}?model={NAME}").json["differences"]
    row = difference(rows)
    assert row["steep"] and row["after"] == LISTED.price["input"]
    tick = {name: row[name] for name in ("model", "rate", "meter", "before", "after")}
    assert api.ask("POST", API, json.dumps({"take": [tick]})).status == 400
    body = {"take": [tick | {"accept_rise": True}]}
    assert api.call("POST", API, body | {"dry_run": True}).json["differences"] != rows
    assert price(db, NAME)["input"] != row["after"]
    body = json.dumps(body)
    assert api.ask("POST", API, body).status == 200 and price(db, NAME)["input"] == row["after"]
    assert api.ask("POST", API, body).status == 409
    for wrong in ({"take": 1}, {"take": [{"model": NAME}]}, {"taken": []}):
        assert api.ask("POST", API, json.dumps(wrong)).status == 400


def test_an_imported_row_may_hold_its_version(api, db):
    version = api.get("/api/admin/models/gpt-4.1").json["version"]
    row = {"model": "gpt-4.1", "input": "5", "version": version}
    api.call("PATCH", "/api/admin/models/gpt-4.1", {"price": {"input": "3"}})
    assert api.refused("POST", "/api/admin/prices", {"prices": [row]})[0] == 409
    assert price(db)["input"] == "3"
