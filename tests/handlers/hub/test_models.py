"""Prices of models: in forms, over time, and in lists that are applied completely or not at all."""

import html
import re

import pytest

from handlers.hub.web.zones import utc_day_text
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
    assert "1 model would change" in boss.send("/admin/prices", fields).text
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "3.5"
    assert boss.send("/admin/prices", [*fields, ("take", "yes")]).status == 303
    assert show(db, "model", "gpt-4.1")["price"]["input"] == "4"


def test_one_fault_keeps_all_prices(api):
    rows = [{"model": "gpt-4.1", "input": "3"}, {"model": "gpt-4", "input": "3"}]
    status, _, message = api.refused("POST", PRICES, {"prices": rows})
    assert status == 400 and message.startswith("row ")
    assert api.ask("POST", PRICES, "model,colour\ngpt-4.1,3\n", **CSV).status == 400
    assert price(api)["input"] == "2"


# ---- forms ---------------------------------------------------------------------------------------

PLACE = "/admin/models/gpt-4.1"
FLEX = {"when": {"tier": "flex"}, "factor": "0.5"}
FLEX_FIELDS = [("rate.1.tier", "Flex"), ("rate.1.factor", "0.50"), ("rate.1.input", "")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (FLEX_FIELDS, [FLEX]),
        ([*FLEX_FIELDS, ("rate.1.remove", "true")], []),
        ([("rate.1.tier", ""), ("rate.1.factor", " ")], []),
        ([("rpm", "5")], [FLEX]),  # a form without rates
        (
            [
                *[("rate.7.input_over", "1000"), ("rate.7.input", "5"), ("rate.7.output", "6")],
                *[("rate.7.more", "\r\n web_search=0.02\r\noutput_image = 60"), *FLEX_FIELDS],
            ],
            [
                FLEX,
                {
                    "when": {"input_over": 1000},
                    **{"input": "5", "output": "6", "output_image": "60", "web_search": "0.02"},
                },
            ],
        ),
    ],
)
def test_rates_of_a_form(boss, api, db, fields, expected):
    api.call("PATCH", "/api/admin/models/gpt-4.1", {"rate": [FLEX]})
    boss.get(PLACE)
    assert boss.send(PLACE, fields).status == 303
    assert show(db, "model", "gpt-4.1")["rate"] == expected


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("rate.4.factor", "2")], "When needs a condition: tier, speed, geo, input_over"),
        ([("rate.4.geo", "us")], "input is missing: a rate has it, or a factor"),
        ([("rate.4.geo", "u s")], "when: geo must be a word of a-z 0-9 . _ : -"),
        ([("rate.4.input_over", "many")], "when: input_over must be a whole number"),
        (
            [("rate.4.geo", "us"), ("rate.4.factor", "2"), ("rate.4.more", "page = 1")],
            "Has a factor and prices; a rate has one or the other",
        ),
        ([("rate.4.geo", "us"), ("rate.4.more", "pages = 1")], 'has no meter "pages"'),
    ],
)
def test_the_problem_of_a_rate_is_shown_at_its_row(boss, db, fields, problem):
    boss.get(PLACE)
    answer = boss.send(PLACE, [*FLEX_FIELDS, *fields])
    assert answer.status == 400
    first, second, *empty = re.findall(r'<div class="rate".*?</div>', answer.text, re.S)
    assert 'value="Flex"' in first and "problem" not in first and len(empty) == 3
    assert problem in html.unescape(second) and all(
        html.escape(text).replace("&#x27;", "'") in second for _, text in fields
    )
    assert answer.text.count('class="problem') == 1
    assert show(db, "model", "gpt-4.1")["rate"] == []


def test_an_emptied_price_is_taken_away_unless_it_is_needed(boss, api, db):
    api.call("PATCH", "/api/admin/models/gpt-4.1", {"price": {"call": "1", "web_search": "0.01"}})
    fields = [
        ("price.input", "3"),
        ("price.call", ""),
        ("price.web_search", ""),
        ("price.page", ""),
    ]
    boss.get(PLACE)
    assert boss.send(PLACE, fields).status == 303
    assert show(db, "model", "gpt-4.1")["price"] == {"input": "3", "output": "8", "call": "0"}


@pytest.mark.parametrize(
    ("meter", "text", "problem", "opened"),
    [("output", "", "output is missing", 0), ("maps", "dear", "write digits", 1)],
)
def test_the_problem_of_a_price_is_shown_at_its_field(boss, meter, text, problem, opened):
    boss.get(PLACE)
    answer = boss.send(PLACE, [(f"price.{meter}", text)])
    assert answer.status == 400 and problem in answer.text
    [field] = re.findall(r'<input [^>]*aria-invalid="true"', answer.text)
    assert f'name="price.{meter}" value="{text}"' in field
    assert answer.text.count('<details class="further" open>') == opened


def test_seldom_used_prices_are_folded_until_one_is_set(boss, api):
    for prices, opened in (
        ({}, [False, False]),
        ({"maps": "0"}, [False, True]),
        ({"output_image": "60"}, [True, True]),
    ):
        api.call("PATCH", "/api/admin/models/gpt-4.1", {"price": prices})
        folds = re.findall(
            r'<details class="further"( open)?><summary>(.*?)<', boss.get(PLACE).text
        )
        assert [bool(is_open) for is_open, name in folds if name != "Add rates"] == opened
        assert folds[-1] == ("", "Add rates")


def test_the_history_has_the_meters_rates_and_sources_of_the_model(boss, api):
    rates = [FLEX, {"when": {"input_over": 272_000}, "input": "5", "output": "22.5"}]
    change = {"price": {"web_search": "0.01"}, "rate": rates, "price_source": "litellm 2026-11-28"}
    api.call("PATCH", "/api/admin/models/gpt-4.1", change)
    page = boss.get(PLACE).text
    history = page[page.index("Price history") :]
    day = utc_day_text(2026_11_28, "en")
    rate = "input over 272,000: Input 5, Output 22.5"
    for text in (">Web search<", "tier flex ×0.5", rate, ">Source<", f">litellm {day}<"):
        assert text in history, text
    assert "Maps" not in history
    assert "Source" not in boss.get("/admin/models/org%2Fother").text
    listed = boss.get("/admin/models").text
    assert "Web search <small>0.01<" in listed and "Maps" not in listed and "tier flex" in listed
