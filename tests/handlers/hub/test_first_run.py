"""The first run: who may take which step, and what each of them leaves behind."""

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from handlers.hub.web import site
from operations.first_steps import DEMO_URL
from store.admin.export import list_objects, show
from store.db.audit import entries
from store.db.database import discard, open_database, select_rows
from store.db.tables.hub import FirstRunLink
from store.hub import administrators, first_run, people
from store.money import wallet
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.script import http
from tests.support.ports import HOST
from tests.support.stores import sqlite_store
from tests.support.upstream import RawUpstream, ScriptedUpstream

PASSWORD = "a password of the first run"


@pytest.fixture(scope="module")
def vendor():
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture
def db(tmp_path):
    """A store with its schema and nothing in it."""
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


def channel_fields(vendor, **fields):
    demo = {"vendor": "demo", "base_url": vendor.url, "name": "main", "group": "default"}
    return list({**demo, "models": "demo-chat", "do": "test", **fields}.items())


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
    """All with one link, or each with one of its own."""
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
    assert "prints a first-run link" in browser.get("/sign-in").text
    begin(Browser(browser.port), link)
    assert "prints a first-run link" not in Browser(browser.port).get("/sign-in").text


def test_a_refused_first_step_changes_nothing_and_its_link_opens_again(browser, db, link, apply):
    apply({"user": [{"name": "alice"}]})
    for fields, words in (
        ({"password": "short"}, "at least 12"),
        ({"base_url": "https://gate.example.com/v1"}, "version path"),
        ({"name": "alice"}, ""),  # a member is not made an administrator
    ):
        answer = begin(browser, link, **fields)
        assert answer.status == 400 and words in answer.text
        assert fields.get("base_url", "") in answer.text
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
    assert f"./sluice demo --port {urlsplit(DEMO_URL).port}" in browser.get("/first-run").text
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))  # and does not listen
        url = f"http://{HOST}:{nobody.getsockname()[1]}"
        fields = channel_fields(SimpleNamespace(url=url))
        answer = browser.send("/first-run/channel", fields)
    assert answer.status == 200 and "The demo does not answer." in answer.text


def test_from_the_link_to_a_key(browser, db, link, vendor):
    answer = begin(browser, link)
    assert (answer.status, answer.place) == (303, "/first-run")
    browser.get("/first-run")
    answer = browser.send("/first-run/channel", channel_fields(vendor))
    assert answer.status == 200 and "The answer is complete." in answer.text
    acts = {(row["actor"], row["action"], row["kind"]) for row in entries(db, 9)}
    assert ("root", "test", "channel") in acts
    continued = channel_fields(vendor, do="continue", keep="demo-chat")
    assert browser.send("/first-run/channel", continued).place == "/first-run?step=3"
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


def refusing(request):
    """A vendor that has one model only."""
    if b"not-there" in request:
        return http({"error": {"message": "no not-there for this account"}}, "404 Not Found")
    message = {"role": "assistant", "content": "ready"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "demo-chat"}
    return http({**answer, "choices": [choice], "usage": usage})


def test_a_failed_model_shows_its_raw_error_and_can_be_left_out(browser, db, link, tmp_path):
    (tmp_path / "secret").write_text("of a file")
    begin(browser, link)
    browser.get("/first-run")
    with RawUpstream(refusing) as vendor:

        def send(**fields):
            fields = {"models": "demo-chat, not-there", **fields}
            return browser.send("/first-run/channel", channel_fields(vendor, **fields))

        answer = send()
        assert answer.status == 400 and "not-there" in answer.text
        answer = send(input_price="1", output_price="2")
        assert "Failed" in answer.text and "Continue with working models (1)" in answer.text
        assert "no not-there for this account" in answer.text
        send(do="continue", keep="demo-chat")
        assert list(show(db, "channel", "main")["models"]) == ["demo-chat"]
        assert send(do="continue").status == 400
        # A typed text is no place to read from.
        assert "of a file" not in send(group=f"file:{tmp_path}/secret").text
        assert "of a file" not in str(list_objects(db, "group"))


@pytest.mark.parametrize("path", ["/first-run/channel", "/first-run/key", "/first-run/address"])
def test_later_steps_are_for_administrators(browser, db, link, apply, path):
    apply({"user": [{"name": "alice", "password": "correct horse"}]})
    assert browser.get(path).status == 303
    browser.get(link)
    assert browser.send(path, []).status == 303
    browser.sign_in("alice", "correct horse")
    browser.get("/account")
    assert browser.send(path, []).status == 404
