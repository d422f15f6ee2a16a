"""/find, which ⌘K opens on every page: finds pages and objects by part of their names, and calls by
id."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

import peewee

from handlers.hub.web.admin import path_of
from handlers.hub.web.base import Api, HubHandler, Page
from handlers.hub.web.navigation import navigation
from handlers.hub.web.strings import strings
from store.calls.reading import search
from store.hub import finding
from store.hub.finding import Hit
from store.hub.sessions import SignedIn
from store.values.ids import now_ms

MOST_HITS = 8
TEXT_CHARS = 128
ICONS = {
    **{"page": "open", "call": "usage", "key": "key"},
    **{"user": "users", "model": "box", "channel": "channels"},
}


class FindRow(NamedTuple):
    """A page or object that matches a text. `of`: the user, if it is another user's key."""

    kind: str
    name: str
    path: str
    of: str = ""


def _objects(db: peewee.Database, text: str, me: SignedIn) -> list[FindRow]:
    """Return the call with this id or, without one, the objects with this text in their names."""
    viewer = search.Viewer(
        None if me.admin else me.user_id, None if me.admin else me.user, me.admin
    )
    match = search.match_of(db, text, viewer, now_ms())
    if match.kind == "call":
        return [FindRow("call", match.value, f"/usage/{match.value}")]
    hits = finding.hits(db, text, me.user_id, MOST_HITS, admin=me.admin)
    return [FindRow(hit.kind, hit.name, _path(hit), hit.user) for hit in hits]


def _path(hit: Hit) -> str:
    if hit.kind == "key":
        return f"/admin/keys?search={hit.id}" if hit.user else f"/keys/{hit.id}"
    if hit.kind == "model":
        return f"/models/{quote(hit.name, safe='')}"
    return path_of(f"{hit.kind}s", hit.name)


def _pages(handler: HubHandler, text: str, language: str) -> list[FindRow]:
    """Return the pages whose names contain this text, in the page's language or English."""
    pages = navigation(admin=handler.me.admin)
    rows = []
    for entry in (*pages.everybody, *pages.administration):
        names = {strings(code)[f"nav.{entry.word}"] for code in (language, "en")}
        if any(text.lower() in name.lower() for name in names):
            rows.append(FindRow("page", strings(language)[f"nav.{entry.word}"], entry.path))
    return rows


async def _find(handler: HubHandler, language: str) -> tuple[str, Sequence[FindRow]]:
    text = handler.get_query_argument("q", "").strip()[:TEXT_CHARS]
    if not text:
        return "", ()
    objects = await handler.store(_objects, text, handler.me)
    if len(objects) == 1 and objects[0].kind == "call":
        return text, objects
    rows = [*_pages(handler, text, language), *objects]
    return text, sorted(rows, key=lambda row: finding.rank(row.name, text))[:MOST_HITS]


class FindPage(Page):
    """/find: the search field and its results; ⌘K opens it as a dialog."""

    async def get(self) -> None:
        text, rows = await _find(self, self.language)
        self.show("find.html", text=text, rows=rows, icons=ICONS)


class FindApi(Api):
    """/api/find: the results as JSON."""

    async def get(self) -> None:
        _, rows = await _find(self, "en")
        items = [{"kind": row.kind, "name": row.name, "path": row.path} for row in rows]
        for item, row in zip(items, rows, strict=True):
            if row.of:
                item["user"] = row.of
        self.answer({"items": items})
