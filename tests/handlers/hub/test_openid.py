"""Sign-in by an OpenID provider: only for linked users, and only with a valid answer."""

from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from handlers.hub.web import openid
from store.db.audit import entries
from store.hub import openid_links, people
from tests.handlers.hub.browser import PASSWORDS, Browser
from tests.support.openid_provider import CLIENT_ID, CLIENT_SECRET, OpenIdProvider

TOO_LARGE = b" " * (openid.MAX_ANSWER_BYTES + 1)


@pytest.fixture(scope="module")
def running():
    with OpenIdProvider() as provider:
        yield provider


@pytest.fixture
def provider(running):
    running.reset()
    return running


@pytest.fixture
def hub(serve, provider):
    settings = {"oidc_issuer": provider.issuer, "oidc_client_id": CLIENT_ID}
    return serve(hub={**settings, "oidc_client_secret": CLIENT_SECRET})


@pytest.fixture
def linked(db, provider):
    openid_links.link(db, "alice", provider.issuer, provider.subject, "tester")


def at_provider(provider, place):
    """Follow the redirect to the provider; return the path of the Hub that the browser is sent
    back to."""
    assert place.startswith(provider.issuer + "/authorize?")
    back = urlsplit(provider.authorize(urlsplit(place).query))
    return f"{back.path}?{back.query}"


def signs_in(browser, provider, next_place="/account"):
    asked = browser.get(f"/sign-in/openid?next={next_place}")
    assert asked.status == 303
    return browser.get(at_provider(provider, asked.place))


def test_the_form_offers_it_only_where_it_is_set_up(hub, serve):
    assert "/sign-in/openid" in Browser(hub.port).get("/sign-in").text
    plain = Browser(serve().port)
    assert "/sign-in/openid" not in plain.get("/sign-in").text
    assert plain.get("/sign-in/openid").status == 404


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_linked_user_is_signed_in(browser, provider, linked, algorithm):
    provider.algorithm = algorithm
    answer = signs_in(browser, provider)
    assert (answer.status, answer.place) == (303, "/account")
    assert "alice" in browser.get("/account").text
    [asked] = provider.asked
    assert asked["redirect_uri"].endswith("/sign-in/openid/back")
    assert signs_in(Browser(browser.port), provider, "//elsewhere.example.com").place == "/"


def test_nobody_else_is_and_the_log_tells_the_subject(browser, provider, db, hub):
    answer = signs_in(browser, provider)
    assert answer.status == 403 and "sluice_session" not in browser.cookies
    assert "No user is linked" in answer.text and CLIENT_SECRET not in repr(hub.site.settings)
    assert entries(db, 1)[0]["after"]["subject"] == provider.subject


@pytest.mark.parametrize(
    "claims",
    [
        *({"aud": "another-client"}, {"azp": "another-client"}, {"sub": None}),
        *({"iss": "http://elsewhere.example.com"}, {"exp": 1_000_000_000}, {"exp": None}),
        *({"nonce": "of another sign-in"}, {"nonce": None}),
    ],
    ids=str,
)
def test_an_id_token_that_does_not_fit_opens_nothing(browser, provider, linked, claims):
    provider.claims = claims
    assert signs_in(browser, provider).status == 502 and "sluice_session" not in browser.cookies


def test_an_id_token_of_another_key_or_algorithm_opens_nothing(browser, provider, linked):
    other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for algorithm, key in (
        (provider.algorithm, other_key),
        ("HS256", "the public key, as it were" * 2),
        ("none", ""),
    ):
        provider.algorithm, provider.signing_key = algorithm, key
        assert signs_in(browser, provider).status == 502
    assert "sluice_session" not in browser.cookies


def test_new_keys_of_the_provider_are_fetched(browser, provider, linked, monkeypatch):
    monkeypatch.setattr(openid, "KEYS_AGAIN_S", 0.0)
    provider.documents["/keys"] = {"keys": provider.jwks()["keys"][1:]}
    assert signs_in(browser, provider).status == 502
    del provider.documents["/keys"]
    assert signs_in(browser, provider).status == 303


def test_the_answer_is_for_the_browser_that_asked_and_for_once(hub, browser, provider, linked):
    back = at_provider(provider, browser.get("/sign-in/openid").place)
    assert Browser(hub.port).get(back).status == 502  # a victim's browser
    assert browser.get(back.replace("state=", "state=x")).status == 502
    assert browser.get(back).status == 502  # the state is used up, by whichever answer
    back = at_provider(provider, browser.get("/sign-in/openid").place)
    assert browser.get(back).status == 303
    assert Browser(hub.port).get(back).status == 502


def test_an_error_of_the_provider_and_another_issuer_open_nothing(browser, provider, linked):
    place = urlsplit(browser.get("/sign-in/openid").place).query
    state = dict(pair.split("=", 1) for pair in place.split("&"))["state"]
    refused = browser.get(f"/sign-in/openid/back?error=access_denied&state={state}")
    assert refused.status == 502
    back = at_provider(provider, browser.get("/sign-in/openid").place)
    assert browser.get(back.partition("&iss=")[0] + "&iss=http%3A%2F%2Fevil").status == 502


@pytest.mark.parametrize(
    "document",
    [{"issuer": "http://elsewhere.example.com"}, {}, b"no JSON", b"[]", TOO_LARGE],
    ids=["another issuer", "empty", "no JSON", "a list", "too large"],
)
def test_a_provider_that_talks_nonsense_is_told_from_a_wrong_user(browser, provider, document):
    provider.documents["/.well-known/openid-configuration"] = document
    answer = browser.get("/sign-in/openid")
    assert answer.status == 502 and "Signing in at the provider failed" in answer.text


def test_linking_needs_the_password_and_the_session_that_asked(hub, provider, db):
    alice = hub.signed_in("alice")
    assert alice.get("/account/openid").place == "/account"  # without the password
    wrong = alice.send("/account/links", [("password", "wrong")])
    assert wrong.status == 400 and "The password is wrong." in wrong.text
    answer = alice.send("/account/links", [("password", PASSWORDS["alice"])])
    assert 'href="/account/openid"' in answer.text
    back = at_provider(provider, alice.get("/account/openid").place)
    assert alice.get(back).place == "/account"
    page = alice.get("/account").text
    assert "Account linked." in page and provider.subject in page
    assert signs_in(Browser(hub.port), provider).status == 303

    boss = hub.signed_in("boss")
    boss.send("/account/links", [("password", PASSWORDS["boss"])])
    back = at_provider(provider, boss.get("/account/openid").place)
    assert boss.get(back).place == "/account" and "linked already" in boss.get("/account").text

    [link] = openid_links.of_user(db, people.check(db, "alice", PASSWORDS["alice"]).id)
    assert boss.send("/account/links", [("unlink", link.id)]).status == 404
    alice.get("/account")
    assert alice.send("/account/links", [("unlink", link.id)]).status == 303
    assert signs_in(Browser(hub.port), provider).status == 403


def test_the_log_has_the_reason_a_bounded_number_of_times(browser, hub, caplog):
    for _ in range(15):
        browser.get("/sign-in/openid/back?code=a&state=b&error=c")
    lines = [line for line in caplog.messages if "provider: the answer is to no question" in line]
    assert len(lines) == 10
