"""`key`: API keys. A secret is shown only when it is created."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from commands.edits import EDITS, NEW_FIELDS, Edits, editor, print_outcome
from commands.output import data_options, note, print_fields, print_result, print_table
from commands.store_access import Access, actor, on_store, opened_store
from commands.subcommands import Noun
from commands.times import Duration
from store.admin.document import resolver
from store.admin.export import list_objects, show
from store.catalog import keys
from store.catalog.keys import set_key_enabled
from store.db.database import database_ms
from store.money.quota import with_use_of_limits
from store.values.errors import Refused
from store.values.fields import Instant

DEFAULT_OVERLAP = f"{keys.OVERLAP_S // 3600}h"
KEY = click.argument("key", metavar="ID")

command = Noun(
    "key", help="Create, list, rotate, disable and revoke API keys.", no_args_is_help=True
)


@command.command("create")
@click.option("--user", required=True, help="Owner of the key.")
@click.option("--group", required=True, help="Group that gives the key its models and prices.")
@click.option("--name", required=True, help="Name of the key, unique for its user.")
@click.option(
    "--secret",
    help="Your own secret: 16 to 200 of A-Z a-z 0-9 . _ -; also env:NAME or file:PATH."
    "  [default: generated]",
)
@NEW_FIELDS
@data_options
def create(
    name: str, secret: str | None, edits: Edits, config: Path | None, as_json: bool, **owner: str
) -> None:
    """Create a key and print its secret, which is not shown again.

    \b
    FIELD=VALUE:
      expires_at, models, networks, limit, limit_window, rpm, tpm, concurrency as in the document
      of apply
    """
    edits |= owner
    if secret is not None:
        edits["secret"] = secret = _resolved(secret)
    with opened_store(config) as access:
        key = editor(access).create("key", name, edits).keys[0]
    _print_secret(key.id, key.secret or secret, as_json)


@command.command("list")
@click.option("--user", help="Only the keys of this user.")
@on_store
def list_keys(access: Access, user: str | None, as_json: bool) -> None:
    """List keys; only a few characters of each secret are stored."""
    if user is not None:
        show(access.db, "user", user)  # tells a misspelt name from a user without keys
    keys = _with_status(access, list_objects(access.db, "key"))
    rows = [key for key in keys if user is None or key["user"] == user]
    print_table(rows, ("id", "user", "name", "group", "status", "secret", "expires_at"), as_json)


@command.command("show")
@KEY
@on_store
def show_key(access: Access, key: str, as_json: bool) -> None:
    """Show one key, given by id or as USER/NAME."""
    print_fields(_with_status(access, [show(access.db, "key", key)])[0], as_json)


@command.command("set")
@KEY
@EDITS
@data_options
def set_fields(key: str, edits: Edits, config: Path | None, as_json: bool) -> None:
    """Change fields of a key, given by id or as USER/NAME; rotate changes its secret.

    \b
    FIELD=VALUE:
      group, expires_at, models, networks, limit, limit_window, rpm, tpm, concurrency as in the
      document of apply; an empty value clears a field, as in limit=
    """
    if "secret" in edits:
        raise Refused(["secret: replace it with key rotate"])
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
@on_store
def rotate(access: Access, key: str, overlap: int, as_json: bool) -> None:
    """Give a key a new secret, shown once; the old one stays valid for a while."""
    key_id = str(show(access.db, "key", key)["id"])
    rotation = keys.Rotation(access.secrets().peppers, overlap)
    secret = keys.rotate(access.db, key_id, rotation, actor())
    _print_secret(key_id, secret, as_json)


def _change(name: str, summary: str, change: Callable[..., None], **how: bool) -> click.Command:
    """Return the verb that changes the state of a key and prints the new state."""

    @click.command(name, help=summary)
    @KEY
    @on_store
    def verb(access: Access, key: str, as_json: bool) -> None:
        key_id = str(show(access.db, "key", key)["id"])
        change(access.db, key_id, actor=actor(), **how)
        fields = _with_status(access, [show(access.db, "key", key_id)])[0]
        status = fields["status"]
        text = f'key "{fields["user"]}/{fields["name"]}" ({key_id}): {status}'
        print_result(as_json, {"id": key_id, "status": status}, text)

    return verb


for _verb in (
    _change("disable", "Disable a key until it is enabled again.", set_key_enabled, enabled=False),
    _change("enable", "Enable a disabled key.", set_key_enabled, enabled=True),
    _change("revoke", "Revoke a key permanently.", keys.revoke),
):
    command.add_command(_verb)


def _resolved(secret: str) -> str:
    try:
        return str(resolver(os.environ, Path())(secret))
    except ValueError as error:
        raise Refused([f"secret: {error}"]) from None


def _print_secret(key_id: str, secret: str | None, as_json: bool) -> None:
    print_fields({"id": key_id, "secret": secret}, as_json)
    if not as_json:
        note("The secret is shown once: save it now.")


def _with_status(access: Access, keys: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add the masked `secret`, `status` as one word, and the use of the limit."""
    enabled_users = {u["name"] for u in list_objects(access.db, "user") if u["enabled"]}
    rows = []
    for key in with_use_of_limits(access.db, keys, database_ms(access.db)):
        fields = dict(key)
        head, tail = fields.pop("prefix"), fields.pop("last_four")
        user_enabled = key["user"] in enabled_users
        rows.append({**fields, "secret": f"{head}…{tail}", "status": _status(key, user_enabled)})
    return rows


def _status(key: Mapping[str, Any], user_enabled: bool) -> str:
    """Return "active", or the first reason for which calls with the key are refused."""
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
