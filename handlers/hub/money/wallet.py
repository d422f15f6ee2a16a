"""The wallet: balance, plans, the order in which they pay, spend by day, codes, the ledger; as a
page, as JSON, and its summary for the home page."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import peewee
from tornado.iostream import StreamClosedError

from handlers.hub.web import exports, zones
from handlers.hub.web.base import Api, Failure, HubHandler, Page, amount, invalid
from handlers.hub.web.charts import Column
from handlers.hub.web.formats import address, countdown, days_word, iso_day
from handlers.hub.web.parts import At
from handlers.hub.web.throttle import TooManyTries
from operations.edits import editor
from store.admin.kinds import SPEND_ORDERS
from store.admin.objects import Sealing
from store.calls.reading.sums import DaySpend, spend_by_day
from store.db.database import database_ms, in_snapshot
from store.hub import notices
from store.hub.sessions import SignedIn
from store.money import codes, ledger, subscriptions, wallet
from store.money.codes import NotTaken
from store.money.ledger import Line
from store.money.subscriptions import ACTIVE, DISABLED, EXPIRED, USED_UP, WAITING
from store.values.ids import DAY_MS, day_at, day_begin_ms
from store.values.pricing import AmountError, format_money, parse_money
from store.values.usage_record import WALLET, csv_row, rfc3339

CHART_DAYS = 30
LOW_RUNWAY_DAYS = 2
RUNWAY_DAYS = 7  # whole days before today that the average daily cost covers
PAGE_LINES = 25
API_LINES, API_LINES_MAX = 100, 1000
TICK_DAYS = 3
SECONDS_PER_MINUTE = 60
CSV_LINES = 1000  # read at a time
CSV_COLUMNS = ("at", "kind", "amount", "balance_after", "reference", "reason")
OPENING = "opening:"  # the prefix of the ids of opening balances
SHAPES = {ACTIVE: "ok", USED_UP: "warn", EXPIRED: "idle", WAITING: "live", DISABLED: "idle"}
DRAWN_PAYERS = 3
OWN_CHOICES = ("low_below", "spend_order")
"""Fields of the wallet that its user can change."""

# ---- the summary ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WalletSummary:
    """A user's money at one point in time. `days`: at least CHART_DAYS and the current month,
    ending today. `below_nanos`: the user's threshold for a low balance; None: not set."""

    at_ms: int
    view: wallet.View
    payers: subscriptions.Payers
    days: Sequence[DaySpend]
    below_nanos: int | None = None

    @property
    def today(self) -> DaySpend:
        """Return the spend of the current UTC day."""
        return self.days[-1]

    @property
    def month(self) -> DaySpend:
        """Return the spend of the current UTC month."""
        month = self.today.day // 100
        spend = DaySpend(self.today.day)
        for day in self.days:
            if day.day // 100 == month:
                spend = spend.plus(day)
        return spend

    @property
    def daily_nanos(self) -> int:
        """Return the wallet's average spend per day, over the last whole days since its first
        payment. Without such days return today's spend."""
        before = [day.wallet for day in self.days[-RUNWAY_DAYS - 1 : -1]]
        while before and not before[0]:
            before.pop(0)
        return sum(before) // len(before) if before else self.today.wallet

    @property
    def runway_days(self) -> float | None:
        """Return how many days the balance lasts at that rate. None: unknown."""
        daily = self.daily_nanos
        return max(0, self.view.balance_nanos) / daily if daily else None

    @property
    def low(self) -> bool:
        """Return whether the balance is below the user's threshold or, without one, will not last
        LOW_RUNWAY_DAYS. False if only plans pay."""
        if self.payers.spend_order == subscriptions.PLANS_ONLY:
            return False
        if self.below_nanos is not None:
            return self.view.balance_nanos < self.below_nanos
        runway = self.runway_days
        return self.view.balance_nanos <= 0 or (runway is not None and runway < LOW_RUNWAY_DAYS)


def load_summary(db: peewee.Database, me: SignedIn) -> WalletSummary:
    """Read the summary of a user. Raises NotFound if the user no longer exists."""
    at_ms = database_ms(db)
    month_ms = day_begin_ms(day_at(at_ms) // 100 * 100 + 1)
    since_ms = min(month_ms, at_ms - (CHART_DAYS - 1) * DAY_MS)
    return WalletSummary(
        at_ms=at_ms,
        view=wallet.show(db, me.user),
        payers=subscriptions.payers_of(db, me.user_id, at_ms),
        days=spend_by_day(db, me.user, me.user_id, since_ms, at_ms),
        below_nanos=notices.low_balance(db, me.user_id),
    )


def summary_to_plain(summary: WalletSummary, currency: str) -> dict[str, Any]:
    """Return a summary as JSON."""
    payers, runway, below_nanos = summary.payers, summary.runway_days, summary.below_nanos
    return {
        **wallet.to_public(summary.view, currency),
        "spend_order": payers.spend_order,
        "order": payers.order,
        "limit": subscriptions.limit_to_public(payers.limit),
        "subscriptions": [subscriptions.to_public(plan) for plan in payers.subscriptions],
        "spent_today": _spend_to_plain(summary.today),
        "spent_month": _spend_to_plain(summary.month),
        "daily": format_money(summary.daily_nanos),
        "low": summary.low,
        "low_below": None if below_nanos is None else format_money(below_nanos),
        "runway_days": None if runway is None else round(runway, 1),
    }


def _spend_to_plain(spend: DaySpend) -> dict[str, str]:
    return {
        "cost": format_money(spend.cost),
        "wallet": format_money(spend.wallet),
        "plans": format_money(spend.plans),
    }


# ---- changes -------------------------------------------------------------------------------------


class WrongCode(Failure):
    """The failure for a code that cannot be redeemed, with the reason."""

    def __init__(self, refusal: NotTaken) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, "invalid", str(refusal), "code")
        self.reason, self.at_ms = refusal.reason, refusal.at_ms


async def redeem(handler: HubHandler, code: str) -> Line:
    """Redeem a code for the signed-in user. Raises Failure 400, 429."""
    user = handler.me.user
    line: Line = await _try_code(handler, codes.redeem, code, user=user, actor=user)
    return line


async def _try_code(handler: HubHandler, work: Callable[..., Any], code: str, **named: Any) -> Any:
    refusals: list[NotTaken] = []
    peppers = handler.site.sealing.peppers

    def run(db: peewee.Database) -> Any:
        try:
            return work(db, typed=code, peppers=peppers, **named)
        except NotTaken as refusal:
            refusals.append(refusal)
            return None

    async def check() -> Any:
        return await handler.store(run)

    try:
        result = await handler.check_secret(handler.site.codes, handler.me.user, check)
    except TooManyTries as error:
        text = f"too many wrong codes; try again in {error.wait_s} s"
        status = HTTPStatus.TOO_MANY_REQUESTS
        raise Failure(status, "rate_limited", text, "code", error.wait_s) from None
    if refusals:
        raise WrongCode(refusals[0])
    return result


def set_order(db: peewee.Database, me: SignedIn, sealing: Sealing, order: object) -> None:
    """Set whether plans or wallet pay first for a user's calls, with the user as the actor. Raises
    Refused for an unknown order."""
    editor(db, sealing, me.user, remote=True).change("user", me.user, {"order": order})


@dataclass(frozen=True, slots=True)
class WalletView:
    """The values of the page: the summary and a page of the ledger."""

    summary: WalletSummary
    lines: Sequence[Line]
    next: str | None
    after: str


@dataclass(frozen=True, slots=True)
class WalletForms:
    """The fields of the page's forms, with the worth of a code or the problem: a text and its
    values."""

    code: str = ""
    worth: str = ""
    problem: str = ""
    values: Mapping[str, object] = field(default_factory=dict)
    below: str | None = None
    below_problem: str = ""


@in_snapshot
def load_wallet(db: peewee.Database, me: SignedIn, after: str | None) -> WalletView:
    """Read the page of a user. Raises Refused if the ledger has no such page."""
    page = ledger.page_of(db, me.user_id, PAGE_LINES, after)
    return WalletView(load_summary(db, me), page.lines, page.next, after or "")


class WalletPage(Page):
    """/wallet."""

    async def get(self) -> None:
        await self.page(WalletForms())

    async def page(self, form: WalletForms, status: int = HTTPStatus.OK) -> None:
        """Render the page with the results of its forms."""
        after = self.get_query_argument("after", "") or None
        view = await self.store(load_wallet, self.me, after)
        self.set_status(status)
        self.show(
            "wallet.html",
            view=view,
            summary=view.summary,
            form=form,
            columns=self._columns(view.summary.days[-CHART_DAYS:]),
            decimals=decimals_of(amounts_of(view.lines)),
            days_word=lambda days: days_word(self.words, days),
            left=lambda until_ms: countdown(self.words, until_ms - view.summary.at_ms),
            reference=lambda line: reference_of(self.words, line),
            **TEMPLATE_VALUES,
        )

    def _columns(self, days: Sequence[DaySpend]) -> list[Column]:
        return [self._column(index, day) for index, day in enumerate(reversed(days))][::-1]

    def _column(self, index: int, spend: DaySpend) -> Column:
        """Return the column of a day. Every third day, including today, has a tick."""
        begin_ms = day_begin_ms(spend.day)
        title = self.words["wallet.chart_bar"].format(
            day=zones.utc_day_text(spend.day, self.language),
            wallet=format_money(spend.wallet),
            plans=format_money(spend.plans),
        )
        parts = [float(Decimal(format_money(part))) for part in (spend.plans, spend.wallet)]
        tick = str(spend.day % 100) if index % TICK_DAYS == 0 else ""
        return Column(parts, tick, title, _day_link(begin_ms))


def reference_of(
    words: Mapping[str, str], line: Line, path: str = "/usage", **query: str
) -> tuple[str, str]:
    """Return the text and the link of a line's reference; empty if there is none. `path`, `query`:
    where the usage of the wallet's owner is."""
    day = ledger.charged_day(line)
    if day is not None:
        return words["wallet.calls_of_day"], _day_link(day_begin_ms(day), path, **query)
    if line.kind == "refund" and line.reference:
        return words["wallet.of_call"], f"/usage/{line.reference}"
    own = line.idempotency_id or ""
    return line.reference or ("" if own.startswith(OPENING) else own), ""


def reason_of(words: Mapping[str, str], line: Line) -> str:
    """Return the reason of a movement; for opening balances a text in the page's language."""
    opening = (line.idempotency_id or "").startswith(OPENING)
    return words["wallet.opening"] if opening else line.reason


class WalletForm(WalletPage):
    """A form of the page. Each form has a path of its own."""

    async def get(self) -> None:
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)


class RedeemForm(WalletForm):
    """POST /wallet/redeem: shows the worth of a code, and redeems it after confirmation."""

    async def post(self) -> None:
        code = self.get_body_argument("code", "")
        currency = self.site.settings.money.currency
        try:
            if not self.get_body_argument("confirm", ""):
                worth = format_money(await _try_code(self, codes.worth, code))
                await self.page(WalletForms(code=code, worth=worth))
                return
            line = await redeem(self, code)
        except Failure as failure:
            await self.page(self._problem(code, failure), failure.status_code)
            return
        text = self.words["wallet.redeemed"]
        self.say(text.format(amount=format_money(line.amount_nanos), currency=currency))
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)

    def _problem(self, code: str, failure: Failure) -> WalletForms:
        """Return the form's values for a code that was refused."""
        if isinstance(failure, WrongCode):
            text = self.words[f"wallet.code_{failure.reason}"]
            return WalletForms(code=code, problem=text, values={"at": At(failure.at_ms)})
        if not failure.wait_s:
            return WalletForms(
                code=code, problem="{text}", values={"text": self.in_words(failure.message)}
            )
        minutes = math.ceil(failure.wait_s / SECONDS_PER_MINUTE)
        text = self.words["wallet.too_many"]
        return WalletForms(code=code, problem=text, values={"minutes": minutes})


class LowBalanceForm(WalletForm):
    """POST /wallet/low-balance: sets the balance below which the user is warned."""

    async def post(self) -> None:
        text = self.get_body_argument("below", "")
        try:
            below = parse_money(text) if text else None
        except AmountError:
            form = WalletForms(below=text, below_problem=self.words["wallet.below_wrong"])
            await self.page(form, HTTPStatus.BAD_REQUEST)
            return
        await self.store(notices.set_low_balance, self.me.user_id, below)
        self.say(self.words["wallet.below_saved"])
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)


class SpendOrderForm(WalletForm):
    """POST /wallet/order: sets who pays first, plans or wallet."""

    async def post(self) -> None:
        order = self.get_body_argument("order", "")
        before = self.get_body_argument("before", "")
        await self.store(set_order, self.me, self.site.sealing, order)
        undo = {"undo": "/wallet/order", "order": before} if before in SPEND_ORDERS else {}
        self.say(self.words["wallet.order_saved"], **undo)
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)


class LedgerCsv(Page):
    """/wallet/ledger.csv: the whole ledger, newest line first."""

    async def get(self) -> None:
        await exports.note(self, "ledger", "csv")
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="ledger.csv"')
        self.write(csv_row(CSV_COLUMNS))
        after = None
        while True:
            page = await self.store(ledger.page_of, self.me.user_id, CSV_LINES, after)
            lines = map(ledger.to_public, page.lines)
            self.write("".join(csv_row(line[name] for name in CSV_COLUMNS) for line in lines))
            try:
                await self.flush()
            except StreamClosedError:
                return  # the client has disconnected
            after = page.next
            if after is None:
                return


def _day_link(begin_ms: int, path: str = "/usage", **query: str) -> str:
    times = {"since": rfc3339(begin_ms), "until": rfc3339(begin_ms + DAY_MS)}
    return address(path, **query, **times)


def decimals_of(amounts: Iterable[int]) -> int:
    """Return the number of decimals that all amounts (nanos) of a page need to align."""
    return max((len(format_money(nanos).partition(".")[2]) for nanos in amounts), default=0)


def amounts_of(lines: Sequence[Line]) -> list[int]:
    """Return all amounts that a page shows for these lines."""
    return [nanos for line in lines for nanos in (line.amount_nanos, line.balance_after_nanos)]


def padded(nanos: int, decimals: int, *, sign: bool = False) -> str:
    """Format an amount with a fixed number of decimals. `sign`: with a plus unless negative."""
    value = Decimal(format_money(nanos))
    text = f"{abs(value):,.{decimals}f}"
    return ("−" if nanos < 0 else "+" if sign else "") + text


TEMPLATE_VALUES: dict[str, Any] = {
    **{"SHAPES": SHAPES, "WALLET": WALLET, "DRAWN_PAYERS": DRAWN_PAYERS},
    **{"padded": padded, "iso_day": iso_day, "charged_day": ledger.charged_day},
    **{"day_words": zones.utc_day_text, "reason_of": reason_of},
    **{"SPEND_ORDERS": SPEND_ORDERS, "day_link": _day_link, "EXPIRED": EXPIRED},
}


class WalletApi(Api):
    """GET /api/wallet. PATCH changes the fields in OWN_CHOICES."""

    async def get(self) -> None:
        summary = await self.store(load_summary, self.me)
        self.answer(summary_to_plain(summary, self.site.settings.money.currency))

    async def patch(self) -> None:
        """Set `spend_order` and `low_below`, the balance below which the user is warned (null:
        none)."""
        body = self.body()
        if not body or body.keys() - set(OWN_CHOICES):
            raise invalid(OWN_CHOICES[0], f"expected: {', '.join(OWN_CHOICES)}")
        below = _amount(body.get("low_below"))
        if "spend_order" in body:
            try:
                await self.store(set_order, self.me, self.site.sealing, body["spend_order"])
            except Failure as failure:
                failure.field = "spend_order"
                raise
        if "low_below" in body:
            await self.store(notices.set_low_balance, self.me.user_id, below)
        await self.get()


def _amount(value: object) -> int | None:
    """Return the value of `low_below` in nanos. Raises Failure."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid("low_below", "low_below must be an amount as a string")
    return amount("low_below", value, "low_below {}")


class WalletLedgerApi(Api):
    """GET /api/wallet/ledger: newest lines first."""

    async def get(self) -> None:
        after = self.get_query_argument("after", None)
        limit = self.number("limit", API_LINES, API_LINES_MAX)
        page = await self.store(ledger.page_of, self.me.user_id, limit, after)
        lines = [ledger.to_public(line) for line in page.lines]
        self.answer_list(lines, page.next)


class RedeemApi(Api):
    """POST /api/wallet/redeem."""

    async def post(self) -> None:
        code = self.body().get("code")
        if not isinstance(code, str) or not code:
            raise invalid("code", "a code expected")
        self.answer(ledger.to_public(await redeem(self, code)))
