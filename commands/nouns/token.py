"""`token`: tokens of the Hub's JSON API. A token is shown only when it is created."""

import click

from commands.nouns.wallet import USER
from commands.output import note, print_fields, print_result, print_table
from commands.store_access import Access, actor, on_store
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
    help=f"Permission: {', '.join(tokens.SCOPES)}. Repeatable.",
)
@click.option("--name", default="", help="Purpose of the token.")
@on_store
def create(access: Access, user: str, scopes: tuple[str, ...], name: str, as_json: bool) -> None:
    """Create a token and print it; it is not shown again."""
    token_id, token = tokens.create(access.db, user, scopes, name=name, actor=actor())
    print_fields({"id": token_id, "token": token}, as_json)
    if not as_json:
        note("The token is shown once: save it now.")


@command.command("list")
@click.option("--user", help="Only tokens of this user.")
@on_store
def list_tokens(access: Access, user: str | None, as_json: bool) -> None:
    """List tokens; only the last four characters of each are shown."""
    rows = [tokens.public(row) for row in tokens.listed(access.db, user)]
    print_table(rows, COLUMNS, as_json)


@command.command()
@click.argument("token", metavar="ID")
@on_store
def revoke(access: Access, token: str, as_json: bool) -> None:
    """Revoke a token, given by id; its next call gets 401."""
    tokens.revoke(access.db, token, actor=actor())
    print_result(as_json, {"revoked": token}, f"token {token} revoked")
