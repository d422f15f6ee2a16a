"""The audit log: who changed what, from where; it is only ever added to."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.admin.api.base import AdminApi, limit_of
from handlers.hub.web import exports
from handlers.hub.web.base import Failure, HubHandler
from store.admin.listing import Part
from store.db import audit
from store.values.fields import Instant
from store.values.usage_record import rfc3339

_PLAIN = ("actor", "address", "action", "kind", "name")
FIELDS = ("id", "at", *_PLAIN, "before", "after")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which lines are looked for: those that fit, older than the one of the id `before`."""

    wanted: audit.Wanted
    limit: int
    before: str


def asked_of(handler: HubHandler) -> Asked:
    """What the query of a request asks for. Raises Failure."""
    argument = handler.get_query_argument
    since = argument("since", "")
    try:
        since_ms = Instant().parse(since) if since else None
    except ValueError as error:
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", f"since {error}", "since") from None
    actor, kind, name = (argument(one, "").strip() for one in ("actor", "kind", "name"))
    wanted = audit.Wanted(actor, kind, name, since_ms)
    return Asked(wanted, limit_of(handler), argument("after", ""))


def page(db: peewee.Database, asked: Asked) -> Part:
    """Lines of the log, the newest first."""
    found = audit.entries(db, asked.limit + 1, asked.wanted, asked.before)
    shown = [_public(row) for row in found[: asked.limit]]
    return Part(shown, shown[-1]["id"] if len(found) > asked.limit else None)


def _public(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "at": rfc3339(row["at_ms"]),
        **{name: row[name] for name in (*_PLAIN, "before", "after")},
    }


class Export(AdminApi):
    """GET /api/admin/audit/export?format=csv|ndjson: all lines that fit, the newest first."""

    async def get(self) -> None:
        rows = audit.every_entry(self.site.db, asked_of(self).wanted)
        await exports.send(self, "audit", FIELDS, rows, _public)


class Log(AdminApi):
    """GET /api/admin/audit."""

    async def get(self) -> None:
        found = await self.store(page, asked_of(self))
        self.answer({"items": found.items, "next": found.next})
