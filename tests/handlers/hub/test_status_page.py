"""Channel status as a page: states, prices, reasons, what was asked for and is not offered."""

import re

import pytest

from store.channels.status import DOWN_CALLS
from store.hub import own_keys
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.overview_world import book, call, edit, user_id

KEY = '[[key]]\nuser = "alice"\nname = "laptop"\ngroup = "coding"\n'


@pytest.fixture
def db(db, tmp_path):
    edit(db, tmp_path)
    edit(db, tmp_path, KEY + '[[group]]\nname = "coding"\nmodels = ["gpt-5"]\n')
    return db


@pytest.fixture
def key(db):
    [key] = own_keys.owned(db, user_id(db, "alice"), 0)
    return key


def text_of(answer):
    """What a page says, without its marks."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text))


def test_models_with_prices_after_the_multiplier(alice):
    said = text_of(alice.get("/status?group=coding"))
    assert "gpt-5 Available" in said and "1.000 8.000" in said and "0.100" in said
    assert (
        "Not offered" in said and "Offered to group default at ×1. Create a key in default" in said
    )


def test_no_name_of_a_channel_or_upstream_is_shown(alice, hub):
    boss = Browser(hub.port).signed_in("boss")
    for one in (alice, boss):
        answer = one.get("/status")
        assert answer.status == 200
        assert "secret-account" not in answer.text and "up-5" not in answer.text


def test_a_group_of_others(alice):
    assert alice.get("/status?group=hidden").status == 404
    assert "hidden ×" not in alice.get("/status").text


def test_a_model_that_is_down_says_since_when_and_why(alice, db):
    book(db, *(call(db, outcome="upstream_error") for _ in range(DOWN_CALLS)))
    said = text_of(alice.get("/status?group=coding"))
    assert "gpt-5 Down" in said and "Down in coding since" in said
    assert (
        f"{DOWN_CALLS} of {DOWN_CALLS} calls failed in the last 24 h; last error: Upstream failed."
        in said
    )
    assert "Failed calls" in said and text_of(alice.get("/status?state=down&group=default"))


@pytest.mark.parametrize(
    ("query", "there", "not_there"),
    [
        ("text=MINI", "gpt-5-mini", "gpt-5 Available"),
        ("state=down", "No models match", "gpt-5 Available"),
        ("entry=messages&text=gpt-5", "gpt-5 Available", "No model"),
        ("text=gpt-6", "There is no model named gpt-6. Nearest: gpt-5", "gpt-5 Available"),
        ("group=default&after=gpt-5", "gpt-5-mini Available", "gpt-5 Available"),
    ],
)
def test_filters(alice, query, there, not_there):
    said = text_of(alice.get(f"/status?{query}"))
    assert there in said and not_there not in said


def test_few_calls_make_no_percentile(alice, db):
    book(db, *(call(db) for _ in range(19)))
    assert "0.15" not in alice.get("/status?group=coding").text
    book(db, call(db))
    assert re.search(r"0\.1\d</?", alice.get("/status?group=coding").text)


def test_bars_tell_each_hour(alice, db):
    book(db, call(db), call(db, outcome="upstream_error"))
    [hours, days] = re.findall(r'data-bars="([^"]*)"', alice.get("/status?group=coding").text)
    assert hours.split(",")[-1] == days.split(",")[-1] == "1/1/0"
    assert hours.split(",")[:-1] == ["0/0/0"] * 23


def test_names_that_were_asked_for_and_are_not_offered(alice, hub, db, key):
    own = {"key_id": key.id, "outcome": "refused", "attempts": (), "charges": (), "cost_nanos": 0}
    own |= {"error_code": "model_not_found"}
    book(db, *(call(db, model="gpt-5.5", **own) for _ in range(3)))
    book(db, call(db, model="up-5", **own), call(db, model="gpt-5-mini", **own))
    book(db, call(db, model="gpt-5", **own), call(db, user="carol", model="secret", **own))
    said = text_of(alice.get("/status"))
    assert "gpt-5.5 laptop in coding 3" in said and "No model of this name gpt-5" in said
    assert "An upstream name; use the public one gpt-5" in said
    assert "Not in group coding; offered in default" in said
    assert "secret" not in said
    assert "not offered" not in text_of(Browser(hub.port).signed_in("carol").get("/status"))
