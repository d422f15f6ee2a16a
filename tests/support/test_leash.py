"""Checks that interrupted tests leave no process behind, whichever way they are interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_S, END_S = 90, 20

# A test session that starts everything tests may start, and then waits to be interrupted.
INNER = """
import time
from tests.support.nginx import Nginx, program
from tests.support.gateway import Gateway
from tests.support.ports import free_port
from tests.support.upstream import ScriptedUpstream

def test_inner(tmp_path, request):
    gateway = Gateway(tmp_path)
    gateway.start()
    pids = gateway.pids()
    with ScriptedUpstream() as vendor:
        pids.append(vendor.process.pid)
        for service in {services}:
            if service == "nginx":
                port = free_port()
                http = f"server {{{{ listen 127.0.0.1:{{port}}; }}}}"
                pids.append(Nginx(tmp_path, port, http).process.pid)
            else:
                pids.append(request.getfixturevalue(service).process.pid)
        (tmp_path / "new").write_text(" ".join(map(str, pids)))
        (tmp_path / "new").rename({told!r})
        time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(true, what: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def services() -> list[str]:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    known = {"nginx": "nginx", "mariadb": "mariadbd"}
    return [name for name, program in known.items() if shutil.which(program, path=path)]


LATER = (pytest.param(how, marks=pytest.mark.long) for how in (signal.SIGINT, signal.SIGTERM))


@pytest.mark.parametrize("how", [signal.SIGKILL, *LATER])
def test_nothing_outlives_interrupted_tests(tmp_path, how):
    told = tmp_path / "pids"
    (tmp_path / "test_inner.py").write_text(INNER.format(services=services(), told=str(told)))
    output = tmp_path / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest"),
                *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)),
                *("--basetemp", str(tmp_path / "base"), str(tmp_path / "test_inner.py")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        wait_for(lambda: told.exists() or process.poll() is not None, "no start", START_S)
        assert told.exists(), output.read_text()
        pids = list(map(int, told.read_text().split()))
        assert all(map(alive, pids))
    finally:
        # Ctrl-C goes to the whole group, other signals to the one process that they are sent to.
        (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)
        process.wait(END_S)
    wait_for(lambda: not any(map(alive, pids)), f"left of {pids}", END_S)
