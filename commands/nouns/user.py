"""`user`: users, listed and edited one by one, and a new password for one who is locked out."""

import sys
from pathlib import Path

import click

from commands.edits import EDITS, Edits, editor, print_outcome
from commands.nouns.kinds import noun
from commands.output import data_options, print_fields, print_result
from commands.store_access import Access, actor, on_store, opened_store
from operations.edits import link_account, with_use_of_limit
from store.admin.apply import Outcome
from store.hub import one_time, openid_links, people
from store.values.errors import Refused

MAX_LINE_CHARS = 4096  # for a password; longer ones are refused anyway

command = noun("user", ("name", "role", "enabled", "order", "id"), complete=with_use_of_limit)
TOTP = "totp=off: stop asking for one-time codes, for a user who has lost the authenticator."
_set_fields = command.commands["set"]


@command.command("password")
@click.argument("name")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read it from the first line of stdin.")
@data_options
def password(name: str, from_stdin: bool, config: Path | None, as_json: bool) -> None:
    """Set a user's password for the Hub and end the user's sessions and tokens.

    Prompts for the password without showing it; with --stdin reads it from standard input.
    """
    if from_stdin:
        password = sys.stdin.readline(MAX_LINE_CHARS).rstrip("\r\n")
    else:
        password = click.prompt(
            "Password", hide_input=True, confirmation_prompt=True, err=True, show_default=False
        )
    with opened_store(config) as access:
        people.set_password(access.db, name, password, actor())
    text = f'user "{name}": password set; all sessions and tokens ended'
    print_result(as_json, {"user": name, "password": "set"}, text)


@command.command("set", help=f"{_set_fields.help}\n\n{TOTP}")
@click.argument("name")
@EDITS
@data_options
def set_fields(name: str, edits: Edits, config: Path | None, as_json: bool) -> None:
    totp = edits.pop("totp", None)
    if totp not in (None, "off"):
        raise Refused(["totp: can only be set to off; users set it up at /account of the Hub"])
    with opened_store(config) as access:
        outcome = editor(access).change("user", name, edits) if edits else Outcome([], [])
        ended = totp is not None and one_time.end(access.db, name, actor())
    state = None
    if totp is not None:
        state = f'user "{name}": one-time codes ' + ("off" if ended else "already off")
    print_outcome(outcome, as_json, state=state)


@command.command("link")
@click.argument("name")
@click.option("--subject", required=True, help="The user's name at the provider (sub).")
@on_store
def link(access: Access, name: str, subject: str, as_json: bool) -> None:
    """Let a user of the OpenID provider (hub.oidc_issuer) sign in to the Hub as this user."""
    issuer = access.loaded.settings.hub.oidc_issuer
    link_account(access.db, issuer, name, subject, actor())
    print_fields({"user": name, "issuer": issuer, "subject": subject}, as_json)


@command.command("unlink")
@click.argument("name")
@on_store
def unlink(access: Access, name: str, as_json: bool) -> None:
    """Remove all links of a user to accounts of OpenID providers."""
    ended = openid_links.unlink_all(access.db, name, actor())
    print_fields({"user": name, "ended": ended}, as_json)
