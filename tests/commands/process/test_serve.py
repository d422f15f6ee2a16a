"""`serve` on the command line, up to the point where a worker would start."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from commands.process import supervisor
from conf import secrets

ROOT = Path(__file__).resolve().parents[3]


def serve(*args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "app.py"), "serve", *args]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=20, cwd=cwd)


@pytest.fixture
def config(tmp_path):
    secrets.create(tmp_path / "secrets.toml")
    path = tmp_path / "gateway.toml"
    path.write_text("[hub]\nenabled = false\n")
    return path


def test_help():
    got = serve("--help")
    assert got.returncode == 0
    assert "SIGTERM" in got.stdout and "--set" in got.stdout


@pytest.mark.parametrize("args", [["--nonsense"], ["--set"], ["file"], ["--config"]])
def test_wrong_usage(args):
    got = serve(*args)
    assert got.returncode == 2
    assert "Usage: sluice serve" in got.stderr


def test_arguments():
    assert supervisor._parse(
        ["--config", "f", "--set", "a=b=c", "--set=d=e", "--demo-port", "9"]
    ) == (
        "f",
        ["a=b=c", "d=e"],
        "9",
        "",
    )
    assert supervisor._parse([]) == ("", [], "", "")


def test_a_bad_setting_exits_3(config):
    got = serve("--config", str(config), "--set", "server.workrs=2")
    assert got.returncode == 3
    assert got.stderr == (
        "--set server.workrs: unknown setting server.workrs; did you mean server.workers?\n"
        f"configuration read: {config}; name another with --config FILE or SLUICE_CONFIG\n"
    )


def test_no_configuration_exits_3(tmp_path):
    got = serve(cwd=tmp_path)
    assert got.returncode == 3
    assert "./sluice init" in got.stderr and "Traceback" not in got.stderr


def test_missing_secrets_exit_3_with_a_cure(config):
    (config.parent / "secrets.toml").unlink()
    got = serve("--config", str(config))
    assert got.returncode == 3
    assert "secrets.toml" in got.stderr and "./sluice init" in got.stderr


def test_a_port_in_use_exits_1(config):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        got = serve("--config", str(config), "--set", f"server.port={port}")
    assert got.returncode == 1
    assert got.stderr.startswith(f"error: server.port {port} ")
    assert got.stderr.count("\n") == 1


def test_fixed_changes(config):
    old = supervisor.load(config, [], {})
    new = supervisor.load(config, ["server.port=1", "ops.port=2", "upstream.heartbeat_s=1"], {})
    assert supervisor._fixed_changes(old, new) == ["server.port", "ops.port"]
    assert json.dumps(supervisor.to_plain(new.settings))
