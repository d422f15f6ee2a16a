"""The page of one user, for administrators: money, calls, keys and ledger; each part also as JSON.

All sums come from roll-ups, so the number of calls does not affect the cost of the page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.admin import objects
from handlers.hub.keys.all_keys import reason_of
from handlers.hub.keys.keys import STATES, WORKING, client_of, state_of
from handlers.hub.money import wallet as wallet_page
from handlers.hub.money.wallet import CHART_DAYS, TICK_DAYS, WalletSummary, load_summary
from handlers.hub.usage.usage_call import TOKEN_COLUMNS, CallRow
from handlers.hub.web.admin import ActionPage, AdminApi, AdminPage, path_of
from handlers.hub.web.base import Failure
from handlers.hub.web.charts import Column
from handlers.hub.web.formats import address, countdown, failure_reason, iso_day
from handlers.hub.web.zones import utc_day_text
from store.calls.reading.refusals import MoneyRefusals, money_refusals, of_today
from store.calls.reading.sums import CallSums, sum_of, sums_by
from store.calls.usage_queries import Filters, Row, history
from store.calls.usage_stats import stats
from store.catalog import keys as api_keys
from store.db.database import in_snapshot
from store.hub import key_stops, one_time, openid_links, own_keys, sessions
from store.hub.key_stops import KeyStop
from store.hub.membership import KeyGroup, key_groups
from store.hub.openid_links import Link
from store.hub.own_keys import OwnKey
from store.hub.sessions import SessionRow, SignedIn
from store.money import ledger
from store.values.ids import DAY_MS, day_at, day_begin_ms, now_ms
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

PAYER, MODEL, KEY = "payer", "model", "key"
PARTS: Mapping[str, str] = {PAYER: "", MODEL: "model", KEY: "key_id"}
"""The choices to split the chart's columns by, each with its dimension in the sums of calls."""
PLANS, WALLET, REST = "plans", "wallet", ""
TONES = ("c1", "c2", "c5")
REST_TONE = "c6"
LINES, CALLS, PAGE_KEYS = 10, 8, 50
CALL_COLUMNS = ("key", "cost", "in", "cached", "out", "first", "total")
MAX_UNDONE = 50  # keys that one Undo can enable again; their ids are in a cookie


@dataclass(frozen=True, slots=True)
class UserCalls:
    """Calls of a user: the sums of CHART_DAYS, the success rate of all users, the costs by day
    (yyyy-mm-dd) and by what the chart is split by, the newest calls, today's calls refused for lack
    of money, and the number of calls this month by key."""

    sums: CallSums
    share_of_all: float | None
    costs: Mapping[tuple[str, str], int]
    newest: Sequence[Row]
    refused: MoneyRefusals | None
    by_key: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class UserKeys:
    """The keys of a user that are not revoked, last used first, at most PAGE_KEYS; the number of
    them all and of revoked ones; by name, who stopped a key."""

    rows: Sequence[OwnKey]
    count: int
    revoked: int
    stops: Mapping[str, KeyStop]


@dataclass(frozen=True, slots=True)
class Access:
    """The sign-in methods of a user, the active sessions, and who created the user."""

    totp: bool
    links: Sequence[Link]
    sessions: Sequence[SessionRow]
    created_ms: int
    maker: str | None


@dataclass(frozen=True, slots=True)
class UserView:
    """The values of the page."""

    user: Mapping[str, Any]
    summary: WalletSummary
    calls: UserCalls
    keys: UserKeys
    access: Access
    groups: Mapping[str, KeyGroup]
    ledger: ledger.Page

    @property
    def name(self) -> str:
        """Return the name of the user."""
        return str(self.user["name"])

    @property
    def refused(self) -> MoneyRefusals | None:
        """Return the calls refused for lack of money, unless money was added since the last of
        them."""
        refused = self.calls.refused
        credits_ms = (line.at_ms for line in self.ledger.lines if line.amount_nanos > 0)
        return None if refused is None or refused.last_ms < max(credits_ms, default=0) else refused


@in_snapshot
def load_view(db: peewee.Database, name: str, by: str, after: str | None) -> UserView:
    """Read the page of a user. Raises NotFound; Refused if the ledger has no such page."""
    user = objects.load(db, "user", name)
    owner = SignedIn("", user["id"], name, user["role"])
    summary = load_summary(db, owner)
    return UserView(
        user=user,
        summary=summary,
        calls=_load_calls(db, name, by, summary),
        keys=load_keys(db, user, summary.at_ms),
        access=load_access(db, user),
        groups=key_groups(db),
        ledger=ledger.page_of(db, user["id"], LINES, after),
    )


def _load_calls(db: peewee.Database, name: str, by: str, summary: WalletSummary) -> UserCalls:
    at_ms = summary.at_ms
    month_ms = day_begin_ms(summary.today.day // 100 * 100 + 1)
    since_ms = (at_ms // DAY_MS - CHART_DAYS + 1) * DAY_MS
    rows = stats(db, ("day", "key_id"), Filters(user=name, since_ms=min(month_ms, since_ms)))
    first, first_of_month = (iso_day(day_at(ms)) for ms in (since_ms, month_ms))
    recent = [row for row in rows if row["day"] >= first]
    of_month = sums_by(
        (row for row in rows if row["day"] >= first_of_month), lambda row: row["key_id"] or ""
    )
    if by == MODEL:
        recent_parts = stats(db, ("day", "model"), Filters(user=name, since_ms=since_ms))
    else:
        recent_parts = recent
    costs: dict[tuple[str, str], int] = {}
    if part := PARTS[by]:
        by_day = sums_by(recent_parts, lambda row: (row["day"], row[part] or ""))
        costs = {of_day: sums.cost_nanos for of_day, sums in by_day.items()}
    return UserCalls(
        sums=sums_by(recent, lambda row: "").get("", CallSums()),
        share_of_all=sum_of(db, Filters(since_ms=since_ms)).share,
        costs=costs,
        newest=history(db, Filters(user=name), CALLS),
        refused=money_refusals(db, of_today(at_ms, name)),
        by_key={key_id: sums.calls for key_id, sums in of_month.items()},
    )


def load_keys(db: peewee.Database, user: Mapping[str, Any], at_ms: int) -> UserKeys:
    """Read the keys of a user."""
    own = own_keys.owned(db, user["id"], at_ms)
    current = [key for key in own if key.revoked_ms is None]
    used = own_keys.with_use(db, current[:PAGE_KEYS], at_ms)
    used.sort(key=lambda key: (key.last_use.at_ms if key.last_use else 0, key.id), reverse=True)
    stopped = [key.name for key in used if not key.enabled]
    stops = key_stops.stops_of(db, user["name"], stopped)
    return UserKeys(used, len(current), len(own) - len(current), stops)


def load_access(db: peewee.Database, user: Mapping[str, Any]) -> Access:
    """Read the sign-in methods and sessions of a user."""
    created_ms, maker = key_stops.origin_of(db, user["name"])
    return Access(
        totp=one_time.is_on(db, user["id"]),
        links=openid_links.of_user(db, user["id"]),
        sessions=sessions.of_user(db, user["id"]),
        created_ms=created_ms,
        maker=maker,
    )


@dataclass(frozen=True, slots=True)
class CostChart:
    """The chart of costs by day: its columns, the tones of their parts, and its legend as (tone,
    name), from the bottom up."""

    columns: Sequence[Column]
    tones: Sequence[str]
    legend: Sequence[tuple[str, str]]


class UserPage(AdminPage):
    """/admin/users/NAME."""

    async def get(self, name: str) -> None:
        by = self.get_query_argument("by", PAYER)
        by = by if by in PARTS else PAYER
        after = self.get_query_argument("after", "") or None
        try:
            view = await self.store(load_view, name, by, after)
        except Failure as failure:
            if failure.status_code != HTTPStatus.NOT_FOUND:
                raise
            await self._show_removed(name, failure)
            return
        summary, base_url = view.summary, self.site.base_url
        self.show(
            "users/one.html",
            view=view,
            user=view.user,
            summary=summary,
            payers=summary.payers,
            chart=self._chart(view, by),
            by=by,
            parts=PARTS,
            after=after,
            why=self._why,
            usage=lambda **query: usage_of(view.name, **query),
            reference=lambda line: wallet_page.reference_of(
                self.words, line, "/admin/usage", user=view.name
            ),
            state_of=lambda key: state_of(key, summary.at_ms, base_url),
            shapes=STATES,
            working=WORKING,
            client_of=client_of,
            decimals=wallet_page.decimals_of(wallet_page.amounts_of(view.ledger.lines)),
            left=lambda until_ms: countdown(self.words, until_ms - summary.at_ms),
            made_ms=view.access.created_ms,
            month_begin=rfc3339(day_begin_ms(summary.today.day // 100 * 100 + 1)),
            CallRow=CallRow,
            TOKENS=TOKEN_COLUMNS,
            visible=CALL_COLUMNS,
            **wallet_page.TEMPLATE_VALUES,
        )

    async def _show_removed(self, name: str, failure: Failure) -> None:
        """Answer 404 with who removed the user. If there never was such a user, raise the failure,
        which names similar users."""
        removal = await self.store(key_stops.removal_of, name)
        if removal is None:
            raise failure
        self.set_status(HTTPStatus.NOT_FOUND)
        self.show("users/removed.html", name=name, removal=removal)

    def _why(self, row: Row) -> str:
        """Return a short reason of a refused call."""
        return failure_reason(self.words, row["error_code"], row["error_message"]) or ""

    def _chart(self, view: UserView, by: str) -> CostChart:
        days = view.summary.days[-CHART_DAYS:]
        if by == PAYER:
            parts = [{PLANS: day.plans, WALLET: day.wallet} for day in days]
            legend = [("c4", PLANS), ("c3", WALLET)]
            words = {PLANS: self.words["admin.f_plan"], WALLET: self.words["nav.wallet"]}
        else:
            ranked = ranked_names(view.calls.costs)
            top, rest = ranked[: len(TONES)], ranked[len(TONES) :]
            parts = [day_parts(view.calls.costs, iso_day(day.day), top) for day in days]
            legend = [*zip(TONES, top, strict=False), *([(REST_TONE, REST)] if rest else [])]
            words = {key.id: key.name for key in view.keys.rows} if by == KEY else {}
            words[REST] = self.words["users.more_parts"].format(count=len(rest))
        names = [name for _, name in legend]
        columns = [
            self._column(view.name, (len(days) - index - 1, day.day), parts[index], names, words)
            for index, day in enumerate(days)
        ]
        tones = [tone for tone, _ in legend]
        return CostChart(columns, tones, [(tone, words.get(name, name)) for tone, name in legend])

    def _column(
        self,
        user: str,
        place: tuple[int, int],
        parts: Mapping[str, int],
        names: Sequence[str],
        words: Mapping[str, str],
    ) -> Column:
        """Return the column of a day. `place`: the number of days before today, and the day."""
        back, day = place
        begin_ms = day_begin_ms(day)
        costs = ", ".join(
            f"{words.get(name, name)} {format_money(parts[name])}"
            for name in names
            if parts.get(name)
        )
        return Column(
            [float(Decimal(format_money(parts.get(name, 0)))) for name in names],
            str(day % 100) if back % TICK_DAYS == 0 else "",
            f"{utc_day_text(day, self.language)}: {costs or 0}",
            usage_of(user, since=rfc3339(begin_ms), until=rfc3339(begin_ms + DAY_MS)),
        )


def ranked_names(costs: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the names with costs, most expensive first."""
    sums: dict[str, int] = {}
    for (_, name), nanos in costs.items():
        sums[name] = sums.get(name, 0) + nanos
    return sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))


def day_parts(
    costs: Mapping[tuple[str, str], int], day: str, shown: Sequence[str]
) -> dict[str, int]:
    """Return the costs of a day for the shown names, and those of all other names as REST."""
    parts = dict.fromkeys((*shown, REST), 0)
    for (other_day, name), nanos in costs.items():
        if other_day == day:
            parts[name if name in shown else REST] += nanos
    return parts


def usage_of(user: str, **query: str) -> str:
    """Return the path of a user's usage."""
    return address("/admin/usage", user=user, **query)


# ---- parts, as JSON ------------------------------------------------------------------------------


class UserWalletApi(AdminApi):
    """GET /api/admin/users/NAME/wallet: the same as users get for their own."""

    async def get(self, name: str) -> None:
        summary = await self.store(load_wallet, name)
        self.answer(wallet_page.summary_to_plain(summary, self.site.settings.money.currency))


def load_wallet(db: peewee.Database, name: str) -> WalletSummary:
    """Read the money of a user. Raises NotFound."""
    user = objects.load(db, "user", name)
    return load_summary(db, SignedIn("", user["id"], name, user["role"]))


class UserKeysApi(AdminApi):
    """GET /api/admin/users/NAME/keys: keys that are not revoked, last used first."""

    async def get(self, name: str) -> None:
        at_ms = now_ms()
        user = await self.store(objects.load, "user", name)
        keys = await self.store(load_keys, user, at_ms)
        base_url = self.site.base_url
        self.answer_list([key_to_plain(key, keys.stops, at_ms, base_url) for key in keys.rows])


def key_to_plain(
    key: OwnKey, stops: Mapping[str, KeyStop], at_ms: int, base_url: str
) -> dict[str, Any]:
    """Return a key as JSON, with who stopped it."""
    stop = None if key.enabled else stops.get(key.name)
    last = key.last_use
    return {
        "id": key.id,
        "name": key.name,
        "group": key.group,
        "state": state_of(key, at_ms, base_url),
        "prefix": key.prefix,
        "last_four": key.last_four,
        "spent": format_money(key.spent_nanos),
        "spent_window": key.spent_window,
        "limit": None if key.limit_nanos is None else format_money(key.limit_nanos),
        "last_used_at": None if last is None else rfc3339(last.at_ms),
        "disabled_by": None if stop is None else stop.actor,
        "disabled_at": None if stop is None else rfc3339(stop.at_ms),
        "disabled_because": None if stop is None else stop.reason,
    }


class DisableKeysApi(AdminApi):
    """POST /api/admin/users/NAME/keys/disable: disables all enabled keys."""

    async def post(self, name: str) -> None:
        reason = reason_of(self.fields("reason"))
        ids = await self.store(key_stops.disable_all, name, self.me.user, reason)
        self.answer({"disabled": ids})


class DisableKeysPage(AdminPage):
    """Disables all keys of a user, with a reason that the user sees."""

    async def get(self, name: str) -> None:
        user = await self.store(objects.load, "user", name)
        keys = await self.store(load_keys, user, now_ms())
        self.show("users/disable_keys.html", name=name, keys=keys)

    async def post(self, name: str) -> None:
        reason = self.get_body_argument("reason", "").strip()
        ids = await self.store(key_stops.disable_all, name, self.me.user, reason)
        text = self.words["users.keys_disabled"].format(name=name, count=len(ids))
        few = 0 < len(ids) <= MAX_UNDONE
        undo = {"undo": path_of("users", name, "keys/enable"), "keys": ",".join(ids)} if few else {}
        self.say(text, **undo)
        self.redirect(path_of("users", name) + "#keys", status=HTTPStatus.SEE_OTHER)


class EnableKeysPage(ActionPage):
    """Enables keys again: the Undo after disabling all keys of a user."""

    plural, of_object = "users", True

    async def post(self, name: str) -> None:
        ids = [key_id for key_id in self.get_body_argument("keys", "").split(",") if key_id]
        for key_id in ids[:MAX_UNDONE]:
            await self.store(api_keys.set_key_enabled, key_id, True, self.me.user)
        self.say(self.words["users.keys_enabled"].format(name=name, count=len(ids)))
        self.redirect(path_of("users", name) + "#keys", status=HTTPStatus.SEE_OTHER)
