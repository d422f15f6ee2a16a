"""Home: figures beside the records, what needs its user, the way to the first call."""

import re

import pytest

from store.catalog.wrong_paths import Noticed, add
from store.channels.status import DOWN_CALLS
from store.db.database import database_ms, execute, transaction
from store.hub import own_keys
from store.money import wallet
from store.money.accounts import quota_at
from store.values.ids import DAY_MS, HOUR_MS
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.overview_world import book, call, edit, user_id
from tests.handlers.hub.test_status_page import text_of

KEY = (
    '[[key]]\nuser = "alice"\nname = "laptop"\ngroup = "coding"\nlimit = "5"\n'
    'limit_window = "month"\n'
)


@pytest.fixture
def db(db, tmp_path):
    edit(db, tmp_path)
    return db


@pytest.fixture
def key(db, tmp_path):
    edit(db, tmp_path, KEY)
    [key] = own_keys.owned(db, user_id(db, "alice"), 0)
    return key


def test_before_the_first_call_it_says_what_to_do(alice):
    answer = alice.get("/")
    said = text_of(answer)
    assert "Three steps to your first answer" in said and "New key" in said
    assert "No calls yet" in said and "10.0000 USD" in said
    assert "$SLUICE_API_KEY&quot;" in answer.text and "gpt-5 " in said


def test_a_key_is_the_first_step_and_its_group_is_offered(alice, key):
    said = text_of(alice.get("/"))
    assert "laptop in group coding" in said and "in group coding." in said
    assert "1.000 8.000" in said  # after the multiplier


def test_without_money_the_first_call_is_not_promised(alice, hub, db):
    assert "are refused" not in alice.get("/").text
    said = text_of(Browser(hub.port).signed_in("boss").get("/"))
    assert "Balance 0 USD. Calls that cost more are refused. Redeem a code" in said


def test_without_models_there_is_no_command(hub, db, tmp_path):
    edit(db, tmp_path, '[[user]]\nname = "carol"\ngroups = []\n')
    said = text_of(Browser(hub.port).signed_in("carol").get("/"))
    assert "You are in no group" in said and "curl" not in said


def test_figures_are_those_of_the_records(alice, hub, db):
    book(
        db,
        *(call(db) for _ in range(3)),
        call(db, outcome="refused", error_code="rate_limit_exceeded", cost_nanos=0, charges=()),
        call(db, outcome="upstream_error", cost_nanos=0, charges=()),
        call(db, outcome="client_gone", cost_nanos=0, charges=()),
        call(db, ago_ms=2 * DAY_MS),
        call(db, user="carol", cost_nanos=7 * 10**9),
    )
    said = text_of(alice.get("/"))
    assert "Calls, 24 h 6 1 failed, 1 refused" in said
    assert "Success 60.00 % 7 days: 66.67 %" in said
    assert "9.6000 USD" in said and "7.0000" not in said
    today = sum(10**8 for _ in range(3))
    assert wallet.show(db, "alice").balance_nanos == 10**10 - today - 10**8


def test_the_first_byte_is_that_of_enough_streams(alice, db):
    book(db, *(call(db, ttft_ms=150) for _ in range(19)))
    assert "Fewer than 20 streams" in alice.get("/").text
    book(db, call(db, ttft_ms=150))
    said = text_of(alice.get("/"))
    assert "First byte, p50 0.15 s p95 0.20 s" in said


def test_yesterday_counts_up_to_this_time(alice, db):
    book(db, call(db), call(db, ago_ms=DAY_MS - 60_000), call(db, ago_ms=DAY_MS + 60_000))
    said = text_of(alice.get("/"))
    begun_today = database_ms(db) % DAY_MS
    expected = "0.1000" if begun_today > 60_000 else "0"
    assert re.search(rf"Yesterday by \d\d\d\d-\d\d-\d\d \d\d:\d\d UTC : {expected}", said)


def test_the_latest_failures_and_by_whom(alice, db, key):
    own = {"key_id": key.id, "key_name": "laptop"}
    book(db, *(call(db, ago_ms=HOUR_MS, **own) for _ in range(9)))
    book(db, call(db, outcome="timeout", status=504, error_code="upstream_timeout", **own))
    said = text_of(alice.get("/"))
    assert "Timeout 504 gpt-5 /v1/chat/completions laptop" in said
    assert "All 1 of the last 24 hours" in said and "laptop coding" in said


def test_what_needs_its_user(alice, hub, db, key):
    own = {"key_id": key.id, "key_name": "laptop"}
    book(db, *(call(db, outcome="upstream_error", **own) for _ in range(DOWN_CALLS)))
    asked = {"outcome": "refused", "error_code": "model_not_found", "attempts": ()}
    book(db, call(db, model="gpt-5.5", **asked, **own))
    now_ms = database_ms(db)
    account, ends_ms = quota_at(key.id, "month", now_ms)
    spent = (account, 45 * 10**8, ends_ms)
    insert = 'INSERT INTO "quotas" ("account", "spent", "ends_ms") VALUES (?, ?, ?)'
    transaction(db, lambda: execute(db, insert, spent))
    path = "/v1/v1/chat/completions"
    add(db, [Noticed(key.id, "POST", path, 14, now_ms, now_ms, "192.0.2.1", "test/1")])
    said = text_of(alice.get("/"))
    assert "gpt-5 is down in coding Since" in said
    assert "Key laptop: wrong base URL" in said and f"14 calls to {path}" in said
    assert "Key laptop has used 4.50 of 5.00" in said
    assert "gpt-5.5 is not offered Requested 1 times by laptop; try gpt-5" in said
    book(db, call(db, user="carol"))
    other = text_of(Browser(hub.port).signed_in("carol").get("/"))
    assert "Nothing needs attention" in other and "laptop" not in other


def test_a_low_balance_is_told(alice, db):
    book(db, *(call(db, ago_ms=DAY_MS, charges=(), cost_nanos=0) for _ in range(2)))
    assert "Redeem a code" not in alice.get("/").text
    wallet.debit(db, "alice", wallet.Movement(10**10, "spent elsewhere"))
    assert "Balance 0 USD. Calls that cost more are refused. Redeem a code" in text_of(
        alice.get("/")
    )


def test_scripts_are_told_what_to_do_before_the_first_call(alice, key):
    found = alice.get("/api/home").json
    assert found["calls"] is None and found["wallet"]["balance"] == "10"
    first = found["first_call"]
    assert (first["key"], first["group"]) == ("laptop", "coding")
    assert first["models"][0] == "gpt-5" and "curl" in first["command"]


def test_scripts_see_the_figures_of_the_page(alice, hub, db, key):
    own = {"key_id": key.id, "key_name": "laptop"}
    book(db, call(db, user="carol", model="gpt-5-mini"))
    book(db, *(call(db, model="gpt-5-mini", **own) for _ in range(3)))
    failed = {"outcome": "upstream_error", "cost_nanos": 0, "charges": ()}
    book(db, *(call(db, **failed, **own) for _ in range(DOWN_CALLS)))
    answer = alice.get("/api/home")
    found, calls = answer.json, answer.json["calls"]
    assert found["first_call"] is None and found["notices"] == []
    assert (calls["calls"], calls["ok"], calls["failed"]) == (3 + DOWN_CALLS, 3, DOWN_CALLS)
    assert calls["success"] == round(3 / (3 + DOWN_CALLS), 6) == calls["success_7d"]
    assert len(calls["hours"]) == 24 and sum(one["ok"] for one in calls["hours"]) == 3
    dearest, [by_key] = calls["models"][0], calls["keys"]
    assert (dearest["model"], dearest["cost"], dearest["calls"]) == ("gpt-5-mini", "0.3", 3)
    assert (by_key["key_id"], by_key["key_name"]) == (key.id, "laptop")
    assert {one["error_code"] for one in calls["failures"]} == {"upstream_error"}
    assert found["wallet"]["spent_today"]["cost"] == "0.3"
    [need] = found["needs"]
    assert (need["need"], need["model"], need["group"]) == ("down", "gpt-5", "coding")
    assert need["page"].startswith("/status?") and need["since"].endswith("Z")
    assert "secret-account" not in answer.text and "upstream.example" not in answer.text
    assert Browser(hub.port).get("/api/home").status == 401
