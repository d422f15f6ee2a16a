"""What is done with a channel: a test by a real call, switching it, upstream keys put aside."""

from dataclasses import asdict
from http import HTTPStatus

from handlers.hub.admin.api.base import AdminApi, actor_of, edit
from handlers.hub.admin.api.objects import one
from handlers.hub.web.base import Failure, HubHandler
from handlers.operations import channel_test
from store.catalog import keys_aside
from store.db import audit


async def test(
    handler: HubHandler, name: str, model: str | None, *, stream: bool
) -> channel_test.Result:
    """Make a real call through a channel, which the audit log tells. Raises Failure."""
    cipher = handler.site.sealing.cipher
    target = await handler.store(channel_test.target_of, cipher, name, model, stream=stream)
    result = await channel_test.call(target, handler.site.settings.upstream)
    after = {"model": result.model, "status": result.status, "error": result.error}
    act = audit.Act(actor_of(handler), "test", "channel", name, after=after)
    await handler.store(audit.write_alone, act)
    return result


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
        model, stream = given.get("model"), given.get("stream", False)
        if model is not None and not isinstance(model, str):
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "model must be a string", "model")
        if not isinstance(stream, bool):
            told = "stream must be true or false"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "stream")
        result = await test(self, name, model, stream=stream)
        self.answer({"ok": result.error is None, **asdict(result)})


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
