"""`client-config`: what to put into a client program so that it talks to this gateway."""

from pathlib import Path

import click

from commands.output import configuration, data_options, print_json
from handlers.operations.client_settings import CLIENTS, base_url


@click.command()
@click.argument("client", type=click.Choice(tuple(CLIENTS)))
@click.option("--key", required=True, metavar="SECRET", help="The API key the client shall use.")
@click.option("--model", metavar="NAME", help="The model the client shall ask for.")
@data_options
def command(client: str, key: str, model: str | None, config: Path | None, as_json: bool) -> None:
    """Print the settings for a client program, ready to be pasted.

    Lines that begin with export are for the shell; the rest belongs where the line above it says.
    """
    base = base_url(configuration(config).settings.server)
    text = CLIENTS[client](base, key, model).text
    if as_json:
        print_json({"client": client, "base_url": base, "settings": text})
    else:
        click.echo(text)
