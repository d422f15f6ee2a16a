"""Redeem codes: created in batches and shown once; unused ones can be changed and removed."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.web.admin import ActionPage, AdminApi, AdminPage, ConfirmationPage, path_of
from handlers.hub.web.base import MAX_DIGITS, Failure, HubHandler, amount, invalid, or_refused
from operations.edits import create_codes
from store.admin.listing import ListPage, Paging
from store.db.database import database_ms
from store.money import codes
from store.values.fields import Instant

FIELDS = ("amount", "expires_at", "enabled")
BATCH_FIELDS = ("amount", "count", "expires_at")


def load_page(db: peewee.Database, paging: Paging) -> ListPage:
    """Return a page of the list, newest first."""
    rows = codes.page(db, paging.limit + 1, paging.after, paging.search)
    at_ms = database_ms(db)
    items = [codes.public(code, at_ms) for code in rows[: paging.limit]]
    return ListPage(items, items[-1]["id"] if len(rows) > paging.limit else None)


def load(db: peewee.Database, code_id: str) -> dict[str, Any]:
    """Return a code by its id. Raises NotFound."""
    return codes.public(codes.show(db, code_id), database_ms(db))


def batch_of(body: Mapping[str, Any]) -> codes.NewCodes:
    """Return the batch that a body or a form requests. Raises Failure."""
    count, expires_at = body.get("count") or 1, body.get("expires_at") or None
    if isinstance(count, str) and count.isdecimal() and len(count) <= MAX_DIGITS:
        count = int(count)
    if isinstance(count, bool) or not isinstance(count, int):
        raise invalid("count", "count must be a whole number")
    nanos = amount("amount", str(body.get("amount", "")).strip())
    try:
        expires_ms = None if expires_at is None else Instant().parse(expires_at)
    except ValueError as error:
        raise invalid("expires_at", f"expires_at {error}") from None
    return codes.NewCodes(count, nanos, expires_ms)


async def create(handler: HubHandler, batch: codes.NewCodes) -> list[dict[str, Any]]:
    """Create a batch and return the codes in clear text, which is never shown again. Raises
    Failure."""
    pepper = handler.site.sealing.peppers[0]
    return await handler.store(create_codes, batch, pepper, handler.me.user)


async def change(handler: HubHandler, code_id: str, body: Mapping[str, Any]) -> None:
    """Change the amount, expiry or `enabled` of an unused code. Raises Failure."""
    fields = {
        name: "" if value is None else str(value)
        for name, value in body.items()
        if name != "enabled"
    }
    enabled = body.get("enabled")
    if enabled is not None and not isinstance(enabled, bool):
        raise invalid("enabled", "enabled must be true or false")
    if fields:
        await handler.store(codes.set_fields, code_id, fields, handler.me.user)
    if enabled is not None:
        switch = codes.enable if enabled else codes.disable
        await handler.store(switch, [code_id], handler.me.user)


class CodeListApi(AdminApi):
    """GET and POST /api/admin/codes."""

    async def get(self) -> None:
        part = await self.store(load_page, self.paging())
        self.answer_list(part.items, part.next)

    async def post(self) -> None:
        created = await create(self, batch_of(self.fields(*BATCH_FIELDS)))
        self.answer_list(created, status=HTTPStatus.CREATED)


class CodeApi(AdminApi):
    """GET, PATCH and DELETE /api/admin/codes/ID."""

    async def get(self, code_id: str) -> None:
        self.answer(await self.store(load, code_id))

    async def patch(self, code_id: str) -> None:
        await change(self, code_id, self.fields(*FIELDS))
        self.answer(await self.store(load, code_id))

    async def delete(self, code_id: str) -> None:
        await self.store(codes.remove, [code_id], self.me.user)
        self.answer_nothing()


class CodeListPage(AdminPage):
    """The list or, with `?new`, the form of a batch."""

    async def get(self) -> None:
        if self.get_query_argument("new", None) is not None:
            await self.refuse(None)
            return
        paging = self.paging()
        self.show_list("codes", await self.store(load_page, paging), paging)

    @or_refused
    async def post(self) -> None:
        body = {name: self.get_body_argument(name, "").strip() for name in BATCH_FIELDS}
        if len(body["expires_at"]) == len("2027-01-01"):
            body["expires_at"] += "T00:00:00Z"
        created = await create(self, batch_of(body))
        self.show("admin/codes_created.html", codes=created, back=path_of("codes"))

    async def refuse(self, failure: Failure | None) -> None:
        """Render the form; after a failure, with the submitted values."""
        values = self.form_values(BATCH_FIELDS, failure)
        self.show("admin/codes_form.html", back=path_of("codes"), **values)


class SwitchCodePage(ActionPage):
    """Enables and disables a code. The toast has an Undo."""

    plural = "codes"

    async def post(self, code_id: str, action: str) -> None:
        enabled = action == "enable"
        await change(self, code_id, {"enabled": enabled})
        self.done_switched(code_id, path_of("codes", code_id), path_of("codes"), enabled=enabled)


class RemoveCodePage(ConfirmationPage):
    """Removes a code after its last characters were typed."""

    async def prepare_question(self, code_id: str) -> None:
        code = (await self.store(load, code_id))["code"]
        texts = ("admin.remove_title", "admin.remove_code", "admin.remove")
        action, back = path_of("codes", code_id, "remove"), path_of("codes")
        thing = self.words["admin.kind_code"]
        self.ask(texts, code[-4:], action, back, name=code, thing=thing)

    async def confirmed(self, code_id: str) -> None:
        code = await self.store(load, code_id)
        await self.store(codes.remove, [code_id], self.me.user)
        self.done("done_removed", path_of("codes"), name=code["code"])
