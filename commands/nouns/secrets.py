"""`secrets`: the replacement of the installation's secrets, step by step, while gateways run.

secret_rotation.py has the steps, store/admin/secret_use.py the check for uses of old ones.
"""

from dataclasses import asdict
from typing import Any

import click

from commands.nouns import secret_rotation as rotation
from commands.output import note, print_json, print_result, print_table
from commands.progress import progress
from commands.store_access import Access, actor, on_whole_store
from commands.subcommands import Noun
from conf.secrets import KINDS, read
from store.admin import secret_use
from store.values.cipher import Cipher
from store.values.errors import Refused

command = Noun("secrets", help="Replace the secrets of the installation.", no_args_is_help=True)

_KIND = click.Choice(list(KINDS))
_NODES = click.option(
    "--nodes-reloaded", is_flag=True, help="Confirm: the other nodes have the file, were reloaded."
)


@command.command()
@on_whole_store
def status(access: Access, as_json: bool) -> None:
    """Show how many secrets there are of each kind, and what still needs an old one."""
    rows = [_row(access, kind) for kind in KINDS]
    if as_json:
        print_json(rows)
        return
    print_table(rows, ("kind", "secrets", "upcoming", "by_newest", "by_older", "lost"))
    for row in rows:
        if row.get("keys"):
            note(f"keys that need an older pepper until their next use: {', '.join(row['keys'])}")


@command.command()
@click.argument("kind", type=_KIND)
@_NODES
@on_whole_store
def rotate(access: Access, kind: str, nodes_reloaded: bool, as_json: bool) -> None:
    """Replace a secret with a new one; the old one stays valid until `remove-old`.

    Adds the new secret, reloads the running gateway of this node (SIGHUP), then uses the new
    secret; with `cipher` it also reseals upstream keys. The digest of an API key moves to the new
    pepper when the key is next used. If interrupted, run it again: it continues. Other nodes need a
    copy of the file and a reload first; the command says so.
    """
    nodes = rotation.Nodes(access.loaded, access.db, nodes_reloaded)
    if rotation.add(access.loaded, kind):
        secret_use.note_rotation(access.db, actor(), "rotate", kind)
    if kind in read(access.loaded.secrets_path).upcoming:
        nodes.take()
        rotation.promote(access.loaded, kind)
    rotation.Nodes(access.loaded, access.db, reloaded=True).take()
    resealed = _reseal(access, as_json) if kind == "cipher" else 0
    row = _row(access, kind)
    if as_json:
        print_json({**row, "resealed": resealed})
        return
    _tell(access, row, resealed)


@command.command("remove-old")
@click.argument("kind", type=_KIND, required=False)
@_NODES
@on_whole_store
def remove_old(access: Access, kind: str | None, nodes_reloaded: bool, as_json: bool) -> None:
    """Remove old secrets, of one kind or of all; refused while something needs one."""
    kinds = [kind] if kind else list(KINDS)
    stored = read(access.loaded.secrets_path)
    if any(len(getattr(stored, KINDS[name])) > 1 for name in kinds):
        # no process may use an old secret while its uses are counted
        rotation.Nodes(access.loaded, access.db, nodes_reloaded).take()
    rows = [_row(access, name) for name in kinds]
    faults = [fault for row in rows for fault in _still_needed(row)]
    if faults:
        raise Refused(faults)
    old = [row["kind"] for row in rows if row["secrets"] > 1]
    removed = {name: rotation.remove_old(access.loaded, name) for name in old}
    for name in removed:
        secret_use.note_rotation(access.db, actor(), "remove_old", name)
    if removed:
        rotation.Nodes(access.loaded, access.db, reloaded=True).take()
    lines = [f"{name}: {count} old removed" for name, count in removed.items()]
    print_result(as_json, {"removed": removed}, "\n".join(lines) or "there are no old secrets")


def _row(access: Access, kind: str) -> dict[str, Any]:
    """Count the secrets of a kind, and the values that each one protects."""
    stored = read(access.loaded.secrets_path)
    secrets = access.secrets()
    row: dict[str, Any] = {
        "kind": kind,
        "secrets": len(getattr(stored, KINDS[kind])),
        "upcoming": kind in stored.upcoming,
    }
    if kind == "cipher":
        sealed = secret_use.sealed_use(access.db, Cipher(secrets.cipher_keys))
        counts = {"by_newest": sealed.newest, "by_older": sealed.older, "lost": sealed.unreadable}
        return row | counts
    if kind == "pepper":
        use = secret_use.pepper_use(access.db, secrets.peppers)
        counts = {"by_newest": use.newest, "by_older": use.older_keys + use.older_codes}
        return row | counts | {"lost": use.lost, **asdict(use)}
    return row | {"by_newest": None, "by_older": None, "lost": None}


def _still_needed(row: dict[str, Any]) -> list[str]:
    """Return the reasons that keep old secrets of a kind."""
    if row["upcoming"]:
        return [
            f"{row['kind']}: a rotation is not finished; run: ./sluice secrets rotate {row['kind']}"
        ]
    if row["secrets"] < 2 or not row["by_older"]:
        return []
    if row["kind"] == "cipher":
        return [
            f"cipher: {row['by_older']} values need an old key; run: ./sluice secrets rotate cipher"
        ]
    named = f" ({', '.join(row['keys'])})" if row["keys"] else ""
    return [
        f"pepper: {row['older_keys']} keys{named} and {row['older_codes']} codes need an old one: a"
        " key moves when it is used; rotate or revoke the others, disable the codes"
    ]


def _reseal(access: Access, as_json: bool) -> int:
    cipher = Cipher(access.secrets().cipher_keys)
    with progress(as_json) as line:
        return secret_use.reseal(
            access.db,
            cipher,
            actor(),
            lambda done, of: line.tell(f"resealing: {done} of {of} channels"),
        )


def _tell(access: Access, row: dict[str, Any], resealed: int) -> None:
    kind = row["kind"]
    click.echo(f"{kind}: the new secret is in use, the old one is still valid")
    if kind == "cipher":
        click.echo(f"{resealed} values resealed, {row['by_older']} left")
    elif row["by_older"]:
        count = row["by_older"]
        click.echo(f"{count} keys and codes still need an older one: keys move when they are used")
    click.echo(f"next: copy {access.loaded.secrets_path} to the other nodes, if there are any, and")
    click.echo(f"reload them; keep a copy. Then: ./sluice secrets remove-old {kind}")
