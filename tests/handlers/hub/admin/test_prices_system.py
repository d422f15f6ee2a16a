"""Prices over time and in lists; what the system says of itself."""

import re
from urllib.parse import urlencode

from store.hub import tokens
from tests.handlers.hub.admin.script import MODEL, Script
from tests.handlers.hub.usage.calls import call, failed, put
from tests.support.ports import free_port

PRICES = "/api/admin/prices"


def script(hub, db):
    _, token = tokens.create(db, "boss", ["admin"], actor="tester")
    return Script(hub.port, token)


def two_models(api):
    for name in ("gpt-4.1", "org/other"):
        assert api.call("POST", "/api/admin/models", MODEL | {"name": name}).status == 201


def test_a_list_is_shown_first_and_then_taken(api):
    two_models(api)
    rows = [{"model": "gpt-4.1", "input": "3"}, {"model": "org/other", "output": "8"}]
    shown = api.call("POST", PRICES, {"prices": rows, "dry_run": True}).json
    assert [one["model"] for one in shown["changes"]] == ["gpt-4.1"]
    assert shown["changes"][0]["before"]["input"] == "2"
    assert shown["changes"][0]["after"] == {"input": "3", "output": "8", "call": "0"}
    assert api.get("/api/admin/models/gpt-4.1").json["price"]["input"] == "2"
    assert api.call("POST", PRICES, {"prices": rows}).json["changes"] == shown["changes"]
    assert api.get("/api/admin/models/gpt-4.1").json["price"]["input"] == "3"
    new, old = api.listed("/api/admin/models/gpt-4.1/prices")
    assert (new["input"], old["input"], new["cache_read"]) == ("3", "2", None)
    assert len(api.listed("/api/admin/models/org%2Fother/prices")) == 1


def test_a_table_is_taken_too(api):
    two_models(api)
    table = "model,input,cache_read\r\ngpt-4.1,3.5,\r\n\r\norg/other,,0.5\r\n"
    answer = api.ask("POST", PRICES, table, **{"Content-Type": "text/csv"})
    assert answer.status == 200, answer.text
    assert api.get("/api/admin/models/gpt-4.1").json["price"]["input"] == "3.5"
    other = api.get("/api/admin/models/org%2Fother").json["price"]
    assert (other["input"], other["cache_read"]) == ("2", "0.5")


def test_one_fault_keeps_all_prices(api):
    two_models(api)
    bad = [
        [{"model": "gpt-4.1", "input": "3"}, {"model": "gpt-4", "input": "3"}],
        [{"model": "gpt-4.1", "input": "3"}, {"model": "org/other", "input": "cheap"}],
        [{"model": "gpt-4.1", "input": "3"}, {"model": "gpt-4.1", "input": "4"}],
        [{"model": "gpt-4.1", "colour": "3"}],
    ]
    for rows in bad:
        status, _, told = api.refused("POST", PRICES, {"prices": rows})
        assert status == 400 and told.startswith("row ")
    for table in ("", "input\n3\n", "model,colour\ngpt-4.1,3\n", "model,input\ngpt-4.1\n"):
        assert api.ask("POST", PRICES, table, **{"Content-Type": "text/csv"}).status == 400
    assert api.get("/api/admin/models/gpt-4.1").json["price"]["input"] == "2"


def test_the_system_says_plainly_that_the_ops_port_does_not_answer(serve, db):
    hub = serve(ops={"port": free_port(), "token": "secret-of-ops"})
    api = script(hub, db)
    told = api.get("/api/admin/system")
    assert told.status == 200 and told.json["workers"] == []
    assert "does not answer" in told.json["problem"]
    assert told.json["store"]["kind"] == "sqlite" and told.json["store"]["pending_migrations"] == []
    settings = {one["name"]: one for one in told.json["settings"]}
    assert settings["ops.token"]["value"] == "***" and "secret-of-ops" not in told.text
    assert settings["server.port"]["origin"] == "default"
    assert api.call("POST", "/api/admin/system/drain").status == 503


def test_an_ops_port_that_is_switched_off_is_named(serve, db):
    told = script(serve(ops={"enabled": False}), db).get("/api/admin/system").json
    assert told["problem"] == "the ops port is switched off (ops.enabled)"


def test_the_charts_are_of_recorded_calls(boss, api, db):
    empty = api.get("/api/admin/system").json["hours"]
    assert len(empty) == 24 and not any(one["calls"] for one in empty)
    assert all(one["first_byte_p50_ms"] is None for one in empty)
    assert boss.get("/admin/system").status == 200
    put(db, *(call(db, number, minutes_ago=65) for number in range(20)))
    others = (failed(db, 21), failed(db, 22, outcome="refused"), call(db, 23, "boss"))
    put(db, *others, call(db, 24, minutes_ago=25 * 60))
    hours = api.get("/api/admin/system").json["hours"]
    assert sum(one["calls"] for one in hours) == 23
    assert sum(one["failed"] for one in hours) == sum(one["refused"] for one in hours) == 1
    [streams] = [one for one in hours if one["calls"] >= 20]
    assert streams["first_byte_p50_ms"] == 300  # the middle of its bucket
    text = boss.get("/admin/system").text
    assert text.count('class="chart"') == 3
    assert re.search(r"UTC: 2\d calls", text) and "UTC: 0.30 s" in text
    assert f"/admin/usage?{urlencode({'since': streams['at']})}" in text
    since = api.get("/api/admin/system").json["store"]["records_since"]
    assert since.endswith("T00:00:00.000Z") and f"since {since[:10]} (UTC)" in text


def test_settings_are_found_by_their_names(boss):
    def found(query):
        text = boss.get(f"/admin/system?{query}").text.partition("Configuration in force")[2]
        return re.findall(r"<td><code>([a-z]+\.[a-z0-9_]+)</code></td>", text)

    assert found("") == found("find=no-such") == []
    every = found("settings=all")
    assert "server.port" in every and "hub.port" in every
    ports = found("settings=all&find=.PORT")
    assert ports and ports == [name for name in every if ".port" in name]
