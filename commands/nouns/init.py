"""`init`: the creation of a gateway in a folder. Existing files are not changed."""

import os
from pathlib import Path

import click

from commands.output import note, set_option
from conf import secrets
from conf.configuration import FILE_NAME, Loaded, load, parse_overrides, sample_text
from conf.settings import to_plain
from operations.client_settings import hub_url
from store.db import migrate
from store.db.database import discard, open_database
from store.hub import first_run

FOLDER_MODE = 0o700  # protects the secrets, and records of calls in the database and the journal
FILE_MODE = 0o600  # store.url may contain a password


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@set_option
def command(folder: Path, overrides: tuple[str, ...]) -> None:
    """Create gateway.toml, secrets.toml and the database schema of a new gateway in DIR.

    Values of --set are written into gateway.toml. Nothing that exists already is changed.
    """
    existed = (folder / FILE_NAME).exists()
    for line in prepare(folder, overrides):
        click.echo(line)
    for line in _first_run(load(folder / FILE_NAME, (), os.environ)):
        click.echo(line)
    ignored = left_as_it_is(folder / FILE_NAME, overrides) if existed else []
    if ignored:
        names = ", ".join(f"--set {name}" for name in ignored)
        text = f"{folder / FILE_NAME} exists and is not changed, so this was ignored: {names}"
        note(f"warning: {text}; edit the file")


def _first_run(loaded: Loaded) -> list[str]:
    """Return the link with which the first administrator sets a password, unless an administrator
    can sign in already. It works once `serve` runs."""
    db = open_database(loaded.settings.store.url)
    try:
        link = None if migrate.behind(db) else first_run.make_link(db)
    finally:
        discard(db)
    hub = loaded.settings.hub
    if not link or not hub.enabled:
        return []
    return [f"first run, once serve runs, for 24 hours: {hub_url(hub)}{link}"]


def left_as_it_is(path: Path, overrides: tuple[str, ...]) -> list[str]:
    """Return the settings of --set that differ from the file."""
    stored = to_plain(load(path, (), {}).settings)
    requested = to_plain(load(path, overrides, {}).settings)
    return [
        name
        for name in parse_overrides(overrides)
        for section, _, key in [name.partition(".")]
        if stored[section][key] != requested[section][key]
    ]


def prepare(folder: Path, overrides: tuple[str, ...]) -> list[str]:
    """Create what is missing. Return a line for each step. Raises ConfigError before anything is
    written."""
    load(None, overrides, os.environ)
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    done = [_settings_file(folder / FILE_NAME, overrides)]
    loaded = load(folder / FILE_NAME, (), os.environ)
    fresh_secrets = not loaded.secrets_path.exists()
    if fresh_secrets:
        secrets.create(loaded.secrets_path)
    secrets.of(loaded)
    done.append(f"{loaded.secrets_path}: {'created' if fresh_secrets else 'exists already'}")
    return [*done, f"schema: {make_schema(loaded, fresh_secrets)}"]


def _settings_file(path: Path, overrides: tuple[str, ...]) -> str:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        return f"{path}: exists already"
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(sample_text(parse_overrides(overrides)))
    return f"{path}: created"


def make_schema(loaded: Loaded, fresh_secrets: bool) -> str:
    """Create the schema in an empty database. Return what was found or done. An existing schema is
    never changed."""
    db = open_database(loaded.settings.store.url)
    try:
        if migrate.is_new(db):
            migrate.up(db)
            return "created"
        if fresh_secrets:
            note(
                "warning: this database is already in use, with other secrets. Copy the"
                f" secrets.toml of the gateway that made it to {loaded.secrets_path}: without it"
                " this gateway knows none of the keys in the database."
            )
        if pending := migrate.pending(db):
            return f"exists already, {len(pending)} migrations pending; run: ./sluice migrate up"
        return "exists already"
    finally:
        discard(db)
