"""`serve` on the command line, up to the point where a worker would start."""

import pytest

import app
from conf import secrets


@pytest.fixture
def serve(capsys):
    """serve(*args) -> exit code, output, errors of a call that ends before its first worker."""

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
