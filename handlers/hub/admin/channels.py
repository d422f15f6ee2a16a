"""Channels beyond their fields: the list with one channel opened, tests by real calls, the models
of an upstream, enabling and draining, suspended upstream keys."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from handlers.hub.admin import objects
from handlers.hub.admin.object_forms import vendor_label
from handlers.hub.admin.objects import ObjectForm
from handlers.hub.usage.usage_call import CONDITIONS
from handlers.hub.web.admin import MAX_ITEMS, ActionPage, AdminApi, AdminPage, path_of
from handlers.hub.web.base import MAX_DIGITS, Failure, HubHandler, invalid
from handlers.hub.web.formats import STATE_SHAPES, address, count, entry_names, short_word
from operations import channel_test
from operations.channel_test import MODELS_AT_ONCE, ChannelTest, ModelOffer, UpstreamList
from operations.edits import reinstate_keys
from store.admin import listing
from store.admin.listing import Paging
from store.calls.reading import sums
from store.channels.serving import TRANSLATED
from store.values.fields import Instant

FILTERS = ("state", "vendor", "group")
_NOT_COPIED = ("draining", "ca_file")  # nor are secrets, which no form shows
MAX_MODELS = 24  # in one test on a page; each is a real call
MAX_CHANNELS = 100  # in one test of all channels; each is a real call

_SHAPES_BY_URGENCY = ("bad", "warn", "live", "none", "idle", "ok")


async def test(handler: HubHandler, name: str, model: str | None, *, stream: bool) -> ChannelTest:
    """Make a real call through a channel and write an audit line. Raises Failure."""
    cipher = handler.site.sealing.cipher
    target = await handler.store(channel_test.target_of, cipher, name, model, stream=stream)
    result = await channel_test.call(target, handler.site.settings.upstream)
    await _note(handler, result)
    return result


async def test_models(
    handler: HubHandler, name: str, models: Sequence[str], *, stream: bool
) -> list[ChannelTest]:
    """Test several models of a channel, MODELS_AT_ONCE at a time. Raises Failure."""
    gate = asyncio.Semaphore(MODELS_AT_ONCE)

    async def test_model(model: str) -> ChannelTest:
        async with gate:
            return await test(handler, name, model, stream=stream)

    return list(await asyncio.gather(*map(test_model, models)))


async def test_channels(
    handler: HubHandler, names: Sequence[str], *, stream: bool = False
) -> list[ChannelTest]:
    """Test the first model of each channel; failed tests come first. Raises Failure."""
    cipher = handler.site.sealing.cipher
    targets = await handler.store(channel_test.targets_of, cipher, names, stream=stream)
    results = await channel_test.call_each(targets, handler.site.settings.upstream)
    for result in results:
        await _note(handler, result)
    return sorted(results, key=lambda result: result.error is None)


def testable(channel: Mapping[str, Any]) -> bool:
    """Return whether a test of all channels includes this one."""
    return bool(channel["enabled"] and channel["models"])


async def _note(handler: HubHandler, result: ChannelTest) -> None:
    outcome = {"model": result.model, "status": result.status, "error": result.error}
    await handler.note("test", "channel", result.channel, **outcome)


async def list_models(handler: HubHandler, name: str) -> tuple[UpstreamList, list[ModelOffer]]:
    """Return the models that a channel's upstream lists, and how they are used here. Raises
    Failure."""
    channel = await handler.store(channel_test.load_channel, handler.site.sealing.cipher, name)
    listed = await channel_test.list_upstream_models(channel, handler.site.settings.upstream)
    currency = handler.site.settings.money.currency
    return listed, await handler.store(channel_test.offers_of, channel, listed.names, currency)


async def switch(handler: AdminApi | AdminPage, name: str, action: str) -> None:
    """Enable, disable or drain a channel. Raises Failure."""
    if action == "drain":
        await handler.edit(lambda it: it.drain(name))
    else:
        await handler.edit(lambda it: it.set_enabled("channel", name, action == "enable"))


class ChannelTestApi(AdminApi):
    """POST /api/admin/channels/NAME/test."""

    async def post(self, name: str) -> None:
        body = self.fields("model", "stream")
        model = body.get("model")
        if model is not None and not isinstance(model, str):
            raise invalid("model", "model must be a string")
        result = await test(self, name, model, stream=self.flag(body, "stream"))
        self.answer(channel_test.to_plain(result))


class TestAllApi(AdminApi):
    """POST /api/admin/channel-tests."""

    async def post(self) -> None:
        body = self.fields("channels", "stream")
        names = body.get("channels")
        if names is None:
            part = await self.store(listing.list_page, "channel", Paging(MAX_ITEMS))
            names = [channel["name"] for channel in part.items if testable(channel)]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise invalid("channels", "channels must be a list of names")
        if len(names) > MAX_CHANNELS:
            raise invalid("channels", f"more than {MAX_CHANNELS} channels: name those to test")
        results = await test_channels(self, names, stream=self.flag(body, "stream"))
        self.answer_list([channel_test.to_plain(result) for result in results])


class UpstreamModelsApi(AdminApi):
    """GET /api/admin/channels/NAME/upstream-models."""

    async def get(self, name: str) -> None:
        upstream_list, offers = await list_models(self, name)
        status, error = upstream_list.status, upstream_list.error
        head = {"ok": error is None, "status": status, "error": error}
        self.answer({**head, "items": [asdict(offer) for offer in offers], "next": None})


class SwitchChannelApi(AdminApi):
    """POST /api/admin/channels/NAME/enable, /disable, /drain."""

    async def post(self, name: str, action: str) -> None:
        self.fields()
        await switch(self, name, action)
        self.answer(await self.store(objects.load, "channel", name))


class ReinstateApi(AdminApi):
    """POST /api/admin/channels/NAME/reinstate."""

    async def post(self, name: str) -> None:
        position = self.fields("key").get("key")
        if position is not None and (isinstance(position, bool) or not isinstance(position, int)):
            raise invalid("key", "key must be the position of an upstream key, from 1")
        count = await self.store(reinstate_keys, name, position, self.me.user)
        self.answer({"channel": name, "reinstated": count})


def _label_of(words: Mapping[str, str], chip: str, value: str) -> str:
    """Return a value of a filter in the language of `words`."""
    if chip == "vendor":
        return vendor_label(words, value)
    return words.get(f"admin.{value}", value) if chip == "state" else value


def state_of(channel: dict[str, Any]) -> tuple[str, str]:
    """Return the shape and the word for a channel's state."""
    if not channel["enabled"]:
        return "idle", "switched_off"
    if channel["draining"]:
        return "live", "draining"
    state = channel["state"]
    return (STATE_SHAPES[state], f"state_{state}") if state else ("none", "no_models")


def counts_of(channels: Sequence[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Return shape, word and number of the channels in each state, most urgent first."""
    counts = Counter(map(state_of, channels))
    ranked = sorted(counts, key=lambda state: _SHAPES_BY_URGENCY.index(state[0]))
    return [(shape, word, counts[shape, word]) for shape, word in ranked]


def query_of(filters: Mapping[str, str], search: str, name: str, value: str = "") -> str:
    """Return the query of a page with one filter set to a value, or removed."""
    return address("", **{**filters, "search": search, name: value})


def _fits(channel: dict[str, Any], filters: Mapping[str, str]) -> bool:
    """Return whether a channel has the state, the vendor and the group of the filters."""
    return (
        filters.get("state") in (None, state_of(channel)[1])
        and filters.get("vendor") in (None, channel["vendor"])
        and (filters.get("group") is None or filters["group"] in channel["groups"])
    )


def failure_word(words: Mapping[str, str], code: str | None) -> str | None:
    """Return the short text for an attempt's error, or None without one."""
    return short_word(words, CONDITIONS.get(code or "", code))


def entry_words(words: Mapping[str, str], entry: str, way: str) -> str:
    """Return the text for an entry of a channel, with the family that calls are translated to."""
    name, family = entry_names(words, [entry]), way.removeprefix(TRANSLATED)
    if family == way:
        return words["try.native"].format(entry=name)
    return words["status.translated"].format(entry=name, family=entry_names(words, [family]))


def limit_words(words: Mapping[str, str], limit: str, value: int) -> str:
    """Return the text for a limit of a channel or of each of its upstream keys."""
    own = limit.removeprefix("key_")
    text = words[f"users.limit_{own}"].format(count=count(value))
    return text if own == limit else words["admin.limit_of_key"].format(limit=text)


def last_error_of(channel: dict[str, Any]) -> dict[str, Any] | None:
    """Return the status of the model whose calls failed last."""
    failed = [status for status in channel["status"] if status["last_error_at"]]
    return max(failed, key=lambda status: str(status["last_error_at"]), default=None)


def keys_of(channel: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the upstream keys by position, each with its suspension, if any."""
    suspensions = {key["position"]: key for key in channel["keys_aside"]}
    return [
        {"position": position, "suspension": suspensions.get(position)}
        for position in range(1, len(channel["keys"]) + 1)
    ]


@dataclass(frozen=True, slots=True)
class ChannelSelection:
    """The channels that match a search, and in `selected` those that also match the filters."""

    paging: Paging
    filters: Mapping[str, str]
    channels: Sequence[dict[str, Any]]
    next: str | None
    selected: list[dict[str, Any]]


class ChannelPage(ObjectForm):
    """A page with the list of channels."""

    async def show_channels(
        self, opened: str = "", results: list[ChannelTest] | None = None
    ) -> None:
        """Render the list, with one channel opened and the results of its test or, without an
        opened channel, of a test of all."""
        selection = await self.selection()
        channels = selection.selected
        if opened and opened not in [channel["name"] for channel in channels]:
            channels = [await self.store(objects.load, "channel", opened), *channels]
        margins = await self.store(sums.margins, "model", opened) if opened else {}
        everything = (*selection.channels, *channels)
        self.show(
            "admin/channels.html",
            plural="channels",
            items=channels,
            next=selection.next,
            search=selection.paging.search,
            paging=selection.paging,
            opened=opened,
            margins=margins,
            results=results,
            filters=selection.filters,
            choices={
                "state": list(dict.fromkeys(word for _, word, _ in counts_of(selection.channels))),
                "vendor": sorted({channel["vendor"] for channel in selection.channels}),
                "group": sorted({name for row in selection.channels for name in row["groups"]}),
            },
            counts=counts_of(channels),
            MAX_CHANNELS=MAX_CHANNELS,
            testable=sum(map(testable, channels)),
            families={channel["name"]: channel["family"] for channel in everything},
            narrowed=bool(selection.filters),
            label_of=partial(_label_of, self.words),
            query_of=query_of,
            tested_ms=int(time.time() * 1000),
            state_of=state_of,
            last_error_of=last_error_of,
            failure_word=failure_word,
            entry_words=entry_words,
            limit_words=limit_words,
            STATE_SHAPES=STATE_SHAPES,
            keys_of=keys_of,
            ms=Instant().parse,
        )

    async def selection(self) -> ChannelSelection:
        """Return the channels that the page's query selects."""
        paging = replace(self.paging(), limit=MAX_ITEMS)
        part = await self.store(objects.load_page, "channel", paging)
        arguments = {name: self.get_query_argument(name, "") for name in FILTERS}
        filters = {name: value for name, value in arguments.items() if value}
        selected = [channel for channel in part.items if _fits(channel, filters)]
        return ChannelSelection(paging, filters, part.items, part.next, selected)


class ChannelListPage(ChannelPage):
    """The list. With `?new` and `like`, the form of a copy, which a POST creates; with `?new`
    alone, a redirect to the steps for a new channel. A POST can also test all channels in the
    list."""

    async def get(self) -> None:
        if self.get_query_argument("new", None) is None:
            await self.show_channels()
        elif name := self.get_query_argument("like", ""):
            await self._copy(name)
        else:
            self.redirect(path_of("channels", "new"), status=303)

    async def post(self) -> None:
        if not self.get_body_argument("test", ""):
            await self.create_submitted("channels")
            return
        selection = await self.selection()
        names = [channel["name"] for channel in selection.selected if testable(channel)]
        await self.show_channels(results=await test_channels(self, names[:MAX_CHANNELS]))

    async def _copy(self, name: str) -> None:
        channel = await self.store(objects.load, "channel", name)
        copy = {field: value for field, value in channel.items() if field not in _NOT_COPIED}
        note = self.words["admin.copy_note"].format(name=name)
        await self.form("channels", defaults={**copy, "name": f"{name}-copy"}, note=note)


class ChannelAction(ActionPage):
    """The target of a form in the list of channels."""

    plural, of_object = "channels", True


class OpenChannelPage(ChannelPage):
    """The list with one channel opened."""

    async def get(self, name: str) -> None:
        await self.store(objects.load, "channel", name)
        await self.show_channels(name)

    async def post(self, name: str) -> None:
        self.redirect(path_of("channels", name), status=303)


class ChannelTestPage(ChannelAction, ChannelPage):
    """Tests each model of a channel, or one of them, and shows the results."""

    async def post(self, name: str) -> None:
        channel = await self.store(objects.load, "channel", name)
        model = self.get_body_argument("model", "")
        models = [model] if model else list(channel["models"])[:MAX_MODELS]
        stream = self.get_body_argument("stream", "") == "true"
        await self.show_channels(name, await test_models(self, name, models, stream=stream))


class SwitchChannelPage(ChannelAction):
    """Enables, disables or drains a channel. The toast has an Undo."""

    async def post(self, name: str, action: str) -> None:
        await switch(self, name, action)
        undo = path_of("channels", name, "disable" if action == "enable" else "enable")
        word = {"enable": "enabled", "disable": "disabled", "drain": "draining"}[action]
        self.done(f"done_{word}", self.back(name), undo, name=name)


class ReinstatePage(ChannelAction):
    """Ends the suspension of an upstream key."""

    async def post(self, name: str) -> None:
        text = self.get_body_argument("key", "")
        position = int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None
        try:
            await self.store(reinstate_keys, name, position, self.me.user)
        except Failure as failure:
            self.say(self.in_words(failure.message))
            self.redirect(self.back(name), status=303)
        else:
            self.done("done_reinstated", self.back(name), name=name)


class UpstreamModelsPage(AdminPage):
    """The models that a channel's upstream lists. Chosen ones are added to the channel."""

    async def get(self, name: str) -> None:
        await self._page(name)

    async def post(self, name: str) -> None:
        chosen = self.get_body_arguments("models")
        channel = await self.store(objects.load, "channel", name)
        try:
            entries = await self.store(channel_test.with_models, channel, chosen)
            await self.edit(lambda it: it.apply(entries))
        except Failure as failure:
            await self._page(name, failure)
            return
        added = len({*chosen} - channel["models"].keys())
        self.done("done_models", path_of("channels", name), name=name, count=added)

    async def _page(self, name: str, failure: Failure | None = None) -> None:
        if failure is not None:
            self.set_status(failure.status_code)
        upstream_list, offers = await list_models(self, name)
        self.show(
            "admin/upstream_models.html",
            name=name,
            upstream_list=upstream_list,
            offers=offers,
            chosen=self.get_body_arguments("models"),
            problem=self.in_words(failure.message) if failure else "",
            action=path_of("channels", name, "models"),
            back=path_of("channels", name),
        )
