"""The Hub as a process beside the relay: started, replaced, ended; calls do not notice."""

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from conf.secrets import read
from tests.handlers.hub.browser import Browser
from tests.support.gateway import Gateway
from tests.support.metrics import scrape
from tests.support.ports import HOST, free_port

PATIENCE_S = 20
HANG_PATIENCE_S = 90
MAX_IDLE_KIB = 60 * 1024
PASSWORD = "correct horse"


@contextlib.contextmanager
def running(folder):
    hub_port = free_port()
    gateway = Gateway(folder, {"hub.enabled": "true", "hub.port": hub_port})
    gateway.apply({"user": [{"name": "alice", "balance": "1", "password": PASSWORD}]})
    gateway.start()
    gateway.hub_port = hub_port
    until(lambda: answers(hub_port))
    try:
        yield gateway
    finally:
        gateway.kill()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """For cases after which its Hub serves as before."""
    with running(tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest.fixture
def own_gateway(tmp_path):
    """For a case that ends it, or its supervisor."""
    with running(tmp_path) as made:
        yield made


def answers(port):
    try:
        return Browser(port).get("/sign-in").status == 200
    except OSError:
        return False


def until(condition, patience_s=PATIENCE_S):
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


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


def test_its_memory_when_nobody_uses_it(gateway):
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


def test_it_ends_with_the_gateway(own_gateway):
    pid = hub_pid(own_gateway)
    assert own_gateway.stop() == 0
    assert not Path(f"/proc/{pid}").exists() and not answers(own_gateway.hub_port)


def test_it_ends_when_the_supervisor_is_killed(own_gateway):
    pid = hub_pid(own_gateway)
    os.kill(own_gateway.process.pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists())


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
