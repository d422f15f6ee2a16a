"""`log.file`, its rotation and level changes at run time, in all processes of a node."""

import contextlib
import http.client
import json
import os
import signal

import pytest

from tests.support.call_line import FIELDS
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.gateway import Gateway
from tests.support.ports import free_port

MODEL = "demo-small"


@pytest.fixture(scope="module")
def node(tmp_path_factory, vendor):
    """Yield a running node with two workers and a Hub that logs to a file."""
    hub_port = free_port()
    gateway = Gateway(
        tmp_path_factory.mktemp("log-files") / "node",
        {
            "server.workers": 2,
            "hub.enabled": "true",
            "hub.port": hub_port,
            "log.file": "gateway.log",
            "log.level": "info",
        },
    )
    gateway.hub_port = hub_port
    gateway.file = gateway.folder / "gateway.log"
    gateway.apply(document([MODEL], [channel("first", CHAT, vendor.url, {MODEL: MODEL})]))
    gateway.start()
    assert wait_until(lambda: hub(gateway) == 404, 15)
    yield gateway
    gateway.close()


def hub(gateway):
    """Request a page that the Hub does not have and return the status; a 404 is a warning in its
    log."""
    try:
        return gateway.call("GET", "/no-such-page", port=gateway.hub_port)[0]
    except (OSError, http.client.HTTPException):
        return 0


def call(gateway):
    return exchange(gateway.port, "POST", PATHS[CHAT], credentials(CHAT), ask(CHAT, MODEL)).call_id


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def files_of(pid):
    found = []
    for one in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found.append(os.readlink(os.path.join(f"/proc/{pid}/fd", one)))
    return found


def test_all_processes_write_to_the_file_and_follow_its_rotation(node):
    call_id = call(node)
    assert wait_until(lambda: call_id in node.file.read_text())
    written = lines(node.file)
    assert {"gateway started", "worker started"} <= {one.get("message") for one in written}
    for line in written:
        assert len(line["at"]) == 24 and line["at"].endswith("Z")
        assert line["level"] in ("debug", "info", "warning", "error", "critical")
    [of_call] = [one for one in written if one.get("request_id") == call_id]
    assert set(FIELDS) <= set(of_call) and of_call["outcome"] == "ok"
    moved = node.file.with_suffix(".1")
    node.file.rename(moved)
    os.kill(node.process.pid, signal.SIGUSR1)
    pids = node.pids()
    assert len(pids) == 4  # supervisor, two workers, Hub
    assert wait_until(
        lambda: all(
            str(node.file) in files_of(pid) and str(moved) not in files_of(pid) for pid in pids
        ),
        5,
    )
    call_id = call(node)
    assert wait_until(lambda: call_id in node.file.read_text())
    assert call_id not in moved.read_text()
    os.kill(node.worker_pids()[0], signal.SIGUSR1)  # as a signal to the whole group does
    assert node.ready() and len(node.worker_pids()) == 2


def level(node, word, code=0):
    text = node.run("status", "--log-level", word, "--json", code=code)
    return json.loads(text) if code == 0 else None


def test_the_level_reaches_all_processes_and_those_that_follow(node):
    def hub_warns():
        before = node.file.read_text().count("/no-such-page")
        assert hub(node) == 404
        return wait_until(lambda: node.file.read_text().count("/no-such-page") > before, 1)

    def calls_are_logged():
        ids = [call(node) for _ in range(8)]  # reaches both workers
        return wait_until(lambda: all(one in node.file.read_text() for one in ids), 1.5)

    assert calls_are_logged()
    assert level(node, "error") == {"level": "error", "configured": "info"}
    assert wait_until(lambda: not hub_warns(), 10)
    assert not calls_are_logged()
    os.kill(node.worker_pids()[0], signal.SIGKILL)
    assert wait_until(lambda: len(node.worker_pids()) == 2 == node.ready_workers(), 20)
    assert not calls_are_logged()
    node.process.send_signal(signal.SIGHUP)
    assert wait_until(calls_are_logged, 15)
    assert node.call("GET", "/log-level", port=node.ops_port)[2].startswith(b'{"level": "info"')


def test_the_ops_port_takes_a_level_as_json_or_a_word_and_nothing_else(node):
    def put(body, **headers):
        return node.call("PUT", "/log-level", body, headers, port=node.ops_port)[0]

    assert put(b'{"level": "warning"}') == put(b"warning\n") == put(b'"info"') == 200
    for wrong in (b"", b"loud", b'{"level": "LOUD"}', b'{"level": 1}', b"[]", b"\xff", b"x" * 5000):
        assert put(wrong) == 400
    assert put(b"info", Origin="http://evil.example") == 403
    assert put(b"info", Host="evil.example") == 403
    assert node.call("POST", "/log-level", b"info", port=node.ops_port)[0] == 405
    level(node, "loud", code=2)
