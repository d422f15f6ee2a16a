"""Import of new prices: first a preview, then all prices or none are applied."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from http import HTTPStatus

import peewee

from handlers.hub.admin.price_forms import priced_meters
from handlers.hub.web.admin import AdminApi, AdminPage, path_of
from handlers.hub.web.base import Failure, HubHandler, invalid, or_refused
from operations import edits
from store.admin import price_list
from store.admin.price_list import PriceChange, PriceRow
from store.values.usage import SIDES


async def change_prices(
    handler: HubHandler, rows: Sequence[PriceRow], *, dry_run: bool
) -> list[PriceChange]:
    """Change all prices or none. `dry_run`: only return what would change. Raises Failure."""
    actor, sealing = handler.me.user, handler.site.sealing

    def work(db: peewee.Database) -> list[PriceChange]:
        editor = edits.editor(db, sealing, actor, remote=True)
        return price_list.take(db, editor, rows, dry_run=dry_run)

    return await handler.store(work)


def digest_of(changes: Sequence[PriceChange]) -> str:
    """Return a digest of the prices before and after, which changes if anybody changes one of
    them."""
    text = json.dumps([asdict(change) for change in changes], sort_keys=True)
    return sha256(text.encode()).hexdigest()


class PriceImportApi(AdminApi):
    """POST /api/admin/prices: a JSON list of prices, or a table in CSV."""

    async def post(self) -> None:
        rows, dry_run = await self._request()
        changes = await change_prices(self, rows, dry_run=dry_run)
        self.answer({"dry_run": dry_run, "changes": [asdict(change) for change in changes]})

    async def _request(self) -> tuple[Sequence[PriceRow], bool]:
        if self.request.headers.get("Content-Type", "").startswith("text/csv"):
            text = self.request.body.decode("utf-8", "replace")
            rows = await self.store(lambda _: price_list.read_csv(text))
            return rows, self.get_query_argument("dry_run", "") == "true"
        body = self.fields("prices", "dry_run")
        prices, dry_run = body.get("prices"), self.flag(body, "dry_run")
        if not isinstance(prices, list) or not all(isinstance(row, dict) for row in prices):
            raise invalid("prices", "prices must be a list of objects: model, and prices by name")
        return prices, dry_run


class PriceImportPage(AdminPage):
    """A table of new prices. First its effect is shown, then all or none are applied."""

    async def get(self) -> None:
        self._form()

    @or_refused
    async def post(self) -> None:
        table, apply = self.get_body_argument("table", ""), self.get_body_argument("take", "")
        rows = await self.store(lambda _: price_list.read_csv(table))
        changes = await change_prices(self, rows, dry_run=True)
        if apply and self.get_body_argument("seen", "") not in ("", digest_of(changes)):
            self.set_status(HTTPStatus.CONFLICT)
            self._form(changes, self.words["admin.prices_outdated"])
        elif apply:
            changes = await change_prices(self, rows, dry_run=False)
            self.done("done_prices", path_of("models"), count=len(changes))
        else:
            self._form(changes)

    async def refuse(self, failure: Failure) -> None:
        self._form(problem=self.in_words(failure.message))

    def _form(self, changes: list[PriceChange] | None = None, problem: str = "") -> None:
        self.show(
            "admin/prices.html",
            table=self.get_body_argument("table", ""),
            changes=changes,
            problem=problem,
            seen=digest_of(changes or ()),
            columns=SIDES,
            price_names=priced_meters(
                table for change in changes or () for table in (change.before, change.after)
            ),
            back=path_of("models"),
        )
