"""The JSON API of channel status: who sees what, pages and filters, figures beside the records."""

import json
from urllib.parse import quote

import pytest

from store.channels.status import DOWN_CALLS
from store.channels.status_sums import fold
from store.db.database import database_ms
from store.hub import membership
from store.values.ids import DAY_MS, HOUR_MS
from tests.handlers.hub.overview_world import book, call, edit, user_id


@pytest.fixture
def db(db, tmp_path):
    edit(db, tmp_path)
    return db


def groups(answer):
    return {group["name"]: group for group in answer.json["groups"]}


def test_a_member_sees_the_models_of_its_groups_after_their_multipliers(alice):
    answer = alice.get("/api/status")
    found = groups(answer)
    assert list(found) == ["default", "coding"] and found["coding"]["multiplier"] == "0.8"
    [model, _] = found["coding"]["models"]
    assert model["model"] == "gpt-5" and model["state"] == "available"
    assert model["prices"]["input"] == "1" and model["prices"]["cache_read"] == "0.1"
    assert model["entries"]["chat_completions"] == "native"
    assert "secret-account" not in answer.text and "upstream" not in answer.text


def test_administrators_see_all_groups_and_channels(boss):
    answer = boss.get("/api/status")
    assert list(groups(answer)) == ["default", "coding", "hidden"]
    assert [one["name"] for one in answer.json["channels"]] == ["secret-account"]
    one = boss.get("/api/status?group=hidden&model=gpt-5").json
    assert [len(group["models"]) for group in one["groups"]] == [1]
    assert [len(channel["models"]) for channel in one["channels"]] == [1]


def pages(browser, query=""):
    """All pages of channel status that a query asks for."""
    found, after = [], ""
    while True:
        answer = browser.get(f"/api/status?{query}{after}")
        assert answer.status == 200
        found.append(answer.json)
        if answer.json["next"] is None:
            return found
        after = "&after=" + quote(answer.json["next"], safe="")


def rows(found, kind):
    return [
        (one["name"], m["model"]) for page in found for one in page[kind] for m in one["models"]
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 200])
def test_status_goes_page_by_page_through_groups_and_channels(boss, limit):
    found = pages(boss, f"limit={limit}")
    whole = boss.get("/api/status").json
    assert whole["next"] is None
    assert rows(found, "groups") == rows([whole], "groups")
    assert rows(found, "channels") == rows([whole], "channels")
    assert len(rows([whole], "groups")) == 6 and len(rows([whole], "channels")) == 2
    sizes = [len(rows([page], "groups")) + len(rows([page], "channels")) for page in found]
    assert sizes[:-1] == [limit] * (len(sizes) - 1) and 0 < sizes[-1] <= limit


def test_a_page_of_status_is_small(alice, db, tmp_path):
    names = [f"many-{number:03}" for number in range(120)]
    made = "".join(
        f'[[model]]\nname = "{one}"\nprice = {{ input = "1", output = "2" }}\n' for one in names
    )
    edit(db, tmp_path, made + f'[[group]]\nname = "default"\nmodels = {json.dumps(names)}\n')
    answer = alice.get("/api/status?group=default")
    assert answer.json["next"] and len(answer.text) < 150_000
    assert rows(pages(alice, "group=default"), "groups") == [("default", one) for one in names]


def test_status_has_the_filters_of_its_page(alice, boss, db):
    book(db, *(call(db, outcome="upstream_error") for _ in range(DOWN_CALLS)))
    assert rows([alice.get("/api/status?text=MINI").json], "groups") == [
        *(("default", "gpt-5-mini"), ("coding", "gpt-5-mini"))
    ]
    assert ("coding", "gpt-5") in rows([alice.get("/api/status?state=down").json], "groups")
    assert ("coding", "gpt-5") not in rows(
        [alice.get("/api/status?state=available").json], "groups"
    )
    assert rows([boss.get("/api/status?state=disabled").json], "channels") == []
    found = boss.get("/api/status?entry=chat_completions&group=default").json
    assert rows([found], "groups") == [("default", "gpt-5"), ("default", "gpt-5-mini")]


def test_a_group_without_a_fitting_model_is_told(alice):
    [default, coding] = alice.get("/api/status?text=nothing").json["groups"]
    assert (default["name"], default["models"], coding["models"]) == ("default", [], [])
    assert [len(page["groups"]) for page in pages(alice, "text=nothing&limit=1")] == [1, 1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        *(("state=asleep", "state"), ("entry=telnet", "entry"), ("limit=201", "limit")),
        *(("after=nothing", "after"), ("after=group/hidden/gpt-5", "after")),
        ("after=group/coding", "after"),
    ],
)
def test_a_page_of_status_that_cannot_be(alice, query, field):
    answer = alice.get(f"/api/status?{query}")
    assert (answer.status, answer.json["error"]["field"]) == (400, field)


def test_members_get_no_channels_by_a_cursor(alice):
    answer = alice.get("/api/status?after=channel//")
    assert answer.json == {"groups": [], "next": None}


def test_a_group_of_others_is_not_there(alice):
    assert alice.get("/api/status?group=hidden").status == 404
    assert alice.get("/api/status?group=nothing").json["error"]["code"] == "not_found"


def test_a_model_that_is_not_offered_says_why(alice, db, tmp_path):
    edit(db, tmp_path, '[[group]]\nname = "coding"\nmodels = ["gpt-5"]\n')
    found = groups(alice.get("/api/status?model=gpt-5-mini"))
    why = {"code": "other_group", "nearest": ["gpt-5"], "elsewhere": ["default"]}
    assert found["coding"]["why"] == why and found["default"]["why"]["code"] == "callable"
    found = groups(alice.get("/api/status?group=coding&model=up-5"))
    assert found["coding"]["why"]["nearest"] == ["gpt-5"]


def test_uptime_counts_the_calls_of_each_hour_and_day(alice, db):
    book(db, call(db), call(db, outcome="upstream_error"))
    book(db, *(call(db, ago_ms=3 * HOUR_MS) for _ in range(2)), call(db, ago_ms=2 * DAY_MS))
    while fold(db, database_ms(db) // 1000):
        pass
    [model] = groups(alice.get("/api/status?group=coding&model=gpt-5"))["coding"]["models"]
    hours, days = model["hours"], model["days"]
    assert (len(hours["ok"]), len(days["ok"])) == (24, 30)
    assert (hours["ok"][-1], hours["failed"][-1], hours["ok"][-4]) == (1, 1, 2)
    assert sum(hours["ok"]) == 3 and sum(days["ok"]) == 4 and days["ok"][-3] == 1
    assert model["windows"]["24h"]["calls"] == 4


def test_groups_are_those_allowed_and_those_of_living_keys(db, tmp_path):
    alice, carol = user_id(db, "alice"), user_id(db, "carol")
    assert membership.groups_of(db, alice, admin=False) == ["default", "coding"]
    assert membership.groups_of(db, carol, admin=False) == ["default"]
    edit(db, tmp_path, '[[key]]\nuser = "carol"\nname = "k"\ngroup = "hidden"\n')
    assert membership.groups_of(db, carol, admin=False) == ["default", "hidden"]
    assert membership.groups_of(db, carol, admin=True) == ["default", "coding", "hidden"]
