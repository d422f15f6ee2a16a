"""The audit log: who changed what, from where, with the states before and after; it can be read
and exported, never changed."""

import csv
import io
import json
import re
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from handlers.hub.web import exports
from handlers.hub.web.strings import strings
from store.db import audit

AUDIT = "/api/admin/audit"


def test_a_line_has_actor_address_and_both_states(api, boss):
    api.create("groups", {"name": "coding"})
    api.call("PATCH", "/api/admin/groups/coding", {"multiplier": "3"})
    api.call("POST", "/api/admin/users/alice/credit", {"amount": "1", "reason": "x"})
    [update, create] = api.listed(f"{AUDIT}?kind=group&name=coding")
    assert (update["actor"], update["address"], update["action"]) == ("boss", "127.0.0.1", "update")
    assert (update["before"], update["after"]) == ({"multiplier": "1"}, {"multiplier": "3"})
    assert create["before"] is None and create["after"]["models"] == ["*"]
    assert {row["kind"] for row in api.listed(f"{AUDIT}?actor=boss")} >= {"group", "wallet"}
    assert {row["address"] for row in api.listed(f"{AUDIT}?actor=tester")} == {None}
    for since in ("2040-01-01T00:00:00Z", "2040-01-01"):
        assert api.listed(f"{AUDIT}?since={since}") == []
    assert api.refused("GET", f"{AUDIT}?since=soon")[:2] == (400, "since")
    text = boss.get("/admin/audit?kind=group&name=coding").text
    assert "1 → <ins>3</ins>" in text and "127.0.0.1" in text and "boss" in text
    assert "No line matches." in boss.get("/admin/audit?actor=nobody").text


def test_the_log_comes_page_by_page_and_cannot_be_changed(api):
    api.create("groups", *({"name": f"g{number}"} for number in range(3)))
    everything = api.listed(AUDIT)
    first = api.get(f"{AUDIT}?limit=2").json
    rest = api.get(f"{AUDIT}?after={first['next']}").json
    assert len(first["items"]) == 2 and first["items"] + rest["items"] == everything
    assert rest["next"] is None
    for method in ("POST", "PATCH", "DELETE"):
        assert api.call(method, AUDIT, {}).status == 405


def test_the_log_is_exported_whole_by_its_filter(api, boss, monkeypatch):
    monkeypatch.setattr(audit, "PAGE_ROWS", 2)
    monkeypatch.setattr(exports, "PIECE_ROWS", 3)
    api.create("groups", *({"name": f"g{number}", "models": []} for number in range(7)))
    api.call("PATCH", "/api/admin/groups/g0", {"multiplier": "3"})
    api.call("POST", "/api/admin/users/alice/credit", {"amount": "1", "reason": "x"})
    place = f"{AUDIT}/export"
    listed = api.listed(f"{AUDIT}?kind=group&actor=boss")
    assert len(listed) == 8
    answer = api.get(f"{place}?kind=group&actor=boss")
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    assert [json.loads(line) for line in answer.text.splitlines()] == listed
    answer = api.get(f"{place}?kind=group&actor=boss&format=csv")
    assert 'filename="audit.csv"' in answer.headers["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["id"] for row in rows] == [line["id"] for line in listed]
    assert json.loads(rows[0]["after"]) == {"multiplier": "3"} and rows[1]["before"] == ""
    everything = api.get(place).text
    assert len(everything.splitlines()) == len(api.listed(f"{AUDIT}?limit=500"))
    assert api.get(f"{place}?actor=nobody").text == ""
    assert api.refused("GET", f"{place}?format=xml")[:2] == (400, "format")
    assert api.refused("GET", f"{place}?since=soon")[:2] == (400, "since")
    link = f"{place}?kind=group&amp;name=g0&amp;format=csv"
    assert link in boss.get("/admin/audit?kind=group&name=g0").text


def test_a_command_is_in_words_on_the_page_and_as_stored_elsewhere(db, api, boss):
    audit.write(db, audit.Act("cli:root", "update", "group", "coding", {"rpm": 1}, {"rpm": 2}))
    for actor in ("cli:root", "root (command line)"):
        page = boss.get("/admin/audit?actor=" + quote(actor)).text
        assert page.count('<tr class="row"') == 1 and ">root (command line)</a>" in page
        assert 'name="actor" value="root (command line)"' in page
        assert "export?actor=cli%3Aroot&amp;format=csv" in page
    boss.cookies["language"] = "zh"
    page = boss.get("/admin/audit?kind=group&name=coding").text
    assert '<option value="group" selected>分组</option>' in page and "root（命令行）" in page
    assert [row["actor"] for row in api.listed(f"{AUDIT}?actor=cli:root")] == ["cli:root"]
    assert "cli:root" in api.get(f"{AUDIT}/export?actor=cli:root&format=csv").text


def test_every_action_and_its_kind_has_a_word():
    root, acts = Path(audit.__file__).parents[2], set()
    for path in chain.from_iterable((root / name).rglob("*.py") for name in ("store", "handlers")):
        acts |= {*re.findall(r'Act\([^,()]+, "(\w+)"(?:, "([\w -]+)")?', path.read_text("utf-8"))}
    names = {
        f"admin.{part}_{word}"
        for act in acts
        for part, word in zip(("act", "kind"), act, strict=True)
    }
    assert len(acts) > 20 and names - {"admin.kind_"} <= strings("en").keys()
