"""Redeem codes: batches are made and shown once; single ones are changed and removed."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.admin.api.base import AdminApi, actor_of, limit_of
from handlers.hub.web.base import MAX_DIGITS, Failure, HubHandler
from store.admin.listing import Part
from store.db.database import database_ms
from store.money import codes
from store.values.fields import Instant
from store.values.pricing import AmountError, format_money, parse_money

FIELDS = ("amount", "expires_at", "enabled")


def page(db: peewee.Database, limit: int, before: str, search: str) -> Part:
    """A page of the list, the newest first."""
    found, at_ms = codes.page(db, limit + 1, before, search), database_ms(db)
    shown = [codes.public(code, at_ms) for code in found[:limit]]
    return Part(shown, shown[-1]["id"] if len(found) > limit else None)


def one(db: peewee.Database, code_id: str) -> dict[str, Any]:
    """One code by its id. Raises NotFound."""
    return codes.public(codes.show(db, code_id), database_ms(db))


def wanted_of(given: Mapping[str, Any]) -> codes.Wanted:
    """The batch that a body or a form asks for. Raises Failure."""
    count, expires_at = given.get("count") or 1, given.get("expires_at") or None
    if isinstance(count, str) and count.isdecimal() and len(count) <= MAX_DIGITS:
        count = int(count)
    if isinstance(count, bool) or not isinstance(count, int):
        raise _bad("count", "count must be a whole number")
    try:
        amount = parse_money(str(given.get("amount", "")).strip())
    except AmountError as error:
        raise _bad("amount", f"amount: {error}") from None
    try:
        expires_ms = None if expires_at is None else Instant().parse(expires_at)
    except ValueError as error:
        raise _bad("expires_at", f"expires_at {error}") from None
    return codes.Wanted(count, amount, expires_ms)


async def make(handler: HubHandler, wanted: codes.Wanted) -> list[dict[str, Any]]:
    """Make a batch; the codes in clear, which nobody sees again. Raises Failure."""
    pepper = handler.site.sealing.peppers[0]
    made = await handler.store(codes.create, wanted, pepper, actor_of(handler))
    return [
        {
            "id": code.id,
            "code": code.code,
            "amount": format_money(wanted.amount_nanos),
            "expires_at": codes.time_text(wanted.expires_ms),
        }
        for code in made
    ]


async def change(handler: HubHandler, code_id: str, given: Mapping[str, Any]) -> None:
    """Change amount, expiry or `enabled` of a code that is not used. Raises Failure."""
    words = {
        name: "" if value is None else str(value)
        for name, value in given.items()
        if name != "enabled"
    }
    enabled = given.get("enabled")
    if enabled is not None and not isinstance(enabled, bool):
        raise _bad("enabled", "enabled must be true or false")
    if words:
        await handler.store(codes.set_fields, code_id, words, actor_of(handler))
    if enabled is not None:
        act = codes.enable if enabled else codes.disable
        await handler.store(act, [code_id], actor_of(handler))


async def remove(handler: HubHandler, code_id: str) -> None:
    """Remove a code that is not used. Raises Failure."""
    await handler.store(codes.remove, [code_id], actor_of(handler))


def _bad(field: str, told: str) -> Failure:
    return Failure(HTTPStatus.BAD_REQUEST, "invalid", told, field)


class List(AdminApi):
    """GET and POST /api/admin/codes."""

    async def get(self) -> None:
        argument = self.get_query_argument
        before, search = argument("after", ""), argument("search", "").strip()
        found = await self.store(page, limit_of(self), before, search)
        self.answer({"items": found.items, "next": found.next})

    async def post(self) -> None:
        given = self.body()
        self.known(given, "amount", "count", "expires_at")
        made = await make(self, wanted_of(given))
        self.answer({"items": made, "next": None}, HTTPStatus.CREATED)


class One(AdminApi):
    """GET, PATCH and DELETE /api/admin/codes/ID."""

    async def get(self, code_id: str) -> None:
        self.answer(await self.store(one, code_id))

    async def patch(self, code_id: str) -> None:
        given = self.body()
        self.known(given, *FIELDS)
        await change(self, code_id, given)
        self.answer(await self.store(one, code_id))

    async def delete(self, code_id: str) -> None:
        await remove(self, code_id)
        self.set_status(HTTPStatus.NO_CONTENT)
        self.clear_header("Content-Type")
        self.finish()
