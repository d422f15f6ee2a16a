"""A consistent copy of a whole database, made while gateways use it.

SQLite uses its own online backup, in one step, as a reader that blocks no writer. MariaDB and MySQL
use their dump program, in one transaction. The copy has the state at its start.
"""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peewee

from store.db.database import is_mysql, place
from store.db.mysql import MySql
from store.values.errors import Refused, StoreError, StoreUnavailable

DUMPERS = ("mariadb-dump", "mysqldump")
CLIENTS = ("mariadb", "mysql")
DUMP_OPTIONS = (
    "--single-transaction",
    "--quick",
    "--hex-blob",
    "--no-tablespaces",
    "--skip-add-drop-table",  # if loaded by mistake into a store in use, it changes nothing
    "--skip-add-locks",  # its LOCK TABLES needs a right that a store's user lacks
    "--skip-triggers",
    "--default-character-set=utf8mb4",
)
# The text is untrusted: the client's own commands in it must not work (`\\!` runs a program, `tee`
# and `source` open files), and it must not read files of this machine.
LOAD_OPTIONS = ("--binary-mode", "--local-infile=0", "--default-character-set=utf8mb4")
# The word in a client's help that shows that it can be kept from running programs, and the option
# that does so.
CONFINEMENTS = {"--sandbox": "--sandbox", "--system-command": "--skip-system-command"}
HELP_TIMEOUT_S = 10
SHOWN_CHARS = 500
_NEEDED = ("host", "port", "user", "password", "ssl-ca")


def copy_to(db: peewee.Database, target: Path) -> None:
    """Copy the database into a new file: a SQLite file, or SQL text for `load`. Raises Refused if
    there is no dump program, with the command to run elsewhere, and StoreError if it failed."""
    if is_mysql(db):
        _dump(db, target)
    else:
        _copy_sqlite(str(db.database), target)


def load(db: peewee.Database, source: Path) -> None:
    """Load the SQL text of a copy into a MySQL database without tables.

    The client runs no program and opens no file that the text names. Raises as `copy_to` does, and
    Refused also if there are tables or no client can be confined like that.
    """
    if db.get_tables():
        raise Refused([f"{place(db)} has tables already: restore into an empty database"])
    client, confinement = _confined_client(db, source)
    with _login(db) as login, source.open("rb") as text:
        _run([client, login, confinement, *LOAD_OPTIONS, "--", str(db.database)], stdin=text)


def _confined_client(db: peewee.Database, source: Path) -> tuple[str, str]:
    """Return a client that can be kept from running programs, and the option for it."""
    first = _program(CLIENTS, f"load {source.name} of the backup into {place(db)} elsewhere")
    for client in filter(None, map(shutil.which, CLIENTS)):
        text = subprocess.run(
            [client, "--no-defaults", "--help"],
            capture_output=True,
            check=False,
            timeout=HELP_TIMEOUT_S,
        ).stdout.decode("utf-8", "replace")
        for word, option in CONFINEMENTS.items():
            if re.search(rf"^\s*{word}\b", text, re.MULTILINE):
                return client, option
    raise Refused(
        [
            f"{first} would run programs that a backup names (its option --sandbox is missing):"
            " install a client of MariaDB 10.5.25, 10.6.18, 10.11.8, 11.4.2 or later"
            " (Debian: apt-get install mariadb-client), or of MySQL 8.0.40 or later"
        ]
    )


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
        _run([dumper, login, *DUMP_OPTIONS, f"--result-file={target}", "--", str(db.database)])
    os.chmod(target, 0o600)


def _program(names: tuple[str, ...], remedy: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    missing = f"{' and '.join(names)} are not installed (Debian: apt-get install mariadb-client)"
    raise Refused([f"{missing}; {remedy}"])


@contextlib.contextmanager
def _login(db: peewee.Database) -> Iterator[str]:
    """Yield the option that names a file with host and login, since command lines are visible to
    all users."""
    assert isinstance(db, MySql)
    host = db.hosts.current
    parameters = {"host": host.address, "port": host.port, **db.connect_params}
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="sluice-login-") as file:
        file.write("[client]\nprotocol=tcp\n")
        for name in _NEEDED:
            value = parameters.get(name.replace("-", "_"))
            text = value.decode() if isinstance(value, bytes) else str(value or "")
            if text:
                escaped = text.replace("\\", "\\\\").replace('"', '\\"')
                file.write(f'{name}="{escaped}"\n')
        if parameters.get("ssl_verify_identity"):
            file.write("ssl-verify-server-cert\n")
        file.flush()
        yield f"--defaults-file={file.name}"


def _run(command: list[str], **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, check=False, **options)
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip()[-SHOWN_CHARS:]
        raise StoreError(f"{Path(command[0]).name} failed ({done.returncode}): {message}")
