"""Codes: what one is worth, and into the wallet with it; too many wrong ones have to wait."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.web.base import Failure, HubHandler
from handlers.hub.web.site import Site
from handlers.hub.web.throttle import TooManyTries
from store.money import codes
from store.money.codes import NotTaken
from store.money.ledger import Line


class WrongCode(Failure):
    """A code that is not taken, and why."""

    def __init__(self, refusal: NotTaken) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, "invalid", str(refusal), "code")
        self.reason, self.at_ms = refusal.reason, refusal.at_ms


class Tries:
    """Those of a user."""

    def __init__(self, site: Site, user: str) -> None:
        self._site, self._user = site, user

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
        refusals: list[NotTaken] = []

        def tried(db: peewee.Database) -> Any:
            try:
                return work(db, typed=code, peppers=self._site.sealing.peppers, **named)
            except NotTaken as refusal:
                refusals.append(refusal)
                return None

        async def judge() -> Any:
            return await handler.store(tried)

        try:
            result = await handler.check_secret(self._site.codes, self._user, judge)
        except TooManyTries as error:
            said = f"too many wrong codes; try again in {error.wait_s} s"
            status = HTTPStatus.TOO_MANY_REQUESTS
            raise Failure(status, "rate_limited", said, "code", error.wait_s) from None
        if refusals:
            raise WrongCode(refusals[0])
        return result
