"""Channels: a test of all of them, a copy of one, the list of an upstream's models."""

import json
import re
import threading
import time

import pytest

from handlers.hub import channels
from operations import channel_test
from store.admin.export import show
from tests.handlers.hub.admin.script import CHANNEL, MODEL, UPSTREAM_KEY
from tests.support.ports import HOST, free_port
from tests.support.upstream import RawUpstream, ScriptedUpstream

TESTS = "/api/admin/channel-tests"
REFUSED = (
    b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)


@pytest.fixture(scope="module")
def vendor():
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture
def made(api, vendor):
    """made(name, fields …): a channel of the scripted vendor, in which one model is served."""
    assert api.call("POST", "/api/admin/models", MODEL).status == 201

    def make(name, **fields):
        body = CHANNEL | {"name": name, "vendor": "demo", "base_url": vendor.url} | fields
        answer = api.call("POST", "/api/admin/channels", body)
        assert answer.status == 201, answer.text

    return make


def page_of(models, **more):
    body = json.dumps({"data": [{"id": name} for name in models], **more}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def refusing():
    body = json.dumps({"error": {"message": f"bad key {UPSTREAM_KEY}", "type": "auth"}}).encode()
    return REFUSED % (len(body), body)


def test_all_channels_that_are_switched_on_are_called_and_told_one_by_one(made, api, boss):
    with RawUpstream(refusing()) as bad:
        made("good")
        made("bad", base_url=bad.url)
        made("off", enabled=False)
        made("empty", models={})
        results = api.call("POST", TESTS).json["items"]
        assert [(one["channel"], one["ok"]) for one in results] == [("bad", False), ("good", True)]
        alone = api.call("POST", "/api/admin/channels/bad/test").json
        assert {**results[0], "total_ms": 0, "first_byte_ms": 0} == {
            **alone,
            "total_ms": 0,
            "first_byte_ms": 0,
        }
        assert alone["status"] == 401 and UPSTREAM_KEY not in json.dumps(results)
        named = api.call("POST", TESTS, {"channels": ["off"], "stream": True}).json["items"]
        assert [(one["channel"], one["stream"], one["ok"]) for one in named] == [
            ("off", True, True)
        ]
        tested = [one["name"] for one in api.listed("/api/admin/audit?kind=channel&actor=boss")]
        assert tested.count("good") == 2 and tested.count("bad") == 3  # made, and each test
        boss.get("/admin/channels")
        text = boss.send("/admin/channels", [("test", "all")]).text
        assert "2 of 2 channels" in text and "1 failed" in text and UPSTREAM_KEY not in text
        assert re.search(r"bad</a>.*Failed.*401.*good</a>.*Works", text, re.DOTALL)
        text = boss.send("/admin/channels?search=good", [("test", "all")]).text
        assert "1 of 1 channels" in text


def test_what_cannot_be_tested_is_named(made, api, db, monkeypatch):
    made("good")
    assert api.refused("POST", TESTS, {"channels": ["goood"]})[0] == 404
    assert api.refused("POST", TESTS, {"channels": "good"})[:2] == (400, "channels")
    assert api.refused("POST", TESTS, {"stream": "yes"})[:2] == (400, "stream")
    made("empty", models={})
    [result] = api.call("POST", TESTS, {"channels": ["empty"]}).json["items"]
    assert not result["ok"] and "serves no model" in result["error"]
    monkeypatch.setattr(channels, "MAX_CHANNELS", 0)
    assert api.refused("POST", TESTS)[:2] == (400, "channels")


def test_so_many_channels_are_called_at_a_time_and_others_are_served_meanwhile(
    made, api, boss, monkeypatch
):
    monkeypatch.setattr(channel_test, "CALLS_AT_ONCE", 2)
    lock, running, most = threading.Lock(), [0], [0]

    def slowly(_):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.3)
        with lock:
            running[0] -= 1
        return refusing()

    with Slow(slowly) as slow:
        for number in range(5):
            made(f"c{number}", base_url=slow.url)
        found = []
        test = threading.Thread(target=lambda: found.append(api.call("POST", TESTS).json))
        test.start()
        while slow.asked == 0:
            time.sleep(0.01)
        assert boss.get("/api/me").status == 200 and not found
        test.join(20)
    assert len(found[0]["items"]) == 5 and most[0] == 2


class Slow(RawUpstream):
    """Answers each connection in a thread of its own."""

    def __init__(self, answer):
        self.asked = 0
        super().__init__(answer)

    def _answer_all(self, answer):
        def one(peer):
            peer.send(answer(peer.request))
            peer.close()

        while not self._closed:
            try:
                peer = self.accept()
            except OSError:
                continue
            self.asked += 1
            threading.Thread(target=one, args=(peer,), daemon=True).start()


def test_a_copy_begins_with_everything_but_what_is_secret(made, boss, db):
    made(
        "main",
        priority=7,
        groups=["default"],
        extra_headers={"X-Org": "secret-org"},
        proxy="http://u:secret-pw@127.0.0.1:3128",
        draining=True,
    )
    assert "?new=1&amp;like=main" in boss.get("/admin/channels/main").text
    form = boss.get("/admin/channels?new=1&like=main").text
    assert 'name="name" value="main-copy"' in form and 'name="priority" value="7"' in form
    assert "gpt-4.1 = up-model" in form and 'value="demo" selected' in form
    assert not re.search(r'name="draining" value="true" checked', form)
    for secret in (UPSTREAM_KEY, "secret-org", "secret-pw", "***"):
        assert secret not in form
    assert "upstream keys, additional headers" in form
    assert boss.get("/admin/channels?new=1&like=mian").status == 404
    fields = [("name", "main-copy"), ("vendor", "demo"), ("family", "chat_completions")]
    fields += [("base_url", "http://127.0.0.1:9"), ("models", "gpt-4.1 = up-model")]
    assert boss.send("/admin/channels", fields).status == 303
    assert show(db, "channel", "main-copy")["keys"] == []


def test_models_that_the_upstream_lists_are_chosen_and_added(made, api, boss, db):
    api.call("POST", "/api/admin/models", MODEL | {"name": "known"})
    names = ["unknown", "known", "up-model", "<script>alert(7)</script>", "bad\ud800name", ""]
    with RawUpstream(page_of(names)) as upstream:
        made("main", base_url=upstream.url)
        said = api.get("/api/admin/channels/main/upstream-models").json
        assert (said["ok"], said["status"], said["error"]) == (True, 200, None)
        assert [(one["name"], one["served_as"], one["known"]) for one in said["items"]] == [
            ("<script>alert(7)</script>", [], False),
            ("known", [], True),
            ("unknown", [], False),
            ("up-model", ["gpt-4.1"], False),
        ]
        place = "/admin/channels/main/models"
        text = boss.get(place).text
        assert re.search(r'name="models" value="known"', text)
        assert "served as gpt-4.1" in text and "<script>alert(7)" not in text
        assert "/admin/models?new=1&amp;name=unknown" in text
        assert 'value="unknown"' in boss.get("/admin/models?new=1&name=unknown").text
        answer = boss.send(place, [("models", "unknown")])
        assert answer.status == 400 and "there is no model" in answer.text
        assert boss.send(place, [("models", "known")]).status == 303
    assert show(db, "channel", "main")["models"] == {"gpt-4.1": "up-model", "known": "known"}
    assert "Models added to main: 1." in boss.get("/admin/channels").text


@pytest.mark.parametrize(
    ("family", "path"),
    [
        ("chat_completions", "/v1/models"),
        ("responses", "/v1/models"),
        ("messages", "/v1/models?limit=1000"),
        ("generate_content", "/v1beta/models?pageSize=1000"),
    ],
)
def test_each_family_lists_its_models(made, api, vendor, family, path):
    vendor.reset()
    made("main", family=family)
    said = api.get("/api/admin/channels/main/upstream-models").json
    assert said["ok"] and said["items"], said
    assert not any(one["name"].startswith("models/") for one in said["items"])
    [line] = [line for line in vendor.log() if line["method"] == "GET"]
    assert line["path"] == path


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        (refusing(), 401, "bad key"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<!doctype html>", 200, "HTML page"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", 200, "upstream_invalid"),
    ],
)
def test_an_upstream_that_gives_no_list_says_why(made, api, boss, answer, status, told):
    with RawUpstream(answer) as upstream:
        made("main", base_url=upstream.url)
        said = api.get("/api/admin/channels/main/upstream-models").json
        assert (said["ok"], said["status"], said["items"]) == (False, status, [])
        assert told in said["error"] and UPSTREAM_KEY not in said["error"]
        text = boss.get("/admin/channels/main/models").text
        assert "No list" in text and told in text and "Try again" in text
    nobody = {"base_url": f"http://{HOST}:{free_port()}", "keys": [UPSTREAM_KEY]}
    assert api.call("PATCH", "/api/admin/channels/main", nobody).status == 200
    said = api.get("/api/admin/channels/main/upstream-models").json
    assert (said["ok"], said["status"]) == (False, None) and said["error"]
    assert api.get("/api/admin/channels/mian/upstream-models").status == 404
