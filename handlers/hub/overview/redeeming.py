"""Codes: what one is worth, and into the wallet with it; too many wrong ones have to wait."""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.web.base import Failure, HubHandler
from handlers.hub.web.site import Site
from store.money import codes
from store.money.codes import NotTaken
from store.money.ledger import Line


class WrongCode(Failure):
    """A code that is not taken, and why."""

    def __init__(self, refusal: NotTaken) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, "invalid", str(refusal), "code")
        self.reason, self.at_ms = refusal.reason, refusal.at_ms


class Tries:
    """Those of a user from an address."""

    def __init__(self, site: Site, user: str, address: str) -> None:
        self._site, self._user, self._address = site, user, address

    async def worth(self, handler: HubHandler, code: str) -> int:
        """What a code would put into a wallet (nanos). Raises Failure 400, 429."""
        worth: int = await self._tried(handler, codes.worth, code)
        return worth

    async def redeem(self, handler: HubHandler, code: str) -> Line:
        """Puts it there. Raises Failure 400, 429."""
        line: Line = await self._tried(
            handler, codes.redeem, code, user=self._user, actor=self._user
        )
        return line

    async def _tried(
        self, handler: HubHandler, work: Callable[..., Any], code: str, **named: Any
    ) -> Any:
        tries, now_s = self._site.codes, time.monotonic()
        if wait_s := tries.wait_s(self._user, self._address, now_s):
            said = f"too many wrong codes; try again in {wait_s} s"
            raise Failure(HTTPStatus.TOO_MANY_REQUESTS, "rate_limited", said, "code", wait_s)

        def judged(db: peewee.Database) -> Any:
            try:
                return work(db, typed=code, peppers=self._site.sealing.peppers, **named)
            except NotTaken as refusal:
                return refusal

        found = await handler.store(judged)
        if isinstance(found, NotTaken):
            tries.failed(self._user, self._address, now_s)
            raise WrongCode(found)
        return found
