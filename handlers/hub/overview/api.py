"""The JSON API of home, channel status and wallet."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import peewee

from adapters.registry import LOSSES
from handlers.hub.overview import home, purse
from handlers.hub.overview.figures import Calls, Hour, Sums
from handlers.hub.overview.first_call import FirstCall
from handlers.hub.overview.needs import Need
from handlers.hub.overview.redeeming import Tries
from handlers.hub.web.base import Api, Failure
from handlers.hub.web.parts import At
from handlers.operations import availability
from handlers.operations.availability import Availability
from store.calls.usage_queries import Row
from store.channels import offers
from store.channels.status import by_name, of_channels
from store.db.database import database_ms
from store.hub import low_balance, notices
from store.hub.membership import groups_of
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.money import ledger
from store.values.errors import NotFound
from store.values.pricing import AmountError, format_money, parse_money
from store.values.usage_record import rfc3339

PAGE_LINES = 100
PAGE_LINES_MAX = 1000
SHARE_DIGITS = 6
FAILURE_FIELDS = (
    *("id", "outcome", "status", "model", "endpoint", "key_id", "key_name"),
    *("error_code", "error_message"),
)
"""What is told of a call that failed, as home shows it; /api/usage/ID has the rest."""


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


class ApiHome(Api):
    """GET /api/home."""

    async def get(self) -> None:
        view = await self.store(home.load, self.signed_in, self.site.base_url)
        self.answer(home_plain(view, self.site.settings.money.currency))


def home_plain(view: home.View, currency: str) -> dict[str, Any]:
    """As JSON says it; of `calls` and `first_call` one is null."""
    return {
        "at": rfc3339(view.purse.at_ms),
        "wallet": purse.to_plain(view.purse, currency),
        "calls": None if view.calls is None else _calls(view.calls, view.keys),
        "needs": [_need(one) for one in view.needs],
        "first_call": None if view.first is None else _first(view.first),
        "notices": [notices.public(one) for one in view.notices],
    }


def _calls(calls: Calls, keys: Mapping[str, OwnKey]) -> dict[str, Any]:
    names = {key.id: key.name for key in keys.values()}
    return {
        **{name: calls.count(name) for name in ("calls", "ok", "refused", "failed", "client_gone")},
        "success": _rounded(calls.share),
        "success_7d": _rounded(calls.week_share),
        "first_byte_p50_ms": calls.p50_ms,
        "first_byte_p95_ms": calls.p95_ms,
        "cost_yesterday_by_now": format_money(calls.yesterday_nanos),
        "hours": [_hour(one) for one in calls.hours],
        "models": [{"model": one.name, **_sums(one)} for one in calls.by_model],
        "keys": [
            {"key_id": one.name, "key_name": names.get(one.name or ""), **_sums(one)}
            for one in calls.by_key
        ],
        "failures": [_failure(row) for row in calls.failures],
    }


def _hour(hour: Hour) -> dict[str, Any]:
    return {
        "at": rfc3339(hour.at_ms),
        "ok": hour.ok,
        "refused": hour.refused,
        "failed": hour.failed,
        "client_gone": hour.client_gone,
    }


def _sums(sums: Sums) -> dict[str, Any]:
    return {
        "calls": sums.calls,
        "tokens_in": sums.tokens_in,
        "tokens_out": sums.tokens_out,
        "cost": format_money(sums.cost_nanos),
    }


def _failure(row: Row) -> dict[str, Any]:
    return {
        "started_at": rfc3339(row["started_ms"]),
        **{name: row[name] for name in FAILURE_FIELDS},
    }


def _need(need: Need) -> dict[str, Any]:
    """What needs its user: a word for it, its values, and the page that has the cure."""
    values = {name: _value(value) for name, value in need.values.items()}
    return {"need": need.fact.removeprefix("need_"), "page": need.href, **values}


def _value(value: Any) -> Any:
    """A value of a sentence; a moment that is not known is null."""
    if isinstance(value, At):
        return rfc3339(value.at_ms) if value.at_ms else None
    return value


def _first(first: FirstCall) -> dict[str, Any]:
    return {
        "key": None if first.key is None else first.key.name,
        "group": first.group or None,
        "models": [one.model for one in first.models],
        "models_offered": first.offered,
        "command": first.command or None,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, SHARE_DIGITS)
