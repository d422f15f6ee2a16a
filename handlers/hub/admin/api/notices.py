"""Notices: made and removed by administrators, seen by everybody who signs in."""

from http import HTTPStatus

from handlers.hub.admin.api.base import AdminApi, actor_of
from handlers.hub.web.base import Api
from store.hub import notices


class Current(Api):
    """GET /api/notices."""

    async def get(self) -> None:
        found = await self.store(notices.current)
        self.answer({"items": [notices.public(one) for one in found], "next": None})


class List(AdminApi):
    """GET and POST /api/admin/notices."""

    async def get(self) -> None:
        found = await self.store(notices.listed)
        self.answer({"items": [notices.public(one) for one in found], "next": None})

    async def post(self) -> None:
        made = await self.store(notices.create, self.body(), actor_of(self))
        self.answer(notices.public(made), HTTPStatus.CREATED)


class One(AdminApi):
    """DELETE /api/admin/notices/ID."""

    async def delete(self, notice_id: str) -> None:
        await self.store(notices.remove, notice_id, actor_of(self))
        self.set_status(HTTPStatus.NO_CONTENT)
        self.clear_header("Content-Type")
        self.finish()
