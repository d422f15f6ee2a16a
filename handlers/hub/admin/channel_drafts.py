"""The JSON API for the draft of a new channel, and for the vendors to choose from.

It uses the same functions as the pages (`new_channel`).
"""

from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.admin import new_channel
from handlers.hub.admin.new_channel import needed, take_end
from handlers.hub.web.admin import AdminApi
from handlers.hub.web.base import invalid
from operations import channel_draft, channel_test
from operations.channel_draft import MAX_MODELS, Draft
from operations.draft_models import CELLS
from store.admin import listing
from store.hub import drafts


class VendorsApi(AdminApi):
    """GET /api/admin/vendors."""

    async def get(self) -> None:
        self.answer_list([asdict(vendor) for vendor in channel_draft.vendors()])


class ChannelDraftApi(AdminApi):
    """GET, POST and DELETE /api/admin/channels/draft."""

    async def get(self) -> None:
        self.answer(channel_draft.to_plain(await needed(self)))

    async def post(self) -> None:
        body = self.fields("channel", "models", "pay", "cost_factor", "priority", "weight")
        channel = body.get("channel")
        if channel is not None:
            if not isinstance(channel, dict):
                raise invalid("channel", "channel must be an object")
            await new_channel.set_account(self, channel)
        currency = self.site.settings.money.currency
        draft = await new_channel.edit(
            self, lambda db, stored: _take_body(db, stored, body, currency)
        )
        self.answer(channel_draft.to_plain(draft))

    async def delete(self) -> None:
        await self.store(drafts.drop, self.me.session_id)
        self.answer_nothing()


class DraftListApi(AdminApi):
    """POST /api/admin/channels/draft/upstream-models."""

    async def post(self) -> None:
        self.fields()
        self.answer(channel_draft.to_plain(await new_channel.list_models(self)))


class DraftTestApi(AdminApi):
    """POST /api/admin/channels/draft/test."""

    async def post(self) -> None:
        body = self.fields("models", "stream")
        names = body.get("models")
        if names is None:
            names = [model.upstream for model in (await needed(self)).chosen]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise invalid("models", "models must be a list of names at the vendor")
        results = await new_channel.test_models(self, names, stream=self.flag(body, "stream"))
        self.answer_list([channel_test.to_plain(result) for result in results])


class DraftSaveApi(AdminApi):
    """POST /api/admin/channels/draft/save."""

    async def post(self) -> None:
        body = self.fields("enabled")
        name = await new_channel.save(self, enabled=self.flag({"enabled": True, **body}, "enabled"))
        self.answer(await self.store(listing.show_one, "channel", name), HTTPStatus.CREATED)


def _take_body(db: peewee.Database, draft: Draft, body: Mapping[str, Any], currency: str) -> None:
    """Copy models and costs from a body of the API into the draft. Raises Failure."""
    rows = body.get("models", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise invalid("models", "models must be a list of objects")
    names = [row.get("upstream") for row in rows]
    if not all(isinstance(name, str) and name for name in names) or len(rows) > MAX_MODELS:
        raise invalid("models", "each model needs upstream, its name at the vendor")
    present = [model.upstream for model in draft.models]
    if added := [name for name in names if name not in present]:
        channel_draft.take_names(db, draft, [*present, *added], currency)
    for row in rows:
        model = draft.model(row["upstream"])
        model.name = str(row.get("name", model.name))
        model.chosen = bool(row.get("chosen", True))
        for field, cells in (("price", model.prices), ("cost", model.cost)):
            values = row.get(field) or {}
            if not isinstance(values, dict) or values.keys() - set(CELLS):
                raise invalid("models", f"{field} must be an object of {', '.join(CELLS)}")
            cells |= {cell: str(value) for cell, value in values.items() if value is not None}
    texts = {name: str(body[name]) for name in ("pay", "cost_factor") if name in body}
    take_end(draft, {**texts, **{n: str(body[n]) for n in ("priority", "weight") if n in body}})
