"""`config`: changes of gateway.toml. `check` and `status --settings` show what is in force."""

import os
import sys
from pathlib import Path

import click

from commands.output import configuration, data_options, note, print_result
from commands.subcommands import Noun
from conf.configuration import MAX_FILE_BYTES, find_config, with_setting
from conf.settings import masked_rows
from conf.toml_edits import replace_file

command = Noun("config", help="Change the configuration file.", no_args_is_help=True)


@command.command("set")
@click.argument("name", metavar="SECTION.KEY")
@click.argument("value")
@data_options
def set_value(name: str, value: str, config: Path | None, as_json: bool) -> None:
    """Set a value in gateway.toml; comments and all other lines stay as they are.

    Write VALUE without quotes, as for --set; - reads it from stdin, which keeps a password out of
    the list of processes. Nothing is written if the file would become invalid. A running gateway
    applies the change when it is reloaded; hosts, ports, workers and journal.dir need a restart.
    """
    path = find_config(config, os.environ)
    if value == "-":
        value = sys.stdin.read(MAX_FILE_BYTES).strip()
    replace_file(path, with_setting(path, name, value))
    loaded = configuration(path)
    row = next(row for row in masked_rows(loaded.settings, loaded.origins) if row["name"] == name)
    change = {"name": name, "value": row["value"], "origin": row["origin"], "config": str(path)}
    print_result(as_json, change, f"{name} written to {path}")
    if not str(row["origin"]).startswith(str(path)):
        note(f"warning: {row['origin']} also sets {name} and takes precedence over the file")
