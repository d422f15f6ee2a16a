"""The JSON API of home, channel status and wallet."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain, groupby, islice
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import peewee

from adapters.registry import LOSSES
from handlers.hub.overview import home, purse
from handlers.hub.overview.figures import Calls, Hour
from handlers.hub.overview.first_call import FirstCall
from handlers.hub.overview.needs import Need
from handlers.hub.overview.redeeming import Tries
from handlers.hub.overview.status import ENTRIES, OFFERED
from handlers.hub.overview.wallet import set_order
from handlers.hub.web.base import Api, Failure
from handlers.hub.web.parts import At
from handlers.hub.web.sums import Sums
from operations import availability
from operations.availability import Availability
from store.calls.usage_queries import Row
from store.calls.usage_stats import CLASSES
from store.channels import offers
from store.channels.offers import Offer, World
from store.channels.status import (
    Status,
    add_channel_figures,
    add_model_figures,
    by_name,
    of_channels,
)
from store.db.database import database_ms
from store.hub import low_balance, notices
from store.hub.membership import groups_of
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.money import ledger
from store.values.errors import NotFound
from store.values.pricing import AmountError, format_money, parse_money
from store.values.usage_record import rfc3339

PAGE_LINES, PAGE_LINES_MAX = 100, 1000
PAGE_MODELS, PAGE_MODELS_MAX = 50, 200
GROUP, CHANNEL = "group", "channel"
CHOICES = dict.fromkeys(("low_below", "spend_order"))
"""What of the wallet its user may change."""

SHARE_DIGITS = 6
FAILURE_FIELDS = (
    *("id", "outcome", "status", "model", "endpoint", "key_id", "key_name"),
    *("error_code", "error_message"),
)
"""What is told of a call that failed, as home shows it; /api/usage/ID has the rest."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which models of which groups and channels; what is empty takes all."""

    group: str = ""
    model: str = ""
    text: str = ""
    state: str = ""
    entry: str = ""

    def takes(self, status: Status, entries: Collection[str]) -> bool:
        """Whether a model is one of them, by its state and the entries by which it is called."""
        return (
            (not self.model or status.model == self.model)
            and self.text.lower() in status.model.lower()
            and (not self.state or status.state == self.state)
            and (not self.entry or self.entry in entries)
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page ends: a model of a group or a channel; no kind: before all of them."""

    kind: str = ""
    name: str = ""
    model: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{quote(self.name, safe='')}/{self.model}"


def place_of(text: str) -> Place:
    """What `next` of a page said, or nothing. Raises Failure."""
    if not text:
        return Place()
    kind, *rest = text.split("/", 2)
    if kind not in (GROUP, CHANNEL) or len(rest) != 2:
        raise _invalid("after", "after must be what `next` of a page said")
    return Place(kind, unquote(rest[0]), rest[1])


class _Row(NamedTuple):
    """A model of a group (`offer`), of a channel (`status`), or a group that has none to show."""

    place: Place
    offer: Offer | None = None
    status: Status | None = None


def status(
    db: peewee.Database, me: SignedIn, wanted: Wanted, limit: int, after: Place
) -> dict[str, Any]:
    """What the groups of a user offer; for administrators the channels, too: a page of `limit`
    models. Raises NotFound: no such group for this user."""
    names = groups_of(db, me.user_id, admin=me.admin)
    if wanted.group and wanted.group not in names:
        raise NotFound(f"there is no group {wanted.group}")
    asked = [wanted.group] if wanted.group else names
    world = offers.load_world(db, database_ms(db), names, LOSSES, figures_of=[])
    rows = _offered(world, asked, wanted, after)
    if me.admin:
        rows = chain(rows, _served(db, world, asked, wanted, after))
    page = [*islice(rows, limit + 1)]  # one more tells whether there is a page after this one
    more, page = len(page) > limit, page[:limit]
    offered = [row.offer.status for row in page if row.offer is not None]
    add_model_figures(db, offered, world.channels, world.at_ms)
    served = [row.status for row in page if row.status is not None]
    add_channel_figures(db, served, world.at_ms)
    found: dict[str, Any] = {"groups": _groups(db, world, page, wanted.model)}
    if me.admin:
        found["channels"] = by_name(served)
    return {**found, "next": str(page[-1].place) if more else None}


def _offered(world: World, asked: Sequence[str], wanted: Wanted, after: Place) -> Iterator[_Row]:
    """In order of groups. A group without a model is told, too."""
    if after.kind == CHANNEL:
        return
    if after.name and after.name not in asked:
        raise _invalid("after", f"there is no group {after.name} now: begin again")
    for name in asked[asked.index(after.name) :] if after.name else asked:
        first = after.model if name == after.name else None
        empty = first is None
        for one in world.offers(name):
            if wanted.takes(one.status, one.entries) and (first is None or one.model > first):
                empty = False
                yield _Row(Place(GROUP, name, one.model), offer=one)
        if empty:
            yield _Row(Place(GROUP, name))


def _served(
    db: peewee.Database, world: World, asked: Sequence[str], wanted: Wanted, after: Place
) -> Iterator[_Row]:
    """In order of channels and models."""
    serving = {one.name for one in world.channels if one.groups.intersection(asked)}
    last = (after.name, after.model) if after.kind == CHANNEL else ("", "")
    for one in of_channels(db, world.at_ms, LOSSES, figures=False):
        known = one.name in serving and (one.name, one.model) > last
        if known and wanted.takes(one, one.entries or ()):
            yield _Row(Place(CHANNEL, one.name, one.model), status=one)


def _groups(
    db: peewee.Database, world: World, page: Sequence[_Row], model: str
) -> list[dict[str, Any]]:
    """The groups of a page; of one model also why it cannot be called."""
    able = Availability(world)
    groups = []
    there = [row for row in page if row.place.kind == GROUP]
    for name, rows in groupby(there, key=lambda row: row.place.name):
        some = [row.offer for row in rows if row.offer is not None]
        plain = offers.group_to_plain(world.groups[name], offers.with_uptime(db, world, some))
        if model:
            plain["why"] = availability.to_plain(able.why(name, model))
        groups.append(plain)
    return groups


def _invalid(name: str, told: str) -> Failure:
    return Failure(HTTPStatus.BAD_REQUEST, "invalid", told, name)


class ApiStatus(Api):
    """GET /api/status."""

    async def get(self) -> None:
        given = {name: self.get_query_argument(name, "") for name in Wanted.__slots__}
        for name, known in (("state", OFFERED), ("entry", ENTRIES)):
            if given[name] not in ("", *known):
                raise _invalid(name, f"{name} must be one of {', '.join(known)}")
        after = place_of(self.get_query_argument("after", ""))
        limit = self.number("limit", PAGE_MODELS, PAGE_MODELS_MAX)
        self.answer(await self.store(status, self.signed_in, Wanted(**given), limit, after))


class ApiWallet(Api):
    """GET /api/wallet; PATCH changes what is the user's own choice."""

    async def get(self) -> None:
        found = await self.store(purse.load, self.signed_in)
        self.answer(purse.to_plain(found, self.site.settings.money.currency))

    async def patch(self) -> None:
        """Sets `low_below`, the balance below which the user is told (null: none), and
        `spend_order`."""
        assert self.signed_in is not None
        said = self.body()
        if not said or said.keys() - CHOICES:
            told = f"expected: {', '.join(CHOICES)}"
            raise _invalid(next(iter(CHOICES)), told)
        below = _amount(said.get("low_below"))
        if "spend_order" in said:
            order = said["spend_order"]
            try:
                await self.store(set_order, self.signed_in, self.site.sealing, order)
            except Failure as failure:
                failure.field = "spend_order"
                raise
        if "low_below" in said:
            await self.store(low_balance.set_threshold, self.signed_in.user_id, below)
        await self.get()


def _amount(given: object) -> int | None:
    """The amount of `low_below`. Raises Failure."""
    if given is None:
        return None
    if not isinstance(given, str):
        told = "low_below must be an amount as a string"
        raise _invalid("low_below", told)
    try:
        return parse_money(given)
    except AmountError as error:
        raise _invalid("low_below", f"low_below {error}") from None


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
            raise _invalid("code", "a code expected")
        tries = Tries(self.site, self.signed_in.user)
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
        **{name: getattr(calls.day, name) for name in ("calls", *CLASSES)},
        "success": _rounded(calls.day.share),
        "success_7d": _rounded(calls.week.share),
        "first_byte_p50_ms": calls.day.first_byte(50),
        "first_byte_p95_ms": calls.day.first_byte(95),
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
        "tokens_in": sums.input + sums.cached,
        "tokens_out": sums.output,
        "cost": sums.cost,
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
