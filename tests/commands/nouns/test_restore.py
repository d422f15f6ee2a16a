"""`restore` of a MariaDB backup: with the documented rights, and from untrusted archives."""

import contextlib
import json
import re
import sqlite3
import tarfile
from pathlib import Path

import pymysql
import pytest

import app
from commands import archive
from tests.commands.conftest import Installation, document, record
from tests.support.mariadb import MariaDb

OPERATIONS = Path(__file__).parents[3] / "docs/operations.md"
SECRET = "a line of a file that only root may read"
# Texts that make a MariaDB client run a program, or open a local file.
HOSTILE = (
    "\\! touch {mark}\n",
    "system touch {mark}\n",
    "SELECT 1 \\! touch {mark}\n;\n",
    "DELIMITER //\nSELECT 1//\n\\! touch {mark}\n",
    "\\. {statements}\n",
    "source {statements}\n",
    "\\T {mark}\nSELECT 1;\n",
    "tee {mark}\nSELECT 1;\n",
    "CREATE TABLE taken (line TEXT);\nLOAD DATA LOCAL INFILE '{secret}' INTO TABLE taken;\n",
)
PROGRAMS = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON users FOR EACH ROW SET @a = 1;\n",
    "view": "CREATE VIEW v AS SELECT 1;\n",
    "routine": "CREATE PROCEDURE p() SELECT 1;\n",
    "event": "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM users;\n",
}


@pytest.fixture(scope="module")
def server():
    """Yield a separate server, because the documents name databases and users."""
    made = MariaDb("--innodb-flush-log-at-trx-commit=0", "--local-infile=1")
    yield made
    made.close()


@pytest.fixture(scope="module")
def statements():
    """Return the statements of docs/operations.md that create the database and its user."""
    section = OPERATIONS.read_text().split("\n## MariaDB\n")[1].split("\n## ")[0]
    found = re.findall(r"^((?:CREATE|GRANT) .*);$", section, re.MULTILINE)
    assert {text.split()[0] for text in found} == {"CREATE", "GRANT"}
    return found


@pytest.fixture
def documented_url(server, statements):
    """Make a fresh database with the documented rights; return its URL."""

    def make(name):
        server.run(f"DROP DATABASE IF EXISTS {name}")
        for text in statements:
            text = text.replace("10.0.0.%", "%").replace("CREATE USER", "CREATE USER IF NOT EXISTS")
            text = re.sub(r"(DATABASE |ON )sluice\b", rf"\g<1>{name}", text)
            server.run(text.replace("PASSWORD", "secret"))
        return f"mysql://sluice:secret@127.0.0.1:{server.port}/{name}"

    return make


@pytest.fixture(scope="module")
def backups(tmp_path_factory):
    return tmp_path_factory.mktemp("backups")


@pytest.fixture
def backup(documented_url, backups, capsys, monkeypatch):
    """Return the backup of an installation on MariaDB with some records, made once."""
    file = backups / "b.tar"
    if not file.exists():
        made = Installation(backups / "node", documented_url("sluice"), capsys, monkeypatch)
        made.apply(document())
        made.write_records(*(record(number) for number in range(3)))
        made.ok("backup", str(file), "--with-secrets")
    return file


def with_text(file, target, text):
    """Return the same backup, with more text at the end of its dump."""
    with tarfile.open(file) as tar, tarfile.open(target, "w") as other:
        for member in tar:
            data = tar.extractfile(member).read()
            if member.name == archive.SQL_FILE:
                data += text.encode()
            archive.add_bytes(other, member.name, data)
    return target


def test_there_and_back_with_the_documented_rights(
    backup, restore, documented_url, tmp_path, capsys, monkeypatch
):
    code, out, err = restore(backup, tmp_path / "again", "--store", documented_url("restored"))
    assert (code, err) == (0, "") and "books and records are correct" in out
    exported = []
    for folder in (backup.parent / "node", tmp_path / "again"):
        assert app.main(["usage", "export", "--config", str(folder / "gateway.toml")]) == 0
        exported.append(capsys.readouterr().out)
    assert exported[0].count("\n") == 3 and exported[0] == exported[1]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_an_archive_says_is_run(
    backup, restore, documented_url, server, tmp_path, text
):
    mark, secret, statements = (tmp_path / name for name in ("mark", "secret", "statements"))
    secret.write_text(SECRET)
    statements.write_text("CREATE TABLE taken (line TEXT);\n")
    text = text.format(mark=mark, secret=secret, statements=statements)
    file = with_text(backup, tmp_path / "c.tar", text)
    code, _, err = restore(file, tmp_path / "r", "--store", documented_url("restored"))
    assert code == 1 and "failed (1): " in err
    assert not mark.exists() and not (tmp_path / "r").exists()
    with contextlib.suppress(pymysql.err.ProgrammingError):  # the table may not exist
        assert server.run("SELECT line FROM restored.taken") == ()
        assert "INFILE" in text


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_runs_by_itself_in_a_database_is_refused(
    backup, restore, documented_url, server, tmp_path, kind
):
    documented_url("restored")
    file = with_text(backup, tmp_path / "c.tar", PROGRAMS[kind])
    root = f"mysql://root@127.0.0.1:{server.port}/restored"
    code, _, err = restore(file, tmp_path / "r", "--store", root)
    assert code == 1 and f"the store of the backup holds {kind} " in err


def test_a_trigger_in_a_sqlite_file_is_refused(filled, tmp_path, restore):
    filled.ok("backup", str(tmp_path / "b.tar"))
    with tarfile.open(tmp_path / "b.tar") as tar:
        tar.extract(archive.SQLITE_FILE, tmp_path / "changed", filter="data")
        manifest = tar.extractfile(archive.MANIFEST).read()
    with contextlib.closing(sqlite3.connect(tmp_path / "changed" / archive.SQLITE_FILE)) as db:
        db.execute("CREATE TRIGGER t AFTER INSERT ON users BEGIN DELETE FROM audit_log; END")
    with tarfile.open(tmp_path / "c.tar", "w") as tar:
        archive.add_file(tar, archive.SQLITE_FILE, tmp_path / "changed" / archive.SQLITE_FILE)
        archive.add_bytes(tar, archive.MANIFEST, manifest)
    code, _, err = restore(tmp_path / "c.tar", tmp_path / "r")
    assert code == 1 and "the store of the backup holds trigger 't'" in err


@pytest.mark.parametrize(
    ("helped", "options"),
    [
        ("  --sandbox           Disallow commands", ["--sandbox"]),
        ("  --system-command    Enable or disable", ["--skip-system-command"]),
        ("  --binary-mode       Binary mode allows", None),
    ],
)
def test_a_client_that_cannot_be_confined_is_refused(
    backup, restore, documented_url, tmp_path, monkeypatch, helped, options
):
    """A client of another vendor: it records its arguments and loads nothing."""
    client, calls = tmp_path / "bin/mysql", tmp_path / "calls"
    client.parent.mkdir()
    client.write_text(
        f'#!/bin/sh\ncase "$*" in *--help) echo "{helped}";; *) echo "$*" >> {calls};; esac\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(client.parent))
    _, _, err = restore(backup, tmp_path / "r", "--store", documented_url("restored"))
    if options is None:
        assert "its option --sandbox is missing" in err and "apt-get install" in err
        assert not calls.exists()
    else:
        assert {*options, "--binary-mode", "--local-infile=0"} <= set(calls.read_text().split())


def test_a_manifest_without_a_field_is_no_backup(tmp_path, restore):
    manifest = {"format": 1, "store": "sqlite", "version": "1", "migrations": []}
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        archive.add_bytes(tar, archive.MANIFEST, json.dumps(manifest).encode())
    code, _, err = restore(tmp_path / "b.tar", tmp_path / "r")
    assert code == 1 and "is not a backup of a gateway" in err
