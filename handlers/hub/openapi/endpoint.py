"""GET /api/openapi.json, and what is said of paths that are none of the API."""

import json
from functools import cache

from handlers.hub.openapi.document import document
from handlers.hub.web.base import Api, Failure


class Document(Api):
    """GET /api/openapi.json: for everybody."""

    async def prepare(self) -> None:
        """Nobody need say who asks."""

    async def get(self) -> None:
        self.finish(_text())


class Unknown(Api):
    """A path of the API that is none."""

    def check_xsrf_cookie(self) -> None:
        """Nothing is changed here."""

    async def prepare(self) -> None:
        raise Failure(404, "not_found", "there is no such path")


@cache
def _text() -> str:
    return json.dumps(document(), ensure_ascii=False)
