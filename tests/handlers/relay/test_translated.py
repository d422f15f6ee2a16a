"""Calls of a family that no channel speaks, through translations unknown to the relay."""

import asyncio
import json

import pytest

from adapters.codecs import CODECS, TRANSLATORS
from adapters.registry import FAMILIES
from store.catalog.catalog import Channel
from tests.handlers.relay.rig import Calling
from tests.handlers.relay.rig import channel_at as channel
from tests.handlers.relay.toy import BEAT, COUNT, END, SAY, TOY, TOY_CODECS, TRANSLATIONS, piece
from tests.handlers.relay.upstream.scripts import JSON, refusing, streaming
from tests.handlers.relay.upstream.scripts import answering as answering_with
from tests.support.served import until

USAGE = {"prompt_tokens": 5, "completion_tokens": 2}


def event(**fields):
    return b"data: %b\n\n" % json.dumps({"id": "c1", **fields}).encode()


def text(content, **fields):
    return event(choices=[{"index": 0, "delta": {"content": content}, **fields}])


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """Install the toy in the tables: of families, of translations, and of the channels that may be
    asked."""
    monkeypatch.setitem(FAMILIES, "toy", TOY)
    monkeypatch.setitem(CODECS, "toy", TOY_CODECS)
    for pair, translator in TRANSLATIONS.items():
        monkeypatch.setitem(TRANSLATORS, pair, translator)
    monkeypatch.setattr(Channel, "answers", lambda self, family: family == "toy")


@pytest.fixture
def relay(client):
    return Calling(client, entries=frozenset({"toy"}))


def answer_of(content):
    message = {"role": "assistant", "content": content}
    answer = {"id": "c1", "model": "up", "choices": [{"message": message}], "usage": USAGE}
    return json.dumps(answer).encode()


async def relayed(relay, *channels, operation=SAY, **fields):
    """Make a call; return the client's connection and the record."""
    headers, body = {"anthropic-beta": "b", "openai-beta": "b"}, {"toy": "m", "ask": "Who?"}
    head = {"family": TOY, "operation": operation, "client_headers": headers}
    return await relay.call(body | fields, channels, **head)


async def test_a_whole_answer(relay, serve):
    upstream = await serve(answering_with(answer_of("Me."), headers=JSON))
    [(kind, status, headers, body)], record = await relayed(relay, channel(upstream), most=9)
    assert (kind, status) == ("answer", 200)
    assert json.loads(body) == {"said": "Me.", "used": 5, "model": "m"}
    assert headers == (("Content-Type", "application/json"),)
    [(head, asked)] = upstream.requests
    assert head.startswith(b"POST /v1/chat/completions ") and b"Bearer k" in head
    assert b"beta" not in head
    asked = json.loads(asked)
    assert (asked["model"], asked["max_tokens"]) == ("up", 9)
    assert asked["messages"] == [{"role": "user", "content": "Who?"}]
    assert record.attempts[0].dropped == ()
    families = record.call.family, record.upstream_family
    assert (record.outcome, *families) == ("ok", "toy", "chat_completions")
    assert (record.usage.input_tokens, record.usage.output_tokens) == (5, 2)


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
    assert (record.outcome, record.usage.output_tokens) == ("ok", 2)


async def test_a_refusal_and_a_fail_over(relay, serve):
    bad, good = await serve(refusing("500 Busy", "busy")), await serve(streaming(WHOLE))
    first, second = channel(bad, "first", 1), channel(good, "second")
    sent, record = await relayed(relay, first, second, live=True)
    assert b"".join(one[-1] for one in sent) == piece("Me.") + END
    assert [one.channel for one in record.attempts] == ["first", "second"]
    [(_, status, _, body)], record = await relayed(relay, first)
    assert (status, json.loads(body)["oops"]) == (418, record.error_code)
    assert record.outcome == "upstream_error"


async def test_a_stream_that_breaks_ends_in_the_words_of_the_client(relay, serve):
    beats = asyncio.Event()

    async def script(peer, head, body):
        await peer.begin_stream()
        await peer.chunk(text("M"))
        await beats.wait()
        peer.reset()

    waiting = asyncio.create_task(relayed(relay, channel(await serve(script)), live=True))
    await until(
        lambda: any(one.downstream.connection.head_sent for one in relay.live._streams.values())
    )
    relay.pass_s(1 + relay.settings.upstream.heartbeat_s)
    beats.set()
    sent, record = await waiting
    assert [one[-1] for one in sent[:2]] == [piece("M"), BEAT]
    assert json.loads(sent[-1][-1][6:])["oops"] == "upstream_error"
    assert record.outcome == "upstream_truncated" and record.usage.output_tokens > 0


WHOLE = text("Me.", finish_reason="stop") + event(choices=[], usage=USAGE) + b"data: [DONE]\n\n"


async def answering(peer, head, body):
    """Answer like an upstream of chat completions."""
    live = json.loads(body).get("stream")
    script = streaming(WHOLE) if live else answering_with(answer_of("Me."), headers=JSON)
    await script(peer, head, body)


def seal_of(sent):
    frames = b"".join(one[-1] for one in sent).split(b"\n\n")
    return json.loads(frames[0][6:])["seal"]


def head_of(sent):
    return dict(sent[0][2])


@pytest.mark.parametrize("live", [False, True])
async def test_what_is_left_out_is_told_to_client_and_record(relay, serve, live):
    upstream = channel(await serve(answering))
    sent, record = await relayed(relay, upstream, live=live, wants=["metadata", "stop", "seed"])
    assert head_of(sent)["x-sluice-dropped"] == "wants.metadata, wants.seed"
    assert record.attempts[0].dropped == ("wants.metadata", "wants.seed")
    sent, record = await relayed(relay, upstream, live=live, wants=["stop"])
    assert "x-sluice-dropped" not in head_of(sent) and record.attempts[0].dropped == ()


async def test_what_cannot_be_left_out_is_refused_before_anything_goes_upstream(relay, serve):
    upstream = await serve(answering)
    only = channel(upstream, rpm=5)
    for fields, at in ({"wants": ["n"]}, "wants.n"), ({"ask": "Too much!"}, "ask"):
        for live in False, True:
            [(_, status, _, body)], record = await relayed(relay, only, live=live, **fields)
            assert (status, json.loads(body)) == (418, {"oops": "unsupported_parameter", "at": at})
            assert (record.outcome, record.attempts) == ("refused", ())
            assert record.error_message == f"'{at}' is not supported for model 'm'."
    assert upstream.requests == []
    for _ in range(5):  # its limits were not used
        assert (await relayed(relay, only))[1].outcome == "ok"
    assert (await relayed(relay, only))[1].error_code == "no_channel_available"


async def test_a_channel_that_could_carry_it_is_waited_for(relay, serve):
    good, other = await serve(answering), await serve(answering)
    able = channel(good, "able", family="messages", rpm=1)
    unable = channel(other, "unable", priority=9)
    for _ in range(2):
        _, record = await relayed(relay, able, unable, wants=["n"])
    assert record.error_code == "no_channel_available"
    assert len(good.requests) == 1 and other.requests == []
    _, record = await relayed(relay, able, unable, wants=["video", "n"])
    assert record.error_code == "unsupported_parameter"


async def test_a_request_that_cannot_be_read_is_the_clients_mistake(relay, serve):
    upstream = await serve(answering)
    [(_, _, _, body)], record = await relayed(relay, channel(upstream), ask=5)
    assert json.loads(body) == {"oops": "invalid_type", "at": "ask"}
    assert record.outcome == "refused" and upstream.requests == []


SEALING = streaming(event(choices=[{"index": 0, "delta": {"seal": "s3cret"}}]), WHOLE)


async def test_opaque_state_goes_back_to_its_maker_alone(relay, serve):
    upstream = await serve(SEALING)
    sent, _ = await relayed(relay, channel(upstream), live=True)
    sealed = seal_of(sent)
    assert sealed.startswith("gw1.chat_completions.") and "s3cret" not in sealed
    forged = sealed[:-1] + ("A" if sealed[-1] != "A" else "B")
    for thought in (sealed, forged, "s3cret"):
        await relayed(relay, channel(upstream), live=True, thought=thought)
    await relayed(relay, channel(upstream, "other"), live=True, thought=sealed)
    seals = [json.loads(body).get("seals", []) for _, body in upstream.requests]
    assert seals == [[], ["s3cret"], [], [], []]


async def test_a_refused_thought_is_left_out_and_the_channel_asked_again(relay, serve):
    async def script(peer, head, body):
        if b'"seals"' in body:
            answer = refusing("400 No", "Invalid signature in thinking block")
        else:
            answer = SEALING if len(upstream.requests) == 1 else answering
        await answer(peer, head, body)

    upstream = await serve(script)
    sent, _ = await relayed(relay, channel(upstream), live=True)
    _, record = await relayed(relay, channel(upstream), thought=seal_of(sent))
    assert record.outcome == "ok" and [one.status for one in record.attempts] == [400, 200]
    assert [b'"seals"' in body for _, body in upstream.requests] == [False, True, False]


async def test_usage_is_not_asked_for_where_the_vendor_refuses_the_option(relay, serve):
    async def script(peer, head, body):
        refused = b"stream_options" in body
        answer = refusing("400 No", "unknown field stream_options") if refused else answering
        await answer(peer, head, body)

    sent, record = await relayed(relay, channel(await serve(script)), live=True)
    assert sent[-1][-1].endswith(END) and record.outcome == "ok" and len(record.attempts) == 2


async def test_a_large_answer_and_a_large_request(relay, serve):
    words = "word " * 200_000

    async def script(peer, head, body):
        await peer.answer(answer_of(json.loads(body)["messages"][0]["content"]), headers=JSON)

    [(_, status, _, body)], record = await relayed(relay, channel(await serve(script)), ask=words)
    assert status == 200 and json.loads(body)["said"] == words
    assert (record.outcome, record.usage.output_tokens) == ("ok", 2)


async def test_tokens_are_counted_by_the_upstream_where_it_can(relay, serve):
    upstream = await serve(answering_with(b'{"input_tokens": 7}', headers=JSON))
    chat = await serve(answering)
    both = channel(upstream, family="messages"), channel(chat, "chat", priority=9)
    [(_, status, headers, body)], record = await relayed(relay, *both, operation=COUNT)
    assert (status, json.loads(body)) == (200, {"count": 7}) and chat.requests == []
    assert upstream.requests[0][0].startswith(b"POST /v1/messages/count_tokens ")
    assert "x-token-count" not in dict(headers)
    assert (record.outcome, record.channel, record.cost_nanos) == ("ok", "main", 0)


async def test_tokens_are_estimated_where_no_upstream_counts(relay, serve):
    upstream = await serve(answering)
    ask = "How many words are there in this sentence? " * 20
    for words in (ask, ask * 2_000):
        sent, record = await relayed(relay, channel(upstream), operation=COUNT, ask=words)
        [(_, status, headers, body)] = sent
        assert status == 200 and dict(headers)["x-token-count"] == "estimated"
        assert json.loads(body)["count"] == pytest.approx(10 * words.count("?"), rel=0.15)
        assert (record.outcome, record.channel, record.attempts) == ("ok", None, ())
        assert (record.usage_source, record.cost_nanos) == ("none", 0)
    assert upstream.requests == []
