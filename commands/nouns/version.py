"""`version`: the version of the program. Imports nothing heavy, so that it answers at once."""

import platform

import click

from commands.output import data_options, print_json
from conf.version import VERSION, revision


@click.command()
@data_options
def command(config: object, as_json: bool) -> None:
    """Print the version and the revision: commit of a checkout, digest of the installed files."""
    if as_json:
        print_json(
            {"version": VERSION, "revision": revision(), "python": platform.python_version()}
        )
    else:
        click.echo(f"sluice {VERSION} ({revision()})")
