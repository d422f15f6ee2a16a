"""`books`: proves wallets, ledger and records against each other."""

from pathlib import Path

import click

from commands.output import FAILED, config_option, json_option, print_json
from commands.store_access import opened_store
from commands.subcommands import Noun
from store.books import verify as verify_books

command = Noun("books", help="Verify the books.", no_args_is_help=True)


@command.command()
@config_option
@json_option
def verify(config: Path | None, as_json: bool) -> int:
    """Verify every wallet and every day's charges; exit code 1 when something differs."""
    with opened_store(config) as access:
        faults = verify_books(access.db)
    if as_json:
        print_json({"ok": not faults, "faults": faults})
    else:
        click.echo("\n".join(faults) or "the books are right")
    return FAILED if faults else 0
