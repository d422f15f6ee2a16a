"""The verbs that users, groups, models and channels share: list, show, create, set, disable,
enable, remove. One file a noun makes its command with `noun`. Imported by commands only.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from commands.edits import editor, print_outcome, words_of
from commands.output import (
    config_option,
    json_option,
    note,
    print_fields,
    print_json,
    print_table,
)
from commands.store_access import opened_store
from commands.subcommands import Noun
from store.document_kinds import KINDS
from store.export import list_objects, show

NAME = click.argument("name")
FIELD = "FIELD=VALUE"


def noun(kind: str, columns: Sequence[str]) -> Noun:
    """The command of a kind; `columns` are the fields that its table shows."""
    command = Noun(kind, help=f"List, show and edit {kind}s.", no_args_is_help=True)
    for verb in (
        _list(kind, columns),
        _show(kind),
        _create(kind),
        _set(kind),
        _switch(kind, "disable", enabled=False),
        _switch(kind, "enable", enabled=True),
        _remove(kind),
    ):
        command.add_command(verb)
    return command


def _list(kind: str, columns: Sequence[str]) -> click.Command:
    @click.command("list", help=f"List all {kind}s.")
    @config_option
    @json_option
    def verb(config: Path | None, as_json: bool) -> None:
        with opened_store(config) as access:
            objects = list_objects(access.db, kind)
        if as_json:
            print_json(objects)
            return
        print_table(objects, columns)
        if not objects:
            note(f"there is none; make one: ./sluice {kind} create NAME {FIELD} …")

    return verb


def _show(kind: str) -> click.Command:
    @click.command("show", help=f"Show one {kind}.")
    @NAME
    @config_option
    @json_option
    def verb(name: str, config: Path | None, as_json: bool) -> None:
        with opened_store(config) as access:
            fields = show(access.db, kind, name)
        if as_json:
            print_json(fields)
        else:
            print_fields(fields)

    return verb


def _create(kind: str) -> click.Command:
    @click.command("create", help=_edit_help(f"Make a {kind}.", kind))
    @NAME
    @click.argument("assignments", nargs=-1, metavar=f"[{FIELD}]...")
    @config_option
    @json_option
    def verb(name: str, assignments: tuple[str, ...], config: Path | None, as_json: bool) -> None:
        words = words_of(assignments)
        with opened_store(config) as access:
            outcome = editor(access).create(kind, name, words)
        print_outcome(outcome, as_json)

    return verb


def _set(kind: str) -> click.Command:
    @click.command("set", help=_edit_help(f"Change fields of a {kind}.", kind))
    @NAME
    @click.argument("assignments", nargs=-1, required=True, metavar=f"{FIELD}...")
    @config_option
    @json_option
    def verb(name: str, assignments: tuple[str, ...], config: Path | None, as_json: bool) -> None:
        words = words_of(assignments)
        with opened_store(config) as access:
            outcome = editor(access).set_fields(kind, name, words)
        print_outcome(outcome, as_json)

    return verb


def _switch(kind: str, verb_name: str, *, enabled: bool) -> click.Command:
    @click.command(verb_name, help=f"{verb_name.capitalize()} a {kind}.")
    @NAME
    @config_option
    @json_option
    def verb(name: str, config: Path | None, as_json: bool) -> None:
        with opened_store(config) as access:
            outcome = editor(access).set_enabled(kind, name, enabled)
        print_outcome(outcome, as_json)

    return verb


def _remove(kind: str) -> click.Command:
    @click.command("remove", help=f"Remove a {kind}; refused while others refer to it.")
    @NAME
    @config_option
    @json_option
    def verb(name: str, config: Path | None, as_json: bool) -> None:
        with opened_store(config) as access:
            outcome = editor(access).remove(kind, name)
        print_outcome(outcome, as_json)

    return verb


def _edit_help(summary: str, kind: str) -> str:
    return (
        f"{summary}\n\nFields: {', '.join(KINDS[kind].fields)}. Inner ones with points"
        " (price.input=2), lists with commas; a value env:NAME or file:PATH is read from there."
    )
