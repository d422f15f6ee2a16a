"""Typical attacks on the Hub."""

import pytest
from tornado.web import RequestHandler

from handlers.hub.routes import ROUTES
from handlers.hub.web import site, throttle
from store.db.tables.hub import ApiToken, Session
from store.db.tables.system import AuditRow
from store.db.tables.users import ApiKey, User
from tests.handlers.hub.browser import PASSWORDS, Browser

PATHS = sorted({path for path, _ in ROUTES if "(" not in path})
POSTS = sorted(
    path for path, handler in ROUTES if "(" not in path and handler.post is not RequestHandler.post
)
SEEN = ("seen_ms", "used_ms")  # the time of the last visit is not a change by a user


def contents(db):
    """Return all rows that a visit could change, except the audit lines of exports."""
    return {
        table.__name__: [
            {name: value for name, value in row.items() if name not in SEEN}
            for row in table.select().order_by(table.id).bind(db).dicts()
            if row.get("action") != "export"
        ]
        for table in (User, ApiKey, Session, ApiToken, AuditRow)
    }


def test_to_get_any_path_changes_nothing(boss, db):
    before = contents(db)
    for path in PATHS:
        if not path.endswith("/tail"):
            boss.get(path)
            boss.get(f"{path}?do=end&id=others&revoke=x&name=alice&password=x&role=admin")
    assert contents(db) == before
    assert boss.get("/account").status == 200


@pytest.mark.parametrize("path", POSTS)
def test_a_form_of_another_site_is_refused(alice, path, db):
    before = contents(db)
    for given in ([], [("_xsrf", "made-up")], [("_xsrf", "")]):
        answer = alice.send(path, given, xsrf=False)
        assert answer.status == 403
        assert path.startswith("/api/") or "reload the page" in answer.text
    assert contents(db) == before


def test_no_more_hashes_wait_than_people_would(hub, monkeypatch):
    async def busy(*args):
        raise site.Busy

    monkeypatch.setattr(throttle, "NAME_TRIES", 2)
    with monkeypatch.context() as patched:
        patched.setattr(site.Site, "password", busy)
        for _ in range(3):
            answer = Browser(hub.port).sign_in("alice", PASSWORDS["alice"])
            assert answer.status == 429 and answer.headers["Retry-After"] == "2"
    # It did not count as a wrong password.
    assert Browser(hub.port).sign_in("alice", PASSWORDS["alice"]).status == 303


def test_preferences_lead_to_no_other_host(browser):
    browser.get("/sign-in")
    for referer in (
        *("https://elsewhere.example.com/a", "//elsewhere.example.com/a"),
        *("https://x//y.example.com", "https://x/\\y.example.com", "http://[x"),
    ):
        place = browser.send("/preferences", [("theme", "dark")], Referer=referer).place
        assert place.startswith("/") and not place.startswith(("//", "/\\"))


@pytest.mark.parametrize(
    "place",
    ["//x.example.com", "/\\x.example.com", "/\t/x.example.com", "https://x", "//[x", "usage"],
)
def test_a_sign_in_leads_to_no_other_host(browser, place):
    assert browser.sign_in("alice", PASSWORDS["alice"], place).place == "/"


def test_names_are_shown_as_text(hub, apply):
    script = "<script>alert(7)</script>"
    apply({"user": [{"name": script, "password": "a long password"}]})
    browser = Browser(hub.port)
    assert script not in browser.sign_in(script, "wrong").text
    browser.sign_in(script, "x")
    assert script not in browser.get("/account").text


def test_other_methods_are_refused(alice):
    for method in ("PUT", "PATCH", "DELETE"):
        assert alice.ask(method, "/account").status in (403, 405)
        assert alice.api(method, "/api/sessions/any", xsrf=False).status in (403, 405)
