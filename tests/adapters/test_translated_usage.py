"""Translated answers report usage and tier in the client's family: read as an answer of that
family they give the upstream's values, whole and streamed."""

import itertools
import json

import pytest

from adapters.codecs import TRANSLATORS
from adapters.family import UpstreamAnswer
from adapters.family.codec import AnswerContext, Target
from adapters.family.opaque import Origin
from adapters.family.traits import Traits
from adapters.ir.parts import Text, Turn
from adapters.ir.request import Request
from adapters.json.structure import at_once
from adapters.registry import FAMILIES
from store.values.meters import METERS
from store.values.usage import Served
from tests.adapters.builders import fed
from tests.adapters.reports import (
    CHAT,
    GOOGLE,
    MAX_EVENT_BYTES,
    MESSAGES,
    RESPONSES,
    Report,
    bridge_after,
    chat,
    metadata,
    modality,
    read,
    spoken,
    streamed,
    whole,
)

PAIRS = list(itertools.permutations(FAMILIES, 2))
HAS_KINDS = (CHAT, GOOGLE)  # families that report tokens by modality


def heard(audio, cached):
    """Return details of OpenAI's families with audio tokens."""
    return {"audio_tokens": audio, "cached_tokens": cached}


REPORTS = {
    CHAT: Report(
        chat(
            prompt_tokens_details=heard(300, 900),
            completion_tokens_details={"audio_tokens": 100, "image_tokens": 7},
        ),
        {"service_tier": "priority"},
    ),
    RESPONSES: Report(
        spoken(
            input_tokens_details=heard(300, 900), output_tokens_details={"reasoning_tokens": 60}
        ),
        {"service_tier": "flex", "tool_usage": {"image_gen": {"output_tokens": 1000}}},
    ),
    MESSAGES: Report(spoken(cache_read_input_tokens=70, service_tier="batch")),
    GOOGLE: Report(
        metadata(
            cachedContentTokenCount=900,
            promptTokensDetails=modality(AUDIO=300),
            cacheTokensDetails=modality(AUDIO=200),
            candidatesTokensDetails=modality(IMAGE=400),
            trafficType="ON_DEMAND_PRIORITY",
        )
    ),
}


def begun(client: str, upstream: str):
    request = Request(client, False, (Turn("user", (Text("Tea?"),)),))
    context = AnswerContext("m", "CALL", 1, 11, include_usage=True)
    origin, target = Origin(upstream, "x", b"k" * 32, "user"), Target("demo", "m", Traits())
    return at_once(
        TRANSLATORS[client, upstream].begin(request, target, context, origin, count=False)
    )


def translated(client: str, upstream: str, report: Report) -> UpstreamAnswer:
    """Return a translated answer, read as if from an upstream of the client's family."""
    operation = FAMILIES[client].client.operations["generate"]
    body = json.dumps(whole(upstream, report)).encode()
    answer = begun(client, upstream).read_answer(body, "m", "m", operation)
    assert answer.usage == read(upstream, report).usage
    theirs = FAMILIES[client].upstream.operations["generate"]
    return FAMILIES[client].upstream.read_answer(answer.body, "m", "m", theirs)


def translated_stream(client: str, upstream: str, report: Report):
    operations = FAMILIES[client].client.operations
    operation = operations.get("stream", operations["generate"])
    bridge = begun(client, upstream).open_bridge("m", "m", False, operation, MAX_EVENT_BYTES)
    sent = b"".join(fed(bridge, piece) for piece in streamed(upstream, report)) + bridge.close()
    assert bridge.usage == read(upstream, report).usage
    return bridge_after(client, [sent])


def sides(usage) -> dict[str, int]:
    """Return the tokens of a usage by side; those written to a cache count with the input."""
    sums = dict.fromkeys(("input", "cache_read", "output"), 0)
    names = {"cache_write": "input", "cache_write_1h": "input", "reasoning": "output"}
    for name, count in usage.meters.items():
        if side := METERS[name].side:
            sums[names.get(side, side)] += count
    return sums


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_counts_and_tier(client, upstream):
    report = REPORTS[upstream]
    native = read(upstream, report)
    for answer in (
        translated(client, upstream, report),
        translated_stream(client, upstream, report),
    ):
        assert sides(answer.usage) == sides(native.usage)
        assert answer.served == native.served
        if {client, upstream} <= set(HAS_KINDS):
            assert answer.usage.bare() == native.usage.bare()


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_without_a_tier_the_client_reads_the_default_or_none(client, upstream):
    report = Report(REPORTS[upstream].usage)
    if upstream in (MESSAGES, GOOGLE):
        usage = report.usage.copy()
        usage.pop("service_tier", usage.pop("trafficType", None))
        report = Report(usage)
    tier = "default" if client in (RESPONSES, MESSAGES) else ""
    assert translated(client, upstream, report).served == Served(tier)
    assert translated_stream(client, upstream, report).served == Served(tier)


@pytest.mark.parametrize("client", [CHAT, RESPONSES, GOOGLE])
def test_a_fast_answer_has_the_tier_priority(client):
    report = Report(spoken(service_tier="standard", speed="fast"))
    assert translated(client, MESSAGES, report).served == Served("priority")
    assert translated_stream(client, MESSAGES, report).served == Served("priority")
