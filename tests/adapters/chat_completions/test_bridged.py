"""Streams of this family by way of the hub, with this family on both sides: however they are cut,
the same comes out."""

import json

from adapters.chat_completions import CODECS
from adapters.family.codec import Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.json.structure import at_once
from adapters.registry import FAMILIES
from adapters.translate import TranslatedBridge, Translation, Translator
from tests.adapters.builders import fed
from tests.adapters.chat_completions.calls import CONTEXT, WIRE, chunks, decoded

FAMILY = FAMILIES["chat_completions"]
GENERATE = FAMILY.client.operations["generate"]
STREAMS = {path.stem: path.read_bytes() for path in sorted(WIRE.glob("*.sse"))}
TRANSLATOR = Translator(FAMILY, CODECS.client, CODECS.upstream)


def begun(context=CONTEXT, **fields) -> Translation:
    """What serves one attempt of a request with these fields."""
    request = decoded(stream=True, **fields)
    target = Target("openai", "up", Traits())
    origin = Origin("chat_completions", "mark", b"secret", "user")
    return at_once(TRANSLATOR.begin(request, target, context, origin, count=False))


def bridged(pieces, translation=None) -> tuple[bytes, TranslatedBridge]:
    """What is sent of a stream in these pieces, and the bridge behind it."""
    serving = translation or begun()
    bridge = serving.open_bridge("public", "up", False, GENERATE, 1 << 20)
    sent = [fed(bridge, piece) for piece in pieces]
    return b"".join([*sent, bridge.close()]), bridge


def text_of(sent):
    said = [one["choices"][0]["delta"] for one in chunks(sent) if one["choices"]]
    return "".join(delta.get("content") or "" for delta in said)


def test_usage_of_the_upstream_is_what_the_client_sees():
    sent, bridge = bridged([STREAMS["cached_usage"]])
    usage = chunks(sent)[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2600, 150)
    assert bridge.usage is not None and bridge.usage.cache_read_tokens == 2000


def test_most_deltas_are_repeated_and_say_the_same():
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up"}

    def event(text):
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return b"data: %b\n\n" % json.dumps({**head, "choices": [choice]}).encode()

    texts = [f"word{number} " for number in range(50)] + ["é", 'a "quoted" one', "plain", "again"]
    sent, _ = bridged([*map(event, texts), b"data: [DONE]\n\n"])
    assert text_of(sent) == "".join(texts)


def test_stop_sequences_that_the_upstream_does_not_know_end_the_text():
    serving = begun(stop=["A", "B", "C", "D", "cups"])
    sent, _ = bridged([STREAMS["text"]], serving)
    assert text_of(sent) == "Tea is ready: three "
    assert chunks(sent)[-2]["choices"][0]["finish_reason"] == "stop"


def test_a_client_from_before_there_were_tools_gets_its_call():
    serving = begun(functions=[{"name": "get_tide"}])
    assert json.loads(serving.body)["parallel_tool_calls"] is False
    sent, _ = bridged([STREAMS["tools_parallel"]], serving)
    assert b'"function_call":{"name":"get_tide"' in sent and b"tool_calls" not in sent
