"""Exports of long lists as NDJSON or CSV, in chunks.

A store thread reads and encodes each chunk after the client has taken the previous one. So memory
use stays constant, the event loop is never blocked, and the export ends when the client
disconnects.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import peewee
from tornado.iostream import StreamClosedError

from handlers.hub.web.base import HubHandler, invalid
from store.values.usage_record import csv_row

PIECE_ROWS = 250
FILTERS_MAX, FILTER_CHARS = 20, 200  # of an export, in its audit line
FORM = "format"  # the query argument
TYPES: Mapping[str, str] = {
    "ndjson": "application/x-ndjson; charset=utf-8",
    "csv": "text/csv; charset=utf-8; header=present",
}

Record = Mapping[str, Any]


def requested_format(handler: HubHandler) -> str:
    """Return the format of an export, a key of TYPES. Raises Failure."""
    form = handler.get_query_argument(FORM, "ndjson")
    if form not in TYPES:
        raise invalid(FORM, "format must be csv or ndjson")
    return form


async def send(
    handler: HubHandler,
    name: str,
    fields: Sequence[str],
    rows: Iterator[dict[str, Any]],
    to_record: Callable[[dict[str, Any]], Record],
) -> None:
    """Send all rows at the client's pace. `fields`: the columns of CSV. Raises Failure."""
    form = requested_format(handler)
    await note(handler, name, form)
    handler.set_header("Content-Type", TYPES[form])
    handler.set_header("Content-Disposition", f'attachment; filename="{name}.{form}"')
    if form == "csv":
        handler.write(csv_row(fields))

    def line(row: dict[str, Any]) -> bytes:
        record = to_record(row)
        if form == "csv":
            return csv_row(record[field] for field in fields).encode()
        return msgspec.json.encode(record) + b"\n"

    try:
        await handler.flush()
        while piece := await handler.store(_piece, rows, line):
            handler.write(piece)
            await handler.flush()
    except StreamClosedError:
        return  # the client has disconnected


async def note(handler: HubHandler, name: str, form: str) -> None:
    """Write an audit line for an export, with its filters."""
    query = handler.request.query_arguments
    filters = {
        field: handler.get_query_argument(field)[:FILTER_CHARS]
        for field in sorted(query)[:FILTERS_MAX]
        if field != FORM
    }
    await handler.note("export", name, form, filters=filters)


def _piece(
    db: peewee.Database, rows: Iterator[dict[str, Any]], line: Callable[[dict[str, Any]], bytes]
) -> bytes:
    """Return the next lines; empty at the end."""
    return b"".join(map(line, itertools.islice(rows, PIECE_ROWS)))
