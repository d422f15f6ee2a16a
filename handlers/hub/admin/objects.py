"""Users, groups, models, channels, plans and subscriptions: their lists, and the forms that create,
change and remove an object.

What is specific to users, models or channels is in modules of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import peewee

from adapters.models import OPTIONS
from adapters.registry import VENDORS
from handlers.hub.admin.object_forms import (
    MAX_OPTIONS,
    FormContents,
    document_values,
    form_fields,
    vendor_label,
)
from handlers.hub.admin.price_forms import RATE_FIELDS, fallback_word, priced_meters, rate_words
from handlers.hub.web.admin import ActionPage, AdminApi, AdminPage, ConfirmationPage, path_of
from handlers.hub.web.base import Failure, invalid
from operations.edits import with_status, with_use, with_use_of_limit
from store.admin import listing
from store.admin.kinds import KINDS
from store.admin.listing import ListPage, Paging
from store.calls.reading import sums
from store.db import versions
from store.db.database import in_snapshot
from store.money import wallet
from store.values.fields import Instant
from store.values.pricing import format_money

PLURALS: Mapping[str, str] = {
    "users": "user",
    "groups": "group",
    "models": "model",
    "channels": "channel",
    "plans": "plan",
    "subscriptions": "subscription",
}
"""Kinds of the document of `apply` by their names in paths. Codes are not part of the document."""
_PAGE_OF_LIST = {"subscriptions": "plans"}
"""Kinds whose list is on the page of another kind's list."""
MAX_SUBSCRIPTIONS = 100
_WITH_PAGES = ("channel", "user")
"""Kinds whose objects have pages of their own. The form is on a path below the object's."""

Objects = Sequence[dict[str, Any]]
Administering = AdminApi | AdminPage


def _with_money(db: peewee.Database, users: Objects) -> list[dict[str, Any]]:
    users = with_use_of_limit(db, users)
    balances = wallet.balances(db, [user["id"] for user in users])
    return [{**user, "balance": format_money(balances.get(user["id"], 0))} for user in users]


def _with_margins(db: peewee.Database, objects: Objects, kind: str) -> list[dict[str, Any]]:
    """Add the operator's recent margin to models or channels. None: unknown."""
    margins = sums.margins(db, kind) if objects else {}
    return [{**fields, "margin": margins.get(fields["name"])} for fields in objects]


_COMPLETE: Mapping[str, Callable[[peewee.Database, Objects], list[dict[str, Any]]]] = {
    "user": _with_money,
    "model": lambda db, models: _with_margins(db, models, "model"),
    "channel": lambda db, channels: _with_margins(db, with_status(db, channels), "channel"),
    "subscription": with_use,
}
"""Functions that add what a list shows besides the fields of the document."""


def load_page(db: peewee.Database, kind: str, paging: Paging) -> ListPage:
    """Return a page of a list."""
    part = listing.list_page(db, kind, paging)
    return ListPage(complete(db, kind, part.items), part.next)


def complete(db: peewee.Database, kind: str, items: Objects) -> list[dict[str, Any]]:
    """Return objects with what their list shows besides the fields of the document."""
    return _COMPLETE[kind](db, items) if kind in _COMPLETE else list(items)


@in_snapshot
def load(db: peewee.Database, kind: str, name: str) -> dict[str, Any]:
    """Return an object as in its list, with its version. Raises NotFound."""
    fields = listing.show_one(db, kind, name)
    named = "/".join(fields[part] for part in KINDS[kind].identity)
    [fields] = complete(db, kind, [fields])
    return {**fields, "version": versions.version_of(db, kind, named)}


async def create(handler: Administering, kind: str, values: Mapping[str, Any]) -> str:
    """Create an object and return its name. Raises Failure."""
    hashes = "password" in values
    outcome = await handler.edit(lambda it: it.create(kind, None, values), hashes=hashes)
    return outcome.changes[0].name


async def change(
    handler: Administering,
    kind: str,
    name: str,
    values: Mapping[str, Any],
    version: str | None = None,
) -> None:
    """Change fields of an object. `version`: the version that the change is based on; None: any.
    Raises Failure, whose cause is Outdated if the object has changed since that version."""
    if kind == "user":
        _refuse_lock_out(handler, name, values)
    hashes = "password" in values
    await handler.edit(lambda it: it.change(kind, name, values, version), hashes=hashes)


async def remove(handler: Administering, kind: str, name: str) -> None:
    """Remove an object. Raises Failure."""
    if kind == "user":
        _refuse_lock_out(handler, name, {"enabled": False})
    await handler.edit(lambda it: it.remove(kind, name))


def _refuse_lock_out(handler: Administering, name: str, values: Mapping[str, Any]) -> None:
    """Raise Failure for changes that would lock out the signed-in user, and for changing one's own
    password, which requires the old one."""
    if name != handler.me.user:
        return
    if "password" in values:
        raise invalid("password", "change your own under Account, with the old one")
    for field, needed in (("enabled", True), ("role", "admin")):
        if values.get(field, needed) != needed:
            raise invalid(field, "you would lock yourself out; another administrator can do it")


class ObjectListApi(AdminApi):
    """GET and POST /api/admin/KIND."""

    async def get(self, plural: str) -> None:
        part = await self.store(load_page, PLURALS[plural], self.paging())
        self.answer_list(part.items, part.next)

    async def post(self, plural: str) -> None:
        kind = PLURALS[plural]
        name = await create(self, kind, self.body())
        self.answer(await self.store(load, kind, name), HTTPStatus.CREATED)


class ObjectApi(AdminApi):
    """GET, PATCH and DELETE /api/admin/KIND/NAME."""

    async def get(self, plural: str, name: str) -> None:
        self.answer(await self.store(load, PLURALS[plural], name))

    async def patch(self, plural: str, name: str) -> None:
        kind, values = PLURALS[plural], self.body()
        await change(self, kind, name, values, self.version_in(values))
        self.answer(await self.store(load, kind, name))

    async def delete(self, plural: str, name: str) -> None:
        await remove(self, PLURALS[plural], name)
        self.answer_nothing()


def _names(db: peewee.Database, kind: str) -> dict[str, list[str]]:
    """Return the names to choose from, by field of a kind."""
    names: dict[str, list[str]] = {}
    limit = MAX_OPTIONS + 1  # one more shows that there are too many to choose from
    if kind in ("user", "channel"):
        names["groups"] = listing.names(db, "group", limit)
    if kind == "channel":
        names["vendor"] = list(VENDORS)
    if kind == "subscription":
        names |= {other: listing.names(db, other, limit) for other in ("user", "plan")}
    return names


def list_path(plural: str) -> str:
    """Return the path of the page with the list of a kind."""
    return path_of(_PAGE_OF_LIST.get(plural, plural))


class ObjectForm(AdminPage):
    """A page that can show the form of an object."""

    template = "admin/form.html"

    def page_of(self, plural: str, name: str) -> str:
        """Return the path that the form of an object leads back to."""
        return list_path(plural)

    async def form(
        self,
        plural: str,
        name: str = "",
        failure: Failure | None = None,
        *,
        defaults: Mapping[str, Any] | None = None,
        note: str = "",
        beside: str = "",
    ) -> None:
        """Render the form of an object (no name: a new one); after a failure, with the submitted
        values. `defaults`: of a new object; `note`: shown above the form; `beside`: the problem of
        another form on the page."""
        kind = PLURALS[plural]
        stored = await self.store(load, kind, name) if name else None
        fields = (*KINDS[kind].identity, *KINDS[kind].fields)
        outdated = versions.outdated_of(failure)
        problems = self._problems(failure, outdated, fields)
        contents = FormContents(
            stored=stored,
            submitted=self.submitted() if failure else None,
            problems=problems,
            defaults=defaults or {},
            names=await self.store(_names, kind),
            merged=outdated.merged if outdated else {},
        )
        if failure is not None:
            self.set_status(failure.status_code)
        self.show(
            self.template if name else ObjectForm.template,
            plural=plural,
            kind=kind,
            name=name,
            stored=stored,
            items=form_fields(kind, contents),
            problem=problems.get("", ""),
            note=note,
            beside=beside,
            outdated=outdated,
            action=path_of(plural, name, "edit" if name and kind in _WITH_PAGES else ""),
            back=self.page_of(plural, name),
            fallback_word=fallback_word,
            rate_fields=RATE_FIELDS,
            option_names=", ".join(OPTIONS),
            label_of=partial(vendor_label, self.words),
            ms=Instant().parse,
            details=await self.details(stored) if stored else {},
        )

    def _problems(
        self, failure: Failure | None, outdated: versions.Outdated | None, fields: Sequence[str]
    ) -> dict[str, str]:
        if outdated is not None:
            # Pages never show secrets, so these must be typed again.
            again = self.words["admin.type_again"]
            differences = outdated.differences
            return {item.name: again for item in differences if item.secret and item.touched}
        return self.problems_of(failure, fields) if failure else {}

    async def create_submitted(self, plural: str) -> None:
        """Create the object of the submitted form, or render the form with its problem."""
        kind = PLURALS[plural]
        try:
            name = await create(self, kind, document_values(kind, self.submitted(), new=True))
        except Failure as failure:
            await self.form(plural, failure=failure)
            return
        self.done("done_made", list_path(plural), name=name)

    async def details(self, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the form of a stored object shows besides its fields."""
        return {}


class ObjectListPage(ObjectForm):
    """A list or, with `?new`, the form of a new object."""

    async def get(self, plural: str) -> None:
        if self.get_query_argument("new", None) is not None:
            identity = KINDS[PLURALS[plural]].identity
            defaults = {part: self.get_query_argument(part, "") for part in identity}
            await self.form(plural, defaults=defaults)
            return
        if plural in _PAGE_OF_LIST:
            self.redirect(list_path(plural), status=HTTPStatus.SEE_OTHER)
            return
        paging = self.paging()
        part = await self.store(load_page, PLURALS[plural], paging)
        subscriptions = await self._subscriptions(paging.search) if plural == "plans" else None
        self.show_list(
            plural,
            part,
            paging,
            price_names=priced_meters(item.get("price", {}) for item in part.items),
            fallback_word=fallback_word,
            rate_words=rate_words,
            subscriptions=subscriptions,
            **await self.list_values(part.items),
        )

    async def list_values(self, items: Objects) -> Mapping[str, Any]:
        """Return what the list shows besides its objects."""
        return {}

    async def post(self, plural: str) -> None:
        await self.create_submitted(plural)

    async def _subscriptions(self, search: str) -> ListPage:
        paging = Paging(MAX_SUBSCRIPTIONS, self.get_query_argument("from", ""), search)
        return await self.store(load_page, "subscription", paging)


class ObjectPage(ObjectForm):
    """The form of a stored object."""

    async def get(self, plural: str, name: str) -> None:
        await self.form(plural, name)

    async def post(self, plural: str, name: str) -> None:
        kind = PLURALS[plural]
        try:
            values = document_values(kind, self.submitted(), new=False)
            await change(self, kind, name, values, self.get_body_argument("version", None))
        except Failure as failure:
            if failure.status_code == HTTPStatus.NOT_FOUND:
                raise
            await self.form(plural, name, failure)
            return
        self.done("done_changed", self.page_of(plural, name), name=name)


class RemoveObjectPage(ConfirmationPage):
    """Removes an object after its name was typed."""

    async def prepare_question(self, plural: str, name: str) -> None:
        await self.store(load, PLURALS[plural], name)
        texts = ("admin.remove_title", f"admin.remove_{PLURALS[plural]}", "admin.remove")
        action, thing = path_of(plural, name, "remove"), self.words[f"admin.kind_{PLURALS[plural]}"]
        self.ask(texts, name, action, list_path(plural), thing=thing)

    async def confirmed(self, plural: str, name: str) -> None:
        await remove(self, PLURALS[plural], name)
        self.done("done_removed", list_path(plural), name=name)


class SwitchObjectPage(ActionPage):
    """Enables and disables an object. The toast has an Undo."""

    def back(self, *names: str) -> str:
        return path_of(*names[:2])

    async def post(self, plural: str, name: str, action: str) -> None:
        kind, enabled = PLURALS[plural], action == "enable"
        if kind == "user" and name == self.me.user and not enabled:
            raise invalid(None, self.words["admin.not_oneself"])
        await self.edit(lambda it: it.set_enabled(kind, name, enabled))
        path = path_of(plural, name)
        back = path if kind == "user" else list_path(plural)
        self.done_switched(name, path, back, enabled=enabled)
