"""`restore`: the restoration of a backup into an empty folder, complete and verified."""

import contextlib
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import peewee

from commands import archive
from commands.archive import JOURNAL
from commands.output import FAILED, json_option, note, print_fields, print_json, printable
from commands.process.node import MAX_NAME_CHARS
from commands.store_access import FULL_SCAN_TIMEOUT_S, actor
from conf import store_url
from conf.configuration import FILE_NAME, SECRETS_NAME
from conf.toml_edits import with_value
from store.calls.journal_files import SEGMENT_BYTES
from store.copies import restored, snapshot
from store.db import migrate
from store.db.database import discard, open_database
from store.db.migrations import ALL, BRIDGE_VERSION, FORERUNNERS
from store.values.errors import Refused

SHOWN_FAULTS = 20


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--store",
    "url",
    default="",
    help="For a backup of MariaDB: URL (mysql://…) of an empty database.",
)
@json_option
def command(file: Path, folder: Path, url: str, as_json: bool) -> int:
    """Restore the backup FILE into DIR, which must be empty or not exist.

    Applies the journals of the backup, then verifies books and records; exit code 1 if anything
    differs. gateway.toml in DIR names the restored store and journal. No gateway is started, and no
    program that FILE names is run, but its settings, users and keys take effect: restore only a
    backup that you trust.
    """
    if folder.exists() and any(folder.iterdir()):
        raise Refused([f"{folder} is not empty: restore only into an empty folder"])
    with _opened(file) as tar:
        manifest = archive.manifest_of(tar, file)
        _check(manifest, url, file)
        created = not folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            archive.extract(tar, folder)
            summary, faults = _whole(folder, manifest, url)
        except BaseException:
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if created:
                folder.rmdir()
            if url:
                note(f"{folder} is empty again; the database may have tables now: empty it as well")
            raise
    if as_json:
        print_json({**summary, "ok": not faults, "faults": faults})
    else:
        print_fields(summary)
        click.echo("\n".join(faults[:SHOWN_FAULTS]) or "books and records are correct")
    if not (folder / SECRETS_NAME).exists():
        note(f"put secrets.toml of this gateway into {folder} before you start it")
    return FAILED if faults else 0


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tarfile.TarFile]:
    try:
        tar = tarfile.open(file)  # noqa: SIM115 - closed below
    except (tarfile.TarError, EOFError):
        raise Refused([f"{file} is not a backup of a gateway, or is incomplete"]) from None
    with tar:
        yield tar


def _check(manifest: Mapping[str, Any], url: str, file: Path) -> None:
    mysql = manifest["store"] == "mysql"
    if mysql and not url:
        remedy = "name an empty database with --store mysql://…"
        raise Refused([f"this is a backup of MariaDB: {remedy}"])
    if url and not mysql:
        raise Refused(["this is a backup of SQLite: it goes into DIR, without --store"])
    if url:
        try:
            store_url.checked(url)
        except ValueError as error:
            raise Refused([f"--store: {error}"]) from None
    steps, version = set(manifest["migrations"]), printable(manifest["version"])
    if newer := steps - {migration.name for migration in ALL} - set(FORERUNNERS):
        names = printable(", ".join(sorted(newer)))
        raise Refused([f"{file} was made by version {version}, newer than this one: {names}"])
    if not steps & {migration.name for migration in ALL} and steps < set(FORERUNNERS):
        remedy = f"restore it with {BRIDGE_VERSION}, then upgrade"
        raise Refused([f"{file} was made by version {version}, too old for this one: {remedy}"])


def _whole(folder: Path, manifest: Mapping[str, Any], url: str) -> tuple[dict[str, Any], list[str]]:
    """Apply the journals to the store. Return a summary, and the faults found."""
    journal = folder / JOURNAL
    journal.mkdir(mode=0o700, exist_ok=True)
    for segment in journal.glob("*.log"):
        os.truncate(segment, SEGMENT_BYTES)
    _point_here(folder / FILE_NAME, url or f"sqlite:///{archive.SQLITE_FILE}")
    db = open_database(
        url or f"sqlite:///{folder.absolute() / archive.SQLITE_FILE}",
        read_timeout_s=FULL_SCAN_TIMEOUT_S,
    )
    try:
        return _made_whole(db, folder, manifest)
    finally:
        discard(db)


def _made_whole(
    db: peewee.Database, folder: Path, manifest: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    text = folder / archive.SQL_FILE
    if text.exists():
        snapshot.load(db, text)
        text.unlink()
    restored.refuse_programs(db)
    (folder / archive.MANIFEST).unlink()
    applied = migrate.up(db)
    node = folder / archive.NODE
    name = _node_name(node) if node.exists() else "restored"
    journals = restored.apply_journals(db, folder / JOURNAL, name)
    restored.give_up(db, restored.unfinished(db), actor())
    summary = {
        "backup_of": manifest["ended_at"],
        "journals_applied": journals,
        "migrations_applied": applied,
    }
    return summary, restored.faults(db)


def _node_name(path: Path) -> str:
    """Return the printable part of the name of the node that was backed up."""
    with path.open("rb") as file:
        return printable(file.read(MAX_NAME_CHARS).decode("utf-8", "replace").strip())


def _point_here(path: Path, url: str) -> None:
    """Make a gateway.toml name the store and the journal beside it, whatever it named before."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        text = with_value(with_value(text, "store", "url", url), "journal", "dir", JOURNAL)
    except ValueError as error:
        raise Refused([f"{path.name} of the backup: {error}"]) from None
    path.write_text(text, encoding="utf-8")
    path.chmod(archive.MODE)
