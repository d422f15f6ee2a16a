"""Reads the operator's document: TOML or JSON text into checked entries, or all its faults.

No database here: whether names that an entry refers to exist is judged by plan.py. Values of
secrets are in the entries but never in a fault.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from store.document_kinds import KINDS
from store.document_texts import nearest
from store.errors import Refused

ENV_PREFIX = "env:"
FILE_PREFIX = "file:"
MAX_FILE_VALUE_BYTES = 65_536
MAX_DOCUMENT_CHARS = 32 * 1024 * 1024

Identity = tuple[str, ...]
Resolve = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its identity (one name or two, as a key has) and the fields it gives."""

    kind: str
    identity: Identity
    fields: Mapping[str, Any] = field(repr=False)


Document = list[Entry]
"""Entries in the order of their kinds."""


def label(kind: str, identity: Identity) -> str:
    """How messages name an entry: `key "alice/laptop"`."""
    return f'{kind} "{"/".join(identity)}"'


def parse(text: str, environ: Mapping[str, str], folder: Path) -> Document:
    """The entries of a document; Refused with every fault.

    JSON when it begins with a brace, else TOML. A string `env:NAME` or `file:PATH` is read from
    there, relative paths from `folder`; a file loses the line ends at its end.
    """
    content = _load(text)
    faults: list[str] = []
    entries: Document = []
    for section in content:
        if section not in KINDS:
            faults.append(f'unknown section "{section}"{nearest(section, KINDS)}')

    resolve = resolver(environ, folder)
    for kind in KINDS:
        raw = content.get(kind, [])
        if not isinstance(raw, list):
            faults.append(f'section "{kind}" must be a list: write [[{kind}]]')
            continue
        for index, fields in enumerate(raw):
            entry = parse_entry(kind, fields, (faults, f"{kind} #{index + 1}"), resolve)
            if entry is not None:
                entries.append(entry)
    _refuse_doubles(entries, faults)
    if faults:
        raise Refused(faults)
    return entries


def resolver(environ: Mapping[str, str], folder: Path) -> Resolve:
    """What reads env: and file: strings, in lists and tables too; it raises ValueError."""
    return lambda value: _resolve(value, environ, folder)


def parse_entry(
    kind: str, raw: object, report: tuple[list[str], str], resolve: Resolve
) -> Entry | None:
    """One entry from its document values; None and a fault when its identity is not usable.

    `report`: the list that faults are added to, and what to call an entry without identity.
    """
    faults, where = report
    if not isinstance(raw, dict):
        faults.append(f"{where} must be a table")
        return None
    spec = KINDS[kind]
    known = {**spec.identity, **{name: item.type for name, item in spec.fields.items()}}
    named = [raw.get(part) for part in spec.identity]
    if all(isinstance(part, str) for part in named):
        where = label(kind, tuple(map(str, named)))
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in known:
            faults.append(f'{where}: unknown field "{name}"{nearest(name, known)}')
            continue
        try:
            values[name] = known[name].parse(resolve(value))
        except ValueError as error:
            faults.append(f"{where}: {name}: {error}")
    missing = [part for part in spec.identity if part not in raw]
    faults.extend(f"{where}: {part} is missing" for part in missing)
    if not all(part in values for part in spec.identity):
        return None
    identity = tuple(values.pop(part) for part in spec.identity)
    return Entry(kind, identity, values)


def _load(text: str) -> dict[str, Any]:
    if len(text) > MAX_DOCUMENT_CHARS:
        raise Refused([f"the document has more than {MAX_DOCUMENT_CHARS} characters"])
    try:
        if text.lstrip("\ufeff \t\r\n").startswith("{"):
            content: dict[str, Any] = json.loads(
                text.lstrip("\ufeff"), parse_float=Decimal, object_pairs_hook=_without_doubles
            )
            return content
        return tomllib.loads(text.lstrip("\ufeff"), parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise Refused([f"the document is not TOML: {error}"]) from None
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise Refused([f"the document is not JSON: {error}"]) from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the name "{double}" is there twice in one object')
    return content


def _refuse_doubles(entries: Document, faults: list[str]) -> None:
    seen = set()
    for entry in entries:
        key = (entry.kind, entry.identity)
        if key in seen:
            faults.append(f"{label(*key)} is there more than once")
        seen.add(key)


def _resolve(value: object, environ: Mapping[str, str], folder: Path) -> object:
    if isinstance(value, list):
        return [_resolve(element, environ, folder) for element in value]
    if isinstance(value, dict):
        return {name: _resolve(element, environ, folder) for name, element in value.items()}
    if not isinstance(value, str):
        return value
    if value.startswith(ENV_PREFIX):
        name = value.removeprefix(ENV_PREFIX)
        if name not in environ:
            raise ValueError(f"the environment has no variable {name}")
        return environ[name]
    if value.startswith(FILE_PREFIX):
        return _file_value(folder / value.removeprefix(FILE_PREFIX))
    return value


def _file_value(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_VALUE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_VALUE_BYTES:
        raise ValueError(f"the file {path} has more than {MAX_FILE_VALUE_BYTES} bytes")
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not UTF-8") from None
