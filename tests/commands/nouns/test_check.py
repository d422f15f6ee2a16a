"""`check` through the entry, as an operator sees it."""

import json

import pytest

from commands import output
from commands.nouns import check
from conf import secrets


@pytest.fixture
def run(tmp_path, capsys):
    """run(text, *args) -> (exit code, stdout, stderr) for a gateway.toml with that text."""

    def check_text(text, *args):
        path = tmp_path / "gateway.toml"
        path.write_text(text)
        code = output.run(check.command, ["--config", str(path), *args], "sluice check")
        return code, *capsys.readouterr()

    return check_text


def test_in_order_with_secrets(run, tmp_path):
    code, _, err = run("")
    assert code == 3 and "secrets.toml" in err and "init" in err
    secrets.create(tmp_path / "secrets.toml")
    code, out, err = run("[server]\nport = 1234\n")
    assert (code, err) == (0, "")
    assert "in order" in out
    assert json.loads(run("", "--json")[1])["ok"] is True


def test_all_faults_of_file_and_set(run, tmp_path):
    secrets.create(tmp_path / "secrets.toml")
    text = '[server]\nport = 8000\nworkrs = 2\n\n[log]\nlevle = "info"\n'
    code, out, err = run(text, "--set", "ops.prot=1")
    assert (code, out) == (3, "")
    for message in ("gateway.toml:3", "workrs", "workers", "gateway.toml:6", "levle", "ops.prot"):
        assert message in err
    code, out, _ = run(text, "--json")
    assert code == 3
    assert len(json.loads(out)["faults"]) == 2


def test_an_ops_port_for_other_machines_without_a_token(installation):
    ended = installation.run("check", "--set", "ops.host=0.0.0.0")
    assert ended.code == 3 and "ops.token" in ended.err
    assert installation.run("serve", "--set", "ops.host=0.0.0.0").code == 3
    assert "in order" in installation.ok("check", "--set", "ops.host=::", "--set", "ops.token=t")


def test_settings_with_their_origins(run, tmp_path, monkeypatch):
    secrets.create(tmp_path / "secrets.toml")
    monkeypatch.setenv("SLUICE_SERVER__WORKERS", "3")
    text = '[server]\nhost = "127.0.0.1"\nport = 1234\n\n[store]\nurl = "mysql://u:s3cret@db/x"\n'
    overrides = ("--set", "log.level=debug", "--set", "ops.token=s3cret-token")
    code, out, _ = run(text, "--json", *overrides)
    assert code == 0 and "s3cret" not in out
    answer = {row["name"]: row for row in json.loads(out)["settings"]}
    assert answer["server.port"]["origin"] == f"{tmp_path / 'gateway.toml'}:3"
    workers = {"name": "server.workers", "value": 3}
    assert answer["server.workers"] == workers | {"origin": "environment SLUICE_SERVER__WORKERS"}
    assert answer["log.level"]["origin"] == "--set log.level"
    assert answer["hub.port"]["origin"] == "default"
    assert answer["store.url"]["value"] == "mysql://***@db/x"
    assert answer["ops.token"]["value"] == "***"
    code, out, _ = run(text, "--settings", "--origin", *overrides)
    assert code == 0 and "environment SLUICE_SERVER__WORKERS" in out and "s3cret" not in out
    assert "server.port" in run(text, "--settings")[1]
    assert run(text, "--origin")[0] == 2
