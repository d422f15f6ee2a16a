"""Users whose names are also words in paths and enumerations."""

import html
import re
from urllib.parse import quote

import pytest

from tests.handlers.hub.usage.calls import call, put

NAMES = (
    *("all", "mine", "me", "none", "new", "keys", "edit", "draft", "gateway", "rest", "0", "null"),
    *("carol/statement", "statement.csv", "a b", "a+b", "50%", "q?x=1&of=all#top", "%2F"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_user_of_any_name_has_pages_calls_and_switches(boss, api, db, name):
    api.create("users", {"name": name})
    put(db, call(db, 1, user=name))
    listed = boss.get("/admin/users").text
    links = [html.unescape(link) for link in re.findall(r'href="(/admin/users/[^"?#]+)"', listed)]
    [place] = {link for link in links if link not in ("/admin/users/alice", "/admin/users/boss")}
    for ending in ("", "/edit", "/statement", "/statement.csv", "/credit", "/reset", "/remove"):
        answer = boss.get(place + ending)
        assert answer.status == 200, (place + ending, answer.status)
        if not ending.endswith(("csv", "statement")):
            assert name in html.unescape(answer.text)
    assert boss.send(f"{place}/disable", []).status == 303
    api_place = f"/api/admin/users/{quote(name, safe='')}"
    assert api.call("GET", api_place).json["enabled"] is False
    assert api.call("PATCH", api_place, {"enabled": True}).json["name"] == name
    usage = re.search(r'href="(/admin/usage\?user=[^"&]*)"', boss.get(place).text)[1]
    [row] = set(re.findall(r'data-id="([^"]+)"', boss.get(html.unescape(usage)).text))
    page = boss.get(f"/usage/{row}?of=all").text
    assert place in [html.unescape(link) for link in re.findall(r'href="([^"?#]+)', page)]
    found = api.call("GET", f"/api/find?q={quote(name, safe='')}").json["items"]
    assert any(place == item.get("path") for item in found), found
