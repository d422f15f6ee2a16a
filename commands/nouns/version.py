"""`version`: imports nothing heavy, for it has to answer at once."""

import platform

import click

from commands.output import data_options, print_json
from conf.version import VERSION


@click.command()
@data_options
def command(config: object, as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": VERSION, "python": platform.python_version()})
    else:
        click.echo(f"sluice {VERSION}")
