"""What is done with a user beside its fields: money, sessions, one-time codes, linked accounts."""

from handlers.hub.admin.api import objects, users, ways_in
from handlers.hub.admin.pages.base import AdminPage, Question, place_of
from handlers.hub.admin.pages.objects import Forms
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


class Refund(AdminPage):
    """Gives back what a call was charged to a wallet; its form stands on the page of the call."""

    async def get(self, call_id: str) -> None:
        self.redirect(f"/usage/{call_id}", status=303)

    async def post(self, call_id: str) -> None:
        done = await users.refund(self, call_id, self.get_body_argument("reason", ""))
        amount = f"{format_money(done.line.amount_nanos)} {self.site.settings.money.currency}"
        word = "refunded_before" if done.again else "done_refund"
        self.say(self.words[f"admin.{word}"].format(name=done.user, amount=amount))
        self.redirect(f"/usage/{call_id}", status=303)


class EndSessions(AdminPage):
    """Ends the sessions and tokens of a user."""

    async def get(self, name: str) -> None:
        self.redirect(place_of("users", name), status=303)

    async def post(self, name: str) -> None:
        ended = await objects.end_sessions(self, name)
        told = self.words["admin.done_sessions"]
        self.say(told.format(name=name, sessions=ended.sessions, tokens=ended.tokens))
        self.redirect(place_of("users"), status=303)


class EndCodes(AdminPage):
    """The question whether a user is asked for no one-time codes any more."""

    async def get(self, name: str) -> None:
        await self._ask(name)

    async def post(self, name: str) -> None:
        if problem := self.confirmed(name):
            await self._ask(name, problem)
            return
        try:
            await ways_in.end_codes(self, name)
        except Failure as failure:
            await self._ask(name, failure.message)
            return
        self.say(self.words["admin.done_codes"].format(name=name))
        self.redirect(place_of("users"), status=303)

    async def _ask(self, name: str, problem: str = "") -> None:
        await self.store(objects.one, "user", name)
        question = Question(
            title=self.words["admin.codes_of"].format(name=name),
            effect=self.words["admin.codes_effect"],
            name=name,
            action=place_of("users", name, "totp"),
            button=self.words["admin.codes_end"],
            back=place_of("users"),
        )
        self.ask(question, problem)


class Links(Forms):
    """Links an account of the OpenID provider to a user, and ends a link."""

    async def get(self, name: str) -> None:
        self.redirect(place_of("users", name), status=303)

    async def post(self, name: str) -> None:
        ended = self.get_body_argument("unlink", "")
        try:
            if ended:
                await ways_in.unlink(self, name, ended)
            else:
                await ways_in.link(self, name, self.get_body_argument("subject", "").strip())
        except Failure as failure:
            self.set_status(failure.status_code)
            await self.form("users", name, beside=failure.message)
            return
        word = "done_unlinked" if ended else "done_linked"
        self.say(self.words[f"admin.{word}"].format(name=name))
        self.redirect(place_of("users", name), status=303)
