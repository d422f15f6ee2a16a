"""The first run: who may take which step, and the result of each."""

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.hub.web import site
from store.admin.export import list_objects, show
from store.db.audit import entries
from store.db.database import discard, open_database, select_rows
from store.db.tables.hub import FirstRunLink
from store.hub import administrators, first_run, people
from store.money import wallet
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.script import UPSTREAM_KEY
from tests.handlers.hub.test_new_channel import vendor_of
from tests.support.ports import HOST
from tests.support.stores import sqlite_store
from tests.support.upstream import RawUpstream, ScriptedUpstream

PASSWORD = "a password of the first run"
CHANNEL = "/first-run/channel"


@pytest.fixture(scope="module")
def vendor():
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture
def db(tmp_path):
    """Yield a store with its schema and no rows."""
    db = open_database(sqlite_store(tmp_path / "empty.db"))
    yield db
    discard(db)


@pytest.fixture
def link(db):
    return first_run.make_link(db)


def begin(browser, link, **fields):
    browser.get(link)
    given = {"token": link.partition("=")[2], "name": "root", "password": PASSWORD, **fields}
    return browser.send("/first-run", list(given.items()))


def make_channel(browser, vendor, *, models=("demo-chat",), price="1"):
    """Take the three steps of the first channel; return the answer to Save."""
    account = {"vendor": "openai-compatible", "base_url": vendor.url, "name": "main"}
    account |= {"keys": UPSTREAM_KEY, "groups": "default", "do": "names"}
    browser.get("/first-run")
    answer = browser.send(CHANNEL, list(account.items()))
    assert answer.place == "/first-run?step=2&part=2", answer.text
    browser.send(CHANNEL, [("added", " ".join(models)), ("do", "add")])
    rows = [(field, name) for name in models for field in ("row", "chosen")]
    cells = [(f"{cell}.{name}", price) for name in models for cell in ("input", "output")]
    answer = browser.send(CHANNEL, [*rows, *cells, ("do", "test")])
    assert answer.place == "/first-run?step=2&part=3", answer.text
    assert browser.send(CHANNEL, [*rows, ("do", "run")]).place == answer.place
    works = [name for name in models if name != "broken"]
    return browser.send(CHANNEL, [*rows[:1], *[("chosen", name) for name in works], ("do", "save")])


def test_a_link_opens_until_an_administrator_has_a_password(browser, db, link):
    token = link.partition("=")[2]
    assert first_run.opens(db, token) and not first_run.opens(db, token[:-1])
    for path in ("/first-run", "/first-run?token=made-up", link + "x"):
        answer = browser.get(path)
        assert answer.status == 403 and "not valid" in answer.text
    begin(browser, link)
    assert people.check(db, "root", PASSWORD).role == "admin"
    other = Browser(browser.port)
    assert other.get(link).status == 403 and first_run.make_link(db) is None
    answer = begin(other, link, name="second")
    assert answer.status == 403 and people.check(db, "second", PASSWORD) is None


@pytest.mark.parametrize("links", [1, 8])
def test_of_eight_at_once_one_becomes_administrator(hub, db, links):
    """All with one link, or each with its own."""
    made = [first_run.make_link(db) for _ in range(links)] * (8 // links)
    names = [f"root-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda *row: begin(Browser(hub.port), row[0], name=row[1]), made, names)
    assert sorted(answer.status for answer in answers) == [303, *[403] * 7]
    assert len(list_objects(db, "user")) == 1
    assert select_rows(db, FirstRunLink.select(FirstRunLink.digest)) == []


def test_a_link_opens_for_a_day_and_the_newest_are_kept(browser, db, link):
    def age(ms):
        FirstRunLink.update(created_ms=FirstRunLink.created_ms - ms).execute(db)

    age(first_run.LIFETIME_MS - 60_000)
    assert browser.get(link).status == 200
    age(60_000)
    assert browser.get(link).status == 403 and begin(browser, link).status == 403
    links = [first_run.make_link(db) for _ in range(first_run.MAX_LINKS + 1)]
    opened = [first_run.opens(db, made.partition("=")[2]) for made in links]
    assert opened == [False] + [True] * first_run.MAX_LINKS
    assert begin(browser, links[-1]).status == 303


def test_the_sign_in_page_says_where_the_link_is_while_there_is_no_administrator(
    browser, link, monkeypatch
):
    monkeypatch.setattr(site, "FIRST_RUN_S", 0.0)
    page = browser.get("/sign-in").text
    assert "prints a first-run link" in page and "Locked out?" not in page
    begin(Browser(browser.port), link)
    page = Browser(browser.port).get("/sign-in").text
    assert "prints a first-run link" not in page and "Locked out?" in page


def test_a_refused_first_step_changes_nothing_and_its_link_opens_again(browser, db, link, apply):
    apply({"user": [{"name": "alice"}]})
    for fields, words in (
        ({"password": "short"}, "at least 12"),
        ({"base_url": "https://gate.example.com/v1"}, "version path"),
        ({"name": "alice"}, ""),  # a member does not become an administrator
    ):
        answer = begin(browser, link, **fields)
        assert answer.status == 400 and words in answer.text
        assert fields.get("base_url", "") in answer.text
        is_marked = bool(re.search('id="base_url"[^>]*aria-invalid="true"', answer.text))
        assert is_marked == ("base_url" in fields) and answer.text.count('role="alert"') == 1
    assert not administrators.exist(db) and show(db, "user", "alice")["role"] == "member"
    assert begin(browser, link).status == 303


def test_the_base_url_is_kept_and_shown_but_the_files_goes_before_it(serve, db, link):
    browser = Browser(serve().port)
    begin(browser, link, base_url="https://gate.example.com/")
    assert "https://gate.example.com" in browser.get("/account").text
    answer = Browser(browser.port).get("/v1/models")
    assert answer.status == 404 and "https://gate.example.com." in answer.text
    fixed = serve(server={"public_url": "https://of-the-file.example.com"})
    assert "https://of-the-file.example.com" in Browser(fixed.port).get("/v1/models").text


def test_who_chooses_the_demo_reads_how_to_start_it(browser, link):
    begin(browser, link)
    assert "./sluice demo" in browser.get("/first-run").text
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))  # a port on which nothing listens
        url = f"http://{HOST}:{nobody.getsockname()[1]}"
        fields = [("vendor", "demo"), ("base_url", url), ("groups", "default"), ("do", "list")]
        place = browser.send(CHANNEL, fields).place
    page = browser.get(place).text
    assert f"No answer from {url}" in page and 'href="#base_url">Change the base URL' in page
    fields = [("vendor", "openai-compatible"), ("groups", "default"), ("do", "list")]
    page = browser.send(CHANNEL, fields).text
    assert re.search('id="base_url"[^>]*aria-invalid="true"', page) and "is missing" in page


def test_who_leaves_is_led_back_until_calls_can_be_made(browser, db, link, vendor):
    begin(browser, link)
    assert 'href="/first-run"' in browser.get("/").text  # a step of the set-up
    browser.get("/first-run")
    browser.send(CHANNEL, [("vendor", "demo"), ("groups", "default"), ("do", "names")])
    assert "step=2&amp;part=1" in browser.get("/first-run?step=2&part=2").text
    make_channel(browser, vendor)
    assert 'name="key_name"' in browser.get("/first-run").text
    back = Browser(browser.port)
    assert back.sign_in("root", PASSWORD).place == "/first-run"
    assert Browser(browser.port).sign_in("root", PASSWORD, "/usage").place == "/usage"
    back.get("/first-run")
    back.send("/first-run/key", [("group", "default"), ("key_name", "laptop")])
    assert Browser(browser.port).sign_in("root", PASSWORD).place == "/"


def test_from_the_link_to_a_key(browser, db, link, vendor):
    answer = begin(browser, link)
    assert (answer.status, answer.place) == (303, "/first-run")
    browser.get("/first-run")
    assert make_channel(browser, vendor).place == "/first-run?step=3"
    acts = {(row["actor"], row["action"], row["kind"]) for row in entries(db, 9)}
    assert ("root", "test", "channel") in acts
    browser.get("/first-run?step=3")
    fields = [("group", "default"), ("key_name", "laptop"), ("credit", "2.50")]
    answer = browser.send("/first-run/key", fields)
    [secret] = set(re.findall(r"sk-slc-\w+", answer.text))
    assert answer.status == 200 and "curl -N" in answer.text and "demo-chat" in answer.text
    assert browser.get("/first-run").place == "/"
    assert secret not in browser.get("/account").text
    assert secret not in str(entries(db, 100)) and PASSWORD not in str(entries(db, 100))
    assert browser.send("/first-run/key", fields).place == "/"
    assert len(list_objects(db, "key")) == 1
    assert wallet.show(db, "root").balance_nanos == 2_500_000_000


def test_a_step_is_done_only_when_a_model_answered(browser, db, link):
    begin(browser, link)
    with RawUpstream(vendor_of) as vendor:
        answer = make_channel(browser, vendor, models=["broken"])
        assert answer.status == 400 and "not with ***" in answer.text
        assert list_objects(db, "channel") == []
        assert make_channel(browser, vendor, models=["demo-chat", "broken"]).status == 303
    assert list(show(db, "channel", "main")["models"]) == ["demo-chat"]


@pytest.mark.parametrize("path", ["/first-run/channel", "/first-run/key", "/first-run/address"])
def test_later_steps_are_for_administrators(browser, db, link, apply, path):
    apply({"user": [{"name": "alice", "password": "correct horse"}]})
    assert browser.get(path).status == 303
    browser.get(link)
    assert browser.send(path, []).status == 401
    browser.sign_in("alice", "correct horse")
    browser.get("/account")
    assert browser.send(path, []).status == 404
