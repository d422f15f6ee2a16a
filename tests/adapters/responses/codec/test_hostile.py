"""Whatever a vendor or a client sends ends in an answer or a fault, in nothing else."""

import json
import random

from adapters.faults import Fault
from tests.adapters.responses.codec.bridged import BEGUN, CREATE, STREAMS, WIRE, bridged
from tests.adapters.responses.codec.calls import decoded, encoded

ANSWERS = [path.read_bytes() for path in sorted(WIRE.glob("[!e]*.json"))]
MUTANTS = 1500
STREAM_MUTANTS = 4000

ODD = [None, True, 0, -1, 10**30, 1.5, "", "x", "\ud800", [], {}, [[]], [{}], {"type": []}]
ODD += [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}, ["a", 1]]


def mutant(stream: bytes, chance: random.Random) -> bytes:
    """A stream with something wrong in it."""
    events = stream.split(b"\n\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(events))
        way = chance.randrange(6)
        if way == 0:
            del events[at]
            events = events or [b""]
        elif way == 1:
            events.insert(chance.randrange(len(events)), events[at])
        elif way == 2:
            other = chance.randrange(len(events))
            events[at], events[other] = events[other], events[at]
        elif way == 3 and events[at]:
            place = chance.randrange(len(events[at]))
            events[at] = (
                events[at][:place] + bytes([chance.randrange(256)]) + events[at][place + 1 :]
            )
        elif b"data: {" in events[at]:
            head, _, data = events[at].partition(b"data: ")
            try:
                said = json.loads(data)
            except ValueError:
                continue
            spoil(said, chance)
            events[at] = head + b"data: " + json.dumps(said).encode()
    return b"\n\n".join(events)


def spoil(said: object, chance: random.Random) -> None:
    """Put something odd in the place of some value, wherever it stands."""
    while isinstance(said, dict | list) and said:
        key = chance.choice(list(said)) if isinstance(said, dict) else chance.randrange(len(said))
        inner = said[key]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.4:
            if isinstance(said, dict) and chance.random() < 0.3:
                del said[key]
            else:
                said[key] = json.loads(json.dumps(chance.choice(ODD)))
            return
        said = inner


def test_mutants_of_streams_end_well_or_in_a_fault():
    chance = random.Random(16)
    for _ in range(STREAM_MUTANTS):
        stream = mutant(chance.choice(STREAMS), chance)
        sent, bridge = bridged([stream])
        if bridge.fault is None and bridge.ended:
            numbers = [json.loads(line[6:]) for line in sent.split(b"\n") if line[:5] == b"data:"]
            assert [one["sequence_number"] for one in numbers] == list(range(len(numbers)))
            assert numbers[-1]["type"].split(".")[1] in ("completed", "incomplete", "failed")
        else:
            assert b"response.completed" not in sent
        assert isinstance(bridge.fault, Fault | None)


def test_mutants_of_answers_are_read_or_a_fault():
    chance = random.Random(16)
    for _ in range(MUTANTS):
        said = json.loads(chance.choice(ANSWERS))
        for _ in range(chance.randint(1, 4)):
            spoil(said, chance)
        try:
            BEGUN.read_answer(json.dumps(said).encode(), "public", "up", CREATE)
        except Fault:
            continue


def test_mutants_of_requests_are_read_or_a_fault():
    chance = random.Random(16)
    body = {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "x"},
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
                    {"type": "input_file", "file_data": "aGk=", "filename": "a.txt"},
                ],
            },
        ],
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}},
            {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}]},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]},
        "text": {"format": {"type": "json_schema", "name": "t", "schema": {}}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    for _ in range(MUTANTS):
        said = json.loads(json.dumps(body))
        for _ in range(chance.randint(1, 3)):
            spoil(said, chance)
        said = json.loads(json.dumps(said).replace("\\ud800", "x"))
        try:
            encoded(decoded(said.pop("input", None), False, **said))
        except Fault as fault:
            assert fault.param
