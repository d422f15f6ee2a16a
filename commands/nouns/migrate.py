"""`migrate`: the database schema. `store/db/migrate.py` does the work."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import peewee

from commands.output import configuration, data_options, print_json, print_table
from conf.configuration import which
from store.db import migrate
from store.db.database import discard, open_database
from store.values.errors import StoreUnavailable
from store.values.usage_record import rfc3339

READ_TIMEOUT_S = 3600  # altering a large table takes its time
PROGRESS_S = 10.0


@click.group()
def command() -> None:
    """Show or upgrade the database schema."""


@command.command()
@data_options
def status(config: Path | None, as_json: bool) -> None:
    """List the migrations and when each was applied."""
    with _database(config) as db:
        steps = migrate.status(db)
    rows = [{"name": step.name, "applied_at": _time(step.applied_ms)} for step in steps]
    if as_json:
        print_json({"pending": sum(step.applied_ms is None for step in steps), "migrations": rows})
    else:
        print_table(rows, ("name", "applied_at"))


@command.command()
@data_options
def plan(config: Path | None, as_json: bool) -> None:
    """Print the SQL that `up` would run."""
    with _database(config) as db:
        statements = migrate.plan(db)
    if as_json:
        print_json({"statements": statements})
    else:
        click.echo(
            "".join(f"{statement.rstrip().rstrip(';')};\n" for statement in statements), nl=False
        )


@command.command()
@data_options
def up(config: Path | None, as_json: bool) -> None:
    """Apply pending migrations; safe to run concurrently.

    Long steps report progress on stderr every 10 s. If it was interrupted, run it again.
    """
    with _database(config) as db, _progress() as report:
        applied = migrate.up(db, report)
    if as_json:
        print_json({"applied": applied})
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "nothing was pending")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Takes what is done now, and says the last of it on stderr every PROGRESS_S."""
    latest = [""]
    done = threading.Event()

    def tell() -> None:
        begun = time.monotonic()
        while not done.wait(PROGRESS_S):
            click.echo(f"{latest[0]} ({time.monotonic() - begun:.0f} s so far)", err=True)

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield lambda text: latest.__setitem__(0, text)
    finally:
        done.set()
        thread.join()


@contextmanager
def _database(config: Path | None) -> Iterator[peewee.Database]:
    # not store_access.opened_store: that one wants the schema up to date
    loaded = configuration(config)
    db = open_database(loaded.settings.store.url, read_timeout_s=READ_TIMEOUT_S)
    try:
        yield db
    except StoreUnavailable as error:
        error.add_note(which(loaded.path))
        raise
    finally:
        discard(db)


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
