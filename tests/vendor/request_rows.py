"""Helpers for tables of requests: changes to a valid request, and the place that the refusal
names."""

import json

import pytest

from tests.vendor.family import Refusal

SCHEMA = {"type": "object"}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
STRICT = {**OPEN, "required": ["a"], "additionalProperties": False}
TEXT = {"type": "text", "text": "t"}
ABSENT = object()


def changed(body, changes):
    """Return a copy of a request with other values at some places: `messages.0.content`."""
    body = json.loads(json.dumps(body))
    for place, value in changes.items():
        *outer, last = (int(part) if part.isdigit() else part for part in place.split("."))
        holder = body
        for part in outer:
            holder = holder[part]
        if value is ABSENT:
            del holder[last]
        else:
            holder[last] = value
    return body


def wrong(place, value, at=None, **more):
    """Return a row: changes, and the place that the refusal names, by default the changed one."""
    return {**more, place: value}, place if at is None else at


def refused_at(read, body):
    with pytest.raises(Refusal) as caught:
        read(body)
    assert caught.value.status == 400
    return ".".join(map(str, caught.value.path))


def user(content="hi"):
    return {"role": "user", "content": content}
