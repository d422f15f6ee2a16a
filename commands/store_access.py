"""Access to the store that the configuration names, for one command. Imported by commands only.

A command works on the database alone: no gateway has to run, and a running one picks up changes
within 2 s. Nothing is created here: a missing database is a mistake in the configuration.
"""

import functools
import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import peewee

from commands.output import configuration, data_options, note
from conf import secrets
from conf.configuration import ConfigError, Loaded, which
from conf.store_url import SQLITE
from operations.client_settings import base_url
from store.db import migrate
from store.db.base_url import stored_base_url
from store.db.database import discard, open_database
from store.values.errors import Conflict, NotFound, Refused, StoreUnavailable

FULL_SCAN_TIMEOUT_S = 3600.0  # for statements that read all records

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Access:
    """An open store and the configuration that names it."""

    db: peewee.Database
    loaded: Loaded

    @property
    def currency(self) -> str:
        """Return the currency of all wallets."""
        return self.loaded.settings.money.currency

    def secrets(self) -> secrets.Secrets:
        """Return peppers and cipher keys. Raises ConfigError if the file is missing or invalid."""
        return secrets.of(self.loaded)


@contextmanager
def opened_store(config: Path | None, read_timeout_s: float | None = None) -> Iterator[Access]:
    """Open the store of a configuration file, and close it at the end. `read_timeout_s`: the limit
    of one answer of MySQL (None: store.read_timeout_s).

    Raises ConfigError if the address is invalid, and StoreUnavailable if the store is unreachable
    or its schema is out of date. NotFound and Conflict inside become Refused.
    """
    loaded = configuration(config)
    try:
        with _opened(loaded, read_timeout_s) as db:
            if behind := migrate.behind(db):
                raise StoreUnavailable(behind)
            yield Access(db, loaded)
    except (Conflict, NotFound, Refused) as error:
        # a mistyped name, for example; the store itself works
        refused = error if isinstance(error, Refused) else Refused([str(error)])
        if config is None:  # another gateway may know the name
            refused.add_note(which(loaded.path))
        raise refused from None
    except StoreUnavailable as error:
        error.add_note(which(loaded.path))
        raise


def on_store(command: F, read_timeout_s: float | None = None) -> F:
    """Add --config and --json, and run the command with the open store as `access`."""

    @functools.wraps(command)
    def opened(config: Path | None, **options: Any) -> Any:
        with opened_store(config, read_timeout_s) as access:
            return command(access=access, **options)

    return cast(F, data_options(opened))


def on_whole_store(command: F) -> F:
    """Do the same as `on_store`, for a command that reads all records."""
    return on_store(command, FULL_SCAN_TIMEOUT_S)


@contextmanager
def _opened(loaded: Loaded, read_timeout_s: float | None = None) -> Iterator[peewee.Database]:
    store = loaded.settings.store
    url = store.url
    if url.startswith(SQLITE):
        _require_file(Path(url.removeprefix(SQLITE)), loaded)
    try:
        db = open_database(
            url,
            connect_timeout_s=store.connect_timeout_s,
            read_timeout_s=read_timeout_s or store.read_timeout_s,
        )
    except ValueError as error:
        raise ConfigError([f"{loaded.origins['store.url']}: {error}"], read=loaded.path) from None
    try:
        yield db
    finally:
        discard(db)


def clients_base_url(loaded: Loaded) -> str:
    """Return {base_url}: the file's, else the one set in the Hub. Without the store: what
    is known."""
    server = loaded.settings.server
    if server.public_url:
        return base_url(server)
    try:
        with _opened(loaded) as db:
            return base_url(server, stored_base_url(db))
    except StoreUnavailable as error:
        note(f"warning: {error}; a base URL that was set in the Hub is not known")
        return base_url(server)


def actor() -> str:
    """Return the actor for the audit log: the user of the operating system."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        name = str(os.geteuid())
    return f"cli:{name}"


def _require_file(path: Path, loaded: Loaded) -> None:
    # SQLite would create an empty file, and the next error would be misleading
    if not path.is_file():
        remedy = f"create it: ./sluice init {loaded.config_dir}"
        raise StoreUnavailable(f"{path} (store.url) does not exist; {remedy}")
