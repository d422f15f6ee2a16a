"""The contents of the store as the operator's document: whole, or object by object.

Secrets are never included: no upstream keys, no secrets of keys, no passwords. Neither are
balances, which are credited only once. Applying an export to its own store changes nothing.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import peewee

from store.admin.kinds import KINDS, plain
from store.admin.objects import Stored, StoreState, find, load
from store.db.audit import MASK
from store.db.database import snapshot_read
from store.values.fields import Instant

MAX_NAMES_SHOWN = 5

_INSTANT = Instant()
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def export(db: peewee.Database) -> dict[str, list[dict[str, Any]]]:
    """Return the document, with entries ordered by name, without unset fields and revoked keys."""
    state = snapshot_read(db, lambda: load(db))
    document: dict[str, list[dict[str, Any]]] = {}
    for kind, spec in KINDS.items():
        secret = {name for name, item in spec.fields.items() if item.secret}
        entries = []
        for stored in _ordered(state, kind):
            if stored.revoked:
                continue
            fields = plain(kind, stored.fields)
            visible = {
                n: v for n, v in fields.items() if not (v is None or _hidden(n in secret, v))
            }
            entries.append({**_identity(stored), **visible})
        if entries:
            document[kind] = entries
    return document


def left_out(db: peewee.Database) -> list[str]:
    """Return what `export` leaves out for this store, a phrase for each kind."""
    state = snapshot_read(db, lambda: load(db))
    omitted: dict[str, list[str]] = {}
    for kind, spec in KINDS.items():
        for stored in _ordered(state, kind):
            name = "/".join(stored.identity)
            if stored.revoked:
                omitted.setdefault(f"revoked {kind}s", []).append(name)
                continue
            fields = plain(kind, stored.fields)
            for field, item in spec.fields.items():
                if item.once or (fields[field] and _hidden(item.secret, fields[field])):
                    omitted.setdefault(f"{field} of {kind}s", []).append(name)
    return [f"{what}: {_first_names(names)}" for what, names in omitted.items()]


def _first_names(names: list[str]) -> str:
    more = len(names) - MAX_NAMES_SHOWN
    listed = ", ".join(names[:MAX_NAMES_SHOWN])
    return f"{listed} and {more} more" if more > 0 else listed


def list_objects(db: peewee.Database, kind: str) -> list[dict[str, Any]]:
    """Return every object of a kind in order of name: `id` and all its fields, secrets masked. A
    key has no secret, but its recognizable parts, and its times."""
    state = snapshot_read(db, lambda: load(db))
    return [shown(stored) for stored in _ordered(state, kind)]


def show(db: peewee.Database, kind: str, name: str) -> dict[str, Any]:
    """Return an object as in `list_objects`. A key is given by id or as USER/NAME. Raises
    NotFound."""
    return shown(find(snapshot_read(db, lambda: load(db)), kind, name))


def to_toml(document: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the document of `export` as TOML text."""
    blocks = []
    for kind, entries in document.items():
        for entry in entries:
            lines = [f"{name} = {_toml(value)}" for name, value in entry.items()]
            blocks.append("\n".join([f"[[{kind}]]", *lines]) + "\n")
    return "\n".join(blocks)


def _hidden(secret: bool, value: Any) -> bool:
    """Return whether the shown value differs from the real one. That of a proxy without a login
    does not."""
    return secret and (not isinstance(value, str) or MASK in value)


def _ordered(state: StoreState, kind: str) -> list[Stored]:
    return [stored for _, stored in sorted(state[kind].items())]


def _identity(stored: Stored) -> dict[str, str]:
    return dict(zip(KINDS[stored.kind].identity, stored.identity, strict=True))


def shown(stored: Stored) -> dict[str, Any]:
    """Return an object as lists show it: `id` and all fields, secrets masked."""
    fields = {"id": stored.id, **_identity(stored), **plain(stored.kind, stored.fields)}
    if stored.kind == "key":
        del fields["secret"]
        row = stored.row
        revoked_ms = row["revoked_ms"]
        fields |= {
            "prefix": row["prefix"],
            "last_four": row["last_four"],
            "created_at": _INSTANT.plain(row["created_ms"]),
            "revoked_at": None if revoked_ms is None else _INSTANT.plain(revoked_ms),
        }
    return fields


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml_key(name)} = {_toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    # JSON's strings, numbers and booleans are valid TOML, except U+007F, which must be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)
