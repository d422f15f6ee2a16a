"""Exports: all calls of a filter as NDJSON or CSV, a piece at a time.

A piece is read and written out in a thread of the store; the next one is asked for when the client
has taken it, so that memory stays flat, the loop is never held, and a client that leaves ends it.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import peewee
from tornado.iostream import StreamClosedError

from handlers.hub.usage.api import ApiUsageBase
from handlers.hub.usage.asked import refused
from handlers.hub.usage.shown import public
from store.calls.usage_queries import Row, export_rows
from store.values.usage_record import csv_header, csv_line

PIECE_ROWS = 250
TYPES: Mapping[str, str] = {
    "ndjson": "application/x-ndjson; charset=utf-8",
    "csv": "text/csv; charset=utf-8; header=present",
}


class ApiExport(ApiUsageBase):
    """GET /api/usage/export?format=csv|ndjson: in order of the calls' start."""

    async def get(self) -> None:
        form = self.get_query_argument("format", "ndjson")
        if form not in TYPES:
            raise refused("format", "format must be csv or ndjson")
        wanted = await self.asked("format")
        self.set_header("Content-Type", TYPES[form])
        self.set_header("Content-Disposition", f'attachment; filename="usage.{form}"')
        rows = await self.store(export_rows, wanted.filters)
        if form == "csv":
            self.write(csv_header())
        try:
            await self.flush()
            while piece := await self.store(_piece, rows, form, admin=self.me.admin):
                self.write(piece)
                await self.flush()
        except StreamClosedError:
            return  # the client has left


def _piece(db: peewee.Database, rows: Iterator[Row], form: str, *, admin: bool) -> bytes:
    """The next lines; nothing when there are no more."""
    some = itertools.islice(rows, PIECE_ROWS)
    return b"".join(_line(public(row, admin=admin), form) for row in some)


def _line(record: Mapping[str, Any], form: str) -> bytes:
    return csv_line(record).encode() if form == "csv" else msgspec.json.encode(record) + b"\n"
