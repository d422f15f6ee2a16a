"""Prices of models: over time, and in lists that are applied whole or not at all."""

import pytest

from store.admin.export import show
from tests.handlers.hub.script import MODEL

PRICES = "/api/admin/prices"
CSV = {"Content-Type": "text/csv"}


@pytest.fixture(autouse=True)
def two_models(api):
    api.create("models", MODEL, MODEL | {"name": "org/other"})


def price(api, name="gpt-4.1"):
    return api.get(f"/api/admin/models/{name}").json["price"]


def test_a_list_is_shown_first_and_then_applied(api):
    rows = [{"model": "gpt-4.1", "input": "3"}, {"model": "org/other", "output": "8"}]
    preview = api.call("POST", PRICES, {"prices": rows, "dry_run": True}).json
    [change] = preview["changes"]
    assert (change["model"], change["before"]["input"]) == ("gpt-4.1", "2")
    assert change["after"] == {"input": "3", "output": "8", "call": "0"}
    assert price(api)["input"] == "2"
    assert api.call("POST", PRICES, {"prices": rows}).json["changes"] == [change]
    assert price(api)["input"] == "3"
    new, old = api.listed("/api/admin/models/gpt-4.1/prices")
    assert (new["input"], old["input"], new["cache_read"]) == ("3", "2", None)
    assert len(api.listed("/api/admin/models/org%2Fother/prices")) == 1


def test_a_table_is_applied_too(api, boss, db):
    table = "model,input,cache_read\r\ngpt-4.1,3.5,\r\n\r\norg/other,,0.5\r\n"
    answer = api.ask("POST", PRICES, table, **CSV)
    assert answer.status == 200, answer.text
    assert price(api)["input"] == "3.5"
    other = price(api, "org%2Fother")
    assert (other["input"], other["cache_read"]) == ("2", "0.5")
    boss.get("/admin/prices")
    fields = [("table", "model,input\ngpt-4.1,4")]
    assert "Models that would change: 1" in boss.send("/admin/prices", fields).text
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "3.5"
    assert boss.send("/admin/prices", [*fields, ("take", "yes")]).status == 303
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "4"


def test_one_fault_keeps_all_prices(api):
    rows = [{"model": "gpt-4.1", "input": "3"}, {"model": "gpt-4", "input": "3"}]
    status, _, message = api.refused("POST", PRICES, {"prices": rows})
    assert status == 400 and message.startswith("row ")
    assert api.ask("POST", PRICES, "model,colour\ngpt-4.1,3\n", **CSV).status == 400
    assert price(api)["input"] == "2"
