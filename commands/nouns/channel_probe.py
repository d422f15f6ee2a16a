"""`channel test`: a real call through one channel, as the relay would make it."""

import asyncio
from dataclasses import asdict

import click

from commands.output import FAILED, print_fields, print_json
from commands.store_access import Access, on_store
from operations import channel_test
from store.values.cipher import Cipher


@click.command("test")
@click.argument("name")
@click.option("--model", help="Public name of the model.  [default: the channel's first]")
@click.option("--stream", is_flag=True, help="Ask for a stream.")
@on_store
def command(access: Access, name: str, model: str | None, stream: bool, as_json: bool) -> int:
    """Make a real call through a channel; exit code 1 when it fails."""
    cipher = Cipher(access.secrets().cipher_keys)
    target = channel_test.target_of(access.db, cipher, name, model, stream=stream)
    result = asyncio.run(channel_test.call(target, access.loaded.settings.upstream))
    if as_json:
        print_json(channel_test.to_plain(result))
    else:
        print_fields(asdict(result))
    return 0 if result.error is None else FAILED
