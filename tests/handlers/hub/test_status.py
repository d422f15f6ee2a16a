"""Channel status as JSON and as a page: who sees what, pages and filters, reasons, figures that
match the records."""

import re
from urllib.parse import quote

import pytest

from store.channels.status import DOWN_CALLS
from store.channels.status_sums import fold
from store.db.database import database_ms
from store.hub import own_keys
from store.values.ids import DAY_MS, HOUR_MS
from tests.handlers.hub.overview_world import book, call, edit, text_of, user_id

pytestmark = pytest.mark.usefixtures("world")
LESS = '[[group]]\nname = "coding"\nmodels = ["gpt-5"]\n'
UPSTREAM_NAMES = ("secret-account", "upstream.example", "up-5")


def groups(answer):
    return {group["name"]: group for group in answer.json["groups"]}


def rows(pages, kind):
    return [
        (row["name"], m["model"]) for page in pages for row in page[kind] for m in row["models"]
    ]


def all_pages(browser, query=""):
    """Return all pages of channel status for a query."""
    pages, after = [], ""
    while True:
        answer = browser.get(f"/api/status?{query}{after}")
        assert answer.status == 200
        pages.append(answer.json)
        if answer.json["next"] is None:
            return pages
        after = "&after=" + quote(answer.json["next"], safe="")


# ---- JSON ----------------------------------------------------------------------------------------


def test_a_member_sees_the_models_of_its_groups_after_their_multipliers(alice):
    answer = alice.get("/api/status")
    by_name = groups(answer)
    assert list(by_name) == ["default", "coding"] and by_name["coding"]["multiplier"] == "0.8"
    [model, _] = by_name["coding"]["models"]
    assert (model["model"], model["state"]) == ("gpt-5", "available")
    assert (model["prices"]["input"], model["prices"]["cache_read"]) == ("1", "0.1")
    assert model["entries"]["chat_completions"] == "native"
    for path in ("/api/status", "/status"):
        assert alice.get(f"{path}?group=hidden").status == 404
        shown = alice.get(path)
        assert shown.status == 200 and not any(name in shown.text for name in UPSTREAM_NAMES)
    answer = alice.get("/api/status?after=channel//")  # a cursor does not reveal channels either
    assert answer.json == {"groups": [], "next": None}


RATES = """
[[model]]
name = "gpt-5"
price = { input = "1.25", output = "10", call = "0", cache_read = "0.125", web_search = "0.01" }
rate = [
  { when = { tier = "flex" }, factor = "0.5" },
  { when = { input_over = 272000 }, input = "2.5", output = "15", output_image = "60" },
]
"""


def test_all_prices_and_rates_are_shown_after_the_multiplier(alice, db, tmp_path):
    edit(db, tmp_path, RATES)
    [model] = groups(alice.get("/api/status?group=coding&model=gpt-5"))["coding"]["models"]
    assert (model["prices"]["input"], model["prices"]["web_search"]) == ("1", "0.008")
    flex, long = model["rates"]
    assert flex["when"] == {"tier": "flex"} and long["when"] == {"input_over": 272_000}
    assert [flex["prices"][name] for name in ("input", "web_search")] == ["0.5", "0.008"]
    assert (long["prices"]["cache_read"], long["prices"]["output_image"]) == ("2", "48")
    badge = '<span class="badge" title="tier flex; input over 272,000">+2</span>'
    assert badge in alice.get("/models?group=coding").text


def test_administrators_see_all_groups_and_channels(boss):
    answer = boss.get("/api/status")
    assert list(groups(answer)) == ["default", "coding", "hidden"]
    assert [channel["name"] for channel in answer.json["channels"]] == ["secret-account"]
    one = boss.get("/api/status?group=hidden&model=gpt-5").json
    assert [len(group["models"]) for group in one["groups"]] == [1]
    assert [len(channel["models"]) for channel in one["channels"]] == [1]


def test_status_goes_page_by_page_through_groups_and_channels(boss):
    whole = boss.get("/api/status").json
    assert whole["next"] is None
    for limit in (1, 4, 7):
        pages = all_pages(boss, f"limit={limit}")
        for kind, count in (("groups", 6), ("channels", 2)):
            assert rows(pages, kind) == rows([whole], kind) and len(rows(pages, kind)) == count
        sizes = [len(rows([page], "groups")) + len(rows([page], "channels")) for page in pages]
        assert sizes[:-1] == [limit] * (len(sizes) - 1) and 0 < sizes[-1] <= limit


def test_status_has_the_filters_of_its_page(alice, boss, db):
    book(db, *(call(db, outcome="upstream_error") for _ in range(DOWN_CALLS)))

    def offered(browser, query, kind="groups"):
        return rows([browser.get(f"/api/status?{query}").json], kind)

    both = [("default", "gpt-5"), ("default", "gpt-5-mini")]
    assert offered(alice, "text=MINI") == [("default", "gpt-5-mini"), ("coding", "gpt-5-mini")]
    assert ("coding", "gpt-5") in offered(alice, "state=down")
    assert offered(boss, "state=disabled", "channels") == []
    assert offered(boss, "entry=chat_completions&group=default") == both
    pages = all_pages(alice, "text=nothing&limit=1")  # listed, but empty
    assert [[group["name"] for group in page["groups"]] for page in pages] == [
        ["default"],
        ["coding"],
    ]


def test_a_page_of_status_that_cannot_be(alice):
    for query in ("state=asleep", "entry=telnet", "limit=201", "after=group/hidden/gpt-5"):
        answer = alice.get(f"/api/status?{query}")
        assert (answer.status, answer.json["error"]["field"]) == (400, query.partition("=")[0])


def test_a_model_that_is_not_offered_says_why(alice, db, tmp_path):
    edit(db, tmp_path, LESS)
    by_name = groups(alice.get("/api/status?model=gpt-5-mini"))
    why = {"code": "other_group", "nearest": ["gpt-5"], "elsewhere": ["default"]}
    assert by_name["coding"]["why"] == why and by_name["default"]["why"]["code"] == "callable"
    text = text_of(alice.get("/status?group=coding"))
    assert "gpt-5 Available" in text and "1.000 8.000" in text and "0.100" in text
    assert "Not in coding" in text and "In default at ×1: in 0.250, out 2.000" in text


def test_uptime_counts_the_calls_of_each_hour_and_day(alice, db):
    book(db, call(db), call(db, outcome="upstream_error"))
    book(db, *(call(db, ago_ms=3 * HOUR_MS) for _ in range(2)), call(db, ago_ms=2 * DAY_MS))
    while fold(db, database_ms(db) // 1000):
        pass
    [model] = groups(alice.get("/api/status?group=coding&model=gpt-5"))["coding"]["models"]
    hours, days = model["hours"], model["days"]
    assert (len(hours["ok"]), len(days["ok"])) == (24, 30)
    assert (hours["ok"][-1], hours["failed"][-1], hours["ok"][-4]) == (1, 1, 2)
    assert model["windows"]["24h"]["calls"] == 4 and days["ok"][-3] == 1
    bars = re.findall(r'data-bars="([^"]*)"', alice.get("/status?text=gpt-5&group=coding").text)
    assert bars[0].split(",")[-3:] == ["1/0/0", "0/0/0", "3/1/0"]


# ---- the page ------------------------------------------------------------------------------------


def test_a_model_that_is_down_says_since_when_and_why(alice, db):
    book(db, *(call(db, outcome="upstream_error") for _ in range(DOWN_CALLS)))
    text = text_of(alice.get("/status?group=coding"))
    assert "gpt-5 Down" in text and "Down in coding since" in text and "Failed calls" in text
    failed = f"{DOWN_CALLS} of {DOWN_CALLS} calls failed in the last 24 h"
    assert f"{failed}; last error: Upstream failed." in text


def test_filters(alice):
    for query, there in (
        ("text=MINI", "gpt-5-mini"),
        ("text=gpt-6", "There is no model named gpt-6. Nearest: gpt-5"),
        ("group=default&after=gpt-5", "gpt-5-mini Available"),
    ):
        text = text_of(alice.get(f"/status?{query}"))
        assert there in text and "gpt-5 Available" not in text


def test_names_that_were_asked_for_and_are_not_offered(alice, carol, db, tmp_path):
    edit(db, tmp_path, LESS + '[[key]]\nuser = "alice"\nname = "laptop"\ngroup = "coding"\n')
    [key] = own_keys.owned(db, user_id(db, "alice"), 0)
    own = {"key_id": key.id, "outcome": "refused", "attempts": (), "charges": (), "cost_nanos": 0}
    own |= {"error_code": "model_not_found"}
    book(db, *(call(db, model="gpt-5.5", **own) for _ in range(3)))
    book(db, call(db, model="up-5", **own), call(db, model="gpt-5-mini", **own))
    book(db, call(db, model="gpt-5", **own), call(db, user="carol", model="secret", **own))
    text = text_of(alice.get("/status"))
    assert "gpt-5.5 laptop in coding 3" in text and "No model of this name gpt-5" in text
    assert "An upstream name; use the public one gpt-5" in text
    assert "Not in group coding; offered in default" in text and "secret" not in text
    assert "not offered" not in text_of(carol.get("/status"))
