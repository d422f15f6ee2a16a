"""Answers of all families with usage as their vendors report it, whole and streamed."""

import json
from dataclasses import dataclass, field
from typing import Any

from adapters.bridge import Bridge
from adapters.codecs import PAIRINGS
from adapters.family import UpstreamAnswer
from adapters.registry import FAMILIES
from tests.adapters.builders import fed

CHAT, RESPONSES, MESSAGES, GOOGLE = FAMILIES
MAX_EVENT_BYTES = 1 << 20


@dataclass(frozen=True)
class Report:
    """A vendor's report: its usage object, fields of the answer, output items, fields of the
    candidate; `early`: fields of the answer that only the first events of a stream have."""

    usage: dict[str, Any]
    top: dict[str, Any] = field(default_factory=dict)
    items: tuple[dict[str, Any], ...] = ()
    candidate: dict[str, Any] = field(default_factory=dict)
    early: dict[str, Any] = field(default_factory=dict)


def chat(prompt=1000, completion=500, **fields):
    return {"prompt_tokens": prompt, "completion_tokens": completion, **fields}


def spoken(prompt=1000, completion=500, **fields):
    return {"input_tokens": prompt, "output_tokens": completion, **fields}


def metadata(prompt=1000, output=500, **fields):
    return {"promptTokenCount": prompt, "candidatesTokenCount": output, **fields}


def modality(**counts):
    return [{"modality": kind, "tokenCount": count} for kind, count in counts.items()]


def whole(family: str, report: Report) -> dict[str, Any]:
    usage, top = report.usage, report.top
    if family == CHAT:
        message = {"role": "assistant", "content": "Tea."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "c", "choices": [choice], "usage": usage, **top}
    if family == RESPONSES:
        message = {"type": "message", "content": [{"type": "output_text", "text": "Tea."}]}
        return {"id": "r", "output": [*report.items, message], "usage": usage, **top}
    text = {"type": "text", "text": "Tea."}
    if family == MESSAGES:
        return {"id": "m", "type": "message", "content": [text], "usage": usage, **top}
    content = {"role": "model", "parts": [{"text": "Tea."}]}
    candidate = {"content": content, "index": 0, "finishReason": "STOP", **report.candidate}
    return {"responseId": "g", "candidates": [candidate], "usageMetadata": usage, **top}


def event(data: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def streamed(family: str, report: Report) -> list[bytes]:
    usage, top = report.usage, report.top
    if family == CHAT:
        plain = [{"index": 0, "delta": {"content": text}} for text in ("", "T", "e", "a.")]
        end = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
        return [
            *(event({"id": "c", "choices": [choice], **report.early}) for choice in plain),
            event({"id": "c", "choices": end, **top}),
            event({"id": "c", "choices": [], "usage": usage}),
            b"data: [DONE]\n\n",
        ]
    if family == RESPONSES:
        created = {"id": "r", "output": [], "usage": None, **report.early}
        kinds = [("response.created", {"response": created})]
        kinds += [("response.output_text.delta", {"delta": text}) for text in ("Te", "a.")]
        kinds += [("response.output_item.done", {"item": item}) for item in report.items]
        kinds.append(("response.completed", {"response": whole(family, report)}))
        return [event({"type": kind, **data}, kind) for kind, data in kinds]
    if family == MESSAGES:
        served = {name for name in usage if name in ("service_tier", "speed", "inference_geo")}
        start = {"input_tokens": 7, "output_tokens": 1, **{name: usage[name] for name in served}}
        total = {name: value for name, value in usage.items() if name not in served}
        block = {"type": "text_delta", "text": "Tea."}
        kinds = [
            ("message_start", {"message": {"id": "m", "usage": start}}),
            ("content_block_delta", {"index": 0, "delta": block}),
            ("message_delta", {"delta": {"stop_reason": "end_turn", **top}, "usage": total}),
            ("message_stop", {}),
        ]
        return [event({"type": kind, **data}, kind) for kind, data in kinds]
    answer = whole(family, report)
    (last,) = answer["candidates"]
    parts = [{"content": {"role": "model", "parts": [{"text": t}]}, "index": 0} for t in "Tea."]
    so_far = {**usage, "candidatesTokenCount": 1}
    return [
        *(event({**answer, "candidates": [part], "usageMetadata": so_far}) for part in parts),
        event({**answer, "candidates": [{**last, "content": {"parts": [{"text": ""}]}}]}),
    ]


def read(family: str, report: Report) -> UpstreamAnswer:
    operation = FAMILIES[family].upstream.operations["generate"]
    body = json.dumps(whole(family, report)).encode()
    return FAMILIES[family].upstream.read_answer(body, "m", "m", operation)


def bridge_after(family: str, pieces: list[bytes]) -> Bridge:
    upstream = FAMILIES[family].upstream
    operation = upstream.operations.get("stream", upstream.operations["generate"])
    bridge = PAIRINGS[family, family].open_bridge("m", "m", False, operation, MAX_EVENT_BYTES)
    for piece in pieces:
        fed(bridge, piece)
    bridge.close()
    return bridge
