"""`check`: the configuration and the secrets file, without network and database."""

from pathlib import Path

import click

from commands.output import (
    config_option,
    configuration,
    json_option,
    print_json,
    print_table,
    set_option,
)
from conf import secrets
from conf.configuration import ConfigError
from conf.settings import mask, masked_rows
from conf.store_url import place


@click.command()
@click.option("--settings", is_flag=True, help="Also show the settings that would be in force.")
@click.option("--origin", is_flag=True, help="With --settings: show where each value comes from.")
@config_option
@set_option
@json_option
def command(
    settings: bool, origin: bool, config: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Check the configuration; exit code 3 and a list of all errors if it is invalid.

    --json always includes the settings and their origins.
    """
    if origin and not settings:
        raise click.UsageError("--origin needs --settings")
    try:
        loaded = configuration(config, overrides)
        secrets.of(loaded)
    except ConfigError as error:
        if as_json:
            print_json({"ok": False, "faults": list(map(mask, error.faults))})
        raise
    store = place(loaded.settings.store.url)
    settings_rows = masked_rows(loaded.settings, loaded.origins)
    if as_json:
        report = {"ok": True, "config": str(loaded.path), "store": store, "faults": []}
        print_json({**report, "settings": settings_rows})
        return
    click.echo(f"{loaded.path}: valid")
    click.echo(f"store: {store} (not contacted)")
    if settings:
        print_table(settings_rows, ("name", "value", "origin") if origin else ("name", "value"))
