"""Channels: tests by real calls, copies, models of the upstream, suspended keys."""

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.hub.admin import channels
from operations import channel_test
from store.admin.export import show
from store.catalog.suspended_keys import SuspendedKey, suspend
from store.db.tables.catalog import ChannelKey
from tests.handlers.hub.script import CHANNEL, MODEL, UPSTREAM_KEY, http
from tests.handlers.hub.usage.calls import call, put
from tests.support.client import wait_until
from tests.support.ports import HOST, free_port
from tests.support.upstream import RawUpstream, ScriptedUpstream

SCRIPT = "<script>alert(7)</script>"
TESTS = "/api/admin/channel-tests"
LIST = "/api/admin/channels/main/upstream-models"


@pytest.fixture(scope="module")
def vendor():
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture
def create(api, vendor):
    """Return create(name, fields …): a channel of the scripted vendor that serves one model."""
    api.create("models", MODEL)
    body = CHANNEL | {"vendor": "demo", "base_url": vendor.url}
    return lambda name, **fields: api.create("channels", body | {"name": name} | fields)


BAD_KEY = {"error": {"message": f"bad key {UPSTREAM_KEY}", "type": "auth"}}
REFUSAL = http(BAD_KEY, "401 Unauthorized")


def test_all_enabled_channels_are_called_and_reported_one_by_one(create, api, boss):
    with RawUpstream(REFUSAL) as bad:
        create("good")
        create("bad", base_url=bad.url)
        create("off", enabled=False)
        create("empty", models={})
        results = api.call("POST", TESTS).json["items"]
        assert [(row["channel"], row["ok"]) for row in results] == [("bad", False), ("good", True)]
        alone = api.call("POST", "/api/admin/channels/bad/test").json
        times = {"total_ms": 0, "first_byte_ms": 0}
        assert results[0] | times == alone | times
        assert alone["status"] == 401 and UPSTREAM_KEY not in json.dumps(results)
        [named] = api.call("POST", TESTS, {"channels": ["off"], "stream": True}).json["items"]
        assert (named["channel"], named["stream"], named["ok"]) == ("off", True, True)
        lines = [row["name"] for row in api.listed("/api/admin/audit?kind=channel&actor=boss")]
        # Once by the creation, once by each test.
        assert lines.count("good") == 2 and lines.count("bad") == 3
        boss.get("/admin/channels")
        text = boss.send("/admin/channels?search=good", [("test", "all")]).text
        assert "1 of 1 channel," in text
        text = boss.send("/admin/channels", [("test", "all")]).text
        assert "2 of 2 channels" in text and "1 failed" in text and UPSTREAM_KEY not in text


def test_a_channel_that_cannot_be_tested_is_named(create, api, monkeypatch):
    create("good")
    create("empty", models={})
    assert api.refused("POST", TESTS, {"channels": ["goood"]})[0] == 404
    for body, field in (({"channels": "good"}, "channels"), ({"stream": "yes"}, "stream")):
        assert api.refused("POST", TESTS, body)[:2] == (400, field)
    [result] = api.call("POST", TESTS, {"channels": ["empty"]}).json["items"]
    assert not result["ok"] and "serves no model" in result["error"]
    monkeypatch.setattr(channels, "MAX_CHANNELS", 0)
    assert api.refused("POST", TESTS)[:2] == (400, "channels")


class SlowUpstream(RawUpstream):
    """An upstream that answers each connection in a thread and counts how many it serves at a
    time."""

    running = most = 0
    _lock = threading.Lock()

    def _serve(self, peer, answer):
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(0.3)
        with self._lock:
            self.running -= 1
        peer.send(answer)
        peer.close()

    def _answer_all(self, answer):
        while not self._closed:
            try:
                peer = self.accept()
            except OSError:
                continue
            threading.Thread(target=self._serve, args=(peer, answer), daemon=True).start()


def test_few_channels_are_called_at_a_time_and_others_are_served_meanwhile(
    create, api, boss, monkeypatch
):
    monkeypatch.setattr(channel_test, "CALLS_AT_ONCE", 2)
    with SlowUpstream(REFUSAL) as slow:
        for number in range(5):
            create(f"c{number}", base_url=slow.url)
        with ThreadPoolExecutor(1) as pool:
            test = pool.submit(api.call, "POST", TESTS)
            assert wait_until(lambda: slow.most)
            assert boss.get("/api/me").status == 200 and not test.done()
    assert len(test.result().json["items"]) == 5 and slow.most == 2


def test_a_copy_begins_with_everything_but_secrets(create, boss, db):
    secrets = {"extra_headers": {"X-Org": "secret-org"}, "proxy": "http://u:secret-pw@127.0.0.1:1"}
    create("main", priority=7, groups=["default"], draining=True, **secrets)
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


def test_models_of_the_upstream_are_selected_and_added(create, api, boss, db):
    api.create("models", MODEL | {"name": "known"})
    names = ["unknown", "known", "up-model", "gpt-6.1-sol", SCRIPT, "bad\ud800name", ""]
    with RawUpstream(http({"data": [{"id": name} for name in names]})) as upstream:
        create("main", base_url=upstream.url)
        answer = api.get(LIST).json
        assert (answer["ok"], answer["status"], answer["error"]) == (True, 200, None)
        rows = {row["name"]: (row["served_as"], row["known"]) for row in answer["items"]}
        proposed = {row["name"]: row["proposed"] for row in answer["items"]}
        assert proposed.pop("gpt-6.1-sol")["output"] == "10" and not any(proposed.values())
        assert rows.pop("gpt-6.1-sol") == ([], False)
        expected = {SCRIPT: ([], False), "known": ([], True), "unknown": ([], False)}
        assert rows == {**expected, "up-model": (["gpt-4.1"], False)}
        place = "/admin/channels/main/models"
        text = boss.get(place).text
        assert "served as gpt-4.1" in text and SCRIPT not in text
        assert "/admin/models?new=1&amp;name=unknown" in text
        answer = boss.send(place, [("models", "unknown")])
        assert answer.status == 400 and "there is no model" in answer.text
        assert "priced from the catalogue: 2 / 10" in text
        chosen = [("models", "known"), ("models", "gpt-6.1-sol")]
        assert boss.send(place, chosen).status == 303
    added = {"known": "known", "gpt-6.1-sol": "gpt-6.1-sol"}
    assert show(db, "channel", "main")["models"] == {"gpt-4.1": "up-model", **added}
    assert show(db, "model", "gpt-6.1-sol")["price_source"].startswith("catalogue ")


@pytest.mark.parametrize(
    ("family", "path"),
    [
        ("chat_completions", "/v1/models"),
        ("responses", "/v1/models"),
        ("messages", "/v1/models?limit=1000"),
        ("generate_content", "/v1beta/models?pageSize=1000"),
    ],
)
def test_each_family_lists_its_models(create, api, vendor, family, path):
    vendor.reset()
    create("main", family=family)
    answer = api.get(LIST).json
    assert answer["ok"] and answer["items"], answer
    assert not any(row["name"].startswith("models/") for row in answer["items"])
    [line] = [line for line in vendor.log() if line["method"] == "GET"]
    assert line["path"] == path


def test_an_upstream_without_a_list_says_why(create, api, boss):
    create("main")
    with RawUpstream(REFUSAL) as upstream:
        place = {"base_url": upstream.url, "keys": [UPSTREAM_KEY]}
        assert api.call("PATCH", "/api/admin/channels/main", place).status == 200
        listed = api.get(LIST).json
        assert (listed["ok"], listed["status"], listed["items"]) == (False, 401, [])
        assert "bad key" in listed["error"] and UPSTREAM_KEY not in listed["error"]
        text = boss.get("/admin/channels/main/models").text
        assert "No list" in text and "bad key" in text and "Try again" in text
    nobody = {"base_url": f"http://{HOST}:{free_port()}", "keys": [UPSTREAM_KEY]}
    assert api.call("PATCH", "/api/admin/channels/main", nobody).status == 200
    listed = api.get(LIST).json
    assert (listed["ok"], listed["status"]) == (False, None) and listed["error"]
    assert api.get("/api/admin/channels/mian/upstream-models").status == 404


def test_channels_are_filtered_and_a_suspended_upstream_key_is_used_again(boss, api, db):
    api.create("models", MODEL)
    api.create("groups", {"name": "coding"})
    channel = api.create("channels", CHANNEL)
    [key] = list(ChannelKey.select().bind(db).dicts())
    off = {"name": "spare", "enabled": False, "groups": ["coding"]}
    api.create("channels", CHANNEL | off, CHANNEL | {"name": "show", "vendor": "demo"})
    for query, names in (
        ("state=switched_off", ["spare"]),
        ("group=default&vendor=demo", ["show"]),
        ("state=switched_off&vendor=demo", []),
        ("search=spa", ["spare"]),
    ):
        text = boss.get(f"/admin/channels?{query}").text
        assert re.findall(r'aria-expanded="false">.*?</svg> (\w+)</a>', text) == names, query
    name = (channel["id"], key["fingerprint"])
    suspend(db, SuspendedKey(*name, since_ms=1, until_ms=2**40, times=1, reason="401 no such key"))
    assert "401 no such key" in boss.get("/admin/channels/main").text
    assert boss.send("/admin/channels/main/reinstate", [("key", "1")]).status == 303
    text = boss.get("/admin/channels/main").text
    assert "is used again" in text and "401 no such key" not in text


def test_own_costs_are_fields_and_their_margins_stand_beside_channels_and_models(boss, api, db):
    api.create("models", MODEL)
    own = {"cost_factor": "0.8", "cost": {"gpt-4.1": {"input": "1", "output": "5"}}}
    api.create("channels", CHANNEL | own)
    form = boss.get("/admin/channels/main/edit")
    assert 'value="0.8"' in form.text and "gpt-4.1 = input=1, output=5, call=0</" in form.text
    fields = [("models", "gpt-4.1"), ("cost_factor", ""), ("cost", "gpt-4.1 = input=2,output=3")]
    basics = [(name, CHANNEL[name]) for name in ("vendor", "family", "base_url")]
    assert boss.send("/admin/channels/main/edit", [*basics, *fields]).status == 303
    channel = api.get("/api/admin/channels/main").json
    assert channel["cost"] == {"gpt-4.1": {"input": "2", "output": "3", "call": "0"}}
    assert channel["cost_factor"] is None and channel["margin"] is None
    put(db, call(db, 1, upstream_nanos=75_000))
    assert api.get("/api/admin/channels/main").json["margin"] == "0.7500"
    for path in ("/admin/channels", "/admin/channels/main", "/admin/models"):
        assert ">75.0</" in boss.get(path).text
