"""A small call of the gateway's own, to vendors whose answers cost much work."""

import asyncio
import gzip

import pytest

from conf.settings import UpstreamSettings
from handlers.relay.routing import probe
from handlers.relay.upstream.addressing import Target
from tests.handlers.relay.routing.channels import channel
from tests.handlers.relay.upstream.scripts import answering, streaming

FIRST = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"ready"}}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
LIMITS = UpstreamSettings(allow_private=True)


def target_at(url, *, stream):
    served = channel("c", base_url=url.removesuffix("/v1/test"), models={"m": "m"})
    return Target(served, "m", "k", stream)


@pytest.mark.parametrize("piece", [b"\n", b":\n\n", b"a\n\n"])
async def test_a_packed_stream_leaves_turns_to_others(client, serve, piece):
    body = gzip.compress(FIRST + piece * ((1 << 20) // len(piece)) + LAST)

    upstream, turns = await serve(streaming(body, headers=["Content-Encoding: gzip"])), 0
    called = asyncio.create_task(probe.call(client, target_at(upstream.url, stream=True), LIMITS))
    while not called.done():
        await asyncio.sleep(0)
        turns += 1
    assert called.result().fault is None
    events = 1 if piece != b"a\n\n" else (1 << 20) // 3 // 256
    assert turns > max(events, (1 << 20) // 65_536)


@pytest.mark.parametrize("excess", [-100, 1])
async def test_a_whole_answer_is_bounded(client, serve, excess):
    answer = b'{"id":"c","choices":[{"message":{"content":"ready"}}]}'
    size = probe.MAX_ANSWER_BYTES + excess

    script = answering(answer.ljust(size), headers=["Content-Type: application/json"])
    upstream = await serve(script)
    outcome = await probe.call(client, target_at(upstream.url, stream=False), LIMITS)
    assert outcome.error == ("too_large" if excess > 0 else None)
