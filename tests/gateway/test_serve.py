"""`serve` from start to end, as a service manager sees it, with its upkeep. Without a store it
says so at once, waits, and ends on a signal."""

import contextlib
import json
import re
import socket
import time
from datetime import datetime

import pytest

from store.db.database import database_ms, discard, open_database, transaction
from store.db.tables.hub import Session
from tests.support.client import wait_until
from tests.support.gateway import Gateway
from tests.support.ports import HOST, free_port

AT_ONCE_S = 8  # enough for two workers to start on a busy machine
AGAIN_S = 15
ENDS_S = 6
PATIENCE_S = 20
UPKEEP_WITHIN_S = 40
PASSWORD = "s3cretpw"


@pytest.fixture
def node(tmp_path):
    settings = {"server.workers": 2, "usage.keep_days": 30}
    with contextlib.closing(Gateway(tmp_path / "node", settings)) as gateway:
        yield gateway


def test_ready_beating_upkeep_and_stopping(node, tmp_path):
    """One of two workers does the upkeep, and `status` shows it."""
    db = open_database(f"sqlite:///{node.folder}/sluice.db")
    row = {"digest": b"d" * 32, "id": "S", "user_id": "U", "address": "", "agent": ""}
    insert = Session.insert({**row, "created_ms": 0, "seen_ms": database_ms(db)})
    transaction(db, lambda: insert.execute(db))
    discard(db)
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        node.env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        lines = []

        def until(line):
            while line not in lines:
                lines.append(manager.recv(4096).decode())

        node.launch()
        until("READY=1")
        assert node.ready()
        lines.clear()
        until("WATCHDOG=1")
        check_upkeep(node)
        manager.setblocking(False)
        # A full queue of watchdog messages would block the next message.
        with contextlib.suppress(BlockingIOError):
            while manager.recv(4096):
                pass
        manager.settimeout(PATIENCE_S)
        assert node.stop() == 0
        until("STOPPING=1")


def check_upkeep(gateway):
    def shown():
        status = json.loads(gateway.run("status", "--json"))
        seen = [worker.get("upkeep") for worker in status["workers"]]
        done = all(upkeep and upkeep["ended_at"] for upkeep in seen)
        return status if done else None

    status = wait_until(shown, UPKEEP_WITHIN_S, step_s=1)
    upkeep = status["upkeep"]
    assert upkeep["removed"] == {"sessions": 1} and upkeep["trouble"] is None
    assert upkeep["node"] == status["node"] and upkeep["ended_at"] < upkeep["next_at"]
    assert [worker["upkeep"] for worker in status["workers"]] == [upkeep, upkeep]
    assert "removed 1 sessions; next" in gateway.run("status")
    _, _, text = gateway.call("GET", "/metrics", port=gateway.ops_port)
    ended_s = datetime.fromisoformat(upkeep["ended_at"]).timestamp()
    lines = dict(re.findall(r"^(sluice_upkeep_\w+) (\S+)$", text.decode(), re.M))
    assert float(lines["sluice_upkeep_timestamp_seconds"]) == pytest.approx(ended_s, abs=1)
    assert lines["sluice_upkeep_success"] == "1"
    assert wait_until(lambda: gateway.log().count("upkeep: removed sessions 1") == 1)
    gateway.run("books", "verify")


# ---- without a store -----------------------------------------------------------------------------


def reason(gateway):
    """Return why /readyz says 503; empty while nobody answers or the workers are still starting."""
    try:
        status, _, body = gateway.call("GET", "/readyz", port=gateway.ops_port)
    except OSError:
        return ""
    assert status == 503
    text = json.loads(body)["reason"]
    return "" if text.endswith("starting") else text


def away_lines(gateway):
    lines = [line for line in gateway.log().splitlines() if "the store is unavailable: " in line]
    assert all('"level":"error"' in line for line in lines)
    return lines


def check_start(gateway, *words):
    """Check everything about a start without a store whose message contains these words."""
    assert wait_until(lambda: reason(gateway), AT_ONCE_S)
    assert wait_until(lambda: away_lines(gateway), AT_ONCE_S)
    for word in words:
        assert word in reason(gateway) and word in away_lines(gateway)[0]
    began = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began < ENDS_S
    assert PASSWORD not in gateway.log() and "Traceback" not in gateway.log()
    left = {path.name for path in (gateway.folder / "journal").iterdir()}
    assert left == {"node", "places.json", "serve.lock"}


def test_a_refused_port_is_told_at_once_and_again(node):
    port = free_port()
    node.launch("--set", f"store.url=mysql://gateway:{PASSWORD}@{HOST}:{port}/books")
    assert wait_until(lambda: away_lines(node), AT_ONCE_S)
    time.sleep(2)
    first = len(away_lines(node))
    assert first == 2, "one of each worker"
    assert wait_until(lambda: len(away_lines(node)) == 2 * first, AGAIN_S)
    check_start(node, f"{HOST}:{port}/books", "refused")


def test_a_wrong_password(node, mariadb):
    place = f"{HOST}:{mariadb.port}/books"
    node.launch("--set", f"store.url=mysql://nobody:{PASSWORD}@{place}")
    check_start(node, place, "Access denied")


def test_a_file_that_is_missing_is_not_made(node, tmp_path):
    file = tmp_path / "gone.db"
    node.launch("--set", f"store.url=sqlite:///{file}")
    assert node.process.wait(AT_ONCE_S) == 1
    assert f"{file} (store.url) does not exist; bring it back" in node.log()
    assert "./sluice init" in node.log() and not file.exists()


def test_a_file_that_cannot_be_written(tmp_path, small_disk, read_only):
    file = small_disk / "sluice.db"
    gateway = Gateway(tmp_path / "node", {"store.url": f"sqlite:///{file}"})
    read_only()
    try:
        gateway.launch()
        check_start(gateway, str(file))
    finally:
        gateway.close()


def test_a_server_that_says_nothing_does_not_hold_up_the_end(node, breakable_mariadb):
    place = f"{HOST}:{breakable_mariadb.port}/books"
    breakable_mariadb.freeze()
    node.launch("--set", f"store.url=mysql://root@{place}")
    assert wait_until(lambda: "worker started" in node.log(), AT_ONCE_S)
    time.sleep(1)
    began = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - began < ENDS_S
