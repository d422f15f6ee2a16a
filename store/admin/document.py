"""Reading of the operator's document: TOML or JSON text into checked entries, or all its faults.

No database here: plan.py checks whether names that an entry refers to exist. Values of secrets are
in the entries but never in a fault.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from store.admin.kinds import KINDS
from store.values.errors import Refused, refuse
from store.values.texts import nearest, read_regular

ENV_PREFIX = "env:"
FILE_PREFIX = "file:"
PREFIXES = (ENV_PREFIX, FILE_PREFIX)
BYTE_ORDER_MARK = "\ufeff"
MAX_FILE_VALUE_BYTES = 65_536
MAX_DOCUMENT_CHARS = 32 * 1024 * 1024

Identity = tuple[str, ...]
Resolve = Callable[[object], object]
Place = Callable[[str], str]
"""A field of an entry (with dots for inner ones, "" for the entry) -> the start of its faults:
`setup.toml:12: `, or nothing if the place is not known."""
Places = Callable[[str, int], Place]
"""The same for the entry of a kind, by its number (from 0)."""


def nowhere(_: str) -> str:
    """Return the place of an entry that is not in a file."""
    return ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry: its identity (one name, or two as for a key) and its given fields. `bad` are given
    fields that have a fault. `place` returns their place in a file."""

    kind: str
    identity: Identity
    fields: Mapping[str, Any] = field(repr=False)
    bad: frozenset[str] = frozenset()
    place: Place = field(default=nowhere, repr=False, compare=False)

    def where(self, name: str = "") -> str:
        """Return the start of a message about a field: `setup.toml:12: channel "main"`."""
        return f"{self.place(name)}{label(self.kind, self.identity)}"

    def fault(self, name: str, message: str) -> str:
        """Return the whole message about a field."""
        return f"{self.where(name)}: {name.partition('.')[0]}: {message}"


@dataclass(frozen=True, slots=True)
class Report:
    """The target of the faults of parse_entry, and the name in them for an entry without a name."""

    faults: list[str]
    unnamed: str
    place: Place = nowhere


Document = list[Entry]
"""Entries in the order of their kinds."""


def label(kind: str, identity: Identity) -> str:
    """Return the name of an entry in messages: `key "alice/laptop"`."""
    return f'{kind} "{"/".join(identity)}"'


def parse(text: str, environ: Mapping[str, str], folder: Path) -> Document:
    """Return the entries of a document. Raises Refused with every fault.

    The text is JSON if it starts with a brace, else TOML. A string `env:NAME` or `file:PATH` is
    read from there, with relative paths from `folder`. Trailing line ends of a file are removed.
    """
    entries, faults = read(text, resolver(environ, folder))
    refuse(faults)
    return entries


def read(
    text: str, resolve: Resolve, places: Places = lambda kind, index: nowhere
) -> tuple[Document, list[str]]:
    """Return the readable entries of a document, and the faults, each with its place. Raises
    Refused if nothing can be read."""
    content = _load(text)
    faults: list[str] = []
    entries: Document = []
    for section in content:
        if section not in KINDS:
            place = places(section, 0)("")
            faults.append(f'{place}unknown section "{section}"{nearest(section, KINDS)}')
    for kind in KINDS:
        raw = content.get(kind, [])
        if not isinstance(raw, list):
            place = places(kind, 0)("")
            faults.append(f'{place}section "{kind}" must be a list: write [[{kind}]]')
            continue
        for index, fields in enumerate(raw):
            report = Report(faults, f"{kind} #{index + 1}", places(kind, index))
            entry = parse_entry(kind, fields, report, resolve)
            if entry is not None:
                entries.append(entry)
    _refuse_duplicates(entries, faults)
    return entries, faults


def resolver(environ: Mapping[str, str], folder: Path) -> Resolve:
    """Return a function that reads env: and file: strings, also inside lists and tables. It raises
    ValueError."""
    return lambda value: _resolve(value, environ, folder)


def parse_entry(kind: str, raw: object, report: Report, resolve: Resolve) -> Entry | None:
    """Return an entry from its document values. If its identity is unusable, add a fault and return
    None."""
    place, faults = report.place, report.faults
    if not isinstance(raw, dict):
        faults.append(f"{place('')}{report.unnamed} must be a table")
        return None
    spec = KINDS[kind]
    types = {**spec.identity, **{name: item.type for name, item in spec.fields.items()}}
    named = [raw.get(part) for part in spec.identity]
    strings = all(isinstance(part, str) for part in named)
    where = label(kind, tuple(map(str, named))) if strings else report.unnamed
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in types:
            hint = nearest(name, types)
            faults.append(f'{place(name)}{where}: unknown field "{name}"{hint}')
            continue
        try:
            values[name] = types[name].parse(resolve(value))
        except ValueError as error:
            at = place(_inner(name, value, str(error)))
            faults.append(f"{at}{where}: {name}: {error}")
    missing = [part for part in spec.identity if part not in raw]
    faults.extend(f"{place('')}{where}: {part} is missing" for part in missing)
    if not all(part in values for part in spec.identity):
        return None
    bad = frozenset(raw.keys() & spec.fields.keys() - values.keys())
    identity = tuple(values.pop(part) for part in spec.identity)
    return Entry(kind, identity, values, bad, place)


def _inner(name: str, value: object, fault: str) -> str:
    """Return the field that a fault is about. For a table, it may be an inner field that the fault
    names."""
    if isinstance(value, dict):
        for key in value:
            if fault.startswith((f"{key}: ", f'entry "{key}" ')) or f'field "{key}"' in fault:
                return f"{name}.{key}"
    return name


# tomllib's message about a duplicate key or table
_DUPLICATE = re.compile(
    r"Cannot (?:overwrite a value|declare .* twice)"
    r" \(at (?:line (\d+), column \d+|end of document)\)"
)


def is_json(text: str) -> bool:
    """Return whether a document is JSON: TOML cannot start with a brace."""
    return text.lstrip(f"{BYTE_ORDER_MARK} \t\r\n").startswith("{")


def _load(text: str) -> dict[str, Any]:
    if len(text) > MAX_DOCUMENT_CHARS:
        raise Refused([f"the document has more than {MAX_DOCUMENT_CHARS} characters"])
    try:
        if is_json(text):
            content: dict[str, Any] = json.loads(
                text.lstrip(BYTE_ORDER_MARK),
                parse_float=Decimal,
                object_pairs_hook=_without_duplicates,
            )
            return content
        return tomllib.loads(text.lstrip(BYTE_ORDER_MARK), parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise Refused([_toml_fault(text, str(error))]) from None
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise Refused([f"the document is not JSON: {error}"]) from None


def _toml_fault(text: str, message: str) -> str:
    match = _DUPLICATE.match(message)
    if match is not None:
        number = int(match[1] or text.rstrip().count("\n") + 1)
        key, equals, _ = text.split("\n")[number - 1].partition("=")
        if equals:
            return f'line {number}: the key "{key.strip()}" is there twice'
        if message.startswith("Cannot declare"):
            return f"line {number}: the table {key.strip()} is there twice"
    return f"the document is not TOML: {message}"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the name "{double}" is there twice in one object')
    return content


def _refuse_duplicates(entries: Document, faults: list[str]) -> None:
    seen = set()
    for entry in entries:
        key = (entry.kind, entry.identity)
        if key in seen:
            faults.append(f"{entry.where()} is there more than once")
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
        return read_regular(path, MAX_FILE_VALUE_BYTES).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not UTF-8") from None
