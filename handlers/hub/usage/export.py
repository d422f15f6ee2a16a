"""Exports: all calls of a filter as NDJSON or CSV."""

import functools

from handlers.hub.usage.api import ApiUsageBase
from handlers.hub.usage.shown import public
from handlers.hub.web import exports
from store.calls.usage_queries import export_rows
from store.values.usage_record import FIELDS


class ApiExport(ApiUsageBase):
    """GET /api/usage/export?format=csv|ndjson: in order of the calls' start."""

    async def get(self) -> None:
        exports.requested_format(self)
        wanted = await self.asked(exports.FORM)
        rows = await self.store(export_rows, wanted.filters)
        shown = functools.partial(public, admin=self.me.admin)
        await exports.send(self, "usage", FIELDS, rows, shown)
