"""`check` through the command line, as an operator runs it."""

import json

import pytest

from commands import output
from commands.nouns import check
from conf import secrets


@pytest.fixture
def run(tmp_path, capsys):
    """Return run(text, *args), which returns (exit code, stdout, stderr) for a gateway.toml with
    that text."""

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
    assert (code, err) == (0, "") and ": valid" in out
    assert json.loads(run("", "--json")[1])["ok"] is True
    code, out, err = run("[server]\nworkrs = 2\n", "--set", "ops.prot=1")
    assert (code, out) == (3, "") and "gateway.toml:2" in err and "ops.prot" in err
    code, out, _ = run("[server]\nworkrs = 2\n", "--json")
    assert code == 3 and len(json.loads(out)["faults"]) == 1


def test_an_ops_port_for_other_machines_without_a_token(installation):
    ended = installation.run("check", "--set", "ops.host=0.0.0.0")
    assert ended.code == 3 and "ops.token" in ended.err
    assert installation.run("serve", "--set", "ops.host=0.0.0.0").code == 3
    assert ": valid" in installation.ok("check", "--set", "ops.host=::", "--set", "ops.token=t")


def test_settings_with_their_origins(run, tmp_path):
    secrets.create(tmp_path / "secrets.toml")
    text = '[server]\nport = 1234\n\n[store]\nurl = "mysql://u:s3cret@db/x"\n'
    overrides = ("--set", "log.level=debug", "--set", "ops.token=s3cret-token")
    code, out, _ = run(text, "--json", *overrides)
    assert code == 0 and "s3cret" not in out
    rows = {row["name"]: (row["value"], row["origin"]) for row in json.loads(out)["settings"]}
    file = tmp_path / "gateway.toml"
    assert rows["server.port"] == (1234, f"{file}:2")
    assert rows["hub.port"] == (8001, "default")
    assert rows["store.url"] == ("mysql://***@db/x", f"{file}:5")
    assert rows["ops.token"] == ("***", "--set ops.token")
    code, out, _ = run(text, "--settings", "--origin", *overrides)
    assert code == 0 and "--set log.level" in out and "s3cret" not in out
    assert run(text, "--origin")[0] == 2
