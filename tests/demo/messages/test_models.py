"""What single models of the messages vendor refuse."""

import pytest

from demo.messages.request import read_request
from demo.script.family import Refusal

ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
EFFORT = {"output_config": {"effort": "low"}}
PREFILL = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I"}]}


def read(model, fields):
    body = {"model": model, "max_tokens": 4096, "messages": [{"role": "user", "content": "hi"}]}
    return read_request({**body, **fields}, "2023-06-01", counting=False)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("claude-3-5-haiku", ENABLED),
        ("claude-3-7-sonnet", ADAPTIVE),
        ("claude-opus-4-1", EFFORT),
        ("claude-sonnet-4-5", ADAPTIVE),
        ("claude-opus-4-6", PREFILL),
        ("claude-opus-5", PREFILL),
        ("claude-opus-5", ENABLED),
        ("claude-opus-5", {"temperature": 0.5}),
    ],
)
def test_refused(model, fields):
    with pytest.raises(Refusal):
        read(model, fields)
    assert read("another", fields).model == "another"


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("claude-3-7-sonnet", ENABLED),
        ("claude-sonnet-4-5", ENABLED | EFFORT | {"temperature": 1}),
        ("claude-sonnet-4-5", PREFILL),
        ("claude-opus-4-6", ENABLED),
        ("claude-opus-4-6", {"temperature": 0.5}),
        ("claude-opus-5", ADAPTIVE | EFFORT | {"temperature": 1}),
    ],
)
def test_taken(model, fields):
    assert read(model, fields).model == model
