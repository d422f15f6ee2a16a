"""Redeem codes: the list, making a batch, and what is done with one."""

from handlers.hub.admin.api import codes
from handlers.hub.admin.api.base import paging_of
from handlers.hub.admin.pages.base import AdminPage, Question, place_of
from handlers.hub.web.base import Failure

_FIELDS = ("amount", "count", "expires_at")


class List(AdminPage):
    """The list; with `?new` the form of a batch."""

    async def get(self) -> None:
        if self.get_query_argument("new", None) is not None:
            self._form()
            return
        paging = paging_of(self)
        found = await self.store(codes.page, paging.limit, paging.after, paging.search)
        self.show_list("codes", found, paging)

    async def post(self) -> None:
        sent = {name: self.get_body_argument(name, "").strip() for name in _FIELDS}
        if len(sent["expires_at"]) == len("2027-01-01"):
            sent["expires_at"] += "T00:00:00Z"
        try:
            made = await codes.make(self, codes.wanted_of(sent))
        except Failure as failure:
            self._form(failure)
            return
        self.show("admin/codes_made.html", made=made, back=place_of("codes"))

    def _form(self, failure: Failure | None = None) -> None:
        if failure is not None:
            self.set_status(failure.status_code)
        self.show(
            "admin/codes_form.html",
            typed={name: self.get_body_argument(name, "") for name in _FIELDS},
            problems=self.problems_of(failure, _FIELDS) if failure else {},
            back=place_of("codes"),
        )


class Switch(AdminPage):
    """Enables and disables a code; the toast takes it back."""

    async def get(self, code_id: str, action: str) -> None:
        self.redirect(place_of("codes"), status=303)

    async def post(self, code_id: str, action: str) -> None:
        enabled = action == "enable"
        await codes.change(self, code_id, {"enabled": enabled})
        undo = place_of("codes", code_id, "disable" if enabled else "enable")
        word = "done_enabled" if enabled else "done_disabled"
        self.say(self.words[f"admin.{word}"].format(name=code_id), undo)
        self.redirect(place_of("codes"), status=303)


class Remove(AdminPage):
    """The question whether a code goes for good."""

    async def get(self, code_id: str) -> None:
        await self._ask(code_id)

    async def post(self, code_id: str) -> None:
        code = await self.store(codes.one, code_id)
        if problem := self.confirmed(code["code"][-4:]):
            await self._ask(code_id, problem)
            return
        try:
            await codes.remove(self, code_id)
        except Failure as failure:
            await self._ask(code_id, failure.message)
            return
        self.say(self.words["admin.done_removed"].format(name=code["code"]))
        self.redirect(place_of("codes"), status=303)

    async def _ask(self, code_id: str, problem: str = "") -> None:
        code = await self.store(codes.one, code_id)
        question = Question(
            title=self.words["admin.remove_title"].format(name=code["code"]),
            effect=self.words["admin.remove_code"],
            name=code["code"][-4:],
            action=place_of("codes", code_id, "remove"),
            button=self.words["admin.remove"],
            back=place_of("codes"),
        )
        self.ask(question, problem)
