"""The Hub as a process beside the relay: started, replaced, ended; calls do not notice."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from conf.secrets import read
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.script import MODEL, Script
from tests.support.client import wait_until
from tests.support.gateway import Gateway
from tests.support.metrics import scrape
from tests.support.ports import HOST, free_port

PATIENCE_S = 20
HANG_PATIENCE_S = 90
MAX_IDLE_KIB = 60 * 1024
PASSWORD = "correct horse"
SECRET = "sk-of-the-admin-tests-0123"
UPSTREAM_KEY = "sk-upstream-of-these-tests"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    hub_port = free_port()
    settings = {"hub.enabled": "true", "hub.port": hub_port}
    gateway = Gateway(tmp_path_factory.mktemp("hub"), settings)
    gateway.apply(
        {
            "group": [{"name": "default"}],
            "user": [
                {"name": "alice", "balance": "1", "password": PASSWORD},
                {"name": "boss", "role": "admin", "balance": "5"},
            ],
            "key": [{"user": "boss", "name": "own", "group": "default", "secret": SECRET}],
        }
    )
    gateway.start()
    gateway.hub_port = hub_port
    until(lambda: answers(hub_port))
    yield gateway
    gateway.kill()


def answers(port):
    try:
        return Browser(port).get("/sign-in").status == 200
    except OSError:
        return False


def until(condition, patience_s=PATIENCE_S):
    value = wait_until(condition, patience_s)
    assert value
    return value


def hub_pid(gateway):
    """The Hub's process, by its command line."""
    for pid in gateway.pids():
        if b"\0hub\0" in command_of(pid):
            return pid
    return None


def command_of(pid):
    """The command line of a process; empty when it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def resident_kib(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def test_it_signs_people_in_and_is_small(gateway):
    assert Browser(gateway.hub_port).sign_in("alice", PASSWORD).status == 303
    assert Browser(gateway.hub_port).sign_in("alice", "wrong").status == 401
    until(lambda: resident_kib(hub_pid(gateway)) <= MAX_IDLE_KIB)


def test_it_is_replaced_when_it_dies_and_the_relay_does_not_notice(gateway):
    before, workers = hub_pid(gateway), worker_pids(gateway)
    assert workers
    until(lambda: scrape(gateway).one("sluice_hub_up") == 1)
    os.kill(before, signal.SIGKILL)
    assert gateway.ready()
    until(lambda: hub_pid(gateway) not in (None, before) and answers(gateway.hub_port))
    assert worker_pids(gateway) == workers
    assert '"hub died"' in gateway.log()


def test_one_that_hangs_is_replaced(gateway):
    """It lives and holds its socket, but its loop does not turn."""
    before = hub_pid(gateway)
    os.kill(before, signal.SIGSTOP)
    until(lambda: hub_pid(gateway) not in (None, before), patience_s=HANG_PATIENCE_S)
    until(lambda: answers(gateway.hub_port))
    assert '"signal":"SIGKILL"' in gateway.log()


def worker_pids(gateway):
    """The relay's processes, by their command lines."""
    return [pid for pid in gateway.pids() if b"\0worker\0" in command_of(pid)]


def test_a_reload_gives_it_the_new_settings(gateway):
    before, logged = hub_pid(gateway), len(gateway.log())
    config = gateway.config.read_text()
    changed = config.replace("[server]", '[server]\npublic_url = "https://gate.example.com"', 1)
    gateway.config.write_text(changed)
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: hub_pid(gateway) not in (None, before) and answers(gateway.hub_port))
    assert "gate.example.com" in Browser(gateway.hub_port).get("/sign-in").text
    assert '"hub died"' not in gateway.log()[logged:]


def test_a_token_of_the_command_line_opens_the_api(gateway):
    made = json.loads(
        gateway.run("token", "create", "--user", "alice", "--scope", "read", "--json")
    )
    script = Browser(gateway.hub_port, made["token"])
    assert script.get("/api/me").json["balance"] == "1"
    [listed] = json.loads(gateway.run("token", "list", "--user", "alice", "--json"))
    assert listed["id"] == made["id"] and made["token"] not in str(listed)
    gateway.run("token", "revoke", made["id"])
    assert script.get("/api/me").status == 401


def test_sign_ins_are_counted_also_when_it_dies(gateway):
    def counted():
        of = {"ok": 0, "wrong": 0}
        for result in of:
            of[result] = scrape(gateway).sum("sluice_hub_sign_ins_total", result=result)
        return tuple(now - then for now, then in zip(of.values(), at_first, strict=True))

    at_first = (0, 0)
    at_first = counted()
    assert Browser(gateway.hub_port).sign_in("alice", PASSWORD).status == 303
    for _ in range(2):
        assert Browser(gateway.hub_port).sign_in("alice", "wrong").status == 401
    assert counted() == (1, 2)
    before = hub_pid(gateway)
    os.kill(before, signal.SIGKILL)
    until(lambda: hub_pid(gateway) not in (None, before) and answers(gateway.hub_port))
    assert Browser(gateway.hub_port).sign_in("alice", PASSWORD).status == 303
    assert counted() == (2, 2)


def test_forms_outlive_a_new_cookie_secret_until_the_old_one_goes(gateway):
    """A page that was loaded before is sent after each step."""

    def sends_after(*command):
        browser.get("/account")
        before = hub_pid(gateway)
        gateway.run("secrets", *command, "cookie")
        until(lambda: hub_pid(gateway) not in (None, before) and answers(gateway.hub_port))
        return browser.send("/preferences", [("theme", "dark")]).status

    browser = Browser(gateway.hub_port)
    assert browser.sign_in("alice", PASSWORD).status == 303
    assert sends_after("rotate") == 303
    old = read(gateway.folder / "secrets.toml").cookie_secrets
    assert sends_after("remove-old") == 303
    assert len(old) == 2 and read(gateway.folder / "secrets.toml").cookie_secrets == old[:1]


def test_a_taken_port_is_named(gateway, tmp_path):
    second = Gateway(tmp_path / "second", {"hub.enabled": "true", "hub.port": gateway.hub_port})
    second.launch()
    assert second.process.wait(PATIENCE_S) == 1
    assert f"hub.port {gateway.hub_port} on {HOST} is in use" in second.log()


# ---- administration: the relay follows, channels are really called -----------------------------


@pytest.fixture(scope="module")
def api(gateway):
    made = gateway.run("token", "create", "--user", "boss", "--scope", "admin", "--json")
    return Script(gateway.hub_port, json.loads(made)["token"])


def status_of_a_call(gateway):
    body = {"model": MODEL["name"], "messages": [{"role": "user", "content": "hello"}]}
    headers = {"Authorization": f"Bearer {SECRET}"}
    return gateway.call("POST", "/v1/chat/completions", body, headers)[0]


def channel(vendor):
    return {
        "name": "org/main",
        "vendor": "openai-compatible",
        "family": "chat_completions",
        "base_url": vendor.url,
        "keys": [UPSTREAM_KEY],
        "models": {MODEL["name"]: "demo-chat"},
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
    system = api.get("/api/admin/system").json
    assert system["problem"] is None and system["ready"] is True
    assert [one["pid"] for one in system["workers"]] == gateway.worker_pids()
    assert system["journal_backlog_bytes"] >= 0 and system["streams"] == 0
    assert [one["name"] for one in system["store"]["nodes"]] == [system["node"]]
    settings = {one["name"]: one for one in system["settings"]}
    assert settings["hub.port"]["value"] == gateway.hub_port
    assert settings["hub.port"]["origin"] != "default"
    assert system["overhead_ms"].keys() == {"p50", "p99"}
    assert system["loop_lag_ms"]["p99"] is None or system["loop_lag_ms"]["p99"] > 0
    assert system["version"] and system["hub_uptime_s"] >= 0


def test_draining_the_node_takes_it_out_of_rotation(gateway, api):
    assert api.call("POST", "/api/admin/system/drain").json == {"draining": True}
    system = api.get("/api/admin/system").json
    assert system["ready"] is False and system["draining"] is True
    [line] = api.listed("/api/admin/audit?kind=node")
    assert (line["actor"], line["action"], line["name"]) == ("boss", "drain", system["node"])


def test_it_ends_with_the_gateway_and_with_its_supervisor(gateway):
    pid = hub_pid(gateway)
    assert gateway.stop() == 0
    assert not Path(f"/proc/{pid}").exists() and not answers(gateway.hub_port)
    gateway.start()
    pid = until(lambda: hub_pid(gateway))
    os.kill(gateway.process.pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists())


# ---- the first run -------------------------------------------------------------------------------


def link_of(gateway):
    """The newest link of the first run in what `serve` has logged."""
    found = re.findall(r"http://\S+/first-run\?token=[\w.~%+-]+", gateway.log())
    return found[-1] if found else None


def test_the_first_run_is_printed_and_its_base_url_is_used(tmp_path):
    hub_port = free_port()
    gateway = Gateway(tmp_path, {"hub.enabled": "true", "hub.port": hub_port})
    try:
        printed = "".join(gateway.run("init", str(tmp_path), config=False) for _ in range(2))
        gateway.start()
        link = until(lambda: link_of(gateway))
        gateway.stop()
        gateway.start()
        printed += f" {link}"
        link = until(lambda: link_of(gateway) != link and link_of(gateway))
        browser = Browser(hub_port)
        paths = [url.partition(str(hub_port))[2] for url in (link, *printed.split()) if "?" in url]
        assert len(set(paths)) == 4  # of two starts and of init, on a folder that is finished, too
        assert [browser.get(path).status for path in paths] == [200] * 4
        fields = {"name": "admin", "password": PASSWORD, "base_url": "https://gate.example.com"}
        token = paths[0].partition("=")[2]
        answer = browser.send("/first-run", [*fields.items(), ("token", token)])
        assert answer.status == 303
        assert [Browser(hub_port).get(path).status for path in paths] == [403] * 4
        assert "first run" not in gateway.run("init", str(tmp_path), config=False)
        key = "--key", "sk-slc-of-the-first-run"
        assert "https://gate.example.com" in gateway.run("client-config", "openai", *key)
        until(lambda: b"https://gate.example.com." in gateway.call("POST", "/v1/v1/messages")[2])
    finally:
        gateway.kill()
