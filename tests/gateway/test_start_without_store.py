"""`serve` where the store cannot be had: it says so at once, waits, and ends when it is told."""

import json
import time

import pytest

from tests.support.client import wait_until
from tests.support.gateway import Gateway
from tests.support.ports import HOST, free_port

AT_ONCE_S = 8  # what two workers need to start on a busy machine
AGAIN_S = 15
ENDS_S = 6
PASSWORD = "s3cretpw"


@pytest.fixture
def node(tmp_path):
    gateway = Gateway(tmp_path / "node", {"server.workers": 2})
    yield gateway
    gateway.close()


def reason(gateway):
    """Why /readyz says 503; empty while nobody answers or the workers only start."""
    try:
        status, _, body = gateway.call("GET", "/readyz", port=gateway.ops_port)
    except OSError:
        return ""
    assert status == 503
    told = json.loads(body)["reason"]
    return "" if told.endswith("starting") else told


def away_lines(gateway):
    lines = [line for line in gateway.log().splitlines() if "the store is unavailable: " in line]
    assert all('"level":"error"' in line for line in lines)
    return lines


def check_start(gateway, *words):
    """All that must be true of a start without a store whose message holds these words."""
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
