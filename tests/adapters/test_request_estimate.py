"""The estimate of a request's tokens: close to the true count, cheap, and complete."""

import time

import pytest

from adapters.family.estimate import IMAGE_TYPICAL_TOKENS, estimate_tokens
from adapters.ir.parts import Hosted, Media, Reasoning, Refusal, Text, ToolCall, ToolResult, Turn
from adapters.ir.request import Output, Request, Tool
from adapters.json.structure import at_once
from adapters.request_estimate import estimate_request

WORDS = "The tide at Brest is high at five past two, says the log of the harbour. "


def tokens_of(*parts, **fields):
    return at_once(estimate_request(Request("toy", False, (Turn("user", parts),), **fields)))


def test_long_and_short_texts_are_near_the_exact_estimate():
    for times in (1, 10, 200, 3_000):
        text = WORDS * times
        assert tokens_of(Text(text)) == pytest.approx(estimate_tokens(text), rel=0.05, abs=6)


def test_a_long_conversation_is_counted_in_a_blink():
    text, best = WORDS * 10_000, 9.0
    for _ in range(3):
        begun = time.perf_counter()
        tokens_of(Text(text))
        best = min(best, time.perf_counter() - begun)
    assert best < 0.05


@pytest.mark.parametrize(
    "part",
    [
        Text(WORDS),
        Refusal(WORDS),
        Reasoning(WORDS),
        ToolCall("1", "f", WORDS),
        ToolResult("1", (Text(WORDS),), "f"),
        Media("file", "text/plain", WORDS, plain=True),
        Hosted("search", {"query": WORDS}),
    ],
)
def test_every_text_counts(part):
    assert tokens_of(part) - tokens_of() >= estimate_tokens(WORDS)


def test_what_stands_around_the_turns_counts():
    least, schema = estimate_tokens(WORDS), {"type": "object", "title": WORDS}
    assert tokens_of(system=(Text(WORDS),)) - tokens_of() >= least
    assert tokens_of(tools=(Tool("function", "f", WORDS),)) - tokens_of() >= least
    assert tokens_of(tools=(Tool("function", "f", schema=schema),)) - tokens_of() >= least
    assert tokens_of(output=Output("schema", schema)) - tokens_of() >= least


def test_media_count_as_pictures_do():
    picture = Media("image", "image/png", "iVBORw0KGgo" * 10_000)
    assert tokens_of(picture) - tokens_of() == IMAGE_TYPICAL_TOKENS
    inside = ToolResult("1", (picture, Text(WORDS)), "")
    assert tokens_of(inside) - tokens_of() > IMAGE_TYPICAL_TOKENS
