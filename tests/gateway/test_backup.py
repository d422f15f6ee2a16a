"""A backup made while calls run; the restored store has each recorded call once, and correct
books."""

import json
import signal
from collections import Counter

import pytest

from tests.support.gateway import Gateway
from tests.support.load import LOST, Load, Manner, gateway_before
from tests.support.upstream import ScriptedUpstream

BACKUPS = 2
CALLERS = 12
WARM_UP_CALLS = 60
BETWEEN_CALLS = 40
LONG_SQLITE = pytest.param("sqlite", marks=pytest.mark.long)
LONG_MARIADB = pytest.param("mariadb", marks=pytest.mark.long)


@pytest.fixture
def node(request, tmp_path):
    """Yield (gateway with two workers, function that returns the arguments for a new target
    store)."""
    settings = {"server.workers": 2, "log.level": "info"}
    fresh = None
    if request.param == "mariadb":
        fresh = request.getfixturevalue("mariadb").fresh_url
        settings["store.url"] = fresh()
    with ScriptedUpstream() as vendor:
        gateway = gateway_before(vendor, tmp_path / "node", settings)
        try:
            gateway.start()
            yield gateway, (lambda: ["--store", fresh()] if fresh else [])
        finally:
            gateway.close()


def restored(gateway, file, folder, flags):
    """Return the records of a restored backup, after the commands have verified it."""
    said = json.loads(
        gateway.run("restore", str(file), str(folder), *flags, "--json", config=False)
    )
    assert said["ok"] and said["faults"] == [] and said["journals_applied"] >= 2
    (folder / "secrets.toml").write_bytes((gateway.folder / "secrets.toml").read_bytes())
    (folder / "secrets.toml").chmod(0o600)
    other = Gateway.__new__(Gateway)
    other.folder, other.config = folder, folder / "gateway.toml"
    other.log_path = gateway.log_path
    other.run("books", "verify")
    other.run("usage", "verify")
    args = ("usage", "export", "--format", "ndjson")
    return [json.loads(line) for line in other.run(*args).splitlines()]


@pytest.mark.parametrize("node", ["mariadb", LONG_SQLITE], indirect=True)
def test_every_call_recorded_before_its_end_is_in_it_once(node, tmp_path):
    gateway, where = node
    load = Load(gateway.port, "backup", Manner(callers=CALLERS))
    load.wait_for(WARM_UP_CALLS)
    made = []
    for number in range(BACKUPS):
        file = tmp_path / f"{number}.tar"
        if number == 1:  # workers end and start while it is made
            gateway.process.send_signal(signal.SIGHUP)
        said = json.loads(gateway.run("backup", str(file), "--json"))
        assert said["missing"] == {} and oct(file.stat().st_mode & 0o777) == "0o600"
        made.append((file, said["ended_at"]))
        load.wait_for(len(load.seen) + BETWEEN_CALLS)
    load.stop()
    assert gateway.stop() == 0
    kept = gateway.usage()
    for number, (file, ended_at) in enumerate(made):
        found = restored(gateway, file, tmp_path / f"restored-{number}", where())
        counts = Counter(record["id"] for record in found)
        assert max(counts.values()) == 1
        before = {record["id"]: record for record in kept if record["recorded_at"] < ended_at}
        assert before and before.keys() <= counts.keys(), f"backup {number} lacks calls"
        known = {record["id"]: record for record in kept}
        for record in found:
            if record["outcome"] == LOST:
                continue  # it was still running then
            was = known[record["id"]]
            assert record["cost"] == was["cost"] and record["charges"] == was["charges"]
        lost = [record["id"] for record in found if record["outcome"] == LOST]
        assert not set(lost) & before.keys(), "a call that had ended is lost in the backup"
        print(f"backup {number}: {len(found)} records, {len(lost)} of running calls, at {ended_at}")


@pytest.mark.parametrize("node", ["sqlite", LONG_MARIADB], indirect=True)
def test_a_restored_backup_serves(node, tmp_path):
    gateway, where = node
    load = Load(gateway.port, "before", Manner(callers=4))
    load.wait_for(20)
    gateway.run("backup", str(tmp_path / "b.tar"), "--with-secrets")
    load.stop()
    assert gateway.stop() == 0
    folder = tmp_path / "again"
    gateway.run("restore", str(tmp_path / "b.tar"), str(folder), *where(), config=False)
    gateway.folder, gateway.config = folder, folder / "gateway.toml"
    gateway.log_path = folder / "serve.log"
    gateway.start()
    again = Load(gateway.port, "after", Manner(callers=4))
    again.wait_for(20)
    again.stop()
    assert again.not_served() == [] or all(one.whole for one in again.not_served())
    gateway.run("usage", "verify")
    gateway.run("books", "verify")
    assert gateway.stop() == 0
