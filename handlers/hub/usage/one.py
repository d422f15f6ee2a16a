"""The page of one call: what to do first, its attempts on a line of time, its cost, the facts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import peewee

from handlers.hub.usage.api import call
from handlers.hub.usage.attempts import FLOW_UNITS, LATE_PERCENT, axis, flow, height, lanes
from handlers.hub.usage.columns import Shown
from handlers.hub.web.base import Page
from handlers.hub.web.formats import MONEY_CODES, is_upstream_fault
from store.calls.usage_lookup import cost_lines
from store.calls.usage_queries import Filters
from store.calls.usage_stats import stats
from store.hub.sessions import SignedIn
from store.values.fields import Instant
from store.values.ids import DAY_MS, HOUR_MS
from store.values.pricing import format_money, format_multiplier, prices_from_json
from store.values.usage_record import charges_from_json, rfc3339

COST_KINDS = (
    *("input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning", "call"),
)
"""The kinds of tokens in the order of a call's cost."""


@dataclass(frozen=True, slots=True)
class CostLine:
    """A kind of tokens, its price and its amount, in decimal text; None: a price per call."""

    kind: str
    tokens: int
    price: str
    amount: str


def cost_table(row: dict[str, Any]) -> tuple[list[CostLine], str]:
    """Every kind of tokens with its price and amount, also those of which there were none, and
    their sum."""
    if row["prices"] is None or row["usage_source"] == "none":
        return [], "0"
    amounts = {line["class"]: line["amount"] for line in cost_lines(row)}
    prices = prices_from_json(row["prices"])
    decimals = max((len(one.partition(".")[2]) for one in amounts.values()), default=0)
    lines = []
    for name in COST_KINDS:
        tokens = 1 if name == "call" else int(row[f"{name}_tokens"])
        amount = amounts.get(name)
        shown = "0" if amount is None else f"{Decimal(amount):.{decimals}f}"
        lines.append(CostLine(name, tokens, format_money(getattr(prices, name)), shown))
    total = sum((Decimal(one) for one in amounts.values()), Decimal(0))
    return lines, f"{total:.{decimals}f}"


def ended_so(db: peewee.Database, row: Mapping[str, Any], at_ms: int) -> int:
    """How many calls of the same user ended with the same error in the last day."""
    since_ms = at_ms - DAY_MS
    filters = Filters(
        user=row["user"], error_code=row["error_code"], since_ms=since_ms - since_ms % HOUR_MS
    )
    return sum(int(one["calls"]) for one in stats(db, (), filters))


def load(db: peewee.Database, me: SignedIn, call_id: str, at_ms: int) -> tuple[dict[str, Any], int]:
    """A call that a person may see, and how many ended as it did. Raises NotFound."""
    row = call(db, me, call_id)
    return row, ended_so(db, row, at_ms) if row["error_code"] else 0


class CallPage(Page):
    """/usage/ID, also as a drawer over the list."""

    async def get(self, call_id: str) -> None:
        me = self.signed_in
        assert me is not None
        at_ms = time.time_ns() // 1_000_000
        row, others = await self.store(load, me, call_id, at_ms)
        lines, total = cost_table(row)
        words = self.words
        made = lanes(row, words, admin=me.admin)
        self.show(
            "usage/call.html",
            row=row,
            call=Shown(row, words),
            lanes=made,
            axis=axis(row),
            flow=flow(made),
            height=height(made),
            FLOW_UNITS=FLOW_UNITS,
            LATE_PERCENT=LATE_PERCENT,
            admin=me.admin,
            cost_lines=lines,
            cost_sum=total,
            multiplier=_multiplier(row),
            charges=_charges(row),
            refunded_ms=row["refund"] and Instant().parse(row["refund"]["at"]),
            others=others,
            trace_link=_of_trace(row, admin=me.admin),
            others_link=self._others(row, me),
            help_word=_help(row, words),
            of_money=row["error_code"] in MONEY_CODES and row["user"] == me.user,
            theirs=is_upstream_fault(row["outcome"]),
            started=rfc3339(row["started_ms"]).replace("T", " ").replace("Z", " UTC"),
        )

    def _others(self, row: Mapping[str, Any], me: SignedIn) -> str:
        fields = {"error_code": row["error_code"] or "", "since": "24h"}
        if row["user"] != me.user:
            return "/admin/usage?" + urlencode({**fields, "user": row["user"]})
        return "/usage?" + urlencode(fields)


def _of_trace(row: Mapping[str, Any], *, admin: bool) -> str:
    """The calls of the same trace about the time of this one: no index knows traces."""
    begin_ms, end_ms = (row["started_ms"] + ms for ms in (-HOUR_MS, HOUR_MS))
    times = {"since": rfc3339(begin_ms), "until": rfc3339(end_ms)}
    path = "/admin/usage?" if admin else "/usage?"
    return path + urlencode({"trace_id": row["trace_id"] or "", **times})


def _multiplier(row: Mapping[str, Any]) -> str:
    return "1" if row["multiplier_ppm"] is None else format_multiplier(row["multiplier_ppm"])


def _charges(row: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    return [(one.to, format_money(one.amount_nanos)) for one in charges_from_json(row["charges"])]


def _help(row: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """What may help: of the code, else of the outcome."""
    if row["outcome"] == "ok":
        return ""
    ends = {"refused": "do_refused", "client_gone": "do_client_gone"}
    general = words["usage." + ends.get(row["outcome"], "do_failed")]
    return words.get(f"usage.do_{row['error_code']}", general)
