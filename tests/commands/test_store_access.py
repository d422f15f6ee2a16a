"""Opening the store for a command."""

import pytest

import app
from commands import store_access
from store.db.audit import entries
from tests.commands.conftest import UPSTREAM_KEY


def test_a_file_that_is_missing_or_behind_is_named_and_not_made(installation):
    path = installation.folder / "sluice.db"
    path.write_bytes(b"")
    assert "./sluice migrate up" in installation.refused("user", "list")
    path.unlink()
    text = installation.refused("user", "list")
    assert str(path) in text and "./sluice init" in text and not path.exists()
    # an error that stops a command names the configuration
    assert str(installation.config) in text.splitlines()[-1] and NAMED in text.splitlines()[-1]
    (installation.folder / "secrets.toml").unlink()
    ended = installation.run("check")
    assert ended.code == 3
    assert str(installation.config) in ended.err and NAMED in ended.err


@pytest.mark.parametrize(
    ("url", "code", "problem"),
    [
        ("postgres://me:hidden@h/d", 3, "store.url"),
        ("mysql://me:hidden@127.0.0.1:1/sluice", 1, "the store:"),
    ],
)
def test_a_database_that_is_no_or_away_is_told_without_its_password(
    installation, url, code, problem
):
    text = installation.config.read_text()
    installation.config.write_text(text.replace(installation.store_url, url))
    ended = installation.run("wallet", "show", "--user", "alice")
    assert (ended.code, ended.out) == (code, "") and problem in ended.err
    assert "hidden" not in ended.err and "Traceback" not in ended.err


def test_missing_secrets_stop_only_what_needs_them(filled):
    (filled.folder / "secrets.toml").unlink()
    assert filled.json("user", "list")[0]["name"] == "alice"
    ended = filled.run("user", "set", "alice", "role=admin")
    assert ended.code == 3 and "secrets.toml" in ended.err


def test_the_actor_is_the_user_of_the_system(monkeypatch):
    monkeypatch.setenv("LOGNAME", "olga")
    assert store_access.actor() == "cli:olga"

    def nameless():
        raise KeyError("uid 12345")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert store_access.actor().removeprefix("cli:").isdigit()


@pytest.mark.parametrize(
    ("command", "action", "kind"),
    [
        ("user set alice password=hunter22hunter22", "update", "user"),
        ("apply --prune", "remove", "user"),
        ("code create --amount 1", "create", "code"),
        ("wallet credit --user alice --amount 1 --reason gift", "credit", "wallet"),
        ("key disable alice/laptop", "disable", "key"),
        ("channel drain main", "update", "channel"),
    ],
)
def test_changes_are_audited_with_the_actor_and_without_secrets(
    filled, monkeypatch, command, action, kind
):
    monkeypatch.setenv("LOGNAME", "olga")
    document = ["-"] if command.startswith("apply") else []
    filled.ok(*command.split(), *document, stdin="{}")
    with filled.store() as db:
        rows = [row for row in entries(db, 20) if row["actor"] == "cli:olga"]
    assert (action, kind) in {(row["action"], row["kind"]) for row in rows}
    assert "hunter22" not in str(rows) and UPSTREAM_KEY not in str(rows)


NAMED = "name another with --config FILE or SLUICE_CONFIG"


def test_a_configuration_that_was_not_named_is_told_with_a_wrong_name(filled, monkeypatch, capsys):
    assert NAMED not in filled.refused("user", "show", "bob")  # the caller has named it
    monkeypatch.setenv("SLUICE_CONFIG", str(filled.config))
    assert app.main(["user", "show", "bob"]) == 1
    text = capsys.readouterr().err
    assert 'there is no user "bob"' in text and str(filled.config) in text and NAMED in text
