"""Forms and host names of other sites: form tokens, Origin, Host, and the contents of cookies."""

import json
from urllib.parse import quote

import pytest

from handlers.hub.web import cross_site
from store.values.cipher import Cipher
from tests.handlers.hub.browser import PASSWORDS, Browser
from tests.handlers.hub.conftest import COOKIE_SECRETS

PUBLIC = "https://hub.example.com"


def changes(browser, **headers):
    """Change the browser's appearance setting with its token; return the status."""
    return browser.send("/preferences", [("theme", "dark")], **headers).status


# ---- tokens --------------------------------------------------------------------------------------


def test_a_token_is_of_one_session_and_each_answer_has_its_own(hub, alice):
    other = hub.signed_in("alice")
    assert changes(alice) == changes(other) == 303
    alice.xsrf, other.xsrf = other.xsrf, alice.xsrf
    assert changes(alice) == changes(other) == 403
    tokens = set()
    for _ in range(3):
        alice.get("/account")
        tokens.add(alice.xsrf)
    assert len(tokens) == 3


def test_a_form_whose_session_has_ended_is_kept_and_can_be_sent_again(hub, alice):
    own = {"Origin": f"http://127.0.0.1:{hub.port}", "Host": f"127.0.0.1:{hub.port}"}
    fields = [("name", "tablet"), ("group", "default"), ("networks", "<b>\n10.0.0.0/8")]
    alice.get("/keys/new")
    session = alice.cookies["sluice_session"]
    alice.cookies["sluice_session"] = "ended"
    alice.get("/sign-in")  # the form's token now belongs to a cookie that has expired
    refused = alice.send("/keys/new", fields, **own)
    assert refused.status == 401 and "Your session has ended" in refused.text
    assert 'value="&lt;b&gt;\n10.0.0.0/8"' in refused.text and 'name="group"' in refused.text
    alice.cookies["sluice_session"] = session  # signed in again, in another tab
    stale = alice.send("/keys/new", fields, **own)
    assert stale.status == 403 and 'value="tablet"' in stale.text
    assert alice.send("/keys/new", fields[:2], **own).status in (200, 201)
    assert "tablet" in alice.get("/keys").text


def test_before_a_session_a_token_is_of_one_browser(hub, browser):
    """Another site of the same domain can set the cookie, but it cannot create a token."""
    other = Browser(hub.port)
    other.cookies["_xsrf"] = "planted-by-another-site"
    for either in (browser, other):
        either.get("/sign-in")
        assert changes(either) == 303
    before, cookie = browser.xsrf, browser.cookies["_xsrf"]
    for foreign in (other.xsrf, "planted-by-another-site"):
        browser.xsrf = foreign
        assert changes(browser) == 403
    browser.sign_in("alice", PASSWORDS["alice"])
    browser.xsrf, browser.cookies["_xsrf"] = before, cookie
    assert changes(browser) == 403  # it is useless after the sign-in
    del other.cookies["_xsrf"]
    assert changes(other) == 403


@pytest.mark.parametrize(
    ("made_by", "known", "status"),
    [
        (["old"], ["old", "upcoming"], 303),
        (["upcoming"], ["old", "upcoming"], 303),  # by a node that is one step ahead
        (["old"], ["new", "old"], 303),
        (["new", "old"], ["new"], 303),  # made with the first secret
        (["new", "old"], ["old"], 403),
        (["old"], ["new"], 403),
    ],
)
def test_a_rotation_keeps_forms_valid_until_the_old_secret_goes(hub, alice, made_by, known, status):
    hub.site.cookie_secrets = made_by
    alice.get("/account")
    hub.site.cookie_secrets = known
    assert changes(alice) == status


@pytest.mark.parametrize("token", ["", "x", "é" * 80, "\udc80" * 80, "0" * 80])
def test_what_is_no_token_is_refused(alice, token):
    assert not cross_site.is_form_token(COOKIE_SECRETS, "session a", token)
    of_nobody = cross_site.make_form_token(COOKIE_SECRETS, "")
    assert not cross_site.is_form_token(COOKIE_SECRETS, "", of_nobody)


# ---- the origin of a form ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"Origin": "http://{host}"}, 303),
        ({"Origin": "https://{host}"}, 303),  # a proxy terminates TLS
        ({"Origin": PUBLIC}, 303),
        ({"Origin": f"{PUBLIC}:443"}, 403),  # browsers omit the default port
        ({"Origin": "http://hub.example.com"}, 403),
        ({"Origin": "https://elsewhere.example.com"}, 403),
        ({"Origin": "https://hub.example.com.elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Sec-Fetch-Site": "none"}, 303),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://behind.example.com"}, 303),
        ({"Sec-Fetch-Site": "none", "Origin": "https://elsewhere.example.com"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_a_form_comes_from_here_or_says_nothing(serve, headers, status):
    hub = serve(hub={"public_url": PUBLIC})
    browser = Browser(hub.port)
    browser.get("/sign-in")
    host = f"127.0.0.1:{hub.port}"
    given = {name: value.format(host=host) for name, value in headers.items()}
    assert changes(browser, **given) == status


def test_a_script_with_a_token_may_come_from_anywhere(api):
    headers = {"Origin": "https://elsewhere.example.com", "Content-Type": "application/json"}
    body = json.dumps({"name": "of a script", "group": "default"})
    assert api.ask("POST", "/api/keys", body, **headers).status == 201


# ---- host names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("hub.example.com", "/sign-in", 200),
        ("HUB.example.com.:443", "/sign-in", 200),
        ("localhost", "/sign-in", 200),
        ("hub.localhost", "/sign-in", 200),
        ("127.0.0.1:8001", "/sign-in", 200),
        ("[2001:db8::1]:8001", "/sign-in", 200),
        ("elsewhere.example.com", "/sign-in", 403),
        ("elsewhere.example.com", "/static/sluice.css", 403),
        ("hub.example.com.elsewhere.example", "/sign-in", 403),
        ("localhost.example.com", "/sign-in", 403),
        ("", "/sign-in", 403),
        ("elsewhere.example.com", "/livez", 404),
    ],
)
def test_with_a_public_url_other_names_are_not_served(serve, host, path, status):
    hub = serve(hub={"public_url": PUBLIC})
    assert Browser(hub.port).get(path, Host=host).status == status


def test_without_a_public_url_every_name_is_served(browser):
    assert browser.get("/sign-in", Host="elsewhere.example.com").status == 200
    assert cross_site.is_served("", "/", "")


# ---- messages on the next page -------------------------------------------------------------------


def test_a_page_says_once_what_the_hub_has_sealed(alice):
    alice.send("/account/tokens", [("scope", "read"), ("name", "of a test")])
    [token] = alice.get("/api/tokens").json["items"]
    alice.send("/account/tokens", [("revoke", token["id"])])
    cookie = alice.cookies["toast"]
    assert "revoked" not in cookie.lower() and "%7B" not in cookie
    words = "Token revoked. Requests with it get 401."
    assert words in alice.get("/account").text
    assert words not in alice.get("/account").text
    plain = quote(json.dumps({"text": "pay here", "undo": "", "fields": {}}))
    for text in (plain, "pay here", "gAAAAA"):
        alice.cookies["toast"] = text
        answer = alice.get("/account")
        assert answer.status == 200 and "pay here" not in answer.text


def test_values_are_sealed_for_one_purpose_and_a_time(monkeypatch):
    cipher = Cipher(["one"])
    token = cross_site.seal(cipher, "toast", 60, {"a": 1})
    assert cross_site.unseal(cipher, "toast", token) == {"a": 1}
    assert cross_site.unseal(cipher, "sluice_code", token) is None
    assert cross_site.unseal(Cipher(["another"]), "toast", token) is None
    assert cross_site.unseal(cipher, "toast", cross_site.seal(cipher, "toast", 0, {})) is None


def test_all_cookies_are_secure_behind_tls(serve):
    hub = serve(hub={"public_url": PUBLIC})
    browser = Browser(hub.port)
    cookies = [*browser.get("/sign-in").cookies]
    cookies += browser.sign_in("alice", PASSWORDS["alice"]).cookies
    browser.get("/account")
    browser.send("/account/sessions", [("id", "others")])
    cookies += browser.send("/account/sessions", [("id", "others")]).cookies
    names = {one.partition("=")[0] for one in cookies}
    assert {"_xsrf", "sluice_session", "toast"} <= names
    kept = [one for one in cookies if "expires=" not in one.lower()]
    assert all("Secure" in one and "SameSite=Lax" in one for one in kept)
