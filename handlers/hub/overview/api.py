"""The JSON API of channel status and wallet."""

from http import HTTPStatus
from typing import Any

import peewee

from adapters.registry import LOSSES
from handlers.hub.overview import purse
from handlers.hub.overview.redeeming import Tries
from handlers.hub.web.base import Api, Failure
from handlers.operations import availability
from handlers.operations.availability import Availability
from store.channels import offers
from store.channels.status import by_name, of_channels
from store.db.database import database_ms
from store.hub import low_balance
from store.hub.membership import groups_of
from store.hub.sessions import SignedIn
from store.money import ledger
from store.values.errors import NotFound
from store.values.pricing import AmountError, parse_money

PAGE_LINES = 100
PAGE_LINES_MAX = 1000


def status(
    db: peewee.Database, me: SignedIn, group: str | None, model: str | None
) -> dict[str, Any]:
    """What the groups of a user offer; for administrators the channels, too. Raises NotFound: no
    such group for this user."""
    names = groups_of(db, me.user_id, admin=me.admin)
    if group is not None and group not in names:
        raise NotFound(f"there is no group {group}")
    at_ms = database_ms(db)
    asked = names if group is None else [group]
    world = offers.load_world(db, at_ms, names, LOSSES, figures_of=asked)
    able = Availability(world)
    groups = []
    for name in asked:
        some = world.offers(name, None if model is None else [model])
        plain = offers.group_to_plain(world.groups[name], offers.with_uptime(db, world, some))
        if model is not None:
            plain["why"] = availability.to_plain(able.why(name, model))
        groups.append(plain)
    if not me.admin:
        return {"groups": groups}
    serving = {one.name for one in world.channels if one.groups.intersection(asked)}
    channels = [
        one
        for one in of_channels(db, at_ms, LOSSES)
        if one.name in serving and (model is None or one.model == model)
    ]
    return {"groups": groups, "channels": by_name(channels)}


class ApiStatus(Api):
    """GET /api/status."""

    async def get(self) -> None:
        group, model = (self.get_query_argument(name, None) for name in ("group", "model"))
        self.answer(await self.store(status, self.signed_in, group, model))


class ApiWallet(Api):
    """GET /api/wallet; PATCH changes what is the user's own choice."""

    async def get(self) -> None:
        found = await self.store(purse.load, self.signed_in)
        self.answer(purse.to_plain(found, self.site.settings.money.currency))

    async def patch(self) -> None:
        """Sets `low_below`, the balance below which the user is told; null: none."""
        assert self.signed_in is not None
        said = self.body()
        given = said.get("low_below")
        if said.keys() != {"low_below"} or not (given is None or isinstance(given, str)):
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "low_below expected", "low_below")
        try:
            below = None if given is None else parse_money(given)
        except AmountError as error:
            said_wrong = f"low_below {error}"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", said_wrong, "low_below") from None
        await self.store(low_balance.set_threshold, self.signed_in.user_id, below)
        await self.get()


class ApiLedger(Api):
    """GET /api/wallet/ledger: the newest lines first."""

    async def get(self) -> None:
        assert self.signed_in is not None
        after = self.get_query_argument("after", None)
        limit = self.number("limit", PAGE_LINES, PAGE_LINES_MAX)
        page = await self.store(ledger.page_of, self.signed_in.user_id, limit, after)
        lines = [ledger.to_public(line) for line in page.lines]
        self.answer({"items": lines, "next": page.next})


class ApiRedeem(Api):
    """POST /api/wallet/redeem."""

    async def post(self) -> None:
        assert self.signed_in is not None
        code = self.body().get("code")
        if not isinstance(code, str) or not code:
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "a code expected", "code")
        tries = Tries(self.site, self.signed_in.user, self.address)
        line = await tries.redeem(self, code)
        self.answer(ledger.to_public(line))
