"""The wallet: balance, plans, the order in which they pay, spending by day, codes, the ledger."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import peewee
from tornado.iostream import StreamClosedError

from handlers.hub.overview import purse
from handlers.hub.overview.purse import CHART_DAYS, Purse
from handlers.hub.overview.redeeming import Tries, WrongCode
from handlers.hub.overview.spending import Spent
from handlers.hub.web import exports
from handlers.hub.web.base import Failure, Page
from handlers.hub.web.formats import countdown, day_text, days_word
from handlers.hub.web.parts import At, Column
from operations.edits import editor
from store.admin.kinds import SPEND_ORDERS
from store.admin.objects import Sealing
from store.hub import low_balance
from store.hub.sessions import SignedIn
from store.money import ledger
from store.money.ledger import Line
from store.money.subscriptions import ACTIVE, DISABLED, EXPIRED, USED_UP, WAITING
from store.values.ids import DAY_MS, day_begin_ms
from store.values.pricing import AmountError, format_money, parse_money
from store.values.usage_record import WALLET, csv_text, rfc3339

PAGE_LINES = 25
TICK_DAYS = 3
SECONDS_PER_MINUTE = 60
CSV_LINES = 1000  # read at a time
CSV_COLUMNS = ("at", "kind", "amount", "balance_after", "reference", "reason")
OPENING = "opening:"  # how the id of a balance begins that a user was made with
SHAPES = {ACTIVE: "ok", USED_UP: "warn", EXPIRED: "idle", WAITING: "live", DISABLED: "idle"}
DRAWN_PAYERS = 3


@dataclass(frozen=True, slots=True)
class View:
    """All that the page shows."""

    purse: Purse
    lines: Sequence[Line]
    next: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Form:
    """What was typed into the form for codes, and what became of it: what the code is worth, or
    the problem, a sentence with its values."""

    code: str = ""
    worth: str = ""
    problem: str = ""
    values: Mapping[str, object] = field(default_factory=dict)
    below: str | None = None
    below_problem: str = ""


def load(db: peewee.Database, me: SignedIn, after: str | None) -> View:
    """The page of a user. Raises Refused: there is no such page of the ledger."""
    page = ledger.page_of(db, me.user_id, PAGE_LINES, after)
    return View(purse.load(db, me), page.lines, page.next, after or "")


class Wallet(Page):
    """/wallet."""

    async def get(self) -> None:
        await self.page(Form())

    async def page(self, form: Form, status: int = HTTPStatus.OK) -> None:
        """Answers with the page and what became of its forms."""
        after = self.get_query_argument("after", "") or None
        view = await self.store(load, self.signed_in, after)
        self.set_status(status)
        self.show(
            "overview/wallet.html",
            view=view,
            purse=view.purse,
            form=form,
            nanos=format_money,
            columns=self._columns(view.purse.days[-CHART_DAYS:]),
            decimals=_decimals(view.lines),
            days_word=lambda days: days_word(self.words, days),
            left=lambda until_ms: countdown(self.words, until_ms - view.purse.at_ms),
            reference=self._reference,
            **PARTS,
        )

    def _columns(self, days: Sequence[Spent]) -> list[Column]:
        return [self._column(place, day) for place, day in enumerate(reversed(days))][::-1]

    def _column(self, place: int, spent: Spent) -> Column:
        """A day of the chart; every third has its tick, today among them."""
        begin_ms = day_begin_ms(spent.day)
        title = self.words["wallet.chart_bar"].format(
            day=day_text(spent.day),
            wallet=format_money(spent.wallet),
            plans=format_money(spent.plans),
        )
        parts = [float(Decimal(format_money(part))) for part in (spent.plans, spent.wallet)]
        tick = str(spent.day % 100) if place % TICK_DAYS == 0 else ""
        return Column(parts, tick, title, _day_link(begin_ms))

    def _reference(self, line: Line) -> tuple[str, str]:
        """What a line refers to, and where that is shown; empty: nowhere."""
        day = ledger.charged_day(line)
        if day is not None:
            return self.words["wallet.calls_of_day"], _day_link(day_begin_ms(day))
        if line.kind == "refund" and line.reference:
            return self.words["wallet.of_call"], f"/usage/{line.reference}"
        own = line.idempotency_id or ""
        return line.reference or ("" if own.startswith(OPENING) else own), ""


class Redeem(Wallet):
    """Says what a code is worth, and then puts it into the wallet."""

    async def get(self) -> None:
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)

    async def post(self) -> None:
        assert self.signed_in is not None
        code = self.get_body_argument("code", "")
        tries = Tries(self.site, self.signed_in.user)
        currency = self.site.settings.money.currency
        try:
            if not self.get_body_argument("confirm", ""):
                worth = format_money(await tries.worth(self, code))
                await self.page(Form(code=code, worth=worth))
                return
            line = await tries.redeem(self, code)
        except Failure as failure:
            await self.page(self._refused(code, failure), failure.status_code)
            return
        amount = format_money(line.amount_nanos)
        self.say(self.words["wallet.redeemed"].format(amount=amount, currency=currency))
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)

    def _refused(self, code: str, failure: Failure) -> Form:
        """The form with why a code was not taken."""
        if isinstance(failure, WrongCode):
            said = self.words[f"wallet.code_{failure.reason}"]
            return Form(code=code, problem=said, values={"at": At(failure.at_ms)})
        if not failure.wait_s:
            return Form(code=code, problem="{said}", values={"said": failure.message})
        minutes = math.ceil(failure.wait_s / SECONDS_PER_MINUTE)
        return Form(code=code, problem=self.words["wallet.too_many"], values={"minutes": minutes})


class LowBalance(Wallet):
    """Sets the balance below which the user is told."""

    async def get(self) -> None:
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)

    async def post(self) -> None:
        assert self.signed_in is not None
        typed = self.get_body_argument("below", "")
        try:
            below = parse_money(typed) if typed else None
        except AmountError:
            form = Form(below=typed, below_problem=self.words["wallet.below_wrong"])
            await self.page(form, HTTPStatus.BAD_REQUEST)
            return
        await self.store(low_balance.set_threshold, self.signed_in.user_id, below)
        self.say(self.words["wallet.below_saved"])
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)


def set_order(db: peewee.Database, me: SignedIn, sealing: Sealing, order: object) -> None:
    """Who pays first for the calls of a user, in that user's own name. Raises Refused: there is no
    such order."""
    editor(db, sealing, me.user, remote=True).change("user", me.user, {"order": order})


class Order(Wallet):
    """Sets who pays first, plans or wallet."""

    async def get(self) -> None:
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)

    async def post(self) -> None:
        assert self.signed_in is not None
        order = self.get_body_argument("order", "")
        before = self.get_body_argument("before", "")
        await self.store(set_order, self.signed_in, self.site.sealing, order)
        undo = {"undo": "/wallet/order", "order": before} if before in SPEND_ORDERS else {}
        self.say(self.words["wallet.order_saved"], **undo)
        self.redirect("/wallet", status=HTTPStatus.SEE_OTHER)


class LedgerCsv(Page):
    """The whole ledger as CSV, the newest line first."""

    async def get(self) -> None:
        assert self.signed_in is not None
        await exports.note(self, "ledger", "csv")
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="ledger.csv"')
        self.write(_csv([dict(zip(CSV_COLUMNS, CSV_COLUMNS, strict=True))]))
        after = None
        while True:
            page = await self.store(ledger.page_of, self.signed_in.user_id, CSV_LINES, after)
            self.write(_csv([_cells(line) for line in page.lines]))
            try:
                await self.flush()
            except StreamClosedError:
                return  # the client has left
            after = page.next
            if after is None:
                return


def _cells(line: Line) -> dict[str, Any]:
    """A line of the ledger for CSV."""
    public = ledger.to_public(line)
    texts = {name: csv_text(public[name] or "") for name in ("reference", "reason")}
    return {**public, **texts}


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, CSV_COLUMNS).writerows(rows)
    return text.getvalue()


def _day_link(begin_ms: int) -> str:
    times = {"since": rfc3339(begin_ms), "until": rfc3339(begin_ms + DAY_MS)}
    return "/usage?" + urlencode(times)


def _decimals(lines: Sequence[Line]) -> int:
    """How many decimals the amounts of a page need, so that they stand below each other."""
    amounts = [text for line in lines for text in (line.amount_nanos, line.balance_after_nanos)]
    return max((len(format_money(one).partition(".")[2]) for one in amounts), default=0)


def padded(nanos: int, decimals: int, *, sign: bool = False) -> str:
    """An amount with so many decimals, with its sign when it is a movement."""
    value = Decimal(format_money(nanos))
    text = f"{abs(value):,.{decimals}f}"
    return ("−" if nanos < 0 else "+" if sign else "") + text


PARTS: dict[str, Any] = {
    **{"SHAPES": SHAPES, "WALLET": WALLET, "DRAWN_PAYERS": DRAWN_PAYERS, "At": At},
    **{"padded": padded, "day_text": day_text, "charged_day": ledger.charged_day},
    **{"SPEND_ORDERS": SPEND_ORDERS, "day_link": _day_link, "USED_UP": USED_UP, "EXPIRED": EXPIRED},
}
"""What the template may use."""
