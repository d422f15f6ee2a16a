"""`model prices pull`: the prices of a public list, compared with ours and stored."""

import datetime
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from pathlib import Path

import click

from commands.edits import editor
from commands.output import note, print_json, print_table
from commands.store_access import Access, on_store
from operations.price_lists import load_list
from operations.price_pull import MAX_RISE_PERCENT, Pull, pull
from operations.price_sources import CURRENCY, SOURCES, read_list
from store.db.database import database_ms
from store.values.errors import Refused

COLUMNS = ("model", "rate", "meter", "before", "after")


def _percent(_context: click.Context, _option: click.Parameter, text: str | None) -> Decimal:
    try:
        percent = Decimal(text or 0)
    except InvalidOperation:
        percent = Decimal(-1)
    if not 0 <= percent <= Decimal("1e9"):
        raise click.BadParameter("must be a percentage, like 80")
    return percent


@click.command("pull")
@click.option("--from", "source", type=click.Choice(list(SOURCES)), required=True, help="The list.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read the list from this file.  [default: for genai-prices the installed package]",
)
@click.option("--fetch", "fetched", is_flag=True, help="Fetch the list over the network.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only this one. Repeatable.")
@click.option(
    "--accept-rises",
    "accepted",
    metavar="PERCENT",
    callback=_percent,
    help=f"Accept rises of more than {MAX_RISE_PERCENT} %, up to this.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would change.")
@on_store
def command(
    access: Access,
    source: str,
    file: Path | None,
    fetched: bool,
    models: tuple[str, ...],
    accepted: Decimal,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compare the prices of models with a public list, and apply the list's.

    A model is looked up by its upstream name in a channel, else by its own name. No price becomes
    zero; no meter, rate or model is removed, and no model is created. Refused changes are listed,
    the others are applied.
    """
    if file is not None and fetched:
        raise click.UsageError("--file and --fetch exclude each other")
    if access.currency != CURRENCY:
        raise Refused(
            [f"prices of lists are in {CURRENCY}, but money.currency is {access.currency}"]
        )
    today = datetime.datetime.fromtimestamp(database_ms(access.db) / 1000, datetime.UTC).date()
    listed = read_list(source, load_list(source, file, fetched=fetched), today)
    result = pull(
        access.db,
        editor(access),
        listed,
        f"{source} {today}",
        only=models,
        accepted=accepted,
        dry_run=dry_run,
    )
    if as_json:
        print_json(
            {
                "source": result.source,
                "dry_run": dry_run,
                "changes": [_without_reason(asdict(row)) for row in result.changes],
                "refused": [asdict(row) for row in result.refused],
                "unmatched": result.unmatched,
            }
        )
        return
    _print(result, dry_run)


def _without_reason(row: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != "refused"}


def _print(result: Pull, dry_run: bool) -> None:
    if result.changes:
        print_table([asdict(row) for row in result.changes], COLUMNS)
    if result.refused:
        click.echo(f"{'' if not result.changes else chr(10)}refused, not changed:")
        print_table([asdict(row) for row in result.refused], (*COLUMNS, "refused"))
    for name, reason in result.unmatched.items():
        note(f'model "{name}": {reason}')
    models = len({row.model for row in result.changes})
    done = "would change" if dry_run else "changed"
    note(f"{result.source}: {len(result.changes)} prices of {models} models {done}")
