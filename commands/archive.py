"""The archive of a backup: one tar file with these members. Imported by `backup` and `restore`."""

import io
import json
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from conf.configuration import FILE_NAME, SECRETS_NAME
from store.values.errors import Refused

FORMAT = 1
MANIFEST = "manifest.json"
SQLITE_FILE = "sluice.db"
SQL_FILE = "store.sql"
JOURNAL = "journal"
PARKED = f"{JOURNAL}/parked.ndjson"
NODE = f"{JOURNAL}/node"
MODE = 0o600

_KNOWN = {MANIFEST, FILE_NAME, SECRETS_NAME, SQLITE_FILE, SQL_FILE, PARKED, NODE}
_IN_JOURNAL = (".log", ".lock")
_MANIFEST_BYTES = 1 << 20


class _Manifest(msgspec.Struct):
    """The fields of a manifest that `restore` reads."""

    store: Literal["mysql", "sqlite"]
    version: str
    migrations: list[str]
    ended_at: str


def encoded(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as the content of its member."""
    return json.dumps(manifest, indent=1).encode() + b"\n"


def add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a member with these contents."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), MODE, int(time.time())
    archive.addfile(member, io.BytesIO(data))


def add_file(archive: tarfile.TarFile, name: str, path: Path) -> None:
    """Add a file unchanged, without its owner."""
    member = archive.gettarinfo(path, name)
    member.mode, member.uid, member.gid, member.uname, member.gname = MODE, 0, 0, "", ""
    with path.open("rb") as file:
        archive.addfile(member, file)


def manifest_of(archive: tarfile.TarFile, shown: Path) -> Mapping[str, Any]:
    """Return the manifest of the archive. Raises Refused if it is no backup, damaged, or of another
    version."""
    try:
        member = archive.getmember(MANIFEST)
        file = archive.extractfile(member)
        manifest = json.loads(file.read(_MANIFEST_BYTES) if file else b"")
        number = manifest["format"]
        if number == FORMAT:
            msgspec.convert(manifest, _Manifest)
    except (tarfile.TarError, KeyError, ValueError, TypeError, msgspec.ValidationError):
        raise Refused([f"{shown} is not a backup of a gateway, or is incomplete"]) from None
    if number != FORMAT:
        raise Refused([f"{shown} was made by another version (format {number!r:.40})"])
    checked: Mapping[str, Any] = manifest
    return checked


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the known members into a folder, each as a plain file with mode 0600."""
    for member in archive:
        folded, _, name = member.name.partition("/")
        journal = folded == JOURNAL and "/" not in name and name.endswith(_IN_JOURNAL)
        if not member.isfile() or not (journal or member.name in _KNOWN):
            continue
        path = folder / member.name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        archive.makefile(member, str(path))
        path.chmod(MODE)
