"""The wallet as a page and as JSON: figures, plans, codes, the ledger, the low-balance warning."""

import csv
import io
import re

import pytest

from store.db import audit
from store.db.database import database_ms
from store.hub import notices
from store.money import codes, wallet
from store.money.accounts import quota_at
from store.values.ids import DAY_MS
from store.values.usage_record import rfc3339
from tests.handlers.hub.overview_world import SEALING, book, call, edit, text_of, user_id
from tests.support.stores import insert

pytestmark = pytest.mark.usefixtures("world")
PLAN = (
    '[[plan]]\nname = "monthly"\nquota = "20"\nwindow = "month"\ndays = 60\n'
    '[[subscription]]\nuser = "alice"\nplan = "monthly"\n'
)


@pytest.fixture
def code(db):
    [made] = codes.create(db, codes.NewCodes(1, 25 * 10**8), SEALING.peppers[0], "boss")
    return made.code


def test_figures_and_the_ledger(alice, db):
    today = (call(db), call(db, cost_nanos=5 * 10**8 + 5, charges=()))
    book(db, *today, call(db, ago_ms=2 * DAY_MS))
    wallet.credit(db, "alice", wallet.Movement(10**9, "<b>Invoice</b> 114"))
    text = text_of(alice.get("/wallet"))
    assert "Balance 10.8000 USD" in text and "Spent today 0.6000 USD" in text
    assert "No plans. Calls are paid from the wallet." in text
    assert re.search(r"Top-up \+1\.0 10\.8 &lt;b&gt;Invoice&lt;/b&gt; 114", text)
    assert re.search(r"Charges −0\.1 9\.8 calls of the day UTC day, not over yet", text)
    shown = alice.get("/api/wallet").json
    spent = {"cost": "0.600000005", "wallet": "0.1", "plans": "0.500000005"}
    expected = {"user": "alice", "currency": "USD", "held": "0", "balance": "10.8"}
    expected |= {"spent_today": spent, "order": ["wallet"], "daily": "0.05"}
    assert {name: shown[name] for name in expected} == expected


def test_a_code_is_redeemed_once_after_its_worth_was_shown(alice, carol, db, code):
    alice.get("/wallet")
    shown = alice.send("/wallet/redeem", [("code", code.lower())])
    assert shown.status == 200 and "This code is worth 2.5 USD" in text_of(shown)
    fields = [("code", code), ("confirm", "yes")]
    assert alice.send("/wallet/redeem", fields, xsrf=False).status == 403
    assert alice.get(f"/wallet/redeem?code={code}&confirm=yes").status == 303
    assert wallet.show(db, "alice").balance_nanos == 10**10
    done = alice.send("/wallet/redeem", fields)
    assert (done.status, done.place) == (303, "/wallet")
    assert "2.5 USD redeemed." in alice.get("/wallet").text
    again = alice.send("/wallet/redeem", [("code", code)])
    assert again.status == 400 and 'aria-invalid="true"' in again.text and code in again.text
    again = carol.api("POST", "/api/wallet/redeem", {"code": code, "user": "alice"})
    assert again.status == 400 and again.json["error"]["field"] == "code"
    [other] = codes.create(db, codes.NewCodes(1, 25 * 10**8), SEALING.peppers[0], "boss")
    line = carol.api("POST", "/api/wallet/redeem", {"code": other.code.lower()})
    assert (line.status, line.json["amount"], line.json["balance_after"]) == (200, "2.5", "5.5")


def test_why_a_code_is_refused_is_said_in_the_language_of_the_page(alice, db, code):
    alice.get("/wallet")
    [disabled] = codes.create(db, codes.NewCodes(1, 5), SEALING.peppers[0], "boss")
    codes.disable(db, [disabled.id], "boss")
    codes.redeem(db, "alice", code, SEALING.peppers, "alice")
    alice.cookies["language"] = "zh"
    for typed, message in (
        ("nonsense", "兑换码输入有误"),
        (codes.make_code(), "没有这个兑换码"),
        (code, "该兑换码已于 "),
        (disabled.code, " 停用"),
    ):
        answer = alice.send("/wallet/redeem", [("code", typed)])
        assert answer.status == 400 and message in text_of(answer)


def test_wrong_codes_are_slowed_down(alice, carol):
    alice.get("/wallet")
    answers = [alice.send("/wallet/redeem", [("code", "nonsense")]) for _ in range(11)]
    assert [one.status for one in answers] == [400] * 10 + [429]
    answer = alice.api("POST", "/api/wallet/redeem", {"code": "x"})
    assert answer.status == 429 and int(answer.headers["Retry-After"]) > 0
    assert carol.api("POST", "/api/wallet/redeem", {"code": "x"}).status == 400
    assert "Try again in 10 minutes" in answers[-1].text


def test_the_ledger_page_by_page_and_as_csv(alice, carol, db):
    reasons = [f"gift {number:02}" for number in reversed(range(30))]
    for reason in reversed(reasons):
        wallet.credit(db, "alice", wallet.Movement(10**9, reason))
    first = alice.get("/wallet").text
    assert "gift 29" in first and "gift 03" not in first
    [older] = re.findall(r'href="(/wallet\?after=[^"#]+)', first)
    second = alice.get(older).text
    assert "gift 03" in second and "gift 29" not in second and "Newest lines" in second
    page = alice.get("/api/wallet/ledger?limit=20").json
    items = page["items"] + alice.get(f"/api/wallet/ledger?after={page['next']}").json["items"]
    assert [line["reason"] for line in items][:30] == reasons and len(items) == 31
    wallet.credit(db, "alice", wallet.Movement(10**9, "=1+1"))
    answer = alice.get("/wallet/ledger.csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert "text/csv" in answer.headers["Content-Type"] and len(rows) == 32
    assert [row["reason"] for row in rows[:2]] == ["'=1+1", "gift 29"] and rows[1]["amount"] == "1"
    assert "gift" not in carol.get("/wallet/ledger.csv").text
    assert [line["amount"] for line in carol.get("/api/wallet/ledger").json["items"]] == ["3"]
    for query in ("limit=0", "limit=x", "after=nothing", "limit=1001"):
        assert alice.get(f"/api/wallet/ledger?{query}").status == 400
    assert alice.get("/wallet?after=nothing").status == 400


def test_a_low_balance_is_shown_below_the_amount_that_was_set(alice, db):
    alice.get("/wallet")
    assert alice.send("/wallet/low-balance", [("below", "12.50")]).status == 303
    assert notices.low_balance(db, user_id(db, "alice")) == 125 * 10**8
    assert "Redeem a code" in alice.get("/wallet").text
    assert alice.get("/api/wallet").json["low"] is True
    wrong = alice.send("/wallet/low-balance", [("below", "much")])
    assert wrong.status == 400 and "Enter an amount" in wrong.text
    alice.send("/wallet/low-balance", [("below", "")])
    assert notices.low_balance(db, user_id(db, "alice")) is None


def test_plans_have_their_window_and_who_pays_first_is_the_users_choice(alice, db, tmp_path):
    edit(db, tmp_path, PLAN)
    page = alice.get("/wallet")
    text = text_of(page)
    assert "Plan monthly Active" in text and "0 of 20.00" in text and "Resets in" in text
    assert "1 Plan monthly 20.0000 left until" in text and "2 Wallet 10.0000 USD" in text
    shown = alice.get("/api/wallet").json
    [plan] = shown["subscriptions"]
    assert (plan["plan"], plan["state"], plan["left"]) == ("monthly", "active", "20")
    assert shown["order"] == ["monthly", "wallet"] and plan["resets_at"] > plan["starts_at"]
    done = alice.send("/wallet/order", [("order", "wallet_first"), ("before", "plan_first")])
    assert (done.status, done.place) == (303, "/wallet")
    assert "Payment order changed" in text_of(alice.get("/wallet"))
    assert alice.get("/api/wallet").json["order"] == ["wallet", "monthly"]
    assert alice.send("/wallet/order", [("order", "free")]).status == 400
    assert alice.send("/wallet/order", [("order", "plan_only")], xsrf=False).status == 403
    [line, *_] = audit.entries(db, 10, audit.AuditFilter(kind="user", name="alice"))
    assert (line["actor"], line["after"]) == ("alice", {"order": "wallet_first"})


def test_a_spend_limit_and_its_use_are_shown_to_user_and_administrator(alice, boss, db, tmp_path):
    before = alice.get("/api/wallet").json
    assert before["limit"] is None and "Spend limit" not in text_of(alice.get("/wallet"))
    edit(db, tmp_path, '[[user]]\nname = "alice"\nlimit = "5"\nlimit_window = "day"\n')
    account, ends_ms = quota_at(user_id(db, "alice"), "day", database_ms(db))
    insert(db, "quotas", account=account, spent=12 * 10**8, ends_ms=ends_ms)
    use = {"limit": "5", "limit_window": "day", "spent": "1.2", "resets_at": rfc3339(ends_ms)}
    assert alice.get("/api/wallet").json["limit"] == use
    del use["resets_at"]  # with milliseconds here, without them there, as for keys and plans
    shown = boss.get("/api/admin/users/alice").json
    assert {name: shown[name] for name in use} == use
    for page in (alice.get("/wallet"), boss.get("/admin/users/alice")):
        assert re.search(r"Spend limit, day:? 1\.2000 of 5\.00 USD", text_of(page))


def test_scripts_change_the_users_own_choices(alice):
    def patch(body):
        return alice.api("PATCH", "/api/wallet", body)

    both = patch({"spend_order": "wallet_only", "low_below": "12"}).json
    assert (both["spend_order"], both["low_below"]) == ("wallet_only", "12")
    assert patch({"spend_order": "plan_first"}).json["low_below"] == "12"
    assert patch({"low_below": None}).json["low_below"] is None
    for body, field in (
        ({"low_below": 5}, "low_below"),
        ({"spend_order": "free"}, "spend_order"),
        ({"balance": "9"}, "low_below"),
        ({}, "low_below"),
    ):
        answer = patch(body)
        assert (answer.status, answer.json["error"]["field"]) == (400, field)
