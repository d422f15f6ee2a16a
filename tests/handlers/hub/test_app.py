"""Rules for the whole Hub: headers, unknown paths, paths of the relay, errors."""

import gc
import gzip
import itertools
import re
import weakref
from pathlib import Path

import pytest
from tornado.template import Template

from handlers import hub as hub_package
from handlers.hub.app import TEMPLATES, LeanLoader, LeanTemplate
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


def test_the_sheet_is_one_file_kept_for_good_and_compressed_once(alice):
    page = alice.get("/account").text
    address = re.search(r'href="(/static/sluice.css[^"]+)"', page)[1]
    plain, packed = alice.get(address), alice.get(address, **{"Accept-Encoding": "gzip"})
    assert ".framed" in plain.text and ".figures.spans" in plain.text and ":root" in plain.text
    assert plain.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body and len(packed.body) < len(plain.body) / 3
    assert alice.get("/static/sluice.css").headers["Cache-Control"] == "no-cache"
    assert alice.get("/static/css/frame.css").status == 404
    assert alice.get("/static/../app.py").status == 404


@pytest.mark.parametrize(
    ("path", "compressed"), [("/account", True), ("/api/openapi.json", True), ("/api/me", False)]
)
def test_long_answers_are_compressed_for_those_who_take_it(alice, path, compressed):
    plain = alice.get(path)
    answer = alice.get(path, **{"Accept-Encoding": "br, gzip"})
    assert "Content-Encoding" not in plain.headers and "Accept-Encoding" in answer.headers["Vary"]
    assert (answer.headers.get("Content-Encoding") == "gzip") == compressed
    assert (len(answer.body) < len(plain.body) / 2) == compressed


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/usage", 200), ("/api/me", 200), ("/usage/tail", 200), ("/nothing", 404)],
)
def test_head_answers_as_get_without_a_body(alice, path, status):
    answer = alice.ask("HEAD", path)
    assert (answer.status, answer.body) == (status, b"")
    assert alice.ask("HEAD", "/preferences").status == 405


def test_the_navigation_leads_to_pages_that_exist(boss, alice):
    for who, administers in ((boss, True), (alice, False)):
        places = re.findall(r'<li><a href="([^"]+)" title=', who.get("/account").text)
        assert places[:3] == ["/", "/keys", "/models"]
        assert ("/admin/keys" in places) == administers
        assert all(who.get(place).status == 200 for place in places)
    assert 'href="/usage" title="Usage" aria-current="page"' in boss.get("/admin/usage").text


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


STORED = "refused."  # sentences of the store; a translation may omit their values


def test_texts_with_a_number_have_both_forms_in_one_text():
    things = (
        "calls|keys|models|days|users|channels|rules|times|attempts|workers|minutes|codes|rates|"
        "migrations|errors|endpoints|tokens|sessions|streams"
    )
    many = re.compile(
        rf"(?<!\|)\{{(?!name|user|key|of)\w+\}} (?:more |new |real )?(?:{things})\b"
        r"|\w+s: \{count\}(?! of)"
    )
    texts = {name: text for name, text in strings("en").items() if not name.startswith(STORED)}
    assert [name for name, text in texts.items() if many.search(text)] == []


@pytest.mark.parametrize("value", ["a < b", b"a < b", "\u4e2d", "", None, 7, ["<"]])
def test_templates_write_values_as_those_of_tornado(value):
    text = "{{ value }}{% raw value %}{% if value %}{{ str(\n  value) }}{% end %}  # {{ '  # ' }}."
    loader = LeanLoader(TEMPLATES)
    template = LeanTemplate(text, loader=loader)
    assert template.generate(value=value) == Template(text).generate(value=value)
    assert "_escaped(value)" in template.code and "_tt_tmp" not in template.code


def test_the_values_of_a_page_go_with_it():
    class Value:
        pass

    value = Value()
    seen, template = weakref.ref(value), LeanTemplate("{{ value }}", loader=LeanLoader(TEMPLATES))
    gc.disable()
    try:
        for _ in range(2):
            assert template.generate(value=value).startswith(b"&lt;")
        del value
        assert seen() is None
    finally:
        gc.enable()


BUTTON = re.compile(
    r"<(?:button|a|summary)(?P<attributes>(?: (?:[^>{]|\{\{.*?\}\}|\{%.*?%\})*)?)>(?P<inner>.*?)"
    r"</(?:button|a|summary)>",
    re.DOTALL,
)
WORDS = re.compile(r'words\["([\w.]+)"(?: if .*? else "([\w.]+)")?\]')
# Buttons that end or page through something that the page names, and the names of other pages.
BARE = {"Cancel", "Close", "Back", "Continue", "Done", "Copy", "Send", "Stop", "Undo", "Find"} | {
    *("Export", "Live", "CSV", "Columns", "Compare", "Code", "History"),
    *("Alerts", "Channels", "Invites", "Keys", "Prices", "Usage"),
}


def test_buttons_say_verb_and_thing():
    words, bare, buttons = strings("en"), set(), 0
    for path in (Path(hub_package.__file__).parent / "templates").rglob("*.html"):
        for button in BUTTON.finditer(path.read_text(encoding="utf-8")):
            if "<button" not in button[0] and "button" not in button["attributes"]:
                continue
            buttons += 1
            texts = {
                words.get(name, "")
                for pair in WORDS.findall(button["inner"])
                for name in pair
                if not name.startswith("admin.kind_")  # the object of a button
            }
            bare |= {f"{path.name}: {text}" for text in texts - BARE - {""} if " " not in text}
    assert buttons > 100 and not bare, sorted(bare)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/admin/channels/new", "其他网关"),
        ("/admin/users/alice", "初始余额"),
        ("/admin/users/alice/statement", "初始余额"),
        ("/admin/prices/compare", "不在目录中"),
        ("/setup", "OpenAI 兼容供应商的字段"),
    ],
)
def test_names_of_the_gateways_own_are_in_the_language_of_the_page(apply, boss, path, text):
    apply({"model": [{"name": "own-model", "price": {"input": "1", "output": "1"}}]})
    boss.cookies["language"] = "zh"
    assert text in boss.get(path).text


def test_all_languages_have_the_same_words():
    words = {code: strings(code) for code in LANGUAGES}
    assert len(words) == 2 and len(words["en"]) > 1000
    braces = {name: set(re.findall(r"\{\w+\}", text)) for name, text in words["en"].items()}
    text = words["en"]["overview.calls"]
    assert [text.format(calls=calls) for calls in (1, "1", "1,200")] == [
        *("1 call", "1 call"),
        "1,200 calls",
    ]
    for code, texts in words.items():
        assert all(text.strip() for text in texts.values()), code
        own = {name: set(re.findall(r"\{\w+\}", text)) for name, text in texts.items()}
        assert own.keys() == braces.keys()
        for name, values in own.items():
            assert values == braces[name] or (name.startswith(STORED) and values < braces[name])
