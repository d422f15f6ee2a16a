"""`export`: prints what `apply` reads, from the store and without secrets."""

from pathlib import Path

import click

from commands.output import config_option, json_option, print_json
from commands.store_access import opened_store
from store.export import export, to_toml


@click.command()
@config_option
@json_option
def command(config: Path | None, as_json: bool) -> None:
    """Print users, groups, models, channels, plans, subscriptions, keys as a document for `apply`.

    Secrets and balances are left out; applied to the same store it changes nothing.
    """
    with opened_store(config) as access:
        document = export(access.db)
    if as_json:
        print_json(document)
    else:
        click.echo(to_toml(document), nl=False)
