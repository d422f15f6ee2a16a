"""Malformed answers, streams and requests, the same ones in each run."""

import copy
import json
import random
from typing import Any

ODD: list[Any] = [
    *(None, True, 0, -1, 10**30, 1.5, 1e300, float("inf"), "", "x", "\ud800", "{", "AAAA", "STOP"),
    *("data:;base64,!", {"parts": [{"text": 1}]}, {"functionCall": {}}),
    {"functionCall": {"name": "f", "args": {"a": "\ud800"}}},
    *([], {}, [[]], [{}], ["a", 1], {"type": []}, {"id": 7, "name": {}}),
]


def spoiled(said: Any, chance: random.Random, times: int = 3) -> Any:
    """Return a copy in which up to `times` values are odd, missing or duplicated."""
    said = copy.deepcopy(said)
    for _ in range(chance.randint(1, times)):
        _spoil(said, chance)
    return said


def _spoil(said: Any, chance: random.Random) -> None:
    while isinstance(said, dict | list) and said:
        key = chance.choice(list(said)) if isinstance(said, dict) else chance.randrange(len(said))
        inner = said[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.7:
            said = inner
            continue
        way = chance.random()
        if way < 0.2:
            del said[key]
        elif way < 0.3 and isinstance(said, list):
            said.append(copy.deepcopy(inner))
        else:
            said[key] = copy.deepcopy(chance.choice(ODD))
        return


def as_json(value: Any) -> bytes:
    """Encode JSON; infinities become numbers out of range."""
    return json.dumps(value).replace("Infinity", "1e999").encode()


def mutant(stream: bytes, chance: random.Random) -> bytes:
    """Return a stream of events with some of them lost, duplicated, moved, cut, or with odd
    contents."""
    events = stream.split(b"\n\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(events))
        event = events[at]
        way = chance.randrange(8)
        if way == 0 and len(events) > 1:
            del events[at]
        elif way == 1:
            events.insert(chance.randrange(len(events)), event)
        elif way == 2:
            other = chance.randrange(len(events))
            events[at], events[other] = events[other], event
        elif way == 3 and event:
            place = chance.randrange(len(event))
            events[at] = event[:place] + bytes([chance.randrange(256)]) + event[place + 1 :]
        elif way == 4 and event:
            events[at] = event[: chance.randrange(len(event))]
        else:
            events[at] = _spoiled_event(event, chance)
    return b"\n\n".join(events)


def _spoiled_event(event: bytes, chance: random.Random) -> bytes:
    head, mark, data = event.partition(b"data: ")
    try:
        decoded = json.loads(data)
    except ValueError:
        return event
    return head + mark + as_json(spoiled(decoded, chance))
