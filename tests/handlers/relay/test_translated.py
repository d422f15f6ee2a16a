"""A call of a family that no channel speaks, through a translation that the relay does not know."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from adapters.registry import FAMILIES, PAIRINGS
from conf.settings import Settings
from handlers.relay.call import Call
from handlers.relay.downstream import Downstream
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Limits
from handlers.relay.live import LiveCalls
from handlers.relay.pipeline import Relay
from store.catalog.catalog import Channel, Group, Model, Snapshot
from store.values.pricing import Prices
from tests.handlers.relay.calls import KEY, a_call
from tests.handlers.relay.rig import Connection
from tests.handlers.relay.toy import BEAT, END, SAY, TOY, TOY_BY_CHAT, piece
from tests.support.served import until

GROUP = Group("gold", 10**6, None, frozenset({"toy"}), False)
MODEL = Model("m", None, None, False, 0, ((0, Prices(0, 0, 0, 0, 0, 0, 0)),))
USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
JSON = ("Content-Type: application/json",)


def event(**fields):
    return b"data: %b\n\n" % json.dumps({"id": "c1", **fields}).encode()


def text(content, **fields):
    return event(choices=[{"index": 0, "delta": {"content": content}, **fields}])


class Journal:
    """Keeps the record of the call."""

    def open_call(self, line):
        self.opened = line

    def mark(self, *args, **fields):
        pass

    def close_call(self, record):
        self.record = record


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """The toy's tables: of families, of pairings, and of who may be asked."""
    monkeypatch.setitem(FAMILIES, "toy", TOY)
    monkeypatch.setitem(PAIRINGS, ("toy", "chat_completions"), TOY_BY_CHAT)
    asked = (("toy", "chat_completions"), ("chat_completions", "chat_completions"))
    monkeypatch.setattr(Channel, "answers", lambda self, family: (family, self.family) in asked)


@pytest.fixture
def relay(client):
    settings, unused = Settings(), SimpleNamespace(call_ended=lambda record: None)
    live, limits = LiveCalls(settings.upstream), Limits(private_cells())
    return Relay(settings, None, None, Journal(), client, live, unused, limits, unused, "node")


def channel(upstream, name="main", priority=0):
    return Channel(
        id=f"id-{name}", name=name, vendor="demo", family="chat_completions", keys=("k",),
        base_url=upstream.url.removesuffix("/v1/test"), groups=frozenset({"gold"}),
        models={"m": "up"}, priority=priority, weight=1, enabled=True,
    )  # fmt: skip


async def relayed(relay, *channels, **fields):
    """The connection of a client that has asked, and the record of its call."""
    snapshot = Snapshot(1, {"gold": GROUP}, {"m": MODEL}, channels)
    call = Call(a_call().arrival, TOY, SAY, KEY, {}, snapshot, group=GROUP)
    connection, body = Connection(), {"toy": "m", "ask": "Who?", **fields}
    await relay.run(call, json.dumps(body).encode(), Downstream(connection, ()))
    return connection.sent, relay.journal.record


async def test_a_whole_answer(relay, serve):
    async def script(peer, head, body):
        message = {"role": "assistant", "content": "Me."}
        answer = {"id": "c1", "model": "up", "choices": [{"message": message}], "usage": USAGE}
        await peer.answer(json.dumps(answer).encode(), headers=JSON)

    upstream = await serve(script)
    [(kind, status, headers, body)], record = await relayed(relay, channel(upstream), most=9)
    assert (kind, status, body) == ("answer", 200, b'{"said": "Me."}')
    assert headers == (("Content-Type", "application/json"),)
    [(head, asked)] = upstream.requests
    assert head.startswith(b"POST /v1/chat/completions ") and b"Bearer k" in head
    asked = json.loads(asked)
    assert (asked["model"], asked["max_tokens"]) == ("up", 9)
    assert asked["messages"] == [{"role": "user", "content": "Who?"}]
    assert (record.outcome, record.call.family, record.upstream_family) == (
        *("ok", "toy", "chat_completions"),
    )
    assert (record.input_tokens, record.output_tokens) == (5, 2)


async def test_a_stream(relay, serve):
    async def script(peer, head, body):
        assert json.loads(body)["stream_options"] == {"include_usage": True}
        await peer.begin_stream()
        for one in (text("M"), b": wait\n\n", text("e", finish_reason="stop")):
            await peer.chunk(one[:5])
            await peer.chunk(one[5:])
        await peer.chunk(event(choices=[], usage=USAGE) + b"data: [DONE]\n\n")
        await peer.end_stream()

    sent, record = await relayed(relay, channel(await serve(script)), live=True)
    assert (sent[0][0], sent[-1][0]) == ("start", "finish")
    assert ("Content-Type", "text/event-stream") in sent[0][2]
    assert b"".join(one[-1] for one in sent) == piece("M") + piece("e") + END
    assert (record.outcome, record.output_tokens) == ("ok", 2)


async def test_a_refusal_and_a_fail_over(relay, serve):
    async def failing(peer, head, body):
        error = {"error": {"message": "busy", "type": "server_error"}}
        await peer.answer(json.dumps(error).encode(), "500 Busy", JSON)

    async def answering(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(text("Me.", finish_reason="stop") + b"data: [DONE]\n\n")
        await peer.end_stream()

    bad, good = await serve(failing), await serve(answering)
    first, second = channel(bad, "first", 1), channel(good, "second")
    sent, record = await relayed(relay, first, second, live=True)
    assert b"".join(one[-1] for one in sent) == piece("Me.") + END
    assert [one.channel for one in record.attempts] == ["first", "second"]
    [(_, status, _, body)], record = await relayed(relay, first)
    assert (status, json.loads(body)) == (418, {"oops": record.error_code})
    assert record.outcome == "upstream_error"


async def test_a_stream_that_breaks_ends_in_the_words_of_the_client(relay, serve):
    beats = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(text("M"))
        await beats.wait()
        peer.reset()

    waiting = asyncio.create_task(relayed(relay, channel(await serve(script)), live=True))
    await until(lambda: any(one.downstream.head_sent for one in relay.live._streams.values()))
    relay.live.sweep(relay.live.now_s + 1)
    relay.live.sweep(relay.live.now_s + relay.settings.upstream.heartbeat_s)
    beats.set()
    sent, record = await waiting
    assert [one[-1] for one in sent[:2]] == [piece("M"), BEAT]
    assert json.loads(sent[-1][-1][6:]) == {"oops": "upstream_error"}
    assert record.outcome == "upstream_truncated" and record.output_tokens > 0
