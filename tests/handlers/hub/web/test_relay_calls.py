"""Calls of the Hub to the relay of its node."""

import asyncio
from types import SimpleNamespace

from conf.settings import ServerSettings
from handlers.hub.web.relay_calls import AnswerText, RelayCall
from operations.client_settings import SampleRequest
from store.values.grants import GrantMaker


async def test_a_call_that_was_stopped_while_it_connected_is_not_sent():
    sent = []

    async def take(reader, writer):
        sent.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        settings = ServerSettings(port=server.sockets[0].getsockname()[1])
        site = SimpleNamespace(
            settings=SimpleNamespace(server=settings), grants=GrantMaker(["secret"], "run")
        )
        me = SimpleNamespace(session_id="session")
        handler = SimpleNamespace(site=site, me=me, address="127.0.0.1")
        call = RelayCall(handler, "key", "agent")
        call.stop()
        request = SampleRequest("/v1/chat/completions", {}, {"model": "m"})
        answer = await call.run(request, AnswerText("chat_completions"))
        assert answer.status is None and answer.error
        await asyncio.sleep(0.05)
    assert b"".join(sent) == b""
