"""`init`: what it creates, that it changes nothing that exists, and what it refuses."""

import stat
import tomllib

import pytest

from commands import output
from commands.nouns import init
from store.db import migrate
from store.db.database import discard, open_database


@pytest.fixture
def run(capsys):
    def init_with(*args):
        code = output.run(init.command, [str(arg) for arg in args], "sluice init")
        return code, *capsys.readouterr()

    return init_with


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".toml"}


def test_it_makes_files_and_schema(run, tmp_path):
    folder = tmp_path / "new" / "gw"
    values = ("server.port=8100", "ops.enabled=false", "log.level=debug")
    code, out, err = run(folder, *(word for value in values for word in ("--set", value)))
    assert (code, err) == (0, "")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert out.count("created") == 3
    document = tomllib.loads((folder / "gateway.toml").read_text())
    set_values = {"server": {"port": 8100}, "ops": {"enabled": False}, "log": {"level": "debug"}}
    assert document.items() >= set_values.items()
    for name in ("secrets.toml", "gateway.toml"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    db = open_database(f"sqlite:///{folder}/sluice.db")
    assert migrate.pending(db) == []
    discard(db)


def test_a_second_time_changes_nothing(run, tmp_path):
    run(tmp_path)
    before = contents(tmp_path)
    code, out, err = run(tmp_path)
    assert (code, err) == (0, "")
    assert contents(tmp_path) == before
    assert out.count("exists already") == 3
    (tmp_path / "sluice.db").unlink()
    assert "schema: created" in run(tmp_path)[1]
    assert contents(tmp_path) == before
    # new secrets for a used database cause a warning
    (tmp_path / "secrets.toml").unlink()
    code, _, err = run(tmp_path)
    assert code == 0 and "already in use, with other secrets" in err


def test_a_value_for_a_file_that_is_there_is_told_to_be_ignored(run, tmp_path):
    run(tmp_path, "--set", "server.port=8100")
    before = contents(tmp_path)
    # a value that the file has already causes no message
    assert run(tmp_path, "--set", "server.port=8100")[::2] == (0, "")
    changed = ("--set", "store.url=mysql://u:hidden@db/d", "--set", "server.port=8200")
    code, _, err = run(tmp_path, *changed)
    assert code == 0
    assert "ignored: --set store.url, --set server.port; edit the file" in err
    assert str(tmp_path / "gateway.toml") in err and "hidden" not in err
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("store.url=mysql://u:hid@zen@db:3306/sluice", "write it as %40"),
        ("store.url=mysql://u:hidézen@db:3306/sluice", "write it as %C3%A9"),
        ("server.prot=1", "did you mean server.port"),
    ],
)
def test_bad_settings_leave_no_trace(run, tmp_path, value, message):
    folder = tmp_path / "gw"
    code, out, err = run(folder, "--set", value)
    assert (code, out) == (3, "")
    assert message in err and "hid" not in err and not folder.exists()


def test_secrets_elsewhere(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_SECRETS_FILE", str(tmp_path / "elsewhere.toml"))
    assert run(tmp_path / "gw")[0] == 0
    assert (tmp_path / "elsewhere.toml").exists()
    assert not (tmp_path / "gw" / "secrets.toml").exists()


def test_a_folder_that_cannot_be_made(run, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = run(tmp_path / "file" / "gw")
    assert code == 1
    assert "Not a directory" in err and "Traceback" not in err
