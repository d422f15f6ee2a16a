"""A copy of a whole database as it is at one moment, made while gateways use it.

SQLite by its own online backup, in one step: a reader that stops no writer. MariaDB and MySQL by
the dump program that comes with them, in one transaction. The moment is that of the beginning.
"""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import peewee

from store.db.database import is_mysql, place
from store.values.errors import Refused, StoreError, StoreUnavailable

DUMPERS = ("mariadb-dump", "mysqldump")
CLIENTS = ("mariadb", "mysql")
DUMP_OPTIONS = (
    "--single-transaction",
    "--quick",
    "--hex-blob",
    "--no-tablespaces",
    "--skip-add-drop-table",  # loaded by mistake into a store that is used, it changes nothing
    "--default-character-set=utf8mb4",
)
SHOWN_CHARS = 500
_NEEDED = ("host", "port", "user", "password")


def copy_to(db: peewee.Database, target: Path) -> None:
    """Copy the database into a new file: a SQLite file, or SQL text for `load`.

    Refused: there is no dump program; it says what to run elsewhere. StoreError: it failed.
    """
    if is_mysql(db):
        _dump(db, target)
    else:
        _copy_sqlite(str(db.database), target)


def load(db: peewee.Database, source: Path) -> None:
    """Bring the SQL text of a copy into a MySQL database without tables. Errors: `copy_to`."""
    if db.get_tables():
        raise Refused([f"{place(db)} has tables already: restore into an empty database"])
    client = _program(CLIENTS, f"load {source.name} of the backup into {place(db)} elsewhere")
    with _login(db) as login, source.open("rb") as text:
        _run([client, login, "--default-character-set=utf8mb4", str(db.database)], stdin=text)


def _copy_sqlite(path: str, target: Path) -> None:
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with (
            contextlib.closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as source,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be copied: {error}") from error


def _dump(db: peewee.Database, target: Path) -> None:
    options = " ".join(DUMP_OPTIONS)
    dumper = _program(DUMPERS, f"run mariadb-dump {options} {db.database} where there is one")
    with _login(db) as login:
        _run([dumper, login, *DUMP_OPTIONS, f"--result-file={target}", str(db.database)])
    os.chmod(target, 0o600)


def _program(names: tuple[str, ...], cure: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    missing = f"{' and '.join(names)} are not installed (Debian: apt-get install mariadb-client)"
    raise Refused([f"{missing}; {cure}"])


@contextlib.contextmanager
def _login(db: peewee.Database) -> Iterator[str]:
    """The option by which the programs find host and login: a command line is seen by everybody."""
    parameters: Mapping[str, Any] = db.connect_params
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="sluice-login-") as file:
        file.write("[client]\nprotocol=tcp\n")
        for name in _NEEDED:
            value = parameters.get(name)
            text = value.decode() if isinstance(value, bytes) else str(value or "")
            if text:
                escaped = text.replace("\\", "\\\\").replace('"', '\\"')
                file.write(f'{name}="{escaped}"\n')
        file.flush()
        yield f"--defaults-file={file.name}"


def _run(command: list[str], **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, check=False, **options)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-SHOWN_CHARS:]
        raise StoreError(f"{Path(command[0]).name} failed ({done.returncode}): {said}")
