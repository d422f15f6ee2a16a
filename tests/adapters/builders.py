"""Builders for the tests of all families: slots of a stream, the output of a bridge, faults."""

from collections.abc import Callable
from typing import Any

import pytest

from adapters.bridge import Bridge
from adapters.faults import Condition, Fault
from adapters.ir.answer import Closed, Delta, Event, Opened, Sealed
from adapters.ir.request import Request


def slot(
    number: int, kind: str, *texts: str, seal: str = "", choice: int = 0, **fields: Any
) -> list[Event]:
    """Return the events of one slot: opened, its texts, its seal if any, closed."""
    sealed = [Sealed(number, seal)] if seal else []
    opened = Opened(number, kind, choice, **fields)
    return [opened, *(Delta(number, text) for text in texts), *sealed, Closed(number)]


def fault_of(function: Callable[..., object], *args: Any, **fields: Any) -> Fault:
    """Return the fault that a call raises."""
    with pytest.raises(Fault) as caught:
        function(*args, **fields)
    return caught.value


def refusal_of(
    function: Callable[..., object], *args: Any, **fields: Any
) -> tuple[Condition, str | None]:
    """Return the condition and the parameter of the fault that a call raises."""
    fault = fault_of(function, *args, **fields)
    return fault.condition, fault.param


def features(request: Request) -> dict[str, str]:
    """Return for each feature the path of the last field that asks for it."""
    return {ask.feature: ask.path for ask in request.asks}


def whole_answers(text: str) -> dict[str, tuple[dict[str, Any], tuple[str, str, str]]]:
    """Return whole answers of all families with this text and invalid ids, each with its usage
    field and the names of its two counts."""
    message = {"type": "message", "content": [{"type": "text", "text": text}]}
    tokens = ("usage", "input_tokens", "output_tokens")
    return {
        "chat_completions": (
            {"id": 7, "choices": [{"message": {"content": text}}]},
            ("usage", "prompt_tokens", "completion_tokens"),
        ),
        "responses": ({"id": 7, "output": [message]}, tokens),
        "messages": ({"id": 7, **message}, tokens),
        "generate_content": (
            {"responseId": 7, "candidates": [{"content": {"parts": [{"text": text}]}}]},
            ("usageMetadata", "promptTokenCount", "candidatesTokenCount"),
        ),
    }


def fed(bridge: Bridge, chunk: bytes) -> bytes:
    """Return what a bridge sends for a chunk, fed as the pump does."""
    out = bridge.feed_repeat(chunk) if bridge.aligned else None
    return bridge.feed(chunk) if out is None else out
