"""`serve` on the command line, up to the point where a worker would start."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import app
from conf import secrets

APP = Path(app.__file__)


@pytest.fixture
def serve(capsys):
    """Return serve(*args): exit code, output, errors of a call that ends before its first
    worker."""

    def run(*args):
        return app.main(["serve", *map(str, args)]), *capsys.readouterr()

    return run


@pytest.fixture
def config(tmp_path):
    secrets.create(tmp_path / "secrets.toml")
    path = tmp_path / "gateway.toml"
    path.write_text("[hub]\nenabled = false\n")
    return path


def test_help_and_wrong_usage(serve):
    code, out, _ = serve("--help")
    assert code == 0 and "SIGTERM" in out and "--set" in out
    for args in (["--nonsense"], ["--set"], ["file"], ["--config"]):
        code, _, err = serve(*args)
        assert code == 2 and "Usage: sluice serve" in err


def test_a_bad_setting_exits_3(serve, config):
    code, _, err = serve("--config", config, "--set", "server.workrs=2")
    assert code == 3
    assert err == (
        "--set server.workrs: unknown setting server.workrs; did you mean server.workers?\n"
        f"configuration read: {config}; name another with --config FILE or SLUICE_CONFIG\n"
    )


def test_no_configuration_or_secrets_exit_3_with_a_remedy(serve, config, tmp_path, monkeypatch):
    (config.parent / "secrets.toml").unlink()
    code, _, err = serve("--config", config)
    assert code == 3 and "secrets.toml" in err and "./sluice init" in err
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    code, _, err = serve()
    assert code == 3 and "./sluice init" in err and "Traceback" not in err


def test_a_port_in_use_exits_1(config):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        argv = [sys.executable, APP, "serve", "--config", config, "--set", f"server.port={port}"]
        got = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=20)
    assert got.returncode == 1
    assert got.stderr.startswith(f"error: server.port {port} ")
    assert got.stderr.count("\n") == 1
