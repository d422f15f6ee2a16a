"""`migrate`: the database schema, and the move to another database. `store/` does the work."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import peewee

from commands.nouns.local_nodes import local_nodes
from commands.output import (
    configuration,
    data_options,
    note,
    print_json,
    print_result,
    print_table,
)
from commands.process import node
from commands.progress import progress
from conf import store_url
from conf.configuration import Loaded, which, with_setting
from conf.toml_edits import replace_file
from conf.values import absolute
from store.copies import transfer
from store.db import cluster, migrate
from store.db.database import discard, open_database
from store.values.errors import Refused, StoreUnavailable
from store.values.usage_record import rfc3339_or_none

READ_TIMEOUT_S = 3600  # altering a large table can take long
PROGRESS_S = 10.0
TOTAL_ORDER = (
    "Galera (wsrep_OSU_method = TOI): each change of a table runs on all hosts at once and"
    " blocks all other writes until it is done"
)


@click.group()
def command() -> None:
    """Show or upgrade the database schema."""


@command.command()
@data_options
def status(config: Path | None, as_json: bool) -> None:
    """List the migrations and when each was applied."""
    with _database(config) as db:
        steps = migrate.status(db)
    rows = [{"name": step.name, "applied_at": rfc3339_or_none(step.applied_ms)} for step in steps]
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
        for statement in statements:
            click.echo(f"{statement.rstrip().rstrip(';')};")


@command.command()
@data_options
def up(config: Path | None, as_json: bool) -> None:
    """Apply pending migrations; safe to run concurrently.

    Long steps report progress on stderr every 10 s. If interrupted, run it again. On a Galera
    cluster a change of a table runs on all hosts at once and blocks all other writes.
    """
    with _database(config) as db, _progress(as_json) as report:
        if migrate.pending(db) and cluster.alters_in_total_order(db):
            note(TOTAL_ORDER)
        applied = migrate.up(db, report)
    text = "\n".join(f"applied {name}" for name in applied) or "nothing was pending"
    print_result(as_json, {"applied": applied}, text)


@command.command()
@click.argument("url")
@click.option("--switch", is_flag=True, help="At the end, set store.url in gateway.toml to URL.")
@data_options
def copy(url: str, switch: bool, config: Path | None, as_json: bool) -> None:
    """Copy the whole store to another database, such as from SQLite to MariaDB or back.

    Stop all gateways first. The database at URL must be empty; the schema is created there. If
    interrupted, run it again: it replaces what it had copied. At the end it counts the rows and
    verifies books and records. Then set store.url (--switch does that) and start the gateways.
    """
    try:
        store_url.checked(url)
    except ValueError as error:
        raise Refused([f"URL: {error}"]) from None
    url = str(absolute("store.url", url, Path.cwd()))
    loaded = configuration(config)
    path = loaded.path
    if switch:
        _check_switch(loaded, url)
    with _stopped(config), _database(config) as source, _progress(as_json) as report:
        target = open_database(url, read_timeout_s=READ_TIMEOUT_S)
        try:
            counts = transfer.copy(source, target, report)
        finally:
            discard(target)
    if switch and path is not None:
        replace_file(path, with_setting(path, "store.url", url))
    place = store_url.place(url)
    if as_json:
        print_json({"rows": counts, "store": place, "switched": switch})
        return
    total = sum(counts.values())
    click.echo(f"copied {total} rows of {len(counts)} tables to {place}, and verified them")
    if switch:
        click.echo(f"store.url of {path} is set; run on every other node, then start them all:")
    else:
        text = "still names the old store; run this on all nodes, then start them:"
        click.echo(f"{loaded.path} {text}")
    click.echo("  ./sluice config set store.url URL")


def _check_switch(loaded: Loaded, url: str) -> None:
    """Refuse, before anything is copied, a switch that could not be written or would have no
    effect."""
    origin = loaded.origins["store.url"]
    if loaded.path is not None:
        with_setting(loaded.path, "store.url", url)
        if origin == "default" or origin.startswith(str(loaded.path)):
            return
    raise Refused([f"store.url comes from {origin}: set it there, without --switch"])


@contextmanager
def _stopped(config: Path | None) -> Iterator[None]:
    """Keep all gateways of this configuration and its sibling nodes from running or starting."""
    loaded = configuration(config)
    folders = {Path(loaded.settings.journal.dir), *(other.journal for other in local_nodes(loaded))}
    with ExitStack() as locks:
        try:
            for folder in sorted(folders):
                locks.callback(os.close, node.claim(folder))
        except node.StartError as error:
            raise Refused([str(error)]) from None
        yield


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that reports on stderr: at once on a terminal, else every PROGRESS_S."""
    if sys.stderr.isatty() and not as_json:
        with progress(as_json) as line:
            yield line.tell
        return
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
    # not store_access.opened_store, which requires an up-to-date schema
    loaded = configuration(config)
    db = open_database(loaded.settings.store.url, read_timeout_s=READ_TIMEOUT_S)
    try:
        yield db
    except StoreUnavailable as error:
        error.add_note(which(loaded.path))
        raise
    finally:
        discard(db)
