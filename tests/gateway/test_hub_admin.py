"""Administration over a running gateway: the relay follows, channels are really called."""

import json
import time

import pytest

from tests.handlers.hub.browser import Browser
from tests.handlers.hub.script import MODEL, Script
from tests.support.gateway import Gateway
from tests.support.ports import free_port
from tests.support.upstream import ScriptedUpstream

PATIENCE_S = 20
SECRET = "sk-of-the-admin-tests-0123"
UPSTREAM_KEY = "sk-upstream-of-these-tests"
PASSWORD = "battery staple"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    hub_port = free_port()
    settings = {"hub.enabled": "true", "hub.port": hub_port}
    gateway = Gateway(tmp_path_factory.mktemp("admin"), settings)
    gateway.apply(
        {
            "group": [{"name": "default"}],
            "user": [{"name": "boss", "role": "admin", "password": PASSWORD, "balance": "5"}],
            "key": [{"user": "boss", "name": "own", "group": "default", "secret": SECRET}],
        }
    )
    gateway.start()
    gateway.hub_port = hub_port
    until(lambda: answers(hub_port))
    yield gateway
    gateway.kill()


@pytest.fixture(scope="module")
def vendor():
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def api(gateway):
    made = gateway.run("token", "create", "--user", "boss", "--scope", "admin", "--json")
    return Script(gateway.hub_port, json.loads(made)["token"])


def answers(port):
    try:
        return Browser(port).get("/sign-in").status == 200
    except OSError:
        return False


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def status_of_a_call(gateway):
    body = {"model": MODEL["name"], "messages": [{"role": "user", "content": "hello"}]}
    headers = {"Authorization": f"Bearer {SECRET}"}
    return gateway.call("POST", "/v1/chat/completions", body, headers)[0]


def channel(vendor, **more):
    return {
        "name": "org/main",
        "vendor": "openai-compatible",
        "family": "chat_completions",
        "base_url": vendor.url,
        "keys": [UPSTREAM_KEY],
        "models": {MODEL["name"]: "demo-chat"},
        **more,
    }


def test_a_channel_is_made_tested_switched_and_removed_and_the_relay_follows(gateway, api, vendor):
    assert api.call("POST", "/api/admin/models", MODEL).status == 201
    assert api.call("POST", "/api/admin/channels", channel(vendor)).status == 201
    until(lambda: status_of_a_call(gateway) == 200)
    place = "/api/admin/channels/org%2Fmain"
    tested = api.call("POST", f"{place}/test", {"model": MODEL["name"]})
    assert tested.status == 200 and tested.json["ok"] is True, tested.text
    assert (tested.json["status"], tested.json["upstream_model"]) == (200, "demo-chat")
    assert 0 <= tested.json["first_byte_ms"] <= tested.json["total_ms"]
    for action, status in (("disable", 404), ("enable", 200), ("drain", 503), ("enable", 200)):
        assert api.call("POST", f"{place}/{action}").status == 200
        until(lambda status=status: status_of_a_call(gateway) == status)
    [shown] = api.listed("/api/admin/channels")
    assert shown["state"] == "available" and shown["status"][0]["model"] == MODEL["name"]
    assert api.call("DELETE", place).status == 204
    until(lambda: status_of_a_call(gateway) == 404)
    lines = api.listed("/api/admin/audit?kind=channel&name=org/main")
    actions = [line["action"] for line in lines]
    assert {"create", "test", "update", "remove"} == set(actions)
    assert {line["actor"] for line in lines} == {"boss"}
    assert UPSTREAM_KEY not in json.dumps(lines)


def test_the_system_tells_workers_store_and_where_settings_come_from(gateway, api):
    told = api.get("/api/admin/system").json
    assert told["problem"] is None and told["ready"] is True
    assert [one["pid"] for one in told["workers"]] == gateway.worker_pids()
    assert told["journal_backlog_bytes"] >= 0 and told["streams"] == 0
    assert [one["name"] for one in told["store"]["nodes"]] == [told["node"]]
    settings = {one["name"]: one for one in told["settings"]}
    assert settings["hub.port"]["value"] == gateway.hub_port
    assert settings["hub.port"]["origin"] != "default"
    assert told["overhead_ms"].keys() == {"p50", "p99"}
    assert told["loop_lag_ms"]["p99"] is None or told["loop_lag_ms"]["p99"] > 0
    assert told["version"] and told["hub_uptime_s"] >= 0


def test_money_and_users_reach_the_relay(gateway, api):
    assert api.call("POST", "/api/admin/users", {"name": "carol"}).status == 201
    body = {"amount": "2.5", "reason": "welcome"}
    assert api.call("POST", "/api/admin/users/carol/credit", body).status == 200
    assert (
        json.loads(gateway.run("wallet", "show", "--user", "carol", "--json"))["balance"] == "2.5"
    )


def test_draining_the_node_takes_it_out_of_rotation(gateway, api):
    assert api.call("POST", "/api/admin/system/drain").json == {"draining": True}
    told = api.get("/api/admin/system").json
    assert told["ready"] is False and told["draining"] is True
    [line] = api.listed("/api/admin/audit?kind=node")
    assert (line["actor"], line["action"], line["name"]) == ("boss", "drain", told["node"])
