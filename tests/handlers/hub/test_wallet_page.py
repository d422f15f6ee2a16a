"""The wallet as a page: figures, plans, codes, the ledger, the notice of a low balance."""

import csv
import io
import json
import re

import pytest

from store.db import audit
from store.hub import low_balance
from store.money import codes, wallet
from store.values.ids import DAY_MS
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.overview_world import SEALING, book, call, edit, user_id
from tests.handlers.hub.test_status_page import text_of

PLAN = (
    '[[plan]]\nname = "monthly"\nquota = "20"\nwindow = "month"\ndays = 60\n'
    '[[subscription]]\nuser = "alice"\nplan = "monthly"\n'
)


@pytest.fixture
def db(db, tmp_path):
    edit(db, tmp_path)
    return db


@pytest.fixture
def code(db):
    [made] = codes.create(db, codes.Wanted(1, 25 * 10**8), SEALING.peppers[0], "boss")
    return made.code


def balance(db, user="alice"):
    return wallet.show(db, user).balance_nanos


def test_figures_and_the_ledger(alice, db):
    book(db, call(db), call(db, cost_nanos=5 * 10**8, charges=()), call(db, ago_ms=2 * DAY_MS))
    wallet.credit(db, "alice", wallet.Movement(10**9, "<b>Invoice</b> 114"))
    answer = alice.get("/wallet")
    said = text_of(answer)
    assert "Balance 10.8000 USD" in said and "About" in said
    assert "Spent today 0.6000 USD Plans 0.5000, wallet 0.1000" in said
    assert "No plans. Calls are paid from the wallet." in said
    assert re.search(r"Top-up \+1\.0 10\.8 &lt;b&gt;Invoice&lt;/b&gt; 114", said)
    assert re.search(r"Charges −0\.1 9\.8 calls of the day UTC day, not over yet", said)


def test_plans_with_their_window_and_the_order(alice, db, tmp_path):
    edit(db, tmp_path, PLAN)
    said = text_of(alice.get("/wallet"))
    assert "Plan monthly Active" in said and "0 of 20.00" in said and "Resets in" in said
    assert "1 Plan monthly 20.0000 left until" in said and "2 Wallet 10.0000 USD" in said
    assert "Calls draw on the plan until it is used up" in said


def test_a_code_is_redeemed_after_its_worth_was_told(alice, db, code):
    alice.get("/wallet")
    told = alice.send("/wallet/redeem", [("code", code.lower())])
    assert told.status == 200 and "This code is worth 2.5 USD" in text_of(told)
    assert balance(db) == 10**10
    done = alice.send("/wallet/redeem", [("code", code), ("confirm", "yes")])
    assert (done.status, done.place) == (303, "/wallet")
    assert balance(db) == 125 * 10**8 and "2.5 USD redeemed." in alice.get("/wallet").text
    again = alice.send("/wallet/redeem", [("code", code)])
    assert again.status == 400 and "was already used" in again.text
    assert 'aria-invalid="true"' in again.text and code in again.text


def test_why_a_code_is_refused_is_told_in_the_language_of_the_page(alice, db, code):
    alice.get("/wallet")
    [disabled] = codes.create(db, codes.Wanted(1, 5), SEALING.peppers[0], "boss")
    codes.disable(db, [disabled.id], "boss")
    codes.redeem(db, "alice", code, SEALING.peppers, "alice")
    alice.cookies["language"] = "zh"
    for typed, said in (
        ("nonsense", "兑换码输入有误"),
        (codes.make_code(), "没有这个兑换码"),
        (code, "该兑换码已于 "),
        (disabled.code, " 停用"),
    ):
        answer = alice.send("/wallet/redeem", [("code", typed)])
        assert answer.status == 400 and said in text_of(answer)
        assert "the code" not in answer.text


def test_wrong_codes_are_slowed_and_told(alice):
    alice.get("/wallet")
    answers = [alice.send("/wallet/redeem", [("code", "nonsense")]) for _ in range(11)]
    assert [one.status for one in answers] == [400] * 10 + [429]
    assert (
        "The code is mistyped" in answers[0].text and "Try again in 10 minutes" in answers[-1].text
    )


def test_nothing_without_the_token_of_the_form_or_by_looking(alice, db, code):
    fields = [("code", code), ("confirm", "yes")]
    assert alice.send("/wallet/redeem", fields, xsrf=False).status == 403
    assert alice.get(f"/wallet/redeem?code={code}&confirm=yes").status == 303
    assert balance(db) == 10**10


def test_the_ledger_page_by_page_and_as_csv(alice, hub, db):
    for number in range(30):
        wallet.credit(db, "alice", wallet.Movement(10**9, f"gift {number:02}"))
    first = alice.get("/wallet").text
    assert "gift 29" in first and "gift 03" not in first
    [older] = re.findall(r'href="(/wallet\?after=[^"#]+)', first)
    second = alice.get(older).text
    assert "gift 03" in second and "gift 29" not in second and "Newest entries" in second
    answer = alice.get("/wallet/ledger.csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert "text/csv" in answer.headers["Content-Type"] and len(rows) == 31
    assert (rows[0]["amount"], rows[0]["reason"]) == ("1", "gift 29")
    wallet.credit(db, "alice", wallet.Movement(10**9, "=1+1"))
    [newest, *_] = csv.DictReader(io.StringIO(alice.get("/wallet/ledger.csv").text))
    assert newest["reason"] == "'=1+1"
    assert "gift" not in Browser(hub.port).signed_in("carol").get("/wallet/ledger.csv").text
    assert alice.get("/wallet?after=nothing").status == 400


def test_told_below_the_balance_that_was_given(alice, db):
    assert "Balance 10" not in text_of(alice.get("/wallet")).replace("Balance 10.0000 USD No", "")
    set_to = alice.send("/wallet/low-balance", [("below", "12.50")])
    assert set_to.status == 303
    assert low_balance.threshold(db, user_id(db, "alice")) == 125 * 10**8
    assert "Redeem a code" in alice.get("/wallet").text and "12.5" in alice.get("/wallet").text
    assert alice.get("/api/wallet").json["low"] is True
    wrong = alice.send("/wallet/low-balance", [("below", "much")])
    assert wrong.status == 400 and "Enter an amount" in wrong.text
    alice.send("/wallet/low-balance", [("below", "")])
    assert low_balance.threshold(db, user_id(db, "alice")) is None


def test_the_same_by_the_api(alice):
    def patch(body):
        headers = {"Content-Type": "application/json", "X-XSRFToken": alice.xsrf}
        return alice.ask("PATCH", "/api/wallet", json.dumps(body), **headers)

    assert patch({"low_below": "12"}).json["low_below"] == "12"
    assert patch({"low_below": None}).json["low_below"] is None
    for body in ({"low_below": "much"}, {"low_below": 5}, {"balance": "9"}, {}):
        assert patch(body).status == 400


def test_who_pays_first_is_the_users_choice(alice, db, tmp_path):
    edit(db, tmp_path, PLAN)
    page = alice.get("/wallet")
    assert 'value="plan_first" aria-current="true"' in page.text
    done = alice.send("/wallet/order", [("order", "wallet_first"), ("before", "plan_first")])
    assert (done.status, done.place) == (303, "/wallet")
    said = text_of(alice.get("/wallet"))
    assert "1 Wallet" in said and "2 Plan monthly" in said and "Payment order changed" in said
    assert alice.get("/api/wallet").json["order"] == ["wallet", "monthly"]
    assert alice.send("/wallet/order", [("order", "free")]).status == 400
    fields = [("order", "plan_only")]
    assert alice.send("/wallet/order", fields, xsrf=False).status == 403
    [line, *_] = audit.entries(db, 10, audit.AuditFilter(kind="user", name="alice"))
    assert (line["actor"], line["after"]) == ("alice", {"order": "wallet_first"})


def test_scripts_choose_who_pays_first(alice, db):
    headers = {"Content-Type": "application/json", "X-XSRFToken": alice.xsrf}

    def patch(body):
        return alice.ask("PATCH", "/api/wallet", json.dumps(body), **headers)

    alice.get("/wallet")
    headers["X-XSRFToken"] = alice.xsrf
    both = patch({"spend_order": "wallet_only", "low_below": "2"}).json
    assert (both["spend_order"], both["low_below"]) == ("wallet_only", "2")
    assert patch({"spend_order": "plan_first"}).json["low_below"] == "2"
    for body in ({"spend_order": "free"}, {"spend_order": None}):
        answer = patch(body)
        assert answer.status == 400 and answer.json["error"]["field"] == "spend_order"
    assert patch({}).status == 400 and patch({"balance": "9"}).status == 400
