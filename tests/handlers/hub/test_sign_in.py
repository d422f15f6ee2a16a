"""Sign-in and sign-out: who gets a session, the attributes of its cookie, who is slowed down."""

from handlers.hub.web import throttle
from tests.handlers.hub.browser import PASSWORDS, Browser


def test_a_page_without_a_session_leads_to_the_sign_in_and_back(browser):
    answer = browser.get("/account?a=1")
    assert (answer.status, answer.place) == (303, "/sign-in?next=%2Faccount%3Fa%3D1")
    answer = browser.sign_in("alice", PASSWORDS["alice"], "/account?a=1")
    assert (answer.status, answer.place) == (303, "/account?a=1")
    assert browser.get("/account").status == 200


def test_the_cookie_is_new_and_closed_to_scripts(browser):
    browser.cookies["sluice_session"] = "planted"
    answer = browser.sign_in("alice", PASSWORDS["alice"])
    [cookie] = [one for one in answer.cookies if one.startswith("sluice_session=")]
    flags = {flag.strip() for flag in cookie.split(";")[1:]}
    assert {"HttpOnly", "SameSite=Lax"} <= flags and "Secure" not in flags
    assert browser.cookies["sluice_session"] != "planted"
    browser.cookies["sluice_session"] = "planted"
    assert browser.get("/account").status == 303


def test_wrong_names_and_passwords_get_the_same_answer(browser):
    for name, password in (("alice", "wrong"), ("nobody", PASSWORDS["alice"]), ("", "")):
        answer = browser.sign_in(name, password)
        assert answer.status == 401 and "Name or password is wrong." in answer.text
        assert "sluice_session" not in browser.cookies


def test_many_wrong_passwords_have_to_wait(browser, hub, monkeypatch):
    monkeypatch.setattr(throttle, "NAME_TRIES", 3)
    for _ in range(4):  # a correct one uses up no tries
        assert Browser(hub.port).sign_in("boss", PASSWORDS["boss"]).status == 303
    statuses = [browser.sign_in("alice", "wrong").status for _ in range(4)]
    assert statuses == [401, 401, 401, 429]
    answer = browser.sign_in("alice", PASSWORDS["alice"])
    assert answer.status == 429 and "sluice_session" not in browser.cookies
    assert 0 < int(answer.headers["Retry-After"]) <= throttle.WINDOW_S
    assert "Try again in 10 minutes." in answer.text
    assert Browser(hub.port).sign_in("boss", PASSWORDS["boss"]).status == 303


def test_after_the_sign_out_the_cookie_opens_nothing(alice, hub):
    stolen = alice.cookies["sluice_session"]
    assert alice.get("/sign-out").status == 303 and alice.get("/account").status == 200
    assert alice.send("/sign-out", [], xsrf=False).status == 403
    alice.get("/account")
    assert (answer := alice.send("/sign-out", [])).status == 303 and answer.place == "/sign-in"
    thief = Browser(hub.port)
    thief.cookies["sluice_session"] = stolen
    assert thief.get("/account").status == 303


def test_theme_and_language_are_kept_by_the_browser(browser):
    chinese = {"Accept-Language": "zh-CN,en;q=0.5"}
    assert '<html lang="zh">' in browser.get("/sign-in", **chinese).text
    browser.send("/preferences", [("theme", "dark"), ("language", "zh")])
    assert '<html lang="zh" data-theme="dark">' in browser.get("/sign-in").text
    browser.send("/preferences", [("theme", "system"), ("language", "xx")])
    assert '<html lang="zh">' in browser.get("/sign-in").text
