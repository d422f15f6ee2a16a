"""The system page: the ops port, charts of recorded calls, settings, notices."""

import re
from datetime import date
from urllib.parse import urlencode

from handlers.hub.web.zones import day_text
from store.db.nodes import HANGING, Process, note_seen
from store.db.tables.usage import UsageByRate
from store.hub import notices
from store.values.ids import day_at, now_ms
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.script import MODEL, Script
from tests.handlers.hub.usage.calls import call, failed, put
from tests.support.ports import free_port
from tests.support.stores import insert

SYSTEM, NOTICES = "/api/admin/system", "/api/admin/notices"


def test_settings_and_an_ops_port_that_does_not_answer(serve, api, boss):
    script = Script(serve(ops={"port": free_port(), "token": "secret-of-ops"}).port, api.token)
    answer = script.get(SYSTEM)
    state = answer.json
    assert answer.status == 200 and state["workers"] == []
    assert "does not answer" in state["problem"]
    assert state["store"]["kind"] == "sqlite" and state["store"]["pending_migrations"] == []
    settings = {row["name"]: row for row in state["settings"]}
    assert settings["ops.token"]["value"] == "***" and "secret-of-ops" not in answer.text
    assert settings["server.port"]["origin"] == "default"
    assert script.call("POST", f"{SYSTEM}/drain").status == 503
    script = Script(serve(ops={"enabled": False}).port, api.token)
    assert script.get(SYSTEM).json["problem"] == "the ops port is switched off (ops.enabled)"

    def names(query):
        text = boss.get(f"/admin/system?{query}").text.partition("Configuration in force")[2]
        return re.findall(r"<td><code>([a-z]+\.[a-z0-9_]+)</code></td>", text)

    assert names("") == names("find=no-such") == []
    every = names("settings=all")
    assert "server.port" in every and "hub.port" in every
    ports = names("settings=all&find=.PORT")
    assert ports and ports == [name for name in every if ".port" in name]


def test_the_charts_are_of_recorded_calls(boss, api, db):
    empty = api.get(SYSTEM).json["hours"]
    assert [(hour["calls"], hour["first_byte_p50_ms"]) for hour in empty] == [(0, None)] * 24
    put(db, *(call(db, number, minutes_ago=65) for number in range(20)))
    failures = (failed(db, 21), failed(db, 22, outcome="refused"), call(db, 23, "boss"))
    put(db, *failures, call(db, 24, minutes_ago=25 * 60))
    hours = api.get(SYSTEM).json["hours"]
    sums = [sum(hour[name] for hour in hours) for name in ("calls", "failed", "refused")]
    assert sums == [23, 1, 1]
    [streams] = [hour for hour in hours if hour["calls"] >= 20]
    assert streams["first_byte_p50_ms"] == 300  # the middle of its bucket
    text = boss.get("/admin/system").text
    assert text.count('class="chart"') == 3
    assert re.search(r"UTC: 2\d calls", text) and "UTC: 0.30 s" in text
    assert f"/admin/usage?{urlencode({'since': streams['at']})}" in text
    since = api.get(SYSTEM).json["store"]["records_since"]
    day = date.fromisoformat(since[:10])
    assert since.endswith("T00:00:00.000Z") and f"since {day_text(day, 'en')} (UTC)" in text


def test_uses_without_a_price_are_named_until_there_is_one(boss, api, db):
    api.create("models", MODEL)
    assert "without a price" not in boss.get("/admin/system").text
    row = {"day": day_at(now_ms()), "model": "gpt-4.1", "rate": "", "meter": "maps", "uses": 3}
    UsageByRate.insert(row).execute(db)
    assert api.get(SYSTEM).json["unpriced"] == [{"model": "gpt-4.1", "meter": "maps", "count": 3}]
    text = boss.get("/admin/system").text
    assert "Used without a price in the last 7 days." in text
    assert '<a href="/admin/models/gpt-4.1"><code>gpt-4.1</code></a>: <code>maps</code> × 3' in text
    change = {"price": {**MODEL["price"], "maps": "0.01"}}
    assert api.call("PATCH", "/api/admin/models/gpt-4.1", change).status == 200
    assert api.get(SYSTEM).json["unpriced"] == []


def test_a_notice_is_shown_from_since_to_until(api, alice, boss):
    body = {"text": "Maintenance <tonight>", "level": "warning", "until": "2040-01-01T00:00:00Z"}
    notice = api.create("notices", body)
    api.create("notices", {"text": "Later", "since": "2039-01-01T00:00:00Z"})
    assert alice.get("/api/notices").json["items"] == [notice]
    assert notice["text"] == "Maintenance <tonight>" and len(api.listed(NOTICES)) == 2
    assert api.call("DELETE", f"{NOTICES}/{notice['id']}").status == 204
    assert api.refused("DELETE", f"{NOTICES}/{notice['id']}")[0] == 404
    assert api.refused("POST", NOTICES, {"text": "x", "level": "loud"})[:2] == (400, "level")
    # on the page
    place = "/admin/system/notices"
    boss.get("/admin/system")
    assert boss.send(place, [("text", ""), ("level", "info")]).status == 400
    fields = [("text", "Back at noon"), ("level", "warning"), ("until", "2040-01-01")]
    assert boss.send(place, fields).status == 303
    assert alice.get("/").text.count("Back at noon") == 1  # home has its own place for notices
    [notice] = alice.get("/api/notices").json["items"]
    assert (notice["text"], notice["until"]) == ("Back at noon", "2040-01-01T00:00:00.000Z")
    boss.get("/admin/system")
    assert boss.send(place, [("remove", notice["id"])]).status == 303
    assert alice.get("/api/notices").json["items"] == []


def test_a_warning_is_shown_on_every_page_and_a_note_on_home(serve, db):
    notices.create(db, {"text": "Moving tonight", "level": "warning"}, "tester")
    notices.create(db, {"text": "New models"}, "tester")
    alice = Browser(serve().port).signed_in("alice")
    text = alice.get("/account").text
    assert text.count("Moving tonight") == 1 and "New models" not in text
    text = alice.get("/").text
    assert text.count("Moving tonight") == text.count("New models") == 1
    assert "Moving tonight" not in Browser(alice.port).get("/sign-in").text


def test_a_worker_that_hangs_is_a_banner_on_all_pages_of_administrators(db, serve, api):
    insert(db, "journals", id="a", node="web-1", offset=0, opened_ms=1, finished_ms=None)
    note_seen(db, "web-1", "a", Process("1.0", 0, HANGING))
    hub = serve()
    for path in ("/", "/keys", "/admin/channels"):
        assert "Node web-1: 1 worker does not answer." in hub.signed_in("boss").get(path).text
    assert "web-1" not in hub.signed_in("alice").get("/keys").text
    [node] = api.get(SYSTEM).json["store"]["nodes"]
    assert (node["name"], node["hanging"]) == ("web-1", 1)
