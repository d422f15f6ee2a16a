"""Home: what is left, what was spent, how the calls of the last day ended, what needs its user;
before the first call, the way to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import peewee

from handlers.hub.overview import figures, first_call, needs, purse
from handlers.hub.overview.figures import Calls, Hour
from handlers.hub.overview.first_call import FirstCall
from handlers.hub.overview.needs import Need
from handlers.hub.overview.purse import Purse
from handlers.hub.overview.status import price
from handlers.hub.web.base import Page
from handlers.hub.web.formats import days_word, failure_reason, shape_of
from handlers.hub.web.parts import At, Column
from store.calls.usage_queries import Row
from store.hub import membership, notices, own_keys
from store.hub.notices import Notice
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.values.ids import HOUR_MS
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

TICK_HOURS = 3
SECONDS_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class View:
    """All that the page shows; either `calls` or, before the first one, `first`."""

    purse: Purse
    keys: Mapping[str, OwnKey]
    calls: Calls | None
    needs: Sequence[Need] = ()
    first: FirstCall | None = None
    notices: Sequence[Notice] = ()


def load(db: peewee.Database, me: SignedIn, base_url: str) -> View:
    """The page of a user. Raises NotFound: there is no such user any more."""
    found = purse.load(db, me)
    at_ms = found.at_ms
    keys = own_keys.owned(db, me.user_id, at_ms)
    by_id, told = {key.id: key for key in keys}, notices.current(db)
    if not figures.has_called(db, me.user):
        groups = membership.groups_of(db, me.user_id, admin=me.admin)
        first = first_call.load(db, keys, groups, base_url, at_ms)
        return View(found, by_id, None, (), first, told)
    calls = figures.load(db, me.user, at_ms)
    return View(found, by_id, calls, needs.needs_of(db, me, keys, base_url, at_ms), None, told)


class Home(Page):
    """The first page after the sign-in."""

    async def get(self) -> None:
        view = await self.store(load, self.signed_in, self.site.base_url)
        values: dict[str, Any] = {
            **{"view": view, "purse": view.purse, "price": price, "nanos": format_money},
            **{
                "days_word": lambda days: days_word(self.words, days),
                "shape_of": shape_of,
                "KEY": first_call.KEY_VARIABLE,
            },
            **{"query": urlencode, "At": At},
        }
        if view.first is not None:
            self.show("overview/first_call.html", **values)
            return
        assert view.calls is not None
        self.show(
            "overview/home.html",
            calls=view.calls,
            columns=[self._column(place, one) for place, one in enumerate(view.calls.hours)],
            why=self._why,
            failed=urlencode({"outcome": ",".join(figures.FAILED), "since": "24h"}),
            rfc3339=rfc3339,
            **values,
        )

    def _why(self, row: Row) -> str | None:
        """Why a call failed, in short; what was sent where there is no code."""
        said = failure_reason(self.words, row["error_code"], row["error_message"])
        return said or row["error_message"]

    def _column(self, place: int, hour: Hour) -> Column:
        """An hour of the chart; every third has its tick, the last one among them."""
        begun = datetime.fromtimestamp(hour.at_ms / SECONDS_PER_MS, UTC)
        title = self.words["home.chart_bar"].format(
            hour=f"{begun:%H:%M}",
            ok=hour.ok,
            refused=hour.refused,
            failed=hour.failed,
            gone=hour.client_gone,
        )
        since, until = rfc3339(hour.at_ms), rfc3339(hour.at_ms + HOUR_MS)
        return Column(
            parts=(hour.ok, hour.refused, hour.failed),
            tick=f"{begun:%H}" if place % TICK_HOURS == 0 else "",
            title=title,
            href="/usage?" + urlencode({"since": since, "until": until}),
            at_ms=hour.at_ms,
        )
