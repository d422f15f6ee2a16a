"""The Hub as a process beside the relay: started, replaced, ended, without effects on calls."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.handlers.hub.browser import Browser
from tests.handlers.hub.script import MODEL, Script
from tests.support.client import wait_until
from tests.support.gateway import Gateway
from tests.support.metrics import scrape
from tests.support.ports import free_port

PATIENCE_S = 20
HANG_PATIENCE_S = 90
MAX_IDLE_KIB = 60 * 1024
PASSWORD = "correct horse"
SECRET = "sk-of-the-admin-tests-0123"


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
    """Return the Hub's process id, found by its command line."""
    for pid in gateway.pids():
        if b"\0hub\0" in command_of(pid):
            return pid
    return None


def command_of(pid):
    """Return the command line of a process; empty if it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def resident_kib(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def test_sign_ins_are_counted_also_when_it_dies(gateway):
    """The Hub's process is small, is replaced, and the relay does not notice its death."""

    def counted():
        results = ("ok", "wrong")
        return [scrape(gateway).sum("sluice_hub_sign_ins_total", result=one) for one in results]

    assert Browser(gateway.hub_port).sign_in("alice", PASSWORD).status == 303
    for _ in range(2):
        assert Browser(gateway.hub_port).sign_in("alice", "wrong").status == 401
    assert counted() == [1, 2]
    before, workers = hub_pid(gateway), gateway.worker_pids()
    until(lambda: resident_kib(before) <= MAX_IDLE_KIB)
    until(lambda: scrape(gateway).one("sluice_hub_up") == 1)
    os.kill(before, signal.SIGKILL)
    assert gateway.ready()
    until(lambda: hub_pid(gateway) not in (None, before) and answers(gateway.hub_port))
    assert len(workers) > 0 and gateway.worker_pids() == workers
    assert '"hub died"' in gateway.log()
    assert Browser(gateway.hub_port).sign_in("alice", PASSWORD).status == 303
    assert counted() == [2, 2]


@pytest.mark.long
def test_one_that_hangs_is_replaced(gateway):
    """The process lives and holds its socket, but its loop does not turn."""
    before = hub_pid(gateway)
    os.kill(before, signal.SIGSTOP)
    until(lambda: hub_pid(gateway) not in (None, before), patience_s=HANG_PATIENCE_S)
    until(lambda: answers(gateway.hub_port))
    assert '"signal":"SIGKILL"' in gateway.log()


def test_a_reload_gives_it_the_new_settings(gateway):
    before, logged = hub_pid(gateway), len(gateway.log())
    config = gateway.config.read_text()
    changed = config.replace("[server]", '[server]\npublic_url = "https://gate.example.com"', 1)
    gateway.config.write_text(changed)
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: hub_pid(gateway) not in (None, before) and answers(gateway.hub_port))
    assert "gate.example.com" in Browser(gateway.hub_port).get("/sign-in").text
    assert '"hub died"' not in gateway.log()[logged:]


# ---- administration: the relay follows, channels get real calls --------------------------------


@pytest.fixture(scope="module")
def api(gateway):
    made = gateway.run("token", "create", "--user", "boss", "--scope", "admin", "--json")
    return Script(gateway.hub_port, json.loads(made)["token"])


def status_of_a_call(gateway):
    body = {"model": MODEL["name"], "messages": [{"role": "user", "content": "hello"}]}
    headers = {"Authorization": f"Bearer {SECRET}"}
    return gateway.call("POST", "/v1/chat/completions", body, headers)[0]


def test_a_channel_is_made_tested_switched_and_removed_and_the_relay_follows(gateway, api, vendor):
    channel = {"name": "main", "vendor": "openai-compatible", "family": "chat_completions",
               "base_url": vendor.url, "keys": ["sk-upstream-of-these-tests"],
               "models": {MODEL["name"]: "demo-chat"}}  # fmt: skip
    assert api.call("POST", "/api/admin/models", MODEL).status == 201
    assert api.call("POST", "/api/admin/channels", channel).status == 201
    until(lambda: status_of_a_call(gateway) == 200)
    place = "/api/admin/channels/main"
    tested = api.call("POST", f"{place}/test", {"model": MODEL["name"]})
    assert (tested.status, tested.json["status"], tested.json["ok"]) == (200, 200, True)
    for action, status in (("disable", 404), ("enable", 200), ("drain", 503)):
        assert api.call("POST", f"{place}/{action}").status == 200
        until(lambda status=status: status_of_a_call(gateway) == status)
    assert api.call("DELETE", place).status == 204
    until(lambda: status_of_a_call(gateway) == 404)


def test_try_it_calls_as_a_key_of_the_user(gateway, api, vendor):
    """The call goes over HTTP with a grant that neither the vendor nor a log sees."""
    channel = {"name": "tried", "vendor": "openai-compatible", "family": "chat_completions",
               "base_url": vendor.url, "keys": ["sk-upstream-of-these-tests"],
               "models": {MODEL["name"]: "demo-chat"}}  # fmt: skip
    assert api.call("POST", "/api/admin/channels", channel).status == 201
    until(lambda: status_of_a_call(gateway) == 200)
    [key] = [one for one in api.listed("/api/keys") if one["name"] == "own"]
    ask = {"key": key["id"], "model": MODEL["name"], "turns": [{"role": "user", "text": "Hello"}]}
    answer = api.call("POST", "/api/try", ask)
    events, _, last = answer.text.rpartition("event: sluice\ndata: ")
    facts = json.loads(last)
    assert (answer.status, facts["status"], facts["outcome"]) == (200, 200, "ok")
    assert "chat.completion.chunk" in events and facts["cost"] != "0"
    record = api.get(f"/api/usage/{facts['id']}").json
    expected = {"key_name": "own", "user_agent": "sluice-hub/try", "client_ip": "127.0.0.1"}
    assert {name: record[name] for name in expected} == expected
    assert "grant" not in json.dumps(vendor.log()[-1]["headers"]).lower()
    assert "x-sluice-grant" not in gateway.log().lower()
    elsewhere = {"networks": ["203.0.113.0/24"]}
    assert api.call("PATCH", f"/api/keys/{key['id']}", elsewhere).status == 200
    until(lambda: status_of_a_call(gateway) == 403)
    facts = json.loads(api.call("POST", "/api/try", ask).text.rpartition("sluice\ndata: ")[2])
    assert (facts["status"], facts["error_code"]) == (403, "ip_not_allowed")
    assert api.call("PATCH", f"/api/keys/{key['id']}", {"networks": []}).status == 200
    assert api.call("DELETE", "/api/admin/channels/tried").status == 204


def test_the_system_is_shown_and_the_node_is_taken_out_of_rotation(gateway, api):
    system = api.get("/api/admin/system").json
    assert (system["problem"], system["ready"], system["streams"]) == (None, True, 0)
    assert [one["pid"] for one in system["workers"]] == gateway.worker_pids()
    assert [one["name"] for one in system["store"]["nodes"]] == [system["node"]]
    assert system["overhead_ms"].keys() == {"p50", "p99"}
    assert api.call("POST", "/api/admin/system/drain").json == {"draining": True}
    system = api.get("/api/admin/system").json
    assert (system["ready"], system["draining"]) == (False, True)
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
    """Return the latest first-run link in the log of `serve`."""
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
        # From two starts and two runs of init, one of them on a finished folder.
        assert len(set(paths)) == 4
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
