"""`check`: the configuration and the secrets file, without network and database."""

from pathlib import Path

import click

from commands.output import config_option, configuration, json_option, print_json, set_option
from conf import secrets
from conf.configuration import ConfigError, Loaded


@click.command()
@config_option
@set_option
@json_option
def command(config: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check the configuration; exit code 3 and a list of all errors if it is invalid."""
    try:
        loaded = _checked(config, overrides)
    except ConfigError as error:
        if as_json:
            print_json({"ok": False, "faults": error.faults})
        raise
    if as_json:
        print_json({"ok": True, "config": str(loaded.path), "faults": []})
    else:
        click.echo(f"{loaded.path}: in order")


def _checked(config: Path | None, overrides: tuple[str, ...]) -> Loaded:
    loaded = configuration(config, overrides)
    secrets.of(loaded)
    return loaded
