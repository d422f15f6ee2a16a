"""The list of keys, and the page of one: its usage, its wrong paths, its settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import peewee

from handlers.hub.keys.shown import (
    REVOKED,
    STATES,
    WORKING,
    Wanted,
    in_order,
    misdirected,
    state_of,
)
from handlers.hub.web.base import Page
from handlers.hub.web.parts import Column
from handlers.operations.base_url_check import Diagnosis, diagnose
from store.calls import usage_stats
from store.calls.usage_queries import Filters, Row, history
from store.catalog.wrong_paths import Noticed
from store.channels.figures import percentile
from store.hub import own_keys
from store.hub.key_groups import key_groups
from store.hub.own_keys import OwnKey
from store.values.ids import DAY_MS, now_ms
from store.values.pricing import format_money
from store.values.windows import MONTH, window_at

PAGE_KEYS = 50
SHOWN_CALLS = 10
LEAST_FOR_PERCENTILE = 20
DAYS = 30
MEASURES = ("cost", "calls", "tokens")


class Keys(Page):
    """The list."""

    async def get(self) -> None:
        assert self.signed_in is not None
        at_ms, base_url = now_ms(), self.site.base_url
        everything = await self.store(own_keys.owned, self.signed_in.user_id, at_ms)
        wanted = Wanted(*(self.get_query_argument(n, "") for n in ("search", "state", "group")))
        found = in_order(everything, wanted, at_ms, base_url)
        after = self.get_query_argument("after", "")
        left = [key for key in found if not after or key.id < after]
        shown = await self.store(own_keys.with_use, left[:PAGE_KEYS], at_ms)
        alive = [key for key in everything if key.revoked_ms is None]
        self.show(
            "keys/list.html",
            keys=sorted(shown, key=_last_used, reverse=True),
            state_of=lambda key: state_of(key, at_ms, base_url),
            shapes=STATES,
            working=WORKING,
            wanted=wanted,
            query=self._query,
            groups=sorted({key.group for key in everything if key.group}),
            known=await self.store(key_groups),
            count_alive=len(alive),
            count_revoked=len(everything) - len(alive),
            more=shown[-1].id if len(left) > PAGE_KEYS else "",
            wrong=_misdirected(alive, at_ms, base_url),
            at_ms=at_ms,
            format_money=format_money,
        )

    def _query(self, **changed: str) -> str:
        """The address of the list with other filters."""
        names = ("search", "state", "group")
        fields = {name: self.get_query_argument(name, "") for name in names} | changed
        return "/keys" + _query_of(fields)


def _misdirected(
    keys: Sequence[OwnKey], at_ms: int, base_url: str
) -> list[tuple[OwnKey, Noticed, Diagnosis]]:
    """The keys of clients with a wrong base URL, each with its newest wrong path."""
    return [
        (key, *found)
        for key in keys
        if state_of(key, at_ms, base_url) in WORKING and (found := misdirected(key, base_url))
    ]


def _last_used(key: OwnKey) -> tuple[int, int]:
    return (key.last_use.at_ms if key.last_use else 0, key.created_ms)


def _query_of(fields: dict[str, str]) -> str:
    text = urlencode({name: value for name, value in fields.items() if value})
    return f"?{text}" if text else ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls of a key have come to: sums of this month, by day and model, the newest calls."""

    month: dict[str, Any]
    days: list[dict[str, Any]]
    models: list[dict[str, Any]]
    calls: list[Row]
    first_bytes: Sequence[int]  # a histogram of the month's streams

    @property
    def streams(self) -> int:
        """How many there were."""
        return sum(self.first_bytes)

    def first_byte_ms(self, percent: int) -> int | None:
        """A percentile of the time to the first byte; None of too few streams."""
        enough = self.streams >= LEAST_FOR_PERCENTILE
        return percentile(self.first_bytes, percent) if enough else None


def usage_of(db: peewee.Database, user: str, key_id: str, at_ms: int) -> Usage:
    """The usage of one key of a user, by its roll-ups and its newest calls."""
    first_day, _ = window_at(MONTH, at_ms)
    month_ms = (
        int(datetime.strptime(str(first_day), "%Y%m%d").replace(tzinfo=UTC).timestamp()) * 1000
    )
    of_key = Filters(user=user, key_id=key_id, since_ms=month_ms)
    last_days = Filters(
        user=user, key_id=key_id, since_ms=at_ms - at_ms % DAY_MS - (DAYS - 1) * DAY_MS
    )
    sums = usage_stats.stats(db, (), of_key, usage_stats.Order(first_bytes=True))
    order = usage_stats.Order("cost", SHOWN_CALLS)
    return Usage(
        month=sums[0]
        if sums
        else {"calls": 0, "cost": "0", **dict.fromkeys(usage_stats.CLASSES, 0)},
        days=usage_stats.stats(db, ("day",), last_days),
        models=usage_stats.stats(db, ("model",), of_key, order),
        calls=history(db, Filters(user=user, key_id=key_id), SHOWN_CALLS),
        first_bytes=sums[0]["first_bytes"] if sums else (),
    )


class Key(Page):
    """One key."""

    async def get(self, key_id: str) -> None:
        assert self.signed_in is not None
        me, at_ms, base_url = self.signed_in, now_ms(), self.site.base_url
        key = await self.store(own_keys.show, me.user_id, key_id, at_ms)
        usage = await self.store(usage_of, me.user, key_id, at_ms)
        by = self.get_query_argument("by", MEASURES[0])
        by = by if by in MEASURES else MEASURES[0]
        state = state_of(key, at_ms, base_url)
        self.show(
            "keys/one.html",
            key=key,
            usage=usage,
            state=state,
            shape=STATES[state],
            revoked=state == REVOKED,
            known=await self.store(key_groups),
            by=by,
            measures=MEASURES,
            columns=columns(usage.days, by, at_ms, key.id),
            wrong=[(one, diagnose(one.path, base_url)) for one in key.wrong],
            at_ms=at_ms,
            format_money=format_money,
            success=success(usage.month),
            most=max((Decimal(row["cost"]) for row in usage.models), default=Decimal(0)),
        )


def success(sums: dict[str, Any]) -> float | None:
    """The share of ok among all calls but those whose client left."""
    counted = sums["calls"] - sums["client_gone"]
    return sums["ok"] / counted if counted else None


def columns(days: Sequence[dict[str, Any]], by: str, at_ms: int, key_id: str) -> list[Column]:
    """A column for each of the last DAYS, also for those without a call."""
    found = {row["day"]: row for row in days}
    today = datetime.fromtimestamp(at_ms / 1000, UTC).date()
    made = []
    for back in range(DAYS - 1, -1, -1):
        day = today - timedelta(back)
        row = found.get(day.isoformat())
        value = _value(row, by) if row else 0.0
        since, until = f"{day}T00:00:00Z", f"{day + timedelta(1)}T00:00:00Z"
        href = "/usage?" + urlencode({"key_id": key_id, "since": since, "until": until})
        tick = str(day.day) if back % 2 == (DAYS - 1) % 2 else ""
        told = f"{day}: {row['cost'] if by == 'cost' else f'{value:,.0f}'}" if row else f"{day}: 0"
        made.append(Column((value,), tick, told, href if row else ""))
    return made


def _value(row: dict[str, Any], by: str) -> float:
    if by == "cost":
        return float(row["cost"])
    if by == "calls":
        return float(row["calls"])
    return float(sum(value for name, value in row.items() if name.endswith("_tokens")))
