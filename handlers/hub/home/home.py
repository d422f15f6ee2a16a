"""The home page: money, the calls of the last day, alerts; before the first call, the steps towards
it."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import peewee

from adapters.registry import LOSSES
from handlers.hub.home.needs import MONEY_DECIMALS, Need, money_needs, need_to_plain
from handlers.hub.keys.keys import misdirected
from handlers.hub.models.models import model_link, price
from handlers.hub.money.wallet import WalletSummary, load_summary, summary_to_plain
from handlers.hub.web.base import Api, Page
from handlers.hub.web.charts import HOUR, Column
from handlers.hub.web.formats import address, days_word, failure_reason, money, shape_of
from handlers.hub.web.parts import At
from operations.availability import Availability, unoffered_models
from operations.client_settings import curl
from store.calls.reading.sums import (
    FAILED,
    CallSums,
    RecentCalls,
    SumsBar,
    newest_call,
    recent_calls,
)
from store.calls.usage_queries import Row
from store.calls.usage_stats import CLASSES
from store.channels import offers
from store.channels.offers import Offer
from store.channels.status import DEGRADED, DISABLED, DOWN, Status
from store.db.database import in_snapshot
from store.hub import membership, notices, own_keys
from store.hub.notices import Notice
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.values.ids import HOUR_MS
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

TICK_HOURS = 3
MAX_NEEDS = 6
MAX_UNOFFERED = 2
KEY_VARIABLE = "SLUICE_API_KEY"
MODELS_SHOWN = 5
STEPS = "first_call"
"""The cookie that stores which user sees the steps."""
FAMILIES_FIRST = ("chat_completions", "responses", "messages", "generate_content")
SHARE_DIGITS = 6
HOUR_COUNTS = ("ok", "refused", "failed", "client_gone")
FAILURE_FIELDS = (
    *("id", "outcome", "status", "model", "endpoint", "key_id", "key_name"),
    *("error_code", "error_message"),
)
"""Fields of a failed call in the JSON of the home page. /api/usage/ID has the others."""

_QUOTED = re.compile(r"'([^']*\$" + KEY_VARIABLE + r")'")

# ---- before the first call -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FirstCall:
    """The steps to a first call. `key` None: there is no key yet. `group`: the key's, or the one
    for a new key, or "". `command`: empty if the group offers no model. `call_id`: the first call,
    if it has been made."""

    key: OwnKey | None
    group: str
    models: Sequence[Offer]
    offered: int
    command: str
    call_id: str = ""


def load_first_call(
    db: peewee.Database, keys: Sequence[OwnKey], groups: Sequence[str], base_url: str, at_ms: int
) -> FirstCall:
    """Read the steps to a first call. `keys`: newest first."""
    key = next((key for key in keys if key.enabled and key.revoked_ms is None), None)
    group = key.group if key else next(iter(groups), "")
    world = offers.load_offering(db, at_ms, [group], LOSSES, figures_of=[])
    callable_offers = [
        offer
        for offer in (world.offers(group) if group in world.groups else [])
        if offer.status.state not in (DISABLED, DOWN) and offer.entries
    ]
    if key is not None and key.models and list(key.models) != ["*"]:
        callable_offers = [offer for offer in callable_offers if offer.model in key.models]
    command = _command(callable_offers[0], base_url) if callable_offers else ""
    return FirstCall(key, group, callable_offers[:MODELS_SHOWN], len(callable_offers), command)


def _command(offer: Offer, base_url: str) -> str:
    """Return a curl command that reads the key from the environment."""
    family = next(family for family in FAMILIES_FIRST if family in offer.entries)
    text = curl(family, base_url, f"${KEY_VARIABLE}", offer.model)
    # In double quotes the shell expands the variable.
    return _QUOTED.sub(r'"\1"', text)


# ---- problems that the user can fix --------------------------------------------------------------


def load_needs(
    db: peewee.Database, me: SignedIn, keys: Sequence[OwnKey], base_url: str, at_ms: int
) -> list[Need]:
    """Read the needs of a user, most urgent first, at most MAX_NEEDS."""
    used = {key.group for key in keys if key.enabled and key.revoked_ms is None}
    # For an administrator, only the groups that a member would have. The others may be many, and
    # this user does not use their models.
    groups = membership.groups_of(db, me.user_id, admin=False)
    world = offers.load_offering(db, at_ms, groups, LOSSES, figures_of=[])
    availability = Availability(world)
    needs = money_needs(db, at_ms, me.user)
    needs += [_model_need(status, availability) for status in _worst(world.statuses, used)]
    current = [key for key in keys if key.revoked_ms is None]
    needs += [need for key in current if (need := _base_url_need(key, base_url)) is not None]
    needs += [need for key in current if (need := _limit_need(key)) is not None]
    if len(needs) < MAX_NEEDS:
        by_id = {key.id: key for key in current}
        unoffered = unoffered_models(db, me.user, by_id, availability, at_ms, limit=MAX_UNOFFERED)
        for model in unoffered:
            values = {
                **{"model": model.model, "calls": model.calls, "key": model.key.name},
                "nearest": next(iter(model.why.nearest), ""),
            }
            detail = "need_asked_try" if model.why.nearest else "need_asked_by"
            href = "/models#asked"
            needs.append(Need("idle", "need_asked", detail, "need_details", href, values))
    return needs[:MAX_NEEDS]


def _worst(statuses: Sequence[Status], groups: Collection[str]) -> list[Status]:
    """Return models that are down, then degraded ones, each sorted by latest change first."""
    bad = [
        status for status in statuses if status.name in groups and status.state in (DOWN, DEGRADED)
    ]
    bad.sort(key=lambda status: (status.state != DOWN, -(status.since_ms or 0)))
    return bad[:MAX_NEEDS]


def _model_need(status: Status, availability: Availability) -> Need:
    elsewhere = availability.elsewhere(status.name, status.model)
    values: dict[str, Any] = {"model": status.model, "group": status.name}
    values |= {"since": At(status.since_ms or 0), "groups": ", ".join(elsewhere)}
    detail = "need_since_works" if elsewhere else "need_since"
    fact = f"need_{status.state}"
    href = model_link(status.model, group=status.name)
    shape = "bad" if status.state == DOWN else "warn"
    return Need(shape, fact, detail, "need_status", href, values)


def _base_url_need(key: OwnKey, base_url: str) -> Need | None:
    """Return the need of a client that uses wrong paths which another base URL would fix."""
    if (wrong := misdirected(key, base_url)) is None:
        return None
    path, diagnosis = wrong
    values = {"key": key.name, "calls": path.calls, "path": path.path, "use": diagnosis.use}
    values["since"] = At(path.first_ms)
    return Need("warn", "need_url", "need_url_under", "need_fix", f"/keys/{key.id}", values)


def _limit_need(key: OwnKey) -> Need | None:
    limit = key.limit_nanos
    if not key.enabled or limit is None or not key.near_limit:
        return None
    spent, whole = (
        money(format_money(nanos), MONEY_DECIMALS) for nanos in (key.spent_nanos, limit)
    )
    values: dict[str, Any] = {"key": key.name, "spent": spent, "limit": whole}
    values["resets"] = At(key.resets_ms or 0)
    detail = "need_resets" if key.resets_ms else "need_no_reset"
    return Need("warn", "need_limit", detail, "need_limit_link", f"/keys/{key.id}", values)


@dataclass(frozen=True, slots=True)
class HomeView:
    """The values of the page: either `calls` or, before the first call, `first`."""

    summary: WalletSummary
    keys: Mapping[str, OwnKey]
    calls: RecentCalls | None
    needs: Sequence[Need] = ()
    first: FirstCall | None = None
    notices: Sequence[Notice] = ()


@in_snapshot
def load_home(db: peewee.Database, me: SignedIn, base_url: str, *, steps: bool = False) -> HomeView:
    """Read the home page of a user. Before the first call, or with `steps`, it has the steps to
    that call. Raises NotFound if the user no longer exists."""
    summary = load_summary(db, me)
    at_ms = summary.at_ms
    keys = own_keys.owned(db, me.user_id, at_ms)
    by_id, current = {key.id: key for key in keys}, notices.current(db)
    call_id = newest_call(db, me.user)
    if steps or not call_id:
        groups = membership.groups_of(db, me.user_id, admin=me.admin)
        first = replace(load_first_call(db, keys, groups, base_url, at_ms), call_id=call_id)
        return HomeView(summary, by_id, None, (), first, current)
    calls = recent_calls(db, me.user, at_ms)
    needs = load_needs(db, me, keys, base_url, at_ms)
    return HomeView(summary, by_id, calls, needs, None, current)


class OwnHomePage(Page):
    """The home page with the user's own calls and money."""

    async def show_own(self) -> None:
        """Render the page. The steps to the first call remain until the user dismisses them."""
        steps = self.get_cookie(STEPS) == self.me.user_id
        if steps and self.get_query_argument("steps", "") == "done":
            self.clear_cookie(STEPS)
            self.redirect("/")
            return
        view = await self.store(load_home, self.me, self.site.base_url, steps=steps)
        values: dict[str, Any] = {
            "view": view,
            "summary": view.summary,
            "price": price,
            "days_word": lambda days: days_word(self.words, days),
            "shape_of": shape_of,
            "KEY": KEY_VARIABLE,
            "query": urlencode,
            "whose": "me",
        }
        if view.first is not None:
            self.set_preference(STEPS, self.me.user_id)
            self.show("first_call.html", **values)
            return
        assert view.calls is not None
        self.show(
            "home.html",
            calls=view.calls,
            columns=[self._column(index, hour) for index, hour in enumerate(view.calls.hours)],
            why=self._why,
            failed=urlencode({"outcome": ",".join(FAILED), "since": "24h"}),
            rfc3339=rfc3339,
            **values,
        )

    def _why(self, row: Row) -> str | None:
        """Return a short reason for a failed call, or its message if it has no error code."""
        reason = failure_reason(self.words, row["error_code"], row["error_message"])
        return reason or row["error_message"]

    def _column(self, index: int, hour: SumsBar) -> Column:
        """Return the column of an hour. Every third hour has a tick."""
        title = self.words["home.chart_bar"].format(
            hour=self.time_text(hour.at_ms, "clock"),
            ok=hour.ok,
            refused=hour.refused,
            failed=hour.failed,
            gone=hour.client_gone,
        )
        since, until = rfc3339(hour.at_ms), rfc3339(hour.at_ms + HOUR_MS)
        return Column(
            parts=(hour.ok, hour.refused, hour.failed),
            tick=HOUR if index % TICK_HOURS == 0 else "",
            title=title,
            href=address("/usage", since=since, until=until),
            at_ms=hour.at_ms,
        )


class HomeApi(Api):
    """GET /api/home."""

    async def get(self) -> None:
        view = await self.store(load_home, self.me, self.site.base_url)
        self.answer(home_to_plain(view, self.site.settings.money.currency))


def home_to_plain(view: HomeView, currency: str) -> dict[str, Any]:
    """Return the home page as JSON. Either `calls` or `first_call` is null."""
    return {
        "at": rfc3339(view.summary.at_ms),
        "wallet": summary_to_plain(view.summary, currency),
        "calls": None if view.calls is None else _calls_to_plain(view.calls, view.keys),
        "needs": [need_to_plain(need) for need in view.needs],
        "first_call": None if view.first is None else _first_call_to_plain(view.first),
        "notices": [notices.public(notice) for notice in view.notices],
    }


def _calls_to_plain(calls: RecentCalls, keys: Mapping[str, OwnKey]) -> dict[str, Any]:
    names = {key.id: key.name for key in keys.values()}
    return {
        **{name: getattr(calls.day, name) for name in ("calls", *CLASSES)},
        "success": _rounded(calls.day.share),
        "success_7d": _rounded(calls.week.share),
        "first_byte_p50_ms": calls.day.first_byte(50),
        "first_byte_p95_ms": calls.day.first_byte(95),
        "cost_yesterday_by_now": format_money(calls.yesterday_nanos),
        "hours": [
            {"at": rfc3339(hour.at_ms), **{name: getattr(hour, name) for name in HOUR_COUNTS}}
            for hour in calls.hours
        ],
        "models": [{"model": sums.name, **_sums_to_plain(sums)} for sums in calls.by_model],
        "keys": [
            {"key_id": sums.name, "key_name": names.get(sums.name or ""), **_sums_to_plain(sums)}
            for sums in calls.by_key
        ],
        "failures": [
            {
                "started_at": rfc3339(row["started_ms"]),
                **{name: row[name] for name in FAILURE_FIELDS},
            }
            for row in calls.failures
        ],
    }


def _sums_to_plain(sums: CallSums) -> dict[str, Any]:
    return {
        "calls": sums.calls,
        "tokens_in": sums.input + sums.cached,
        "tokens_out": sums.output,
        "cost": sums.cost,
    }


def _first_call_to_plain(first: FirstCall) -> dict[str, Any]:
    return {
        "key": None if first.key is None else first.key.name,
        "group": first.group or None,
        "models": [offer.model for offer in first.models],
        "models_offered": first.offered,
        "command": first.command or None,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, SHARE_DIGITS)
