"""`backup` and `restore` as commands: the contents of the archive, and what is refused."""

import json
import tarfile
import tomllib

import pytest

from commands import archive
from store.copies import snapshot
from store.db.migrations import FORERUNNERS
from tests.commands.conftest import document, record

RIGHT = "books and records are correct"


@pytest.fixture
def filled(installation):
    installation.apply(document())
    installation.write_records(*(record(number) for number in range(5)))
    return installation


def members(file):
    with tarfile.open(file) as tar:
        return {member.name: member for member in tar}


def test_what_is_in_it(filled, tmp_path):
    ended = filled.run("backup", str(tmp_path / "b.tar"))
    assert ended.code == 0 and "secrets.toml is not in the backup" in ended.err
    names = members(tmp_path / "b.tar")
    assert set(names) == {"gateway.toml", "sluice.db", "manifest.json"}
    assert {oct(member.mode) for member in names.values()} == {"0o600"}
    assert oct((tmp_path / "b.tar").stat().st_mode & 0o777) == "0o600"
    assert [path.name for path in tmp_path.glob(".sluice-backup-*")] == []
    before = (tmp_path / "b.tar").read_bytes()
    assert "b.tar already exists" in filled.refused("backup", str(tmp_path / "b.tar"))
    assert (tmp_path / "b.tar").read_bytes() == before
    ended = filled.run("backup", str(tmp_path / "c.tar"), "--with-secrets", "--json")
    assert "secrets.toml" in members(tmp_path / "c.tar") and ended.err == ""
    answer = json.loads(ended.out)
    assert (answer["store"], answer["missing"], answer["journals"]) == ("sqlite", {}, [])


def test_journals_that_are_elsewhere_are_named(filled, tmp_path):
    with filled.store() as db:
        insert = 'INSERT INTO "journals" ("id", "node", "offset", "opened_ms") VALUES (?, ?, 0, 0)'
        db.execute_sql(insert, ("0" * 26, "web-2"))
    ended = filled.run("backup", str(tmp_path / "b.tar"))
    assert ended.code == 0 and "the journals of web-2 are not in the backup" in ended.err
    other = tmp_path / "other"
    other.mkdir()
    (other / f"{'0' * 26}.lock").touch()
    (other / "parked.ndjson").write_text('{"parked": 1}\n')
    ended = filled.run("backup", str(tmp_path / "c.tar"), "--journal", str(other))
    assert "web-2" not in ended.err
    assert {f"journal/{'0' * 26}.lock", "journal/parked.ndjson"} <= members(
        tmp_path / "c.tar"
    ).keys()


def test_there_and_back(filled, tmp_path, restore):
    """The restored configuration names the restored store."""
    elsewhere = f'[journal]\ndir = "{tmp_path}/elsewhere"\n'
    filled.config.write_text(filled.config.read_text().replace("[journal]\n", elsewhere, 1))
    filled.ok("backup", str(tmp_path / "b.tar"), "--with-secrets")
    folder = tmp_path / "restored"
    code, out, err = restore(tmp_path / "b.tar", folder)
    assert (code, err) == (0, "") and RIGHT in out
    assert {path.name for path in folder.iterdir()} >= {"gateway.toml", "secrets.toml", "sluice.db"}
    assert not (folder / "manifest.json").exists()
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    config = tomllib.loads((folder / "gateway.toml").read_text())
    assert config["store"]["url"] == "sqlite:///sluice.db" and config["journal"]["dir"] == "journal"
    exported = filled.ok("usage", "export", "--format", "ndjson")
    assert exported.count("\n") == 5
    filled.config = folder / "gateway.toml"
    assert filled.ok("usage", "export", "--format", "ndjson") == exported


def test_only_an_empty_place_is_filled(filled, tmp_path, restore):
    filled.ok("backup", str(tmp_path / "b.tar"))
    folder = tmp_path / "restored"
    folder.mkdir()
    (folder / "precious").touch()
    code, out, err = restore(tmp_path / "b.tar", folder)
    assert (code, out) == (1, "") and "is not empty" in err
    assert [path.name for path in folder.iterdir()] == ["precious"]


def test_what_is_no_backup_is_refused(filled, tmp_path, restore):
    filled.ok("backup", str(tmp_path / "b.tar"))
    whole = (tmp_path / "b.tar").read_bytes()
    for content in (b"", b"no archive", b"\0" * 10240, whole[: len(whole) // 2]):
        (tmp_path / "b.tar").write_bytes(content)
        code, _, err = restore(tmp_path / "b.tar", tmp_path / "restored")
        assert code == 1 and "incomplete" in err
        assert len(content) > 10240 or "is not a backup of a gateway, or is incomplete" in err
        assert not (tmp_path / "restored").exists()


def rewritten(file, target, **changes):
    """Write a copy of a backup with another manifest."""
    with tarfile.open(file) as tar, tarfile.open(target, "w") as other:
        for member in tar:
            data = tar.extractfile(member).read()
            if member.name == "manifest.json":
                data = json.dumps({**json.loads(data), **changes}).encode()
            archive.add_bytes(other, member.name, data)
    return target


@pytest.mark.parametrize(
    ("changes", "store", "problem"),
    [
        (
            {"version": "9.9", "migrations": ["9999_later"]},
            None,
            "by version 9.9, newer than this one: 9999_later",
        ),
        ({"migrations": [*FORERUNNERS]}, None, None),
        (
            {"migrations": [*FORERUNNERS[:-1]]},
            None,
            "too old for this one: restore it with Sluice 0.1.0",
        ),
        ({"format": 2}, None, "made by another version (format 2)"),
        ({}, "mysql://h/d", "without --store"),
        ({"store": "mysql"}, None, "name an empty database with --store"),
        ({"store": "mysql"}, "mysql://", "--store: "),
    ],
)
def test_what_cannot_be_restored_here_is_told(filled, tmp_path, restore, changes, store, problem):
    filled.ok("backup", str(tmp_path / "b.tar"))
    file = rewritten(tmp_path / "b.tar", tmp_path / "c.tar", **changes)
    code, _, err = restore(file, tmp_path / "r", *(("--store", store) if store else ()))
    assert code == 0 if problem is None else problem in err


def test_nothing_outside_of_the_folder_is_written(filled, tmp_path, restore):
    filled.ok("backup", str(tmp_path / "b.tar"))
    with tarfile.open(tmp_path / "b.tar", "a") as tar:
        archive.add_bytes(tar, "../evil", b"x")
        archive.add_bytes(tar, "journal/../../evil.log", b"x")
        archive.add_bytes(tar, "/tmp/evil.lock", b"x")
    code, _, _ = restore(tmp_path / "b.tar", tmp_path / "restored")
    assert code == 0 and not list(tmp_path.rglob("evil*"))


def test_a_restore_that_fails_leaves_nothing(filled, tmp_path, restore, monkeypatch):
    filled.ok("backup", str(tmp_path / "b.tar"))
    (tmp_path / "empty").mkdir()

    def broken(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(archive, "extract", broken)
    for name in ("empty", "new"):
        code, _, err = restore(tmp_path / "b.tar", tmp_path / name)
        assert code == 1 and "the disk is full" in err
    assert list((tmp_path / "empty").iterdir()) == [] and not (tmp_path / "new").exists()


def test_without_the_programs_of_mariadb_it_says_what_to_run(monkeypatch, mariadb, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    db = snapshot.peewee.MySQLDatabase("d")
    with pytest.raises(snapshot.Refused, match=r"mariadb-client\); run mariadb-dump --single-tr"):
        snapshot.copy_to(db, tmp_path / "x.sql")
