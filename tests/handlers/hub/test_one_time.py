"""One-time codes: set-up, request at the sign-in, single use, limits, recovery."""

import html
import re
import time

import pyotp
import pytest

from handlers.hub.access import sign_in
from store.db.audit import entries
from store.hub import one_time as codes
from store.hub import people
from tests.handlers.hub.browser import PASSWORDS, Browser

PERIOD_S = 30


def set_up(browser):
    """Set up one-time codes as a user who has signed in; return (secret, recovery codes)."""
    fields = [("do", "begin"), ("password", PASSWORDS["alice"])]
    answer = browser.send("/account/codes", fields)
    secret = re.search(r'<code class="break">(\w+)</code>', answer.text)[1]
    answer = browser.send("/account/codes", [("do", "confirm"), ("code", code_of(secret, -1))])
    shown = re.search(r'id="recovery">([^<]+)<', answer.text)[1]
    return secret, html.unescape(shown).split()


def code_of(secret, periods=0):
    return pyotp.TOTP(secret).at(time.time() + periods * PERIOD_S)


@pytest.fixture
def known(alice):
    return set_up(alice)


def test_setting_up_needs_the_password_and_a_code_that_fits(alice, db):
    assert alice.send("/account/codes", [("do", "begin"), ("password", "wrong")]).status == 400
    answer = alice.send("/account/codes", [("do", "begin"), ("password", PASSWORDS["alice"])])
    assert (
        'class="qr"' in answer.text and "style=" not in answer.text and "data:" not in answer.text
    )
    me = people.check(db, "alice", PASSWORDS["alice"]).id
    assert alice.send("/account/codes", [("do", "confirm"), ("code", "000000")]).status == 400
    assert not codes.is_on(db, me)
    assert Browser(alice.port).sign_in("alice", PASSWORDS["alice"]).place == "/"


def test_the_secret_and_the_recovery_codes_are_shown_once(alice, known, db):
    secret, recovery = known
    page = alice.get("/account").text
    assert secret not in page and not any(code in page for code in recovery)
    assert "10 recovery codes left" in page
    stored = db.execute_sql("SELECT sealed, recovery FROM one_time_codes").fetchall()
    assert secret not in str(stored) and not any(code in str(stored) for code in recovery)
    assert secret not in str(entries(db, 50))
    again = [("do", "begin"), ("password", PASSWORDS["alice"])]
    assert alice.send("/account/codes", again).status == 400
    # Switching them off needs the password.
    alice.get("/account")
    assert alice.send("/account/codes", [("do", "end"), ("password", "wrong")]).status == 400
    end = [("do", "end"), ("password", PASSWORDS["alice"])]
    assert alice.send("/account/codes", end).place == "/account"
    assert Browser(alice.port).sign_in("alice", PASSWORDS["alice"]).place == "/"


def test_the_sign_in_asks_for_a_code_which_counts_once(hub, known):
    secret, _ = known
    browser = Browser(hub.port)
    browser.cookies["sluice_code"] = "made-up"
    assert browser.get("/sign-in/code").place == "/sign-in"
    browser.get("/sign-in")
    assert browser.send("/sign-in/code", [("code", "1")]).place == "/sign-in"
    answer = browser.sign_in("alice", PASSWORDS["alice"], "/account")
    assert answer.place == "/sign-in/code" and "sluice_session" not in browser.cookies
    assert browser.get("/account").status == 303
    browser.get("/sign-in/code")
    assert browser.send("/sign-in/code", [("code", "000000")]).status == 401
    code = code_of(secret)
    answer = browser.send("/sign-in/code", [("code", f" {code[:3]} {code[3:]}")])
    assert (answer.status, answer.place) == (303, "/account")
    assert browser.get("/account").status == 200
    other = Browser(hub.port)
    other.sign_in("alice", PASSWORDS["alice"])
    other.get("/sign-in/code")
    assert other.send("/sign-in/code", [("code", code)]).status == 401


def test_a_recovery_code_counts_once(hub, known, db):
    _, recovery = known
    for expected in (303, 401):
        browser = Browser(hub.port)
        browser.sign_in("alice", PASSWORDS["alice"])
        browser.get("/sign-in/code")
        assert browser.send("/sign-in/code", [("code", recovery[0].upper())]).status == expected
    assert [row["action"] for row in entries(db, 9)].count("recover") == 1


def test_codes_of_the_neighbouring_periods_fit_and_no_other_text():
    secret, now_s = sign_in.new_totp_secret(), 1_800_000_015
    for shift in (-1, 0, 1):
        code = pyotp.TOTP(secret).at(now_s + shift * PERIOD_S)
        assert sign_in.totp_period(secret, code, now_s) == now_s // PERIOD_S + shift
    for text in (pyotp.TOTP(secret).at(now_s + 90), "", "x" * 1000, "\udc80", "１２３４５６"):
        assert sign_in.totp_period(secret, text, now_s) is None
