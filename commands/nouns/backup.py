"""`backup`: one archive of a store and its journals, also while gateways run.

store/copies/journals.py explains which parts fit together. `restore` restores it.
"""

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import click

from commands import archive
from commands.archive import JOURNAL
from commands.nouns.local_nodes import nodes_of_store
from commands.output import data_options, note, print_fields, print_json
from commands.process.node import NAME_FILE, PARKED_NAME
from commands.store_access import FULL_SCAN_TIMEOUT_S, Access, opened_store
from conf.configuration import FILE_NAME, SECRETS_NAME
from conf.version import VERSION, revision
from store.copies import restored, snapshot
from store.copies.journals import HeldJournals
from store.db import migrate
from store.db.database import database_ms, is_mysql
from store.upkeep.lease import BACKUP, note_done
from store.values.errors import Refused
from store.values.usage_record import rfc3339


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--with-secrets", is_flag=True, help="Include secrets.toml in the archive.")
@click.option(
    "--journal",
    "more",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    multiple=True,
    help="Journal folder of another node of this store, if it is elsewhere. Repeatable.",
)
@data_options
def command(
    file: Path, with_secrets: bool, more: tuple[Path, ...], config: Path | None, as_json: bool
) -> None:
    """Back up store, journals and gateway.toml into FILE, a tar archive.

    Gateways may keep running: every call recorded before the backup ends is in it exactly once. It
    includes the journals of all nodes of this store whose folders are siblings of journal.dir.
    MariaDB is dumped with mariadb-dump. Without secrets.toml the keys in a store are useless: keep
    a copy elsewhere, or use --with-secrets and protect FILE. `restore FILE DIR` restores it.
    """
    if file.exists():
        raise Refused([f"{file} already exists"])
    with opened_store(config, FULL_SCAN_TIMEOUT_S) as access:
        summary = _write(access, file, with_secrets, more)
        note_done(access.db, BACKUP)
    if as_json:
        print_json(summary)
    else:
        print_fields({"file": str(file), "bytes": file.stat().st_size, **summary})
    if summary["missing"]:
        nodes = ", ".join(sorted(set(summary["missing"].values())))
        remedy = "if they are on this machine, add their folders with --journal"
        note(f"warning: the journals of {nodes} are not in the backup; {remedy}")
    if not with_secrets:
        note("secrets.toml is not in the backup: keep a copy of it in another safe place")


def _write(
    access: Access, file: Path, with_secrets: bool, more: tuple[Path, ...]
) -> dict[str, Any]:
    """Write the archive to a temporary folder, then link it to its place. Return the summary."""
    loaded = access.loaded
    folders = _folders(access, more)
    work = Path(tempfile.mkdtemp(prefix=".sluice-backup-", dir=file.absolute().parent))
    try:
        whole = work / "whole.tar"
        with (
            os.fdopen(
                os.open(whole, os.O_RDWR | os.O_CREAT | os.O_EXCL, archive.MODE), "wb"
            ) as out,
            tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            if loaded.path is not None:
                archive.add_file(tar, FILE_NAME, loaded.path)
            if with_secrets:
                archive.add_file(tar, SECRETS_NAME, loaded.secrets_path)
            summary = _add_store(access, tar, work, folders)
            archive.add_bytes(
                tar, archive.MANIFEST, archive.encoded({**summary, "secrets": with_secrets})
            )
            tar.close()
            out.flush()
            os.fsync(out.fileno())
        os.link(whole, file)  # unlike a rename, a link never replaces a file created meanwhile
    finally:
        shutil.rmtree(work)
    return summary


def _folders(access: Access, more: tuple[Path, ...]) -> list[Path]:
    """Return the journal folders to read, each once. The first is that of the node under whose name
    records of the archive are booked when it is restored."""
    own = Path(access.loaded.settings.journal.dir)
    beside = [node.journal for node in nodes_of_store(access.loaded, access.db)]
    folders = [folder.resolve() for folder in (own, *beside, *more) if folder.is_dir()]
    return sorted(dict.fromkeys(folders), key=lambda folder: not (folder / NAME_FILE).is_file())


def _add_store(
    access: Access, tar: tarfile.TarFile, work: Path, folders: list[Path]
) -> dict[str, Any]:
    db = access.db
    name = archive.SQL_FILE if is_mysql(db) else archive.SQLITE_FILE
    begun_ms = database_ms(db)
    with HeldJournals(folders) as journals:
        snapshot.copy_to(db, work / name)
        archive.add_file(tar, name, work / name)
        (work / name).unlink()
        ended_ms = database_ms(db)  # calls recorded by now are in the copy or the journals
        for part, data in journals.read():
            archive.add_bytes(tar, f"{JOURNAL}/{part}", data)
        running = restored.unfinished(db)
        missing = {
            node_id: node for node_id, node in running.items() if node_id not in journals.ids
        }
    if folders and (folders[0] / NAME_FILE).is_file():
        archive.add_file(tar, archive.NODE, folders[0] / NAME_FILE)
    parked = [folder / PARKED_NAME for folder in folders]
    if text := b"".join(path.read_bytes() for path in parked if path.is_file()):
        archive.add_bytes(tar, archive.PARKED, text)
    return {
        "format": archive.FORMAT,
        "version": VERSION,
        "revision": revision(),
        "store": "mysql" if is_mysql(db) else "sqlite",
        "begun_at": rfc3339(begun_ms),
        "ended_at": rfc3339(ended_ms),
        "journals": sorted(journals.ids),
        "missing": missing,
        "migrations": [step.name for step in migrate.status(db) if step.applied_ms is not None],
    }
