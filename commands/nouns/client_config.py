"""`client-config`: the settings with which a client program uses this gateway."""

from pathlib import Path

import click

from commands.output import configuration, data_options, print_result
from commands.store_access import clients_base_url
from operations.client_settings import CLIENT_SETTINGS


@click.command()
@click.argument("client", type=click.Choice(tuple(CLIENT_SETTINGS)))
@click.option("--key", required=True, metavar="SECRET", help="API key for the client.")
@click.option("--model", metavar="NAME", help="Model for the client to use.")
@data_options
def command(client: str, key: str, model: str | None, config: Path | None, as_json: bool) -> None:
    """Print the settings for a client program, ready to paste.

    Lines that start with export are for the shell; the line above each other block says where it
    goes.
    """
    base = clients_base_url(configuration(config))
    text = CLIENT_SETTINGS[client](base, key, lambda _: model).text
    print_result(as_json, {"client": client, "base_url": base, "settings": text}, text)
