"""Whatever a vendor or a client sends ends in an answer or a fault, in nothing else."""

import json
import random

from adapters.faults import Fault
from tests.adapters.mutants import mutant, spoiled
from tests.adapters.responses.bridged import BEGUN, CREATE, STREAMS, WIRE, bridged
from tests.adapters.responses.calls import decoded, encoded

ANSWERS = [path.read_bytes() for path in sorted(WIRE.glob("[!e]*.json"))]
MUTANTS = 1500
STREAM_MUTANTS = 4000


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
        said = spoiled(json.loads(chance.choice(ANSWERS)), chance)
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
        said = json.loads(json.dumps(spoiled(body, chance)).replace("\\ud800", "x"))
        try:
            encoded(decoded(said.pop("input", None), False, **said))
        except Fault as fault:
            assert fault.param
