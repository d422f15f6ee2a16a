"""What is done with a channel: a test by a real call, the list of its upstream's models, switching
it, upstream keys put aside."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from handlers.hub.admin.api.base import MAX_ITEMS, AdminApi, actor_of, edit
from handlers.hub.admin.api.objects import one
from handlers.hub.web.base import Failure, HubHandler
from operations import channel_test, upstream_models
from operations.channel_test import Result
from operations.upstream_models import Asked, Offer
from store.admin import listing
from store.admin.listing import Paging
from store.catalog import keys_aside

MODELS_AT_ONCE = 4  # of one channel, in a test of its models
MAX_CHANNELS = 100  # of one such test; each is a real call


async def test(handler: HubHandler, name: str, model: str | None, *, stream: bool) -> Result:
    """Make a real call through a channel, which the audit log tells. Raises Failure."""
    cipher = handler.site.sealing.cipher
    target = await handler.store(channel_test.target_of, cipher, name, model, stream=stream)
    result = await channel_test.call(target, handler.site.settings.upstream)
    await _note(handler, result)
    return result


async def test_models(
    handler: HubHandler, name: str, models: Sequence[str], *, stream: bool
) -> list[Result]:
    """The same for several models of a channel, MODELS_AT_ONCE at a time. Raises Failure."""
    gate = asyncio.Semaphore(MODELS_AT_ONCE)

    async def one(model: str) -> Result:
        async with gate:
            return await test(handler, name, model, stream=stream)

    return list(await asyncio.gather(*map(one, models)))


async def test_channels(
    handler: HubHandler, names: Sequence[str], *, stream: bool = False
) -> list[Result]:
    """The same for the first model of each of some channels; those that failed come first. Raises
    Failure."""
    cipher = handler.site.sealing.cipher
    targets = await handler.store(channel_test.targets_of, cipher, names, stream=stream)
    results = await channel_test.call_each(targets, handler.site.settings.upstream)
    for result in results:
        await _note(handler, result)
    return sorted(results, key=lambda result: result.error is None)


def testable(channel: Mapping[str, Any]) -> bool:
    """Whether a test of all channels calls this one."""
    return bool(channel["enabled"] and channel["models"])


async def _note(handler: HubHandler, result: Result) -> None:
    told = {"model": result.model, "status": result.status, "error": result.error}
    await handler.note("test", "channel", result.channel, **told)


async def list_models(handler: HubHandler, name: str) -> tuple[Asked, list[Offer]]:
    """What the upstream of a channel lists, and what of it is here. Raises Failure."""
    channel = await handler.store(channel_test.opened, handler.site.sealing.cipher, name)
    asked = await upstream_models.ask(channel, handler.site.settings.upstream)
    return asked, await handler.store(upstream_models.offers, channel, asked.names)


async def switch(handler: HubHandler, name: str, action: str) -> None:
    """Enable, disable or drain a channel. Raises Failure."""
    if action == "drain":
        await edit(handler, lambda it: it.drain(name))
    else:
        await edit(handler, lambda it: it.set_enabled("channel", name, action == "enable"))


async def reinstate(handler: HubHandler, name: str, position: int | None) -> int:
    """Use upstream keys again that were put aside; how many. Raises Failure."""
    channel = await handler.store(one, "channel", name)
    return await handler.store(keys_aside.reinstate, channel, position, actor_of(handler))


class Test(AdminApi):
    """POST /api/admin/channels/NAME/test."""

    async def post(self, name: str) -> None:
        given = self.body()
        self.known(given, "model", "stream")
        model = given.get("model")
        if model is not None and not isinstance(model, str):
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "model must be a string", "model")
        result = await test(self, name, model, stream=self.flag(given, "stream"))
        self.answer(_public(result))


class TestAll(AdminApi):
    """POST /api/admin/channel-tests."""

    async def post(self) -> None:
        given = self.body()
        self.known(given, "channels", "stream")
        names = given.get("channels")
        if names is None:
            found = await self.store(listing.page, "channel", Paging(MAX_ITEMS))
            names = [channel["name"] for channel in found.items if testable(channel)]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            told = "channels must be a list of names"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "channels")
        if len(names) > MAX_CHANNELS:
            told = f"more than {MAX_CHANNELS} channels: name those to test"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "channels")
        results = await test_channels(self, names, stream=self.flag(given, "stream"))
        self.answer({"items": [_public(result) for result in results], "next": None})


def _public(result: Result) -> dict[str, Any]:
    return {"ok": result.error is None, **asdict(result)}


class Models(AdminApi):
    """GET /api/admin/channels/NAME/upstream-models."""

    async def get(self, name: str) -> None:
        asked, offers = await list_models(self, name)
        self.answer(
            {
                "ok": asked.error is None,
                "status": asked.status,
                "error": asked.error,
                "items": [asdict(offer) for offer in offers],
                "next": None,
            }
        )


class Switch(AdminApi):
    """POST /api/admin/channels/NAME/enable, /disable, /drain."""

    async def post(self, name: str, action: str) -> None:
        self.known(self.body())
        await switch(self, name, action)
        self.answer(await self.store(one, "channel", name))


class Reinstate(AdminApi):
    """POST /api/admin/channels/NAME/reinstate."""

    async def post(self, name: str) -> None:
        given = self.body()
        self.known(given, "key")
        position = given.get("key")
        if position is not None and (isinstance(position, bool) or not isinstance(position, int)):
            told = "key must be the position of an upstream key, from 1"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "key")
        self.answer({"channel": name, "reinstated": await reinstate(self, name, position)})
