"""Administrative changes from the command line: their actor, and the output of their result.

Imported by the commands that change objects of the document of `apply`.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict

import click

from commands.output import note, print_json
from commands.store_access import Access, actor
from operations import edits
from store.admin.apply import Editor, Outcome
from store.admin.objects import Sealing
from store.values.cipher import Cipher

FIELD = "FIELD=VALUE"
DONE = {"create": "created", "update": "changed", "remove": "removed"}

Edits = dict[str, str]


def editor(access: Access) -> Editor:
    """Return an editor that acts in the name of this terminal's user."""
    secrets = access.secrets()
    sealing = Sealing(Cipher(secrets.cipher_keys), secrets.peppers)
    return edits.editor(access.db, sealing, actor(), os.environ)


def _edits(
    _context: click.Context, _argument: click.Parameter, assignments: Sequence[str]
) -> Edits:
    """Return the arguments `field=value` by field. Raises UsageError for others and for a repeated
    field."""
    fields: Edits = {}
    for assignment in assignments:
        field, separator, value = assignment.partition("=")
        if not separator or not field:
            raise click.UsageError(f"{assignment!r}: write it as FIELD=VALUE")
        if field in fields:
            raise click.UsageError(f"the field {field} is given twice")
        fields[field] = value
    return fields


EDITS = click.argument("edits", nargs=-1, required=True, metavar=f"{FIELD}...", callback=_edits)
NEW_FIELDS = click.argument("edits", nargs=-1, metavar=f"[{FIELD}]...", callback=_edits)


def print_outcome(
    outcome: Outcome, as_json: bool, *, dry_run: bool = False, state: str | None = None
) -> None:
    """Print what an edit did or would do. New secrets are shown only here. `state` replaces the
    list of changes."""
    for warning in outcome.warnings:
        note(f"warning: {warning}")
    if as_json:
        changes, keys = map(asdict, outcome.changes), map(asdict, outcome.keys)
        print_json({"changes": list(changes), "keys": list(keys)})
        return
    for change in outcome.changes if state is None else ():
        done = f"would be {DONE[change.action]}" if dry_run else DONE[change.action]
        click.echo(f'{change.kind} "{change.name}" {done}')
    if not outcome.changes and state is None:
        click.echo("nothing to change")
    if state is not None:
        click.echo(state)
    for key in outcome.keys:
        if key.secret is not None:
            click.echo(f'secret of key "{key.user}/{key.name}", shown once: {key.secret}')
