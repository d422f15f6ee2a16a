"""Upgrade and rollback as docs/operations.md describes them, under load, with code that changes in
place.

The test replaces root, the installation from a package index, and systemd: a restart is a SIGTERM,
the end of the process, and a start with the unit's command line.
"""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from conf.version import VERSION
from store.db.database import discard, open_database
from store.db.nodes import states
from tests.support import leash
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, ask, credentials, path_of
from tests.support.load import MODEL, Load, Manner, gateway_before
from tests.support.upstream import ScriptedUpstream

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/operations.md").read_text()
COPIED = "adapters app.py commands conf demo docs handlers operations sluice store"
COPIED += " Makefile pyproject.toml"
UPGRADE = "stop at the first line that fails"
ROLLBACK = "Back to the version before"
PATIENCE_S = 40
STEADY = Manner(callers=2, prompts=(("[[demo ms=20 chunks=10]]", True),))
GOODBYE = "systemctl restart sluice"


def recipe(words: str) -> list[str]:
    """Return the lines of the code block after these words."""
    block = PAGE.partition(words)[2].partition("\n\n    ")[2].partition("\n\n")[0]
    return [line.strip() for line in block.splitlines()]


class Machine:
    """One node that is installed as documented, with its folders below `place`."""

    def __init__(self, place: Path, gateway) -> None:
        self.gateway, self.place = gateway, place
        self.code = place / "opt/sluice"
        self.store = open_database(f"sqlite:///{gateway.folder}/sluice.db")
        self._numbers = itertools.count(1)
        self.release = place / "release"
        self.release.mkdir(parents=True)
        for name in COPIED.split():
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, self.release / name)
        (self.release / "requirements.txt").write_text("")
        self.environment = place / "environment"
        venv.create(self.environment, symlinks=True)
        (site,) = (self.environment / "lib").glob("python3*/site-packages")
        (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        first = place / "opt/sluice-0"
        shutil.copytree(self.release, first)
        shutil.copytree(self.environment, first / ".venv", symlinks=True)
        self.code.symlink_to(first)

    def follow(self, lines: list[str]) -> None:
        """Do what the lines say."""
        script = ["set -e", "systemctl() { :; }", 'runuser() { shift 3; "$@"; }']
        script.append(f"make() {{ cp -a {self.environment} $2/.venv; }}")
        assert lines[-1] == GOODBYE and len(lines) <= 8
        for line in lines:
            line = line.replace("$(date +%Y%m%d-%H%M%S)", f"2026-{next(self._numbers)}")
            line = line.replace("/opt/sluice", str(self.code))
            line = line.replace("/var/lib/sluice/gateway.toml", str(self.gateway.config))
            script.append(line.replace("/var/lib/sluice", str(self.gateway.folder)))
        done = subprocess.run(
            ["bash"],
            check=False,
            input="\n".join(script),
            cwd=self.release,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def edit_release(self) -> None:
        with (self.release / "conf/version.py").open("a") as file:
            file.write("# another version\n")

    def start(self, *extra: str) -> None:
        """Start it as the unit does."""
        unit = (ROOT / "conf/systemd/sluice.service").read_text()
        (line,) = re.findall("^ExecStart=(.*)$", unit, re.M)
        line = line.replace("/opt/sluice", str(self.code))
        argv = line.replace("/var/lib/sluice/gateway.toml", str(self.gateway.config)).split()
        with self.gateway.log_path.open("ab") as log:
            self.gateway.process = leash.Popen(
                [*argv, *extra], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        assert wait_until(self.gateway.ready, PATIENCE_S), self.gateway.log()[-3000:]

    def restart(self) -> None:
        assert self.gateway.stop(PATIENCE_S) == 0
        self.start()

    def folder_of(self, pid: int) -> Path:
        """Return the folder of the code that a process runs, from its command line."""
        parts = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        (app,) = [part for part in parts if part.endswith("app.py")]
        assert parts[0].startswith(app.removesuffix("app.py"))
        return Path(app).parent

    def status(self) -> dict:
        return json.loads(self.gateway.call("GET", "/status", port=self.gateway.ops_port)[2])

    def revision(self) -> str:
        """Return the running gateway's revision, after checking that the store has the same."""
        running = self.status()["revision"]
        assert wait_until(lambda: self.versions_in_store() == [f"{VERSION} {running}"], PATIENCE_S)
        return running

    def versions_in_store(self) -> list[str]:
        return [version for node in states(self.store) for version in node.versions]

    def pids(self) -> list[int]:
        """Return the ids of the ready workers."""
        return [one["pid"] for one in self.status()["workers"] if not one["why"]]


@pytest.fixture
def machine(tmp_path):
    with ScriptedUpstream() as vendor:
        gateway = gateway_before(vendor, tmp_path / "state", {"server.workers": 1})
        installed = Machine(tmp_path, gateway)
        try:
            yield installed
        finally:
            gateway.close()
            discard(installed.store)


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.long)])
def test_upgrades_and_rollbacks_under_load(machine, rounds):
    gateway = machine.gateway
    upgrade, rollback = recipe(UPGRADE), recipe(ROLLBACK)
    machine.start()
    versions = [machine.revision()]
    load = Load(gateway.port, "upgrade", STEADY)
    for _ in range(rounds):
        machine.edit_release()
        (before,) = gateway.worker_pids()
        old = machine.folder_of(before)
        machine.follow(upgrade)
        # a worker that dies now is replaced by one of the running version
        os.kill(before, signal.SIGKILL)
        assert wait_until(lambda b=before: gateway.worker_pids() not in ([], [b]), PATIENCE_S)
        assert wait_until(gateway.ready, PATIENCE_S)
        assert machine.folder_of(gateway.worker_pids()[0]) == old
        assert machine.revision() == versions[-1]
        machine.restart()
        versions.append(machine.revision())
    assert len(set(versions)) == rounds + 1
    for _ in range(rounds):
        machine.follow(rollback)
        machine.restart()
        assert machine.revision() == versions[rounds - 1], "not the version before the last upgrade"
    load.wait_for(len(load.seen) + 5)
    load.stop()
    assert load.seen[-1].served
    # While the port refuses connections, calls have no answer.
    answered = [seen for seen in load.seen if seen.answer is not None]
    cut = [seen for seen in answered if not seen.served]
    assert {seen.answer.status for seen in cut} <= {200}
    assert len(cut) <= 2 * rounds, "beside the streams of killed workers"
    ids = {seen.answer.call_id for seen in answered}
    assert wait_until(lambda: ids <= {one["id"] for one in gateway.usage()}, PATIENCE_S, step_s=1)
    gateway.run("books", "verify")


def test_code_that_is_changed_in_place_runs_under_no_old_supervisor(machine):
    gateway = machine.gateway
    machine.start("--set", "server.workers=2")
    assert wait_until(lambda: len(machine.pids()) == 2, PATIENCE_S)
    first, second = machine.pids()
    with (machine.code / "handlers/logs.py").open("a") as file:
        file.write("# changed\n")
    gateway.process.send_signal(signal.SIGHUP)
    assert wait_until(lambda: "reload refused: code changed, restart" in gateway.log(), PATIENCE_S)
    closed = gateway.log().count("slot closed")
    os.kill(first, signal.SIGKILL)
    not_started = "worker not started: code changed, restart"
    assert wait_until(lambda: not_started in gateway.log(), PATIENCE_S)
    assert gateway.worker_pids() == [second]
    assert wait_until(lambda: gateway.log().count("slot closed") > closed, PATIENCE_S)
    headers, body = credentials(CHAT), ask(CHAT, MODEL, "hello")
    assert exchange(gateway.port, "POST", path_of(CHAT, MODEL), headers, body).status == 200
    os.kill(second, signal.SIGKILL)
    assert gateway.process.wait(PATIENCE_S) == 1
    machine.start()
