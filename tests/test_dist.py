"""`make dist`: the wheel in a fresh environment runs without the repository."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
import venv
from pathlib import Path

import pytest

from conf.version import build_id
from tests.support import leash
from tests.support.client import wait_until
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
START_S = 30


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return the wheel's `sluice`, in an environment without anything of this folder."""
    folder = tmp_path_factory.mktemp("dist")
    make = ["make", "-s", "dist", f"DIST={folder}/built"]
    built = subprocess.check_output(make, cwd=ROOT, text=True)
    assert "requirements.txt" in built and not (folder / "built/.build").exists()
    (wheel,) = (folder / "built").glob("sluice-*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv/bin/python"
    install = ["install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install, wheel], check=True)
    # Makes the required packages available, which would come from an index; tests have no network.
    (site,) = (folder / "venv/lib").glob("python3*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv/bin/sluice"


def run(program, folder, *args):
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.check_output([program, *args], cwd=folder, env=env, text=True)


def test_its_commands_run_anywhere(program, tmp_path):
    said = json.loads(run(program, tmp_path, "version", "--json"))
    assert said["version"] in program.parents[2].joinpath("built").glob("*.whl").__next__().name
    assert said["revision"] == f"build-{build_id()}"  # the same as for equal files anywhere
    assert "back up store and journals" in run(program, tmp_path, "--help")
    assert "Usage: sluice migrate copy" in run(program, tmp_path, "migrate", "copy", "--help")


def test_it_serves_relay_and_hub(program, tmp_path):
    ports = {"server.port": free_port(), "hub.port": free_port(), "ops.port": free_port()}
    flags = [part for name, port in ports.items() for part in ("--set", f"{name}={port}")]
    run(program, tmp_path, "init", "gateway", *flags)
    # The wheel includes the catalogue.
    create = ("model", "create", "gpt-6.1-sol", "--from-catalogue")
    assert "created" in run(program, tmp_path, *create, "--config", "gateway/gateway.toml")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [program, "serve", "--config", "gateway/gateway.toml"]
    gateway = leash.Popen(command, cwd=tmp_path, env=env)
    try:
        relay, hub, ops = (f"http://127.0.0.1:{port}" for port in ports.values())
        assert wait_until(lambda: status(f"{ops}/readyz") == 200, START_S, step_s=0.2)
        assert status(f"{relay}/livez") == 200
        assert wait_until(lambda: status(f"{hub}/sign-in") == 200, START_S, step_s=0.2)
        page = urllib.request.urlopen(f"{hub}/sign-in").read().decode()
        linked = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
        assert any(".css" in path for path in linked) and any(".js" in path for path in linked)
        for path in linked:
            assert status(hub + path) == 200, path
    finally:
        gateway.terminate()
        assert gateway.wait(START_S) == 0


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except OSError:
        return None


def test_samples_are_in_it(program):
    (site,) = (program.parents[1] / "lib").glob("python3*/site-packages")
    for sample in ("gateway.toml", "nginx.conf", "systemd/sluice.service", "docker/Dockerfile"):
        assert (site / "conf" / sample).read_bytes() == (ROOT / "conf" / sample).read_bytes()
    assert not list(site.glob("tests")) and not list(site.glob("bench"))
