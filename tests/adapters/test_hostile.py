"""Hostile input of clients and vendors, between any two families: it ends in an answer or a fault,
and the same for every cut of a stream."""

import json
import random
from itertools import pairwise

import pytest

from adapters.codecs import CODECS
from adapters.family.codec import Target
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once
from adapters.registry import FAMILIES, FAMILY_NAMES
from tests.adapters import pairs
from tests.adapters.builders import fed
from tests.adapters.mutants import as_json, mutant, spoiled

REQUEST_MUTANTS = 1000  # of each family, each for all families
STREAM_MUTANTS = 1000  # of each pair
ANSWER_MUTANTS = 400
# the last event of a whole stream, and the list with an answer's content
LAST_OF = {
    "chat_completions": b"data: [DONE]",
    "responses": b"response.completed",
    "messages": b"message_stop",
    "generate_content": b'"finishReason":"',
}
PARTS_OF = {
    "chat_completions": "choices",
    "responses": "object",
    "messages": "role",
    "generate_content": "candidates",
}
MODELS = (
    Traits(),
    Traits(openai_extras=True, verbosity=True, audio=True, strict_tools=True),
    Traits(structured="tool", thinking="budget"),
    Traits(thinking="adaptive", system_turns=True, prefill=False),
    Traits(thinking="none", sampling=False, schemas="subset", structured="none"),
)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_mutants_of_requests_are_read_or_a_fault_of_the_client(family):
    chance = random.Random(family)
    read = sent = 0
    for _ in range(REQUEST_MUTANTS):
        body = as_json(spoiled(pairs.REQUESTS[family], chance)).replace(b"\\ud800", b"x")
        try:
            spans = top_level(body)
            assert json.loads(CODECS[family].client.without_foreign(spans, "up"))
            request = at_once(CODECS[family].client.decode_request(spans, True, "m"))
        except Fault as fault:
            assert fault.blame == "client"
            assert fault.param or fault.condition is Condition.INVALID_FIELD
            continue
        read += 1
        for codecs in CODECS.values():
            target = Target("demo", "up", chance.choice(MODELS))
            try:
                steps = codecs.upstream.encode_request(request, target, chance.random() < 0.2)
                json.loads(at_once(steps).body)
            except Fault as fault:
                assert fault.blame == "client" and fault.param
            else:
                sent += 1
    assert REQUEST_MUTANTS / 10 < read < REQUEST_MUTANTS * 0.9
    assert sent > REQUEST_MUTANTS // 4


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_requests_are_sound_before_they_are_spoiled(family):
    request = pairs.decoded(family, pairs.REQUESTS[family])
    assert request.turns and request.tools
    for codecs in CODECS.values():
        target = Target("demo", "up", Traits(openai_extras=True, custom_tools=True))
        assert json.loads(at_once(codecs.upstream.encode_request(request, target, False)).body)


def test_the_name_of_a_result_without_one_is_that_of_its_call():
    part = {"functionResponse": {"response": {"output": "r"}}}
    calls = {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}
    body = {"contents": [{"parts": [{"text": "x"}]}, calls, {"parts": [part]}]}
    assert pairs.decoded("generate_content", body).turns[2].parts[0].name == "f"


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("traits", MODELS)
def test_a_budget_of_thinking_without_bounds_is_sent(family, traits):
    config = {"thinkingConfig": {"thinkingBudget": 10**30}}
    body = {"contents": [{"parts": [{"text": "x"}]}], "generationConfig": config}
    request = pairs.decoded("generate_content", body)
    target = Target("demo", "up", traits)
    assert json.loads(at_once(CODECS[family].upstream.encode_request(request, target, False)).body)


def check_chat_stream(sent):
    """Check the rules of chat completions for a stream that ended well."""
    assert sent.endswith(b"data: [DONE]\n\n")
    finished, arguments = set(), {}
    roles = set()
    for chunk in pairs.data_of(sent):
        assert chunk["choices"] or chunk["usage"]
        for choice in chunk["choices"]:
            index, delta = choice["index"], choice["delta"]
            assert index not in finished
            assert ("role" in delta) == (index not in roles)
            roles.add(index)
            for call in delta.get("tool_calls", ()):
                key = (index, call["index"])
                assert ("id" in call) == (key not in arguments)
                assert key in arguments or call["index"] == len(
                    [other for other in arguments if other[0] == index]
                )
                text = call.get("function", {}).get("arguments", "")
                arguments[key] = arguments.get(key, "") + text
            if choice["finish_reason"]:
                finished.add(index)
    assert finished == roles and all(arguments.values())


def check_responses_stream(sent):
    """Check the rules of responses for a stream that ended well."""
    events = pairs.data_of(sent)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"].split(".")[1] in ("completed", "incomplete", "failed")


def check_messages_stream(sent):
    """Check the rules of messages for a stream that ended well."""
    kinds = [event["type"] for event in pairs.data_of(sent)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop")


def check_generate_content_stream(sent):
    """Check the rules of generate-content for a stream that ended well."""
    chunks = json.loads(sent) if sent.startswith(b"[") else pairs.data_of(sent)
    assert chunks[-1]["candidates"][0]["finishReason"] and chunks[-1]["usageMetadata"]


CHECKS = {
    "chat_completions": check_chat_stream,
    "responses": check_responses_stream,
    "messages": check_messages_stream,
    "generate_content": check_generate_content_stream,
}


@pytest.mark.parametrize(("client", "job", "upstream"), pairs.STREAM_PAIRS)
def test_mutants_of_streams_end_well_or_in_a_fault(client, job, upstream):
    chance = random.Random(client + upstream)
    attempt = pairs.serving(client, upstream, pairs.FRAMINGS[job])
    ends = {True: 0, False: 0}
    for _ in range(STREAM_MUTANTS):
        stream = mutant(chance.choice(pairs.STREAMS[upstream]), chance)
        half = chance.randrange(len(stream) + 1)
        bridge = pairs.opened(client, job, attempt)
        sent = bridge.feed(stream[:half]) + bridge.feed(stream[half:]) + bridge.close()
        whole = bridge.fault is None and bridge.ended
        ends[whole] += 1
        if whole:
            CHECKS[client](sent)
            continue
        fault = bridge.fault or Fault(Condition.UPSTREAM_FAILED)
        assert fault.blame in ("upstream", "gateway", "client")
        assert LAST_OF[client] not in sent
        sent += bridge.encode_fault(fault, "req")
        assert b'"error"' in sent
        if pairs.FRAMINGS[job] == "json_array":
            assert "error" in json.loads(sent)[-1]
    assert min(ends.values()) > STREAM_MUTANTS / 20


@pytest.mark.parametrize(("client", "upstream"), pairs.PAIRS)
def test_mutants_of_answers_are_read_or_a_fault(client, upstream):
    chance = random.Random(client + upstream)
    attempt = pairs.serving(client, upstream)
    operation = FAMILIES[client].client.operations["generate"]
    read = 0
    for _ in range(ANSWER_MUTANTS):
        body = as_json(spoiled(chance.choice(pairs.ANSWERS[upstream]), chance))
        try:
            answer = attempt.read_answer(body, "public", "up", operation)
        except Fault:
            continue
        assert json.loads(answer.body)[PARTS_OF[client]]
        read += 1
    assert ANSWER_MUTANTS / 10 < read < ANSWER_MUTANTS


def sent_of(bridge, pieces):
    return b"".join([*(fed(bridge, piece) for piece in pieces), bridge.close()])


def cuts(stream):
    """Return the stream byte by byte, event by event, and cut at random."""
    chance = random.Random(len(stream))
    yield [stream[at : at + 1] for at in range(len(stream))]
    yield [event + b"\n\n" for event in stream.split(b"\n\n") if event]
    for _ in range(12):
        places = sorted(chance.choices(range(len(stream)), k=chance.randint(1, 9)))
        yield [stream[start:end] for start, end in pairwise([0, *places, len(stream)])]


@pytest.mark.parametrize(("client", "job", "upstream"), pairs.STREAM_PAIRS)
def test_any_cut_gives_the_same(client, job, upstream):
    attempt = pairs.serving(client, upstream, pairs.FRAMINGS[job])
    assert len(pairs.STREAMS[upstream]) > 4
    faults = 0
    for stream in pairs.STREAMS[upstream]:
        bridge = pairs.opened(client, job, attempt)
        whole = sent_of(bridge, [stream])
        assert whole and bridge.ended
        assert bridge.fault is not None or (bridge.whole and bridge.usage and bridge.reported)
        faults += bridge.fault is not None
        for pieces in cuts(stream):
            assert sent_of(pairs.opened(client, job, attempt), pieces) == whole
    assert faults == 1  # the sample of an error


@pytest.mark.parametrize(("client", "job", "upstream"), pairs.STREAM_PAIRS)
def test_a_stream_that_breaks_off_never_looks_whole(client, job, upstream):
    attempt = pairs.serving(client, upstream, pairs.FRAMINGS[job])
    stream = pairs.STREAMS[upstream][0]
    whole = sent_of(pairs.opened(client, job, attempt), [stream])
    for end in range(0, len(stream) * 2 // 3, 7):
        bridge = pairs.opened(client, job, attempt)
        sent = sent_of(bridge, [stream[:end]])
        if bridge.fault is None:
            assert not bridge.ended and whole.startswith(sent)
