"""The audit log: each change with its time, actor and address, and the fields before and after."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from typing import Any, NamedTuple

import peewee

from handlers.hub.usage.usage_dates import day_of_text
from handlers.hub.web import exports
from handlers.hub.web.admin import AdminApi, AdminPage, path_of
from handlers.hub.web.base import invalid
from handlers.hub.web.formats import stored_actor, value_text
from store.admin.listing import ListPage
from store.calls.reading.buckets import begin_of
from store.db import audit
from store.values.fields import Instant
from store.values.usage_record import rfc3339

_PLAIN = ("actor", "address", "action", "kind", "name")
FIELDS = ("id", "at", *_PLAIN, "before", "after")
FILTERS = ("actor", "kind", "name", "since")
KIND = "admin.kind_"  # the prefix of the names of kinds' texts
_EMPTY: tuple[object, ...] = (None, 0, [], {})


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """The lines that match a filter and are older than the line with the id `before`."""

    lines: audit.AuditFilter
    limit: int
    before: str


def query_of(handler: AdminApi | AdminPage, zone: tzinfo = UTC) -> AuditQuery:
    """Return the query of a request. `zone`: the time zone of a day in it. Raises Failure."""
    argument = handler.get_query_argument
    since = argument("since", "")
    try:
        day = day_of_text(since)
        since_ms = begin_of(day, zone) if day else Instant().parse(since) if since else None
    except ValueError as error:
        raise invalid("since", f"since {error}") from None
    actor, kind, name = (argument(field, "").strip() for field in ("actor", "kind", "name"))
    lines = audit.AuditFilter(actor, kind, name, since_ms)
    return AuditQuery(lines, handler.limit(), argument("after", ""))


def load_page(db: peewee.Database, query: AuditQuery) -> ListPage:
    """Return lines of the log, newest first."""
    rows = audit.entries(db, query.limit + 1, query.lines, query.before)
    items = [to_plain(row) for row in rows[: query.limit]]
    return ListPage(items, items[-1]["id"] if len(rows) > query.limit else None)


def to_plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line as JSON."""
    return {
        "id": row["id"],
        "at": rfc3339(row["at_ms"]),
        **{name: row[name] for name in (*_PLAIN, "before", "after")},
    }


class AuditApi(AdminApi):
    """GET /api/admin/audit."""

    async def get(self) -> None:
        part = await self.store(load_page, query_of(self))
        self.answer_list(part.items, part.next)


class AuditExportApi(AdminApi):
    """GET /api/admin/audit/export?format=csv|ndjson: all matching lines, newest first."""

    async def get(self) -> None:
        rows = audit.every_entry(self.site.db, query_of(self).lines)
        await exports.send(self, "audit", FIELDS, rows, to_plain)


class FieldChange(NamedTuple):
    """The value of a field before and after a change, as text. None: it had no value."""

    name: str
    before: str | None
    after: str | None


def field_changes(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterator[FieldChange]:
    """Return the changed fields in order; for a created object only those that are not empty."""
    old, new = before or {}, after or {}
    if before is None:
        new = {name: value for name, value in new.items() if value not in _EMPTY}
    for name in dict.fromkeys((*old, *new)):
        yield FieldChange(
            name,
            value_text(old[name]) if name in old else None,
            value_text(new[name]) if name in new else None,
        )


class AuditPage(AdminPage):
    """The log."""

    async def get(self) -> None:
        query = query_of(self, self.zone)
        lines = replace(query.lines, actor=stored_actor(self.words, query.lines.actor))
        part = await self.store(load_page, replace(query, lines=lines))
        arguments = {name: self.get_query_argument(name, "") for name in FILTERS}
        arguments["actor"] = lines.actor
        self.show(
            "admin/audit.html",
            items=part.items,
            next=part.next,
            filters={name: value for name, value in arguments.items() if value},
            names=FILTERS,
            kinds=self._kinds(arguments["kind"]),
            field_changes=field_changes,
            ms=Instant().parse,
            here=path_of("audit"),
        )

    def _kinds(self, chosen: str) -> list[tuple[str, str]]:
        """Return the kinds to choose from with their texts, sorted by text."""
        words = self.words.items()
        kinds = {name.removeprefix(KIND): word for name, word in words if name.startswith(KIND)}
        if chosen:
            kinds.setdefault(chosen, chosen)
        return sorted(kinds.items(), key=lambda kind: kind[1])
