"""`key`: API keys. A secret is shown when it is made, and never again."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from commands.edits import editor, edits_of, print_outcome
from commands.nouns.kinds import FIELD
from commands.output import data_options, print_fields, print_json, print_table
from commands.store_access import Access, actor, opened_store
from commands.subcommands import Noun
from commands.times import Duration
from store.admin.document import resolver
from store.admin.export import list_objects, show
from store.catalog import keys
from store.db.database import database_ms
from store.money.quota import with_use_of_keys
from store.values.errors import Refused
from store.values.fields import Instant

DEFAULT_OVERLAP = f"{keys.OVERLAP_S // 3600}h"
KEY = click.argument("key", metavar="ID")

command = Noun(
    "key", help="Create, list, rotate, disable and revoke API keys.", no_args_is_help=True
)


@command.command("create")
@click.option("--user", required=True, help="Owner of the key.")
@click.option("--group", required=True, help="Group whose models and prices the key has.")
@click.option("--name", required=True, help="Name of the key, unique for its user.")
@click.option(
    "--secret",
    help="A secret of your own: 16 to 200 of A-Z a-z 0-9 . _ -; also env:NAME or file:PATH."
    "  [default: generated]",
)
@click.argument("assignments", nargs=-1, metavar=f"[{FIELD}]...")
@data_options
def create(
    user: str,
    group: str,
    name: str,
    secret: str | None,
    assignments: tuple[str, ...],
    config: Path | None,
    as_json: bool,
) -> None:
    """Create a key and print its secret, which is not shown again.

    \b
    FIELD=VALUE:
      expires_at, models, networks, limit, limit_window, rpm, tpm, concurrency as in the document
      of apply
    """
    edits = {**edits_of(assignments), "user": user, "group": group}
    if secret is not None:
        edits["secret"] = secret = _resolved(secret)
    with opened_store(config) as access:
        key = editor(access).create("key", name, edits).keys[0]
    _print_secret(key.id, key.secret or secret, as_json)


@command.command("list")
@click.option("--user", help="Only the keys of this user.")
@data_options
def list_keys(user: str | None, config: Path | None, as_json: bool) -> None:
    """List keys; of each secret only a few characters are stored."""
    with opened_store(config) as access:
        if user is not None:
            show(access.db, "user", user)  # a misspelt name is told from a user without keys
        keys = _with_status(access, list_objects(access.db, "key"))
    rows = [key for key in keys if user is None or key["user"] == user]
    print_table(rows, ("id", "user", "name", "group", "status", "secret", "expires_at"), as_json)


@command.command("show")
@KEY
@data_options
def show_key(key: str, config: Path | None, as_json: bool) -> None:
    """Show one key, given by id or as USER/NAME."""
    with opened_store(config) as access:
        fields = _with_status(access, [show(access.db, "key", key)])[0]
    print_fields(fields, as_json)


@command.command("set")
@KEY
@click.argument("assignments", nargs=-1, required=True, metavar=f"{FIELD}...")
@data_options
def set_fields(key: str, assignments: tuple[str, ...], config: Path | None, as_json: bool) -> None:
    """Change fields of a key, given by id or as USER/NAME; rotate changes its secret.

    \b
    FIELD=VALUE:
      group, expires_at, models, networks, limit, limit_window, rpm, tpm, concurrency as in the
      document of apply; an empty value clears a field, as in limit=
    """
    edits = edits_of(assignments)
    if "secret" in edits:
        raise Refused(["secret: a key gets a new one by: key rotate"])
    with opened_store(config) as access:
        outcome = editor(access).change("key", key, edits)
    print_outcome(outcome, as_json)


@command.command()
@KEY
@click.option(
    "--overlap",
    type=Duration(),
    default=DEFAULT_OVERLAP,
    show_default=True,
    help="How long the old secret stays valid; 0s: not at all.",
)
@data_options
def rotate(key: str, overlap: int, config: Path | None, as_json: bool) -> None:
    """Give a key a new secret, shown only now; the old one stays valid for a while."""
    with opened_store(config) as access:
        key_id = _id_of(access, key)
        rotation = keys.Rotation(access.secrets().peppers, overlap)
        secret = keys.rotate(access.db, key_id, rotation, actor())
    _print_secret(key_id, secret, as_json)


@command.command()
@KEY
@data_options
def disable(key: str, config: Path | None, as_json: bool) -> None:
    """Disable a key until it is enabled again."""
    _end(key, config, as_json, lambda db, key_id: keys.set_key_enabled(db, key_id, False, actor()))


@command.command()
@KEY
@data_options
def enable(key: str, config: Path | None, as_json: bool) -> None:
    """Enable a disabled key."""
    _end(key, config, as_json, lambda db, key_id: keys.set_key_enabled(db, key_id, True, actor()))


@command.command()
@KEY
@data_options
def revoke(key: str, config: Path | None, as_json: bool) -> None:
    """Revoke a key permanently."""
    _end(key, config, as_json, lambda db, key_id: keys.revoke(db, key_id, actor()))


def _end(key: str, config: Path | None, as_json: bool, change: Callable[[Any, str], None]) -> None:
    """Make a change of a key's state, then say which state it has."""
    with opened_store(config) as access:
        key_id = _id_of(access, key)
        change(access.db, key_id)
        fields = _with_status(access, [show(access.db, "key", key_id)])[0]
    if as_json:
        print_json({"id": key_id, "status": fields["status"]})
    else:
        click.echo(f'key "{fields["user"]}/{fields["name"]}" ({key_id}): {fields["status"]}')


def _id_of(access: Access, key: str) -> str:
    """The id of a key given as id or USER/NAME; NotFound with the nearest name."""
    return str(show(access.db, "key", key)["id"])


def _resolved(secret: str) -> str:
    try:
        return str(resolver(os.environ, Path())(secret))
    except ValueError as error:
        raise Refused([f"secret: {error}"]) from None


def _print_secret(key_id: str, secret: str | None, as_json: bool) -> None:
    if as_json:
        print_json({"id": key_id, "secret": secret})
    else:
        print_fields({"id": key_id, "secret": secret})
        click.echo("The secret is shown once: keep it now.", err=True)


def _with_status(access: Access, keys: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add the masked `secret`, `status` in one word, and the use of the limit."""
    enabled_users = {u["name"] for u in list_objects(access.db, "user") if u["enabled"]}
    rows = []
    for key in with_use_of_keys(access.db, keys, database_ms(access.db)):
        fields = dict(key)
        head, tail = fields.pop("prefix"), fields.pop("last_four")
        user_enabled = key["user"] in enabled_users
        rows.append({**fields, "secret": f"{head}…{tail}", "status": _status(key, user_enabled)})
    return rows


def _status(key: Mapping[str, Any], user_enabled: bool) -> str:
    """active, or the first reason why calls with the key are refused."""
    if key["revoked_at"] is not None:
        return "revoked"
    if not key["enabled"]:
        return "disabled"
    if not user_enabled:
        return "user disabled"
    expires_at = key["expires_at"]
    if expires_at is not None and Instant().parse(expires_at) <= time.time() * 1000:
        return "expired"
    return "active"
