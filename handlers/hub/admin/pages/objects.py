"""Users, groups, models, plans and subscriptions: their lists, and the forms that make, change and
remove one. Channels have pages of their own beside the forms."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import peewee

from adapters.options import OPTIONS
from adapters.registry import VENDORS
from handlers.hub.admin.api import objects, ways_in
from handlers.hub.admin.api.base import PLURALS, actor_of, edit, paging_of
from handlers.hub.admin.pages import forms
from handlers.hub.admin.pages.base import AdminPage, Question, place_of
from handlers.hub.web.base import Failure
from store.admin import listing
from store.admin.kinds import KINDS
from store.admin.listing import Paging, Part
from store.hub import sessions, tokens
from store.values.fields import Instant
from store.values.pricing import PRICE_NAMES

LIST_OF = {"subscriptions": "plans"}
"""Where the list of a kind stands that has no page of its own."""
MAX_SUBSCRIPTIONS = 100


def _names(db: peewee.Database, kind: str) -> dict[str, list[str]]:
    """What the fields of a kind choose from."""
    found: dict[str, list[str]] = {}
    most = forms.MAX_CHOICES + 1  # one more: so many that they are typed
    if kind in ("user", "channel"):
        found["groups"] = listing.names(db, "group", most)
    if kind == "channel":
        found["vendor"] = list(VENDORS)
    if kind == "subscription":
        found |= {one: listing.names(db, one, most) for one in ("user", "plan")}
    return found


def _open(db: peewee.Database, user: Mapping[str, Any]) -> int:
    """Return how many sessions and tokens of a user are open."""
    living = [one for one in tokens.listed(db, user["name"]) if one.revoked_ms is None]
    return len(sessions.of_user(db, user["id"])) + len(living)


class Forms(AdminPage):
    """Pages with a form of an object."""

    async def form(
        self,
        plural: str,
        name: str = "",
        failure: Failure | None = None,
        typed: bool = False,
        *,
        begun: Mapping[str, Any] | None = None,
        note: str = "",
        beside: str = "",
    ) -> None:
        """Answers with the form of an object (no name: a new one), with what was typed and why it
        was refused. `begun`: what a new one begins with; `note`: what is said above the form;
        `beside`: the problem of another form of its page."""
        kind = PLURALS[plural]
        stored = await self.store(objects.one, kind, name) if name else None
        fields = (*KINDS[kind].identity, *KINDS[kind].fields)
        problems = self.problems_of(failure, fields) if failure else {}
        given = forms.Given(
            stored=stored,
            typed=self.typed() if typed else None,
            problems=problems,
            begun=begun or {},
            names=await self.store(_names, kind),
        )
        if failure is not None:
            self.set_status(failure.status_code)
        self.show(
            "admin/form.html",
            plural=plural,
            kind=kind,
            name=name,
            stored=stored,
            items=forms.items(kind, given),
            problem=problems.get("", ""),
            note=note,
            beside=beside,
            place=place_of,
            action=place_of(plural, name, "edit" if name and kind == "channel" else ""),
            back=place_of(LIST_OF.get(plural, plural)),
            price_names=PRICE_NAMES,
            option_names=", ".join(OPTIONS),
            ms=Instant().parse,
            more=await self.more(kind, stored),
        )

    async def make(self, plural: str) -> None:
        """Makes what the form of a new object has sent, or shows it again with its problem."""
        kind = PLURALS[plural]
        try:
            name = await objects.make(self, kind, forms.values(kind, self.typed(), new=True))
        except Failure as failure:
            await self.form(plural, failure=failure, typed=True)
            return
        self.done(plural, "done_made", name)

    async def more(self, kind: str, stored: dict[str, Any] | None) -> dict[str, Any]:
        """What a form shows beside its fields."""
        if stored is None:
            return {}
        if kind == "model":
            return {"history": await self.store(listing.price_history, stored["name"])}
        if kind == "user":
            return {
                "open": await self.store(_open, stored),
                "ways_in": await self.store(ways_in.of_user, stored["name"]),
                "issuer": self.site.settings.hub.oidc_issuer,
            }
        return {}

    def done(self, plural: str, word: str, name: str, *, undo: str = "") -> None:
        """Says what was done, and leads to the list."""
        self.say(self.words[f"admin.{word}"].format(name=name), undo)
        self.redirect(place_of(LIST_OF.get(plural, plural)), status=303)


class List(Forms):
    """A list; with `?new` the form of a new object."""

    async def get(self, plural: str) -> None:
        if self.get_query_argument("new", None) is not None:
            await self.form(plural, begun={"name": self.get_query_argument("name", "")})
            return
        if plural in LIST_OF:
            self.redirect(place_of(LIST_OF[plural]), status=303)
            return
        paging = paging_of(self)
        found = await self.store(objects.page, PLURALS[plural], paging)
        self.show_list(
            plural,
            found,
            paging,
            price_names=PRICE_NAMES,
            subscriptions=await self._subscriptions(plural, paging.search),
        )

    async def post(self, plural: str) -> None:
        await self.make(plural)

    async def _subscriptions(self, plural: str, search: str) -> Part | None:
        if plural != "plans":
            return None
        paging = Paging(MAX_SUBSCRIPTIONS, self.get_query_argument("from", ""), search)
        return await self.store(objects.page, "subscription", paging)


class One(Forms):
    """The form of an object, and what it sends."""

    async def get(self, plural: str, name: str) -> None:
        await self.form(plural, name)

    async def post(self, plural: str, name: str) -> None:
        kind = PLURALS[plural]
        try:
            await objects.change(self, kind, name, forms.values(kind, self.typed(), new=False))
        except Failure as failure:
            if failure.status_code == HTTPStatus.NOT_FOUND:
                raise
            await self.form(plural, name, failure, typed=True)
            return
        self.done(plural, "done_changed", name)


class Remove(Forms):
    """The question whether an object goes for good; its name is typed to say yes."""

    async def get(self, plural: str, name: str) -> None:
        await self._ask(plural, name)

    async def post(self, plural: str, name: str) -> None:
        if problem := self.confirmed(name):
            await self._ask(plural, name, problem)
            return
        try:
            await objects.remove(self, PLURALS[plural], name)
        except Failure as failure:
            await self._ask(plural, name, failure.message, failure.status_code)
            return
        self.done(plural, "done_removed", name)

    async def _ask(
        self, plural: str, name: str, problem: str = "", status: int = HTTPStatus.BAD_REQUEST
    ) -> None:
        await self.store(objects.one, PLURALS[plural], name)
        question = Question(
            title=self.words["admin.remove_title"].format(name=name),
            effect=self.words[f"admin.remove_{PLURALS[plural]}"],
            name=name,
            action=place_of(plural, name, "remove"),
            button=self.words["admin.remove"],
            back=place_of(LIST_OF.get(plural, plural)),
        )
        self.ask(question, problem, status)


class Switch(Forms):
    """Enables and disables an object; the toast takes it back."""

    async def get(self, plural: str, name: str, action: str) -> None:
        self.redirect(place_of(plural, name), status=303)

    async def post(self, plural: str, name: str, action: str) -> None:
        kind, enabled = PLURALS[plural], action == "enable"
        if kind == "user" and name == actor_of(self) and not enabled:
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", self.words["admin.not_oneself"])
        await edit(self, lambda it: it.set_enabled(kind, name, enabled))
        undo = place_of(plural, name, "disable" if enabled else "enable")
        self.done(plural, "done_enabled" if enabled else "done_disabled", name, undo=undo)
