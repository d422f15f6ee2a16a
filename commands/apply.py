"""`apply`: brings the store to what a document says, all or nothing."""

import os
import sys
from pathlib import Path

import click

from commands.edits import editor, print_outcome
from commands.output import config_option, json_option
from commands.store_access import opened_store
from store.document import parse
from store.errors import Refused

STDIN = "-"


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--prune", is_flag=True, help="Remove what the document does not name.")
@config_option
@json_option
def command(file: str, dry_run: bool, prune: bool, config: Path | None, as_json: bool) -> None:
    """Make users, groups, models, channels, plans, subscriptions and keys as FILE says.

    FILE is TOML or JSON; -: standard input. Names are the identity: applying twice changes
    nothing. A field that is missing keeps its value. A value "env:NAME" or "file:PATH" is read
    from there; paths start at FILE's folder.
    """
    text, folder = _read(file)
    document = parse(text, os.environ, folder)
    with opened_store(config) as access:
        outcome = editor(access).apply(document, prune=prune, dry_run=dry_run)
    print_outcome(outcome, as_json, dry_run=dry_run)


def _read(file: str) -> tuple[str, Path]:
    if file == STDIN:
        raw, folder = sys.stdin.buffer.read(), Path.cwd()
    else:
        raw, folder = Path(file).read_bytes(), Path(file).parent
    try:
        return raw.decode("utf-8"), folder
    except UnicodeDecodeError:
        raise Refused([f"{'standard input' if file == STDIN else file} is not UTF-8"]) from None
