"""Users, groups, models, channels, plans and subscriptions: lists, and changes one at a time."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.admin.api.base import PLURALS, AdminApi, actor_of, edit, paging_of
from handlers.hub.web.base import Failure, HubHandler
from operations.channel_list import with_status
from store.admin import listing
from store.admin.listing import Paging, Part
from store.db.database import database_ms
from store.hub import sessions
from store.hub.sessions import Ended
from store.money import wallet
from store.money.quota import with_use_of_subscriptions
from store.values.pricing import format_money

Shown = list[dict[str, Any]]


def _with_balances(db: peewee.Database, users: Shown) -> Shown:
    found = wallet.balances(db, [user["id"] for user in users])
    return [{**user, "balance": format_money(found.get(user["id"], 0))} for user in users]


def _with_use(db: peewee.Database, subscriptions: Shown) -> Shown:
    return with_use_of_subscriptions(db, subscriptions, database_ms(db))


_MORE: Mapping[str, Callable[[peewee.Database, Shown], Shown]] = {
    "user": _with_balances,
    "channel": with_status,
    "subscription": _with_use,
}
"""What a list tells beyond the fields of the document."""


def page(db: peewee.Database, kind: str, paging: Paging) -> Part:
    """A page of a list, each object with what is known of it."""
    found = listing.page(db, kind, paging)
    return Part(_MORE[kind](db, found.items), found.next) if kind in _MORE else found


def one(db: peewee.Database, kind: str, name: str) -> dict[str, Any]:
    """One object as in its list. Raises NotFound."""
    found = listing.one(db, kind, name)
    return _MORE[kind](db, [found])[0] if kind in _MORE else found


async def make(handler: HubHandler, kind: str, values: Mapping[str, Any]) -> str:
    """Make an object; its name. Raises Failure."""
    outcome = await edit(handler, lambda it: it.make(kind, values), hashes="password" in values)
    return outcome.changes[0].name


async def change(handler: HubHandler, kind: str, name: str, values: Mapping[str, Any]) -> None:
    """Change an object. Raises Failure."""
    if kind == "user":
        _spare_oneself(handler, name, values)
    await edit(handler, lambda it: it.change(kind, name, values), hashes="password" in values)


async def remove(handler: HubHandler, kind: str, name: str) -> None:
    """Remove an object. Raises Failure."""
    if kind == "user":
        _spare_oneself(handler, name, {"enabled": False})
    await edit(handler, lambda it: it.remove(kind, name))


async def end_sessions(handler: HubHandler, name: str) -> Ended:
    """End the sessions and tokens of a user, but for the one that asks. Raises Failure."""
    me = handler.signed_in
    assert me is not None
    user = await handler.store(listing.one, "user", name)
    return await handler.store(sessions.end_all, user["id"], me.user, me.session_id)


def _spare_oneself(handler: HubHandler, name: str, values: Mapping[str, Any]) -> None:
    """Nobody locks oneself out: another administrator can. The own password needs the old one."""
    if name != actor_of(handler):
        return
    if "password" in values:
        told = "change your own under Account, with the old one"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "password")
    for field, needed in (("enabled", True), ("role", "admin")):
        if values.get(field, needed) != needed:
            told = "you would lock yourself out; another administrator can do it"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, field)


class List(AdminApi):
    """GET and POST /api/admin/KIND."""

    async def get(self, plural: str) -> None:
        found = await self.store(page, PLURALS[plural], paging_of(self))
        self.answer({"items": found.items, "next": found.next})

    async def post(self, plural: str) -> None:
        kind = PLURALS[plural]
        name = await make(self, kind, self.body())
        self.answer(await self.store(one, kind, name), HTTPStatus.CREATED)


class One(AdminApi):
    """GET, PATCH and DELETE /api/admin/KIND/NAME."""

    async def get(self, plural: str, name: str) -> None:
        self.answer(await self.store(one, PLURALS[plural], name))

    async def patch(self, plural: str, name: str) -> None:
        kind = PLURALS[plural]
        await change(self, kind, name, self.body())
        self.answer(await self.store(one, kind, name))

    async def delete(self, plural: str, name: str) -> None:
        await remove(self, PLURALS[plural], name)
        self.set_status(HTTPStatus.NO_CONTENT)
        self.clear_header("Content-Type")
        self.finish()
