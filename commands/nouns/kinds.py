"""The verbs that nouns share: list, show, create, set, disable, enable, remove.

Each noun's file (users, groups, models, channels, plans, subscriptions) creates its command with
`noun`. Imported by commands only.
"""

from collections.abc import Callable, Sequence
from typing import Any

import click
import peewee

from commands.edits import EDITS, FIELD, NEW_FIELDS, Edits, editor, print_outcome
from commands.output import note, print_fields, print_table
from commands.store_access import Access, on_store
from commands.subcommands import Noun
from store.admin.export import list_objects, show
from store.admin.kinds import KINDS

Objects = list[dict[str, Any]]
Complete = Callable[[peewee.Database, Objects], Objects]


def noun(
    kind: str,
    columns: Sequence[str],
    remark: str = "",
    complete: Complete = lambda _, objects: objects,
    json_only: Sequence[str] = (),
) -> Noun:
    """Return the command of a kind. `columns` are the fields in its table.

    `remark` is added to the help of create and set. `complete` adds fields to the objects that are
    shown; those in `json_only` are too long for text output.
    """
    command = Noun(kind, help=f"List, show and edit {kind}s.", no_args_is_help=True)
    for verb in (
        _list(kind, columns, complete),
        _show(kind, complete, json_only),
        _create(kind, remark),
        _set(kind, remark),
        _switch(kind, "disable", enabled=False),
        _switch(kind, "enable", enabled=True),
        _remove(kind),
    ):
        command.add_command(verb)
    return command


def _name(kind: str) -> str:
    """Return the metavar of a name: NAME, or USER/PLAN for an identity of two parts."""
    identity = KINDS[kind].identity
    return "/".join(identity).upper() if len(identity) > 1 else "NAME"


def _list(kind: str, columns: Sequence[str], complete: Complete) -> click.Command:
    @click.command("list", help=f"List all {kind}s.")
    @on_store
    def verb(access: Access, as_json: bool) -> None:
        objects = complete(access.db, list_objects(access.db, kind))
        print_table(objects, columns, as_json)
        if not objects and not as_json:
            note(f"no {kind}s yet; create one: ./sluice {kind} create {_name(kind)} {FIELD} …")

    return verb


def _show(kind: str, complete: Complete, json_only: Sequence[str]) -> click.Command:
    @click.command("show", help=f"Show one {kind}.")
    @click.argument("name", metavar=_name(kind))
    @on_store
    def verb(access: Access, name: str, as_json: bool) -> None:
        [fields] = complete(access.db, [show(access.db, kind, name)])
        if not as_json:
            fields = {n: value for n, value in fields.items() if n not in json_only}
        print_fields(fields, as_json)

    return verb


def _create(kind: str, remark: str) -> click.Command:
    @click.command("create", help=edit_help(f"Create a {kind}.", kind, remark))
    @click.argument("name", metavar=_name(kind))
    @NEW_FIELDS
    @on_store
    def verb(access: Access, name: str, edits: Edits, as_json: bool) -> None:
        print_outcome(editor(access).create(kind, name, edits), as_json)

    return verb


def _set(kind: str, remark: str) -> click.Command:
    @click.command("set", help=edit_help(f"Change fields of a {kind}.", kind, remark))
    @click.argument("name", metavar=_name(kind))
    @EDITS
    @on_store
    def verb(access: Access, name: str, edits: Edits, as_json: bool) -> None:
        print_outcome(editor(access).change(kind, name, edits), as_json)

    return verb


def _switch(kind: str, verb_name: str, *, enabled: bool) -> click.Command:
    @click.command(verb_name, help=f"{verb_name.capitalize()} a {kind}.")
    @click.argument("name", metavar=_name(kind))
    @on_store
    def verb(access: Access, name: str, as_json: bool) -> None:
        outcome = editor(access).set_enabled(kind, name, enabled)
        already = "" if outcome.changes else "already "
        state = f'{kind} "{name}": {already}{"enabled" if enabled else "disabled"}'
        print_outcome(outcome, as_json, state=state)

    return verb


def _remove(kind: str) -> click.Command:
    @click.command("remove", help=f"Remove a {kind}; refused while it is referenced.")
    @click.argument("name", metavar=_name(kind))
    @on_store
    def verb(access: Access, name: str, as_json: bool) -> None:
        print_outcome(editor(access).remove(kind, name), as_json)

    return verb


def edit_help(summary: str, kind: str, remark: str = "") -> str:
    """Return the help of a verb that takes fields of a kind."""
    text = (
        f"{summary}\n\nFields: {', '.join(KINDS[kind].fields)}. Write nested"
        " fields with dots (price.input=2), lists with commas; a value env:NAME or file:PATH is"
        " read from there."
    )
    return f"{text}\n\n{remark}" if remark else text
