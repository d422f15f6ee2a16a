"""Two nodes with one gateway.toml that differ by --set: commands distinguish them and cover
both."""

import contextlib
import json
import sqlite3
import tarfile
import time
from collections import Counter

import pytest

from tests.support import commands
from tests.support.client import exchange
from tests.support.dialects import CHAT, PATHS, SECRET, ask, credentials
from tests.support.documents import CREDIT, channel, document
from tests.support.wallets import joined, owners, secret_of

NAMES = ("first", "second")
LIMIT = 20  # requests a minute


@pytest.fixture(scope="module")
def nodes(launch, vendor):
    """Return the Gateway of each node by its name. The node that gateway.toml describes by itself
    has never run."""
    described = launch(content(vendor.url), {"server.workers": 1}, follow=False)
    described.stop()
    for path in (described.folder / "journal").iterdir():
        path.unlink()
    with contextlib.closing(sqlite3.connect(described.folder / "sluice.db")) as db, db:
        db.execute("DELETE FROM nodes")
    siblings = [described.sibling(name) for name in NAMES]
    for sibling in siblings:
        sibling.start()
    folders = [described.folder / f"{name}-journal" for name in NAMES]
    yield {
        (folder / "node").read_text().strip(): sibling
        for folder, sibling in zip(folders, siblings, strict=True)
    }
    for sibling in siblings:
        sibling.close()


def content(url):
    limited = owners(["limited"], CREDIT, rpm=LIMIT)
    channels = [channel("c", CHAT, url, {"tea": "demo-small"})]
    return joined(document(["tea"], channels), limited)


def run(nodes, *args):
    """Return exit code, output and errors of a command with gateway.toml alone."""
    config = next(iter(nodes.values())).config
    done = commands.run([*args, "--config", str(config)])
    return done.returncode, done.stdout, done.stderr


def status_of_call(gateway, secret=SECRET):
    headers = credentials(CHAT, secret)
    return exchange(gateway.port, "POST", PATHS[CHAT], headers, ask(CHAT, "tea")).status


@pytest.mark.parametrize("command", [("status",), ("doctor",), ("status", "--log-level", "debug")])
def test_without_a_name_a_command_names_the_nodes(nodes, command):
    code, out, err = run(nodes, *command)
    assert (code, out) == (1, "") and "--node NAME" in err
    assert all(name in err for name in nodes) and "not running" not in err


def test_a_name_means_that_node(nodes):
    for name, gateway in nodes.items():
        code, out, err = run(nodes, "status", "--json", "--node", name)
        assert (code, err) == (0, "")
        said = json.loads(out)
        assert (said["node"], said["pid"]) == (name, gateway.process.pid)
        _, out, _ = run(nodes, "doctor", "--json", "--node", name)
        told = {finding["check"]: finding["message"] for finding in json.loads(out)["findings"]}
        assert f"process {gateway.process.pid}" in told["open files"]
        assert told["gateway"].startswith("ready") and "not booked yet" in told["journal"]


def test_an_unknown_name_is_refused_with_those_that_are_there(nodes):
    code, _, err = run(nodes, "status", "--node", "nobody")
    assert code == 1 and "'nobody'" in err and all(name in err for name in nodes)


def test_a_backup_has_the_journals_of_all(nodes, tmp_path):
    code, out, err = run(nodes, "backup", str(tmp_path / "b.tar"), "--json")
    said = json.loads(out)
    assert code == 0 and said["missing"] == {} and "are not in the backup" not in err
    assert len(said["journals"]) >= len(nodes)
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert tar.extractfile("journal/node").read().decode().strip() in nodes


def test_the_journal_of_another_store_is_left_out(nodes, tmp_path):
    stranger = next(iter(nodes.values())).folder / "stranger-journal"
    stranger.mkdir()
    (stranger / "node").write_text("stranger\n")
    (stranger / f"{'0' * 26}.lock").touch()
    _, out, _ = run(nodes, "backup", str(tmp_path / "b.tar"), "--json")
    assert "0" * 26 not in json.loads(out)["journals"]
    code, _, err = run(nodes, "status")
    assert code == 1 and "stranger (stranger-journal, not running)" in err


def test_secrets_are_taken_by_all(nodes):
    assert [status_of_call(gateway) for gateway in nodes.values()] == [200, 200]
    for args in (("rotate", "cipher"), ("remove-old", "cipher")):
        code, _, err = run(nodes, "secrets", *args)
        assert code == 0, err
    assert [status_of_call(gateway) for gateway in nodes.values()] == [200, 200]


def test_a_limit_is_divided_by_the_nodes_and_a_restart_does_not_refill_it(nodes):
    def calls_let_through():
        return Counter(
            status_of_call(gateway, secret_of("limited"))
            for _ in range(LIMIT)
            for gateway in nodes.values()
        )[200]

    began = time.monotonic()
    let_through = calls_let_through()
    assert let_through >= LIMIT
    first = next(iter(nodes.values()))
    assert first.stop() == 0
    first.start()
    let_through += calls_let_through()
    # Its share may be counted twice for as long as the other node saw it leave and come back.
    refilled = (time.monotonic() - began) * LIMIT / 60
    assert let_through <= LIMIT + LIMIT / 2 + refilled + 2


def test_a_store_in_use_by_one_of_them_is_not_moved(nodes, tmp_path):
    code, _, err = run(nodes, "migrate", "copy", f"sqlite:///{tmp_path}/other.db")
    assert code == 1 and "is in use by another gateway" in err and "-journal" in err


def test_a_node_that_runs_as_the_file_says_is_meant_without_a_name(launch_own, vendor):
    gateway = launch_own(content(vendor.url), follow=False)
    other = gateway.sibling("other")
    other.start()
    try:
        done = commands.run(["status", "--json", "--config", str(gateway.config)])
        assert json.loads(done.stdout)["pid"] == gateway.process.pid
        assert "also on this machine" in done.stderr and "(other-journal)" in done.stderr
    finally:
        other.close()
