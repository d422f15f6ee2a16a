"""The list of keys, and the page of one: its usage, its wrong paths, its settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from handlers.hub.keys.shown import (
    REVOKED,
    STATES,
    WORKING,
    Wanted,
    client_of,
    in_order,
    misdirected,
    state_of,
)
from handlers.hub.keys.usage import MEASURES, columns, measure
from handlers.hub.web.base import Page
from operations.base_url_check import Diagnosis, diagnose
from store.calls.reading.sums import key_usage
from store.catalog.wrong_paths import Noticed
from store.hub import own_keys
from store.hub.key_groups import key_groups
from store.hub.own_keys import OwnKey
from store.values.ids import now_ms
from store.values.pricing import format_money

PAGE_KEYS = 50


@dataclass(frozen=True, slots=True)
class Sort:
    """An order of the keys of a page."""

    of: Callable[[OwnKey], tuple[object, ...]]
    greatest_first: bool = False


COLUMNS = ("group", "spent", "models", "last_used", "expires")
"""Those that may be left out, in their order; key and state stay."""

LAST_USED = "last_used"
SORTS: Mapping[str, Sort] = {
    "name": Sort(lambda key: (key.name.casefold(),)),
    "spent": Sort(lambda key: (key.spent_nanos,), greatest_first=True),
    LAST_USED: Sort(
        lambda key: (key.last_use.at_ms if key.last_use else 0, key.created_ms),
        greatest_first=True,
    ),
    "expires": Sort(lambda key: (key.expires_ms is None, key.expires_ms or 0, key.name)),
}


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
        sort = self.get_query_argument("sort", "")
        sort = sort if sort in SORTS else LAST_USED
        self.show(
            "keys/list.html",
            keys=sorted(shown, key=SORTS[sort].of, reverse=SORTS[sort].greatest_first),
            sort=sort,
            columns=COLUMNS,
            hide=[name for name in self.get_query_argument("hide", "").split(",") if name],
            sorts=SORTS,
            state_of=lambda key: state_of(key, at_ms, base_url),
            shapes=STATES,
            working=WORKING,
            wanted=wanted,
            query=self._query,
            groups=sorted({key.group for key in everything if key.group}),
            known=await self.store(key_groups),
            count_alive=len(alive),
            count_found=len(found),
            count_revoked=len(everything) - len(alive),
            more=shown[-1].id if len(left) > PAGE_KEYS else "",
            wrong=_misdirected(alive, at_ms, base_url),
            at_ms=at_ms,
            format_money=format_money,
            client_of=client_of,
        )

    def _query(self, **changed: str) -> str:
        """The address of the list with other filters."""
        names = ("search", "state", "group", "sort", "hide")
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


def _query_of(fields: dict[str, str]) -> str:
    text = urlencode({name: value for name, value in fields.items() if value})
    return f"?{text}" if text else ""


class Key(Page):
    """One key."""

    async def get(self, key_id: str) -> None:
        assert self.signed_in is not None
        me, at_ms, base_url = self.signed_in, now_ms(), self.site.base_url
        key = await self.store(own_keys.show, me.user_id, key_id, at_ms)
        usage = await self.store(key_usage, me.user, key_id, at_ms)
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
            measure=measure,
            columns=columns(usage.days, by, at_ms, key.id),
            wrong=[(one, diagnose(one.path, base_url)) for one in key.wrong],
            at_ms=at_ms,
            format_money=format_money,
            client_of=client_of,
        )
