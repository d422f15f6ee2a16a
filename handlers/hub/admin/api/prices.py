"""Prices: what a model has cost since when, and lists of new ones."""

from collections.abc import Sequence
from http import HTTPStatus

import peewee

from handlers.hub.admin.api.base import AdminApi, actor_of
from handlers.hub.web.base import Failure, HubHandler
from operations import edits
from store.admin import listing, price_list
from store.admin.price_list import PriceChange, PriceRow


async def take(
    handler: HubHandler, rows: Sequence[PriceRow], *, dry_run: bool
) -> list[PriceChange]:
    """Change prices, all or none; `dry_run`: only tell what would change. Raises Failure."""
    actor, sealing = actor_of(handler), handler.site.sealing

    def work(db: peewee.Database) -> list[PriceChange]:
        return price_list.take(
            db, edits.editor(db, sealing, actor, remote=True), rows, dry_run=dry_run
        )

    return await handler.store(work)


class History(AdminApi):
    """GET /api/admin/models/NAME/prices."""

    async def get(self, name: str) -> None:
        self.answer({"items": await self.store(listing.price_history, name), "next": None})


class Import(AdminApi):
    """POST /api/admin/prices: a JSON list of prices, or a table in CSV."""

    async def post(self) -> None:
        rows, dry_run = await self._asked()
        changes = await take(self, rows, dry_run=dry_run)
        shown = [{"model": one.model, "before": one.before, "after": one.after} for one in changes]
        self.answer({"dry_run": dry_run, "changes": shown})

    async def _asked(self) -> tuple[Sequence[PriceRow], bool]:
        if self.request.headers.get("Content-Type", "").startswith("text/csv"):
            text = self.request.body.decode("utf-8", "replace")
            rows = await self.store(lambda _: price_list.read_csv(text))
            return rows, self.get_query_argument("dry_run", "") == "true"
        given = self.body()
        self.known(given, "prices", "dry_run")
        prices, dry_run = given.get("prices"), self.flag(given, "dry_run")
        if not isinstance(prices, list) or not all(isinstance(row, dict) for row in prices):
            raise _bad("prices", "prices must be a list of objects: model, and prices by name")
        return prices, dry_run


def _bad(field: str, told: str) -> Failure:
    return Failure(HTTPStatus.BAD_REQUEST, "invalid", told, field)
