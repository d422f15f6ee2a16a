"""Tokens of the JSON API, everybody's: listed and revoked."""

from http import HTTPStatus

import peewee

from handlers.hub.admin.api.base import AdminApi, actor_of, limit_of
from store.admin.listing import Part
from store.hub import tokens


def page(db: peewee.Database, user: str | None, limit: int, before: str) -> Part:
    """A page of the tokens of a user, or of all, the newest first. Raises NotFound."""
    rows = tokens.listed(db, user, limit + 1, before)
    items = [tokens.public(row) for row in rows[:limit]]
    return Part(items, items[-1]["id"] if len(rows) > limit else None)


class List(AdminApi):
    """GET /api/admin/tokens."""

    async def get(self) -> None:
        user, after = (self.get_query_argument(name, "") for name in ("user", "after"))
        part = await self.store(page, user or None, limit_of(self), after)
        self.answer({"items": part.items, "next": part.next})


class One(AdminApi):
    """DELETE /api/admin/tokens/ID: it is revoked."""

    async def delete(self, token_id: str) -> None:
        await self.store(tokens.revoke, token_id, actor=actor_of(self))
        self.set_status(HTTPStatus.NO_CONTENT)
        self.clear_header("Content-Type")
        self.finish()
