"""`restore` of a MariaDB backup: with the documented rights, and from an archive of a stranger."""

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
DATABASES = ("sluice", "restored")
SECRET = "a line of a file that only root may read"
# Texts that make a client of MariaDB run a program, or open a file of this machine.
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
    """A server of its own, since the documents name databases and users."""
    made = MariaDb("--innodb-flush-log-at-trx-commit=0", "--local-infile=1")
    yield made
    made.close()


@pytest.fixture
def documented_url(server):
    """A function from a database's name to its URL, for the user that docs/operations.md makes."""
    section = OPERATIONS.read_text().split("\n## MariaDB\n")[1].split("\n## ")[0]
    statements = re.findall(r"^((?:CREATE|GRANT) .*);$", section, re.MULTILINE)
    assert {text.split()[0] for text in statements} == {"CREATE", "GRANT"}
    for name in DATABASES:
        server.run(f"DROP DATABASE IF EXISTS {name}")
        for text in statements:
            text = text.replace("10.0.0.%", "%").replace("CREATE USER", "CREATE USER IF NOT EXISTS")
            text = re.sub(r"(DATABASE |ON )sluice\b", rf"\g<1>{name}", text)
            server.run(text.replace("PASSWORD", "secret"))
    return lambda name: f"mysql://sluice:secret@127.0.0.1:{server.port}/{name}"


@pytest.fixture
def installed(documented_url, tmp_path, capsys, monkeypatch):
    """An installation on MariaDB with some records, and what brings a backup back."""
    made = Installation(tmp_path / "node", documented_url("sluice"), capsys, monkeypatch)
    made.apply(document())
    made.write_records(*(record(number) for number in range(3)))

    def restore(file, folder, *args):
        capsys.readouterr()
        return app.main(["restore", str(file), str(folder), *args]), *capsys.readouterr()

    made.restore = restore
    return made


def with_text(file, text):
    """The same backup, with more text at the end of its dump."""
    target = file.with_suffix(".changed.tar")
    with tarfile.open(file) as tar, tarfile.open(target, "w") as other:
        for member in tar:
            data = tar.extractfile(member).read()
            if member.name == archive.SQL_FILE:
                data += text.encode()
            archive.add_bytes(other, member.name, data)
    return target


def test_there_and_back_with_the_documented_rights(installed, documented_url, tmp_path):
    installed.ok("backup", str(tmp_path / "b.tar"), "--with-secrets")
    store = ("--store", documented_url("restored"))
    code, out, err = installed.restore(tmp_path / "b.tar", tmp_path / "again", *store)
    assert (code, err) == (0, "") and "books and records are correct" in out
    exported = installed.ok("usage", "export", "--format", "ndjson")
    assert exported.count("\n") == 3
    installed.config = tmp_path / "again/gateway.toml"
    assert installed.ok("usage", "export", "--format", "ndjson") == exported


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_an_archive_says_is_run(installed, documented_url, server, tmp_path, text):
    mark, secret, statements = (tmp_path / name for name in ("mark", "secret", "statements"))
    secret.write_text(SECRET)
    statements.write_text("CREATE TABLE taken (line TEXT);\n")
    installed.ok("backup", str(tmp_path / "b.tar"))
    text = text.format(mark=mark, secret=secret, statements=statements)
    store = ("--store", documented_url("restored"))
    code, _, err = installed.restore(with_text(tmp_path / "b.tar", text), tmp_path / "r", *store)
    assert code == 1 and "failed (1): " in err
    assert not mark.exists() and not (tmp_path / "r").exists()
    with contextlib.suppress(pymysql.err.ProgrammingError):  # the table need not be there
        assert server.run("SELECT line FROM restored.taken") == ()
        assert "INFILE" in text


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_runs_by_itself_in_a_database_is_refused(installed, server, tmp_path, kind):
    installed.ok("backup", str(tmp_path / "b.tar"))
    file = with_text(tmp_path / "b.tar", PROGRAMS[kind])
    root = ("--store", f"mysql://root@127.0.0.1:{server.port}/restored")
    code, _, err = installed.restore(file, tmp_path / "r", *root)
    assert code == 1 and f"the store of the backup holds {kind} " in err


def test_a_trigger_in_a_sqlite_file_is_refused(filled, tmp_path, capsys):
    filled.ok("backup", str(tmp_path / "b.tar"))
    with tarfile.open(tmp_path / "b.tar") as tar:
        tar.extract(archive.SQLITE_FILE, tmp_path / "changed", filter="data")
        manifest = tar.extractfile(archive.MANIFEST).read()
    with contextlib.closing(sqlite3.connect(tmp_path / "changed" / archive.SQLITE_FILE)) as db:
        db.execute("CREATE TRIGGER t AFTER INSERT ON users BEGIN DELETE FROM audit_log; END")
    with tarfile.open(tmp_path / "c.tar", "w") as tar:
        archive.add_file(tar, archive.SQLITE_FILE, tmp_path / "changed" / archive.SQLITE_FILE)
        archive.add_bytes(tar, archive.MANIFEST, manifest)
    assert app.main(["restore", str(tmp_path / "c.tar"), str(tmp_path / "r")]) == 1
    assert "the store of the backup holds trigger 't'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("helped", "options"),
    [
        ("  --sandbox           Disallow commands", ["--sandbox"]),
        ("  --system-command    Enable or disable", ["--skip-system-command"]),
        ("  --binary-mode       Binary mode allows", None),
    ],
)
def test_a_client_that_cannot_be_confined_is_refused(
    installed, documented_url, tmp_path, monkeypatch, helped, options
):
    """A client of another make: it says how it was called and loads nothing."""
    installed.ok("backup", str(tmp_path / "b.tar"))
    client, calls = tmp_path / "bin/mysql", tmp_path / "calls"
    client.parent.mkdir()
    client.write_text(
        f'#!/bin/sh\ncase "$*" in *--help) echo "{helped}";; *) echo "$*" >> {calls};; esac\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(client.parent))
    store = ("--store", documented_url("restored"))
    _, _, err = installed.restore(tmp_path / "b.tar", tmp_path / "r", *store)
    if options is None:
        assert "its option --sandbox is missing" in err and "apt-get install" in err
        assert not calls.exists()
    else:
        assert {*options, "--binary-mode", "--local-infile=0"} <= set(calls.read_text().split())


@pytest.mark.parametrize("field", ["store", "version", "migrations", "ended_at"])
def test_a_manifest_without_a_field_is_no_backup(filled, tmp_path, capsys, field):
    manifest = {"format": 1, "store": "sqlite", "version": "1", "migrations": [], "ended_at": ""}
    del manifest[field]
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        archive.add_bytes(tar, archive.MANIFEST, json.dumps(manifest).encode())
    assert app.main(["restore", str(tmp_path / "b.tar"), str(tmp_path / "r")]) == 1
    assert "is no backup of a gateway" in capsys.readouterr().err
