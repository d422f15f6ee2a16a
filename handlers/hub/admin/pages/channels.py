"""Channels: their list with one opened, tests of its models, switching it."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from handlers.hub.admin.api import channels, objects
from handlers.hub.admin.api.base import MAX_ITEMS, paging_of
from handlers.hub.admin.pages.base import place_of
from handlers.hub.admin.pages.objects import Forms
from handlers.hub.web.base import MAX_DIGITS, Failure
from operations.channel_test import Result
from store.admin.listing import Paging
from store.values.fields import Instant

FILTERS = ("state", "vendor", "group")
_NOT_COPIED = ("draining", "ca_file")  # and what is secret, which no form shows
MAX_TESTS = 24  # of one press; each is a real call

SHAPES = {"available": "ok", "degraded": "warn", "down": "bad", "disabled": "idle"}


def state_of(channel: dict[str, Any]) -> tuple[str, str]:
    """Shape and word of a channel's state."""
    if not channel["enabled"]:
        return "idle", "switched_off"
    if channel["draining"]:
        return "live", "draining"
    state = channel["state"]
    return (SHAPES[state], f"state_{state}") if state else ("none", "no_models")


def counts_of(items: Sequence[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Shape, word and number of the channels in each state, those that need somebody first."""
    counted = Counter(map(state_of, items))
    order = ("bad", "warn", "live", "none", "idle", "ok")
    ranked = sorted(counted, key=lambda state: order.index(state[0]))
    return [(shape, word, counted[shape, word]) for shape, word in ranked]


def query_of(filters: Mapping[str, str], search: str, name: str, value: str = "") -> str:
    """The query of a page with one filter set to a value, or taken away."""
    query = {**filters, "search": search, name: value}
    text = urlencode({one: said for one, said in query.items() if said})
    return f"?{text}" if text else ""


def _fits(channel: dict[str, Any], filters: Mapping[str, str]) -> bool:
    """Whether a channel is in the state, of the vendor, in the group that is looked for."""
    return (
        filters.get("state") in (None, state_of(channel)[1])
        and filters.get("vendor") in (None, channel["vendor"])
        and (filters.get("group") is None or filters["group"] in channel["groups"])
    )


def last_error_of(channel: dict[str, Any]) -> dict[str, Any] | None:
    """The model of a channel that failed last."""
    failed = [one for one in channel["status"] if one["last_error_at"]]
    return max(failed, key=lambda one: str(one["last_error_at"]), default=None)


def keys_of(channel: dict[str, Any]) -> list[dict[str, Any]]:
    """The upstream keys by position, each with why it is put aside, if it is."""
    aside = {one["position"]: one for one in channel["keys_aside"]}
    return [
        {"position": place, "aside": aside.get(place)}
        for place in range(1, len(channel["keys"]) + 1)
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """The channels of a page before its filters, and those that are `shown`."""

    paging: Paging
    filters: Mapping[str, str]
    items: Sequence[dict[str, Any]]
    next: str | None
    shown: list[dict[str, Any]]


class Channels(Forms):
    """Pages with the list of channels."""

    async def list_of(self, opened: str = "", results: list[Result] | None = None) -> None:
        """Answers with the list, one channel opened, with what its test has told; none opened: with
        what a test of all has told."""
        found = await self.found()
        items = found.shown
        if opened and opened not in [one["name"] for one in items]:
            items = [await self.store(objects.one, "channel", opened), *items]
        self.show(
            "admin/channels.html",
            plural="channels",
            items=items,
            next=found.next,
            search=found.paging.search,
            paging=found.paging,
            place=place_of,
            opened=opened,
            results=results,
            filters=found.filters,
            choices={
                "state": list(dict.fromkeys(word for _, word, _ in counts_of(found.items))),
                "vendor": sorted({one["vendor"] for one in found.items}),
                "group": sorted({name for one in found.items for name in one["groups"]}),
            },
            counts=counts_of(items),
            MAX_CHANNELS=channels.MAX_CHANNELS,
            testable=sum(map(channels.testable, items)),
            families={one["name"]: one["family"] for one in (*found.items, *items)},
            narrowed=bool(found.filters),
            query_of=query_of,
            tested_ms=int(time.time() * 1000),
            state_of=state_of,
            last_error_of=last_error_of,
            keys_of=keys_of,
            ms=Instant().parse,
        )

    async def found(self) -> Found:
        """What the query of the page finds."""
        paging = replace(paging_of(self), limit=MAX_ITEMS)
        part = await self.store(objects.page, "channel", paging)
        asked = ((name, self.get_query_argument(name, "")) for name in FILTERS)
        filters = {name: value for name, value in asked if value}
        shown = [one for one in part.items if _fits(one, filters)]
        return Found(paging, filters, part.items, part.next, shown)


class List(Channels):
    """The list; with `?new` the form of a new channel, with `like` filled in as another one is. It
    is sent a new channel, or the wish to test all that it shows."""

    async def get(self) -> None:
        if self.get_query_argument("new", None) is None:
            await self.list_of()
        elif name := self.get_query_argument("like", ""):
            await self._copy(name)
        else:
            await self.form("channels")

    async def post(self) -> None:
        if not self.get_body_argument("test", ""):
            await self.make("channels")
            return
        found = await self.found()
        names = [one["name"] for one in found.shown if channels.testable(one)]
        results = await channels.test_channels(self, names[: channels.MAX_CHANNELS])
        await self.list_of(results=results)

    async def _copy(self, name: str) -> None:
        found = await self.store(objects.one, "channel", name)
        begun = {field: value for field, value in found.items() if field not in _NOT_COPIED}
        note = self.words["admin.copy_note"].format(name=name)
        await self.form("channels", begun={**begun, "name": f"{name}-copy"}, note=note)


class One(Channels):
    """The list with one channel opened."""

    async def get(self, name: str) -> None:
        await self.store(objects.one, "channel", name)
        await self.list_of(name)

    async def post(self, name: str) -> None:
        self.redirect(place_of("channels", name), status=303)


class Test(Channels):
    """Calls each model of a channel, or one of them, and shows what came back."""

    async def get(self, name: str) -> None:
        self.redirect(place_of("channels", name), status=303)

    async def post(self, name: str) -> None:
        channel = await self.store(objects.one, "channel", name)
        asked = self.get_body_argument("model", "")
        models = [asked] if asked else list(channel["models"])[:MAX_TESTS]
        stream = self.get_body_argument("stream", "") == "true"
        await self.list_of(name, await channels.test_models(self, name, models, stream=stream))


class Switch(Channels):
    """Enables, disables or drains a channel; the toast takes it back."""

    async def get(self, name: str, action: str) -> None:
        self.redirect(place_of("channels", name), status=303)

    async def post(self, name: str, action: str) -> None:
        await channels.switch(self, name, action)
        undo = place_of("channels", name, "disable" if action == "enable" else "enable")
        said = {"enable": "enabled", "disable": "disabled", "drain": "draining"}[action]
        self.say(self.words[f"admin.done_{said}"].format(name=name), undo)
        self.redirect(place_of("channels", name), status=303)


class Reinstate(Channels):
    """Uses an upstream key again that was put aside."""

    async def get(self, name: str) -> None:
        self.redirect(place_of("channels", name), status=303)

    async def post(self, name: str) -> None:
        text = self.get_body_argument("key", "")
        position = int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None
        try:
            await channels.reinstate(self, name, position)
        except Failure as failure:
            self.say(failure.message)
        else:
            self.say(self.words["admin.done_reinstated"].format(name=name))
        self.redirect(place_of("channels", name), status=303)
