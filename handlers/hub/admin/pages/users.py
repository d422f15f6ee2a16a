"""What is done with a user beside its fields: money, sessions."""

from handlers.hub.admin.api import objects, users
from handlers.hub.admin.pages.base import AdminPage, place_of
from handlers.hub.web.base import Failure
from store.values.pricing import format_money


class Credit(AdminPage):
    """Adds money to a wallet or takes it, with a reason."""

    async def get(self, name: str) -> None:
        await self._form(name)

    async def post(self, name: str) -> None:
        sent = {one: self.get_body_argument(one, "") for one in ("amount", "reason", "kind")}
        try:
            line = await users.move(self, name, users.money_of(sent))
        except Failure as failure:
            await self._form(name, failure)
            return
        balance = f"{format_money(line.balance_after_nanos)} {self.site.settings.money.currency}"
        self.say(self.words["admin.done_money"].format(name=name, balance=balance))
        self.redirect(place_of("users"), status=303)

    async def _form(self, name: str, failure: Failure | None = None) -> None:
        user = await self.store(objects.one, "user", name)
        fields = ("amount", "reason", "kind")
        if failure is not None:
            self.set_status(failure.status_code)
        self.show(
            "admin/credit.html",
            user=user,
            action=place_of("users", name, "credit"),
            back=place_of("users"),
            typed={one: self.get_body_argument(one, "") for one in fields},
            problems=self.problems_of(failure, fields) if failure else {},
        )


class EndSessions(AdminPage):
    """Ends the sessions of a user."""

    async def get(self, name: str) -> None:
        self.redirect(place_of("users", name), status=303)

    async def post(self, name: str) -> None:
        ended = await objects.end_sessions(self, name)
        self.say(self.words["admin.done_sessions"].format(name=name, count=ended))
        self.redirect(place_of("users"), status=303)
