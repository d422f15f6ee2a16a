"""Home: figures that match the records, what its user must do, the path to the first call."""

import re

import pytest

from store.catalog.wrong_paths import Noticed, add
from store.channels.status import DOWN_CALLS
from store.db.database import database_ms, execute, transaction
from store.hub import own_keys
from store.money import wallet
from store.money.accounts import quota_at
from store.values.ids import DAY_MS
from store.values.usage_record import Charge
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.overview_world import book, call, edit, text_of, user_id

pytestmark = pytest.mark.usefixtures("world")
NO_MONEY = "Balance 0 USD. Calls that cost more are refused. Redeem a code"
KEY = (
    '[[key]]\nuser = "alice"\nname = "laptop"\ngroup = "coding"\nlimit = "5"\n'
    'limit_window = "month"\n'
)


@pytest.fixture
def own(db, world, tmp_path):
    """Return the facts of calls with alice's key."""
    edit(db, tmp_path, KEY)
    [key] = own_keys.owned(db, user_id(db, "alice"), 0)
    return {"key_id": key.id, "key_name": "laptop"}


def test_before_the_first_call_it_says_what_to_do(alice, own):
    answer = alice.get("/")
    text = text_of(answer)
    for words in ("Three steps to your first answer", "New key", "No calls yet", "10.0000 USD"):
        assert words in text
    assert "$SLUICE_API_KEY&quot;" in answer.text and "are refused" not in text
    home = alice.get("/api/home").json
    assert home["calls"] is None and home["wallet"]["balance"] == "10"
    first = home["first_call"]
    assert (first["key"], first["group"], first["models"][0]) == ("laptop", "coding", "gpt-5")
    assert "curl" in first["command"]


def test_without_money_or_models_the_first_call_is_not_promised(boss, carol, db, tmp_path):
    assert NO_MONEY in text_of(boss.get("/?of=me"))
    edit(db, tmp_path, '[[user]]\nname = "carol"\ngroups = []\n')
    text = text_of(carol.get("/"))
    assert "You are in no group" in text and "curl" not in text


def test_figures_are_those_of_the_records(alice, db, own):
    free = {"cost_nanos": 0, "charges": ()}
    book(
        db,
        *(call(db, **own) for _ in range(3)),
        call(db, outcome="refused", error_code="rate_limit_exceeded", **free),
        call(db, outcome="timeout", status=504, error_code="upstream_timeout", **free, **own),
        call(db, outcome="client_gone", **free),
        call(db, ago_ms=2 * DAY_MS),
        call(db, user="carol", cost_nanos=7 * 10**9),
    )
    text = text_of(alice.get("/"))
    assert "Calls, 24 h 6 1 failed, 1 refused" in text
    assert "Success 60.00 % 7 days: 66.67 %" in text and "Fewer than 20 streams" in text
    assert "9.6000 USD" in text and "7.0000" not in text
    assert re.search(r"Yesterday by \d\d:\d\d UTC : 0", text)
    assert "Timeout 504 gpt-5 /v1/chat/completions laptop" in text and "laptop coding" in text
    book(db, *(call(db, ttft_ms=150) for _ in range(20)))
    assert "First byte, p50 0.15 s p95 0.20 s" in text_of(alice.get("/"))


def test_what_needs_its_user(alice, carol, db, own):
    book(db, *(call(db, outcome="upstream_error", **own) for _ in range(DOWN_CALLS)))
    refused = {"outcome": "refused", "error_code": "model_not_found", "attempts": ()}
    book(db, call(db, model="gpt-5.5", **refused, **own))
    now_ms = database_ms(db)
    account, ends_ms = quota_at(own["key_id"], "month", now_ms)
    spent = (account, 45 * 10**8, ends_ms)
    insert = 'INSERT INTO "quotas" ("account", "spent", "ends_ms") VALUES (?, ?, ?)'
    transaction(db, lambda: execute(db, insert, spent))
    path = "/v1/v1/chat/completions"
    add(db, [Noticed(own["key_id"], "POST", path, 14, now_ms, now_ms, "192.0.2.1", "test/1")])
    text = text_of(alice.get("/"))
    assert "gpt-5 is down in coding Since" in text
    assert "Key laptop: wrong base URL" in text and f"14 calls to {path}" in text
    assert "Key laptop has used 4.50 of 5.00" in text and NO_MONEY not in text
    assert "gpt-5.5 is not offered Requested 1 time by laptop; try gpt-5" in text
    left = wallet.show(db, "alice").balance_nanos
    wallet.debit(db, "alice", wallet.Movement(left, "spent elsewhere"))
    assert NO_MONEY in text_of(alice.get("/"))
    book(db, call(db, user="carol"))
    others = text_of(carol.get("/"))
    assert "Nothing needs attention" in others and "laptop" not in others


def test_a_balance_that_ends_soon_is_a_notice_before_it_is_empty(alice, db, own):
    nanos = 6 * 10**9
    book(db, call(db, cost_nanos=nanos, charges=(Charge("wallet", nanos),), **own))
    text = text_of(alice.get("/"))
    assert "Balance 4.0000 USD, about less than a day at this rate. Redeem a code" in text


def test_scripts_see_the_figures_of_the_page(alice, hub, db, own):
    book(db, call(db, user="carol", model="gpt-5-mini"))
    book(db, *(call(db, model="gpt-5-mini", **own) for _ in range(3)))
    failed = {"outcome": "upstream_error", "cost_nanos": 0, "charges": ()}
    book(db, *(call(db, **failed, **own) for _ in range(DOWN_CALLS)))
    answer = alice.get("/api/home")
    home, calls = answer.json, answer.json["calls"]
    assert home["first_call"] is None and home["notices"] == []
    assert home["wallet"]["spent_today"]["cost"] == "0.3"
    assert (calls["calls"], calls["ok"], calls["failed"]) == (3 + DOWN_CALLS, 3, DOWN_CALLS)
    assert calls["success"] == round(3 / (3 + DOWN_CALLS), 6) == calls["success_7d"]
    assert len(calls["hours"]) == 25 and sum(hour["ok"] for hour in calls["hours"]) == 3
    dearest, [by_key], [need] = calls["models"][0], calls["keys"], home["needs"]
    assert (dearest["model"], dearest["cost"], dearest["calls"]) == ("gpt-5-mini", "0.3", 3)
    assert {name: by_key[name] for name in own} == own
    assert {failure["error_code"] for failure in calls["failures"]} == {"upstream_error"}
    assert (need["need"], need["model"], need["group"]) == ("down", "gpt-5", "coding")
    assert "secret-account" not in answer.text and "upstream.example" not in answer.text
    assert Browser(hub.port).get("/api/home").status == 401
