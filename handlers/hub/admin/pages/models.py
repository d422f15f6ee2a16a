"""A list of new prices: shown first, then taken, all or nothing."""

from handlers.hub.admin.api import prices
from handlers.hub.admin.pages.base import AdminPage, place_of
from handlers.hub.web.base import Failure
from store.admin import price_list
from store.values.pricing import PRICE_NAMES


class Import(AdminPage):
    """The form, what it would change, and changing it."""

    async def get(self) -> None:
        self._form("")

    async def post(self) -> None:
        table, taken = self.get_body_argument("table", ""), self.get_body_argument("take", "")
        try:
            rows = await self.store(lambda _: price_list.read_csv(table))
            changes = await prices.take(self, rows, dry_run=not taken)
        except Failure as failure:
            self.set_status(failure.status_code)
            self._form(table, problem=failure.message)
            return
        if not taken:
            self._form(table, changes)
            return
        self.say(self.words["admin.done_prices"].format(count=len(changes)))
        self.redirect(place_of("models"), status=303)

    def _form(
        self, table: str, changes: list[price_list.PriceChange] | None = None, problem: str = ""
    ) -> None:
        self.show(
            "admin/prices.html",
            table=table,
            changes=changes,
            problem=problem,
            price_names=PRICE_NAMES,
            back=place_of("models"),
        )
