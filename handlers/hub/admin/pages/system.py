"""The system: gauges, workers, store, configuration; notices to everybody; draining this node."""

from http import HTTPStatus

from handlers.hub.admin.api import system
from handlers.hub.admin.api.base import actor_of
from handlers.hub.admin.api.hours import last_hours
from handlers.hub.admin.pages.base import AdminPage, Question, place_of
from handlers.hub.admin.pages.system_charts import CHART_HEIGHT, charts_of, written
from handlers.hub.web.base import Failure
from store.hub import notices
from store.values.fields import Instant

_NOTICE = ("text", "level", "since", "until")


class System(AdminPage):
    """The page; notices are made in it."""

    async def get(self) -> None:
        await self.page()

    async def page(self, failure: Failure | None = None) -> None:
        """Answers with the page, and why a notice was refused."""
        if failure is not None:
            self.set_status(failure.status_code)
        hours = await self.store(last_hours)
        state = await system.state(self, hours)
        shown = "all" if self.get_query_argument("settings", "") == "all" else "set"
        find = self.get_query_argument("find", "").strip()
        self.show(
            "admin/system.html",
            state=state,
            settings=[
                one
                for one in state["settings"]
                if (shown == "all" or one["origin"] != "default") and find.lower() in one["name"]
            ],
            find=find,
            shown=shown,
            notices=await self.store(notices.listed),
            levels=notices.LEVELS,
            typed={name: self.get_body_argument(name, "") for name in _NOTICE},
            problems=self.problems_of(failure, _NOTICE) if failure else {},
            ms=Instant().parse,
            here=place_of("system"),
            charts=charts_of(hours),
            CHART_HEIGHT=CHART_HEIGHT,
            written=written,
        )


class Notices(System):
    """Makes a notice, and takes one back."""

    async def get(self) -> None:
        self.redirect(place_of("system"), status=303)

    async def post(self) -> None:
        if notice_id := self.get_body_argument("remove", ""):
            await self.store(notices.remove, notice_id, actor_of(self))
            self.say(self.words["admin.done_notice_removed"])
            self.redirect(place_of("system"), status=303)
            return
        given = {name: self.get_body_argument(name, "").strip() for name in _NOTICE}
        for name in ("since", "until"):
            if len(given[name]) == len("2027-01-01"):
                given[name] += "T00:00:00Z"
        try:
            await self.store(notices.create, given, actor_of(self))
        except Failure as failure:
            await self.page(failure)
            return
        self.say(self.words["admin.done_notice"])
        self.redirect(place_of("system"), status=303)


class Drain(AdminPage):
    """The question whether this node takes no new calls until it is started again."""

    async def get(self) -> None:
        await self._ask()

    async def post(self) -> None:
        told = await system.node(self.site)
        if problem := self.confirmed(told["node"] or "–") or await system.drain(self):
            await self._ask(problem)
            return
        self.say(self.words["admin.done_drain"])
        self.redirect(place_of("system"), status=303)

    async def _ask(self, problem: str = "") -> None:
        told = await system.node(self.site)
        name = told["node"] or "–"
        question = Question(
            title=self.words["admin.drain_title"].format(name=name),
            effect=self.words["admin.drain_effect"],
            name=name,
            action=place_of("system", action="drain"),
            button=self.words["admin.drain"],
            back=place_of("system"),
        )
        status = HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK
        self.ask(question, problem or told["problem"] or "", status)
