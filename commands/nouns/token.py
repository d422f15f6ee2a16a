"""`token`: tokens of the Hub's JSON API. A token is shown when it is made, and never again."""

from pathlib import Path

import click

from commands.nouns.wallet import USER
from commands.output import data_options, note, print_fields, print_json, print_table
from commands.store_access import actor, opened_store
from commands.subcommands import Noun
from store.hub import tokens

COLUMNS = ("id", "user", "name", "scopes", "token", "created_at", "used_at", "revoked_at")

command = Noun(
    "token", help="Create, list and revoke tokens of the Hub's JSON API.", no_args_is_help=True
)


@command.command()
@USER
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    help=f"What it may do: {', '.join(tokens.SCOPES)}; may be repeated.",
)
@click.option("--name", default="", help="What it is for.")
@data_options
def create(
    user: str, scopes: tuple[str, ...], name: str, config: Path | None, as_json: bool
) -> None:
    """Create a token and print it; it is not shown again."""
    with opened_store(config) as access:
        token_id, token = tokens.create(access.db, user, scopes, name=name, actor=actor())
    print_fields({"id": token_id, "token": token}, as_json)
    if not as_json:
        note("The token is shown once: keep it now.")


@command.command("list")
@click.option("--user", help="Of this user alone.")
@data_options
def list_tokens(user: str | None, config: Path | None, as_json: bool) -> None:
    """List tokens; of each only the last four characters are shown."""
    with opened_store(config) as access:
        rows = tokens.listed(access.db, user)
    print_table([tokens.public(row) for row in rows], COLUMNS, as_json)


@command.command()
@click.argument("token", metavar="ID")
@data_options
def revoke(token: str, config: Path | None, as_json: bool) -> None:
    """Revoke a token, given by id; its next call gets 401."""
    with opened_store(config) as access:
        tokens.revoke(access.db, token, actor=actor())
    if as_json:
        print_json({"revoked": token})
    else:
        click.echo(f"token {token} revoked")
