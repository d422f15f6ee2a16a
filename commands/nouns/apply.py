"""`apply`: the command that makes the store match a document, all or nothing."""

import os
import sys
from functools import cached_property
from pathlib import Path

import click

from commands.edits import editor, print_outcome
from commands.output import data_options
from commands.store_access import opened_store
from conf.toml_edits import EntryPath, entry_lines
from store.admin.document import BYTE_ORDER_MARK, Place, is_json, read, resolver
from store.values.errors import Refused

STDIN = "-"
MAX_LINED_CHARS = 4 * 1024 * 1024  # faults in larger documents are reported without line numbers


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--prune", is_flag=True, help="Remove objects that FILE does not contain.")
@data_options
def command(file: str, dry_run: bool, prune: bool, config: Path | None, as_json: bool) -> None:
    """Create or change users, groups, models, channels, plans, subscriptions and keys as in FILE.

    FILE is TOML or JSON; - is standard input. Objects are identified by name: applying twice
    changes nothing. Omitted fields keep their values. A value "env:NAME" or "file:PATH" is read
    from there; relative paths start at FILE's folder.
    """
    name = "standard input" if file == STDIN else file
    text, folder = _text_of(file, name)
    with opened_store(config) as access:
        places = Lines(name, text).places
        try:
            document, faults = read(text, resolver(os.environ, folder), places)
        except Refused as error:  # nothing is readable, so faults have no line numbers
            raise Refused([f"{name}: {fault}" for fault in error.faults]) from None
        maker = editor(access)
        outcome = maker.apply(document, prune=prune, dry_run=dry_run, faults=faults)
    print_outcome(outcome, as_json, dry_run=dry_run)


def _text_of(file: str, name: str) -> tuple[str, Path]:
    """Return the text, and the folder to which its paths are relative."""
    if file == STDIN:
        raw, folder = sys.stdin.buffer.read(), Path.cwd()
    else:
        raw, folder = Path(file).read_bytes(), Path(file).parent
    try:
        return raw.decode("utf-8"), folder
    except UnicodeDecodeError:
        raise Refused([f"{name} is not UTF-8"]) from None


class Lines:
    """The line numbers of a document's entries, computed when they are first needed."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text

    def places(self, kind: str, index: int) -> Place:
        """Return the places of an entry: see store/admin/document.py."""

        def place(field: str) -> str:
            line = self._lines.get((kind, index, field)) or self._lines.get((kind, index, ""))
            return f"{self._name}:{line}: " if line else f"{self._name}: "

        return place

    @cached_property
    def _lines(self) -> dict[EntryPath, int]:
        if len(self._text) > MAX_LINED_CHARS or is_json(self._text):
            return {}
        return entry_lines(self._text.lstrip(BYTE_ORDER_MARK))
