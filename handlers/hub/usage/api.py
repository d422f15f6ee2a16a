"""The JSON API of usage: calls, one call, their sums, errors by kind."""

from collections.abc import Sequence
from typing import Any

import peewee

from handlers.hub.usage.asked import Asked, asked, refused
from handlers.hub.usage.listing import READ_AT_MOST
from handlers.hub.usage.shown import public, whole
from handlers.hub.web.base import Api
from store.calls.reading.errors import BY, errors
from store.calls.usage_lookup import find
from store.calls.usage_queries import Filters, Page, page
from store.calls.usage_stats import DIMENSIONS, SORTS, Order, calls_to_read, stats
from store.hub.sessions import SignedIn
from store.money import ledger, wallet
from store.values.errors import NotFound
from store.values.ids import ulid_ms

LIMIT, LIMIT_MAX = 100, 1000
SEARCH_S = 0.2  # for calls of one page; `next` goes on with what is left
LAST_DAY = "24h"  # what errors are of unless a time is given


class ApiUsageBase(Api):
    """What these endpoints share."""

    def query(self) -> dict[str, list[str]]:
        """The query of the request, name by name."""
        return {name: self.get_query_arguments(name) for name in self.request.query_arguments}

    async def asked(self, *others: str, **defaults: str) -> Asked:
        """The filters of the request; `defaults` stand for what it does not say."""
        query = {**{name: [text] for name, text in defaults.items()}, **self.query()}
        me = self.me
        return await self.store(asked, me, query, everybody=me.admin, others=others)

    @property
    def me(self) -> SignedIn:
        """Who asks."""
        assert self.signed_in is not None
        return self.signed_in

    async def require_few(self, by: Sequence[str], filters: Filters) -> None:
        """Refuses sums for which more calls would be read than somebody waits for."""
        if await self.store(calls_to_read, by, filters) > READ_AT_MOST:
            told = f"these sums are made from the calls themselves, of at most {READ_AT_MOST:,}"
            raise refused("since", f"{told}: choose a shorter time, or leave a filter out")

    def cursor(self) -> str | None:
        """The id before which a page begins."""
        after = self.get_query_argument("after", "") or None
        try:
            if after is not None:
                ulid_ms(after)
        except ValueError:
            raise refused("after", "after must be what `next` of a page said") from None
        return after


class ApiUsage(ApiUsageBase):
    """GET /api/usage: calls, the last begun first."""

    async def get(self) -> None:
        limit, after = self.number("limit", LIMIT, LIMIT_MAX), self.cursor()
        wanted = await self.asked("limit", "after")
        found: Page = await self.store(page, wanted.filters, limit, after, SEARCH_S)
        items = [public(row, admin=self.me.admin) for row in found.rows]
        self.answer({"items": items, "next": found.next})


class ApiCall(ApiUsageBase):
    """GET /api/usage/ID, with the lines of its cost."""

    async def get(self, call_id: str) -> None:
        self.answer(whole(await self.store(call, self.me, call_id), admin=self.me.admin))


def call(db: peewee.Database, me: SignedIn, call_id: str) -> dict[str, Any]:
    """The call with an id, also one of its client, or for administrators of its vendor; of a member
    an own one. `refund`: the ledger line that gave its cost back, or None. Raises NotFound."""
    for row in find(db, call_id):
        own = row["user_id"] == me.user_id and call_id in (row["id"], row["client_request_id"])
        if me.admin or own:
            line = wallet.refund_of(db, row["id"])
            return {**row, "refund": None if line is None else ledger.to_public(line)}
    raise NotFound("there is no such call")


class ApiStats(ApiUsageBase):
    """GET /api/usage/stats: sums by day, hour, key_id, model and so on."""

    async def get(self) -> None:
        by = [name for name in self.get_query_argument("by", "day,model").split(",") if name]
        known = [name for name in DIMENSIONS if self.me.admin or name != "channel"]
        for name in by:
            if name not in known or by.count(name) > 1:
                raise refused("by", f"by must name some of these once: {', '.join(known)}")
        sort = self.get_query_argument("sort", "") or None
        if sort not in (None, *SORTS):
            raise refused("sort", f"sort must be one of {', '.join(SORTS)}")
        top = self.number("top", LIMIT_MAX, LIMIT_MAX) if "top" in self.query() else None
        wanted = await self.asked("by", "sort", "top")
        await self.require_few(by, wanted.filters)
        rows = await self.store(stats, by, wanted.filters, Order(sort, top))
        self.answer({"items": rows})


class ApiErrors(ApiUsageBase):
    """GET /api/usage/errors: of the last 24 hours unless a time is given."""

    async def get(self) -> None:
        wanted = await self.asked(**({} if "until" in self.query() else {"since": LAST_DAY}))
        await self.require_few(BY, wanted.filters)
        kinds = await self.store(errors, wanted.filters)
        self.answer({"items": kinds, "next": None})
