"""`export`: the document for `apply`, from the store and without secrets."""

from collections.abc import Sequence

import click

from commands.output import note, print_json
from commands.store_access import Access, on_store
from store.admin.export import export, left_out, to_toml


@click.command()
@on_store
def command(access: Access, as_json: bool) -> None:
    """Print users, groups, models, channels, plans, subscriptions, keys as a document for `apply`.

    Secrets and balances are omitted; comments at the top list them (with --json: on stderr).
    Applying it to the same store changes nothing.
    """
    document, omitted = export(access.db), left_out(access.db)
    if as_json:
        for line in _remarks(omitted):
            note(line)
        print_json(document)
        return
    for line in _remarks(omitted):
        click.echo(f"# {line}")
    click.echo(to_toml(document), nl=False)


def _remarks(omitted: Sequence[str]) -> list[str]:
    if not omitted:
        return []
    head = "Left out. Applied to another store, channels have no keys, and keys get new secrets:"
    # names may contain characters that end a comment or control a terminal
    return [
        head,
        *(f"  {''.join(c if c.isprintable() else '?' for c in line)}" for line in omitted),
    ]
