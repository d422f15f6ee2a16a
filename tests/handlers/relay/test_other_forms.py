"""Answers in the other form than the requested one: their first bytes decide."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from adapters.codecs import CODECS, REFRAMERS
from adapters.family.codec import AnswerContext, Encoded
from adapters.family.opaque import Origin
from adapters.ir.parts import Reasoning, ToolCall
from adapters.json.structure import at_once
from adapters.large_answers import LARGE_BYTES
from adapters.registry import FAMILIES
from adapters.translate import Translation
from tests.handlers.relay.rig import Calling, channel_at
from tests.support.served import until

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILIES
LOSSES = dict.fromkeys(FAMILIES, 1)
WIRE = Path(__file__).parents[2] / "wire"
EVENTS, OBJECT = "text/event-stream", "application/json"
PAIRS = [(client, upstream) for client in FAMILIES for upstream in FAMILIES]
ASKED = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    RESPONSES: {"input": "Hi", "store": False},
    MESSAGES: {"max_tokens": 500, "messages": [{"role": "user", "content": "Hi"}]},
    GENERATE: {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}

CUT = b'data: {"choices":[{"index":0,"delta":{"content":"He"}}]}\n\n'
ERROR = b'data: {"error":{"message":"busy","type":"server_error"}}\n\n'


@pytest.fixture
def relay(client):
    return Calling(client)


def sample(family, name, *, stream):
    return (WIRE / family / f"{name}.{'sse' if stream else 'json'}").read_bytes()


def answering(body, content_type, *headers):
    """Return the script of a vendor that answers each request with these bytes."""

    async def script(peer, head, request):
        lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers]
        lines += [f"Content-Type: {content_type}"] if content_type else []
        await peer.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return script


async def call_at(relay, client, upstream, family, stream, **fields):
    """Return the head and the body that the client received, and the record."""
    spoken, body = FAMILIES[client], {**ASKED[client], **fields}
    job = "generate"
    if client == GENERATE:
        job = "stream" if stream else job
    else:
        body |= {"model": "m", "stream": stream}
    channel = channel_at(upstream, family=family, losses=LOSSES)
    operation = spoken.client.operations[job]
    sent, record = await relay.call(
        body, (channel,), family=spoken, operation=operation, target="m"
    )
    return dict(sent[0][2]), b"".join(each[-1] for each in sent), record


def said(family, body):
    """Return the choices of a whole answer or a stream, read as the family does."""
    if body[:1] != b"{":
        origin = Origin(family, "mark", b"k" * 32, "user")
        context = AnswerContext("m", "id", 0, 0, include_usage=True)
        reader = Translation(REFRAMERS[family], Encoded(b""), context, origin, ())
        operation = FAMILIES[family].client.operations["generate"]
        body = at_once(reader.reframe(body, "m", operation, 1 << 23, stream=False)).body
    choices = at_once(CODECS[family].upstream.decode_answer(body))
    return [
        ([sketch(part) for part in choice.parts if not isinstance(part, Reasoning)], choice.finish)
        for choice in choices
    ]


def sketch(part):
    if isinstance(part, ToolCall):
        return part.name, json.loads(part.arguments)
    return type(part).__name__, part.text


@pytest.mark.parametrize("name", ["text", "tools_parallel"])
@pytest.mark.parametrize("content_type", [None, "text/plain", EVENTS])
@pytest.mark.parametrize(("speaks", "family"), PAIRS)
async def test_events_where_one_object_was_due(relay, serve, speaks, family, content_type, name):
    upstream = await serve(answering(sample(family, name, stream=True), content_type))
    head, answer, record = await call_at(relay, speaks, upstream, family, stream=False)
    assert head["Content-Type"] == OBJECT and record.outcome == "ok"
    right = await serve(answering(sample(family, name, stream=False), OBJECT))
    _, expected, counted = await call_at(relay, speaks, right, family, stream=False)
    assert said(speaks, answer) == said(speaks, expected) != []
    assert (record.usage, record.usage_source) == (counted.usage, "reported")


@pytest.mark.parametrize("name", ["text", "tools_parallel"])
@pytest.mark.parametrize("content_type", [None, EVENTS, OBJECT])
@pytest.mark.parametrize(("speaks", "family"), PAIRS)
async def test_one_object_where_events_were_due(relay, serve, speaks, family, content_type, name):
    upstream = await serve(answering(sample(family, name, stream=False), content_type))
    head, answer, record = await call_at(relay, speaks, upstream, family, stream=True)
    assert head["Content-Type"] == EVENTS and head["X-Accel-Buffering"] == "no"
    _, expected, counted = await call_at(relay, speaks, upstream, family, stream=False)
    assert answer[:1] != b"{" and said(speaks, answer) == said(speaks, expected) != []
    assert (record.usage, record.usage_source) == (counted.usage, "reported")


@pytest.mark.parametrize("body", [b"data: [DONE]\n\n", b": only a comment\n\n", CUT, ERROR])
async def test_events_that_are_no_answer_fail(relay, serve, body):
    upstream = await serve(answering(body, None))
    for speaks in (CHAT, MESSAGES):
        _, _, record = await call_at(relay, speaks, upstream, CHAT, stream=False)
        assert record.outcome == "upstream_error" and record.cost_nanos == 0


async def test_packed_events_without_a_type(relay, serve):
    packed = gzip.compress(sample(CHAT, "text", stream=True))
    upstream = await serve(answering(packed, None, "Content-Encoding: gzip"))
    for speaks in (CHAT, MESSAGES):
        head, answer, record = await call_at(relay, speaks, upstream, CHAT, stream=True)
        assert head["Content-Type"] == EVENTS and record.outcome == "ok"
        assert said(speaks, answer) == said(CHAT, sample(CHAT, "text", stream=False))


@pytest.mark.parametrize("stream", [True, False])
async def test_an_array_of_what_came_as_one_object_or_as_events(relay, serve, stream):
    upstream = channel_at(
        await serve(answering(sample(GENERATE, "text", stream=stream), None)), family=GENERATE
    )
    family = FAMILIES[GENERATE]
    operation = family.client.operations["stream_array"]
    [(_, _, headers, body)], record = await relay.call(
        ASKED[GENERATE], (upstream,), family=family, operation=operation, target="m"
    )
    assert dict(headers)["Content-Type"] == OBJECT and record.outcome == "ok"
    parts = [
        part for chunk in json.loads(body) for part in chunk["candidates"][0]["content"]["parts"]
    ]
    [([(_, text)], _)] = said(GENERATE, sample(GENERATE, "text", stream=False))
    assert "".join(part["text"] for part in parts) == text


async def test_a_large_answer_is_read_in_steps(relay, serve):
    words = "tea " * (LARGE_BYTES // 2)
    whole = sample(CHAT, "text", stream=False)
    [([(_, text)], _)] = said(CHAT, whole)
    whole = whole.replace(json.dumps(text, ensure_ascii=False).encode(), json.dumps(words).encode())
    upstream = await serve(answering(whole, OBJECT))
    _, answer, record = await call_at(relay, CHAT, upstream, CHAT, stream=True)
    assert said(CHAT, answer) == [([("Text", words)], "stop")] and record.outcome == "ok"
    upstream = await serve(answering(answer, EVENTS))
    _, again, record = await call_at(relay, CHAT, upstream, CHAT, stream=False)
    assert json.loads(again)["choices"][0]["message"]["content"] == words


async def test_one_object_for_a_stream_whose_head_is_out(relay, serve):
    go = asyncio.Event()
    script = answering(sample(CHAT, "text", stream=False), OBJECT)

    async def late(peer, head, body):
        await go.wait()
        await script(peer, head, body)

    upstream = await serve(late)
    call = asyncio.create_task(call_at(relay, CHAT, upstream, CHAT, stream=True))
    await until(lambda: relay.live._streams)
    relay.pass_s(relay.settings.upstream.commit_after_s + 1)
    go.set()
    _, answer, record = await call
    assert answer.startswith(b": keep-alive\ndata: {") and answer.endswith(b"data: [DONE]\n\n")
    assert said(CHAT, answer) == said(CHAT, sample(CHAT, "text", stream=False))
    assert record.outcome == "ok"
