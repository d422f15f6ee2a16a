"""A list of prices, as a table or as values: computing its changes, and making them, all or
nothing.

A list names existing models. A price that it does not give stays as it is.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import peewee

from store.admin.apply import Editor
from store.admin.document import Document
from store.admin.edits import entry_of_values, faults_by_field
from store.admin.export import list_objects
from store.db import versions
from store.values.errors import Refused, refuse
from store.values.meters import METERS
from store.values.price_fields import PriceTable
from store.values.texts import nearest

MODEL = "model"
MAX_ROWS = 5000

_BESIDE = ("rate", "price_source")
_VERSION = "version"
_NO_METERS = (MODEL, _VERSION, *_BESIDE)

PriceRow = Mapping[str, Any]
"""A model's name under `model`, and the changed prices by their names. `rate` is a whole list that
replaces the old one; `price_source` may be given, too. None removes a price. Optionally the
`version` on which these are based."""


@dataclass(frozen=True, slots=True)
class PriceChange:
    """Prices of a model before and after."""

    model: str
    before: Mapping[str, str]
    after: Mapping[str, str]


def read_csv(text: str) -> list[PriceRow]:
    """Return the rows of a table with a header. An empty cell changes nothing. Raises Refused."""
    try:
        rows = list(csv.reader(io.StringIO(text.lstrip("\ufeff"), newline="")))
    except csv.Error as error:
        raise Refused([f"the list cannot be read: {error}"]) from None
    filled = [(number, row) for number, row in enumerate(rows, 1) if any(map(str.strip, row))]
    if not filled:
        raise Refused(["the list is empty"])
    head = [cell.strip() for cell in filled[0][1]]
    faults = [
        f'unknown column "{name}"{nearest(name, (MODEL, *METERS))}'
        for name in head
        if name not in (MODEL, *METERS)
    ]
    if MODEL not in head:
        faults.append(f"the first line must name the columns: {MODEL}, {', '.join(METERS)}")
    faults += [
        f"line {number}: has {len(row)} cells, the head has {len(head)}"
        for number, row in filled[1:]
        if len(row) != len(head)
    ]
    refuse(faults)
    return [
        {name: cell.strip() for name, cell in zip(head, row, strict=True) if cell.strip()}
        for _, row in filled[1:]
    ]


def take(
    db: peewee.Database, editor: Editor, rows: Sequence[PriceRow], *, dry_run: bool
) -> list[PriceChange]:
    """Change prices, or only return the changes if `dry_run`. Raises Refused with every fault, and
    Outdated if others have changed a model since the version of its row, or at the same time."""
    begun_on = {
        (MODEL, name): str(row.get(_VERSION, versions.version_of(db, MODEL, name)))
        for row in rows[:MAX_ROWS]
        if isinstance(name := row.get(MODEL), str)
    }
    before = {model["name"]: model["price"] for model in list_objects(db, MODEL)}
    document = _document(rows, before)
    with faults_by_field():
        outcome = editor.apply(document, dry_run=dry_run, begun_on=begun_on)
    changed = {change.name for change in outcome.changes}
    return [
        PriceChange(name, before[name], PriceTable().plain(entry.fields["price"]))
        for entry in document
        if (name := entry.identity[0]) in changed
    ]


def _document(rows: Sequence[PriceRow], models: Mapping[str, Any]) -> Document:
    if len(rows) > MAX_ROWS:
        raise Refused([f"the list has more than {MAX_ROWS} models"])
    entries: Document = []
    faults: list[str] = []
    for number, row in enumerate(rows, 1):
        name = row.get(MODEL)
        if not isinstance(name, str) or name not in models:
            hint = nearest(name, models) if isinstance(name, str) else ""
            faults.append(f'row {number}: there is no model "{name}"{hint}')
            continue
        if any(entry.identity == (name,) for entry in entries):
            faults.append(f'row {number}: model "{name}" is there twice')
            continue
        changed = {n: value for n, value in row.items() if n not in _NO_METERS}
        price = {n: value for n, value in {**models[name], **changed}.items() if value is not None}
        fields = {"name": name, "price": price} | {n: row[n] for n in _BESIDE if n in row}
        try:
            with faults_by_field():
                entries.append(entry_of_values(MODEL, fields, None))
        except Refused as error:
            faults += [f"row {number}: {fault}" for fault in error.faults]
    refuse(faults)
    return entries
