"""Home: what is left, what was spent today, and how the calls of the last day ended."""

import time
from typing import Any, NamedTuple

import peewee

from handlers.hub.web.base import Page
from store.calls import usage_stats
from store.calls.usage_queries import Filters
from store.money import wallet
from store.values.ids import DAY_MS, HOUR_MS
from store.values.pricing import format_money, parse_money


class Figures(NamedTuple):
    """What home shows of one user; money in decimal text."""

    balance: str
    held: str
    spent_today: str
    calls: int
    failed: int
    refused: int
    success: float | None  # percent of all calls but those whose client left; None: no such call


def figures(db: peewee.Database, user: str, now_ms: int) -> Figures:
    """The figures of a user; the day is that of UTC. Raises NotFound: no such user."""
    purse = wallet.show(db, user)
    last_day = Filters(user=user, since_ms=_whole_hour(now_ms - DAY_MS))
    today = Filters(user=user, since_ms=now_ms - now_ms % DAY_MS)
    sums = _one(usage_stats.stats(db, (), last_day))
    counted = sums["calls"] - sums["client_gone"]
    return Figures(
        balance=format_money(purse.balance_nanos),
        held=format_money(purse.held_nanos),
        spent_today=format_money(parse_money(str(_one(usage_stats.stats(db, (), today))["cost"]))),
        calls=sums["calls"],
        failed=sums["failed"],
        refused=sums["refused"],
        success=100 * sums["ok"] / counted if counted else None,
    )


def _whole_hour(at_ms: int) -> int:
    """Roll-ups know hours: the span begins with the next one."""
    return at_ms + (-at_ms) % HOUR_MS


def _one(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return rows[0] if rows else {"calls": 0, "cost": "0", **dict.fromkeys(usage_stats.CLASSES, 0)}


class Home(Page):
    """The first page after the sign-in."""

    async def get(self) -> None:
        assert self.signed_in is not None
        shown = await self.store(figures, self.signed_in.user, int(time.time() * 1000))
        self.show("overview/home.html", figures=shown)
