"""The parts that all commands share: options, output, exit codes. Imported by commands only.

Data go to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 wrong
usage, 3 configuration refused, 130 ended by Ctrl-C.
"""

import errno
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from commands.tables import fitted, room
from conf.configuration import ConfigError, Loaded, find_config, load
from conf.settings import mask
from store.values.errors import Refused, StoreError

FAILED = 1
WRONG_USAGE = 2
CONFIG_REFUSED = 3
INTERRUPTED = 130

F = TypeVar("F", bound=Callable[..., Any])

_NO_NUMBER = re.compile(r"is not a valid integer(?: range)?\.$")  # click's words


# The parameters of commands: `config: Path | None`, `as_json: bool`, `node: str | None`,
# `overrides: tuple[str, ...]`.
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file.  [default: SLUICE_CONFIG, gateway.toml, run/gateway.toml]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
node_option = click.option(
    "--node",
    metavar="NAME",
    help="Node to use, if several on this machine share the configuration file; `nodes` lists"
    " their names.",
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Set a value; takes precedence over environment and file. Repeatable.",
)


def data_options(command: F) -> F:
    """Add --config and --json, for commands that read the store."""
    return config_option(json_option(command))


def configuration(config: Path | None, overrides: Sequence[str] = ()) -> Loaded:
    """Return the settings in force for a command. ConfigError ends it with exit code 3."""
    return load(find_config(config, os.environ), overrides, os.environ)


def print_json(data: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(json.dumps(data, ensure_ascii=False, default=str))


def print_result(as_json: bool, data: object, text: str) -> None:
    """Print the data as JSON, or the text for people."""
    if as_json:
        print_json(data)
    else:
        click.echo(text)


def print_table(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], as_json: bool = False
) -> None:
    """Print the rows below a line of column names, or all of them as JSON. None is shown as -,
    lists with commas. Fitted to a terminal; columns without room are named on standard error."""
    if as_json:
        print_json(rows)
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    lines, left_out = fitted(columns, cells, room())
    for line in lines:
        click.echo(line)
    if left_out and rows:
        note(f"not shown, too wide: {', '.join(left_out)}; --json shows all")


def print_fields(data: Mapping[str, object], as_json: bool = False) -> None:
    """Print one name and value a line, or all of them as JSON."""
    if as_json:
        print_json(data)
        return
    names = max(map(len, data), default=0)
    wide = room()
    for name, value in data.items():
        text = f"{name.ljust(names)}  {_cell(value)}".rstrip()
        if wide and len(text) > wide:
            indent = " " * (names + 2)
            text = textwrap.fill(text, wide, subsequent_indent=indent, break_on_hyphens=False)
        click.echo(text)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_cell(item)}" for name, item in value.items()) or "-"
    if isinstance(value, (list, tuple, frozenset)):
        return ",".join(map(_cell, value)) or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """Return the text without unprintable characters, since clients and vendors choose some
    of it."""
    return "".join(char if char.isprintable() else "�" for char in text)


def coloured(text: str, colour: str) -> str:
    """Return the text in a colour if standard output is a terminal and NO_COLOR is not set."""
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, fg=colour) if colours else text


def note(text: str) -> None:
    """Print a remark for people on standard error."""
    click.echo(mask(text), err=True)


def run(command: click.Command, args: Sequence[str], name: str) -> int:
    """Run one command. Return the exit code. Expected errors are reported without a traceback."""
    try:
        result = command.main(list(args), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.UsageError as error:
        if error.ctx is not None:
            note(error.ctx.get_usage())
            if error.ctx.command.get_help_option(error.ctx) is not None:
                note(f"Try '{error.ctx.command_path} --help' for help.\n")
        note(f"error: {_NO_NUMBER.sub('must be a whole number', error.format_message())}")
        return WRONG_USAGE
    except click.ClickException as error:
        return _failed([error.format_message()])
    except ConfigError as error:
        for line in error.lines:  # each begins with file and line, the form that editors expect
            note(line)
        return CONFIG_REFUSED
    except Refused as error:
        return _failed(error.faults, error)
    except StoreError as error:
        return _failed([f"the store: {error}"], error)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        return _os_error(error)


def _os_error(error: OSError) -> int:
    if error.errno == errno.EPIPE:
        # the reader has ended, as `| head` does; the interpreter flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return _failed([f"{error.filename}: {error.strerror}" if error.filename else str(error)])


def _failed(faults: Iterable[str], error: BaseException | None = None) -> int:
    """Print the faults, and below them the notes of the error."""
    for fault in faults:
        note(f"error: {fault}")
    for remark in getattr(error, "__notes__", ()):
        note(remark)
    return FAILED
