"""What holds for all of the Hub: headers, unknown paths, paths of the relay, errors."""

import itertools
import re

import pytest

from handlers.hub.web.strings import LANGUAGES, strings
from store.values.errors import StoreUnavailable
from store.values.features import FEATURES
from tests.handlers.hub.browser import Browser

RELAY_PATHS = (
    *("/v1/chat/completions", "/v1/responses", "/v1/responses/resp_1", "/v1/messages"),
    *("/v1/models", "/v1beta/models/m:generateContent", "/v1/v1/messages"),
)


@pytest.mark.parametrize("path", ["/", "/sign-in", "/nothing", "/static/sluice.css", "/api/me"])
def test_headers_keep_pages_to_themselves(alice, path):
    answer = alice.get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy and "http" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and "Server" not in answer.headers
    assert path.startswith("/static/") or answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/sign-in", "/account", "/nothing"])
def test_pages_have_no_inline_styles_or_scripts_and_load_nothing_from_elsewhere(
    alice, browser, path
):
    text = (browser if path == "/sign-in" else alice).get(path).text
    assert not re.search(r"\sstyle=|<script(?![^>]*\ssrc=)|\son[a-z]+=", text)
    assets = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert assets and not [one for one in assets if "//" in one]
    assert all(alice.get(one).status == 200 for one in assets if one.startswith("/static/"))


def test_paths_of_the_relay_name_its_base_url(serve):
    browser = Browser(serve(server={"public_url": "https://gate.example.com"}).port)
    for method, path in itertools.product(("GET", "POST"), RELAY_PATHS):
        answer = browser.ask(method, path)
        message = answer.json["error"]["message"]
        assert answer.status == 404 and "https://gate.example.com" in message, path


def test_an_unknown_page(browser, alice):
    for one in (browser, alice):
        answer = one.get("/nothing")
        assert answer.status == 404 and "Page not found" in answer.text


def test_a_store_that_is_away_is_told_on_the_page_and_to_scripts(alice, monkeypatch):
    def away(*args, **named):
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr("store.hub.sessions.find", away)
    answer = alice.get("/account")
    assert answer.status == 503 and "Nothing was changed" in answer.text
    assert "disk" not in answer.text
    answer = alice.get("/api/me")
    assert (answer.status, answer.json["error"]["code"]) == (503, "unavailable")


def test_every_feature_has_its_line():
    lines = {name: feature.about.replace("`", "") for name, feature in FEATURES.items()}
    assert (
        lines.items()
        <= {name.removeprefix("features."): text for name, text in strings("en").items()}.items()
    )


def test_all_languages_have_the_same_words():
    words = {code: strings(code) for code in LANGUAGES}
    assert len(words) == 2 and len(words["en"]) > 1000
    braces = {name: set(re.findall(r"\{\w+\}", text)) for name, text in words["en"].items()}
    for code, texts in words.items():
        assert all(text.strip() for text in texts.values()), code
        assert {name: set(re.findall(r"\{\w+\}", text)) for name, text in texts.items()} == braces
