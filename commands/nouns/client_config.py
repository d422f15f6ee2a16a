"""`client-config`: what to put into a client program so that it talks to this gateway."""

from pathlib import Path

import click

from commands.output import configuration, data_options, note, print_json
from commands.store_access import opened_store
from handlers.operations.client_settings import CLIENTS, base_url
from store.db.base_url import kept_base_url
from store.values.errors import StoreUnavailable


@click.command()
@click.argument("client", type=click.Choice(tuple(CLIENTS)))
@click.option("--key", required=True, metavar="SECRET", help="API key for the client.")
@click.option("--model", metavar="NAME", help="Model for the client to use.")
@data_options
def command(client: str, key: str, model: str | None, config: Path | None, as_json: bool) -> None:
    """Print the settings for a client program, ready to paste.

    Lines that begin with export are for the shell; the line above each other part says where it
    belongs.
    """
    server = configuration(config).settings.server
    base = base_url(server, "" if server.public_url else _kept(config))
    text = CLIENTS[client](base, key, model).text
    if as_json:
        print_json({"client": client, "base_url": base, "settings": text})
    else:
        click.echo(text)


def _kept(config: Path | None) -> str:
    """The base URL that was set in the Hub; where the store is away, what is known without it."""
    try:
        with opened_store(config) as access:
            return kept_base_url(access.db)
    except StoreUnavailable as error:
        note(f"warning: {error}; a base URL that was set in the Hub is not known")
        return ""
