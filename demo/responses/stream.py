"""The stream of the responses vendor: the events of one response, in their order.

Created and in progress, each item from added to done, one terminal event with the whole response;
sequence numbers from 0 without a gap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from demo.script.directives import Script
from demo.script.family import Ask, Refusal, Said

PADDED_CHARACTERS = 16


def encode_event(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    data = text.encode("utf-8", "replace")
    return b"event: %s\ndata: %s\n\n" % (value["type"].encode(), data)


def decode_event(data: bytes) -> dict[str, Any]:
    """The value of an event as `encode_event` or a sample file has written it."""
    for line in data.splitlines():
        if line.startswith(b"data:"):
            found: dict[str, Any] = json.loads(line.removeprefix(b"data:"))
            return found
    return {}


class EventStream:
    """Writes the events of one response: `body`, then `end`, each once."""

    def __init__(self, ask: Ask, said: Said, script: Script) -> None:
        self._said = said
        self._script = script
        self._queued = bool(ask.body.get("background"))
        options = ask.body.get("stream_options") or {}
        self._padded = options.get("include_obfuscation") is True
        self._number = 0

    def body(self, opened: dict[str, Any], output: list[dict[str, Any]]) -> Iterator[bytes]:
        yield self._event("created", response=opened)
        if self._queued:
            yield self._event("queued", response={**opened, "status": "queued"})
        yield self._event("in_progress", response=opened)
        for index, item in enumerate(output):
            yield self._event("output_item.added", output_index=index, item=_shell(item))
            yield from self._inside(item, {"item_id": item["id"], "output_index": index})
            yield self._event("output_item.done", output_index=index, item=item)

    def end(self, finished: dict[str, Any]) -> Iterator[bytes]:
        if not self._script.no_done:
            for _ in range(2 if self._script.usage == "repeated" else 1):
                yield self._event(finished["status"], response=finished)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return encode_event({"type": f"response.{kind}", **fields, "sequence_number": number})

    def _inside(self, item: dict[str, Any], place: dict[str, Any]) -> Iterator[bytes]:
        if item["type"] == "message":
            yield from self._message(item["content"][0], {**place, "content_index": 0})
        elif item["type"] == "reasoning":
            for part in item["summary"]:
                yield from self._summary(part, {**place, "summary_index": 0})
        elif item["type"] == "function_call":
            yield from self._call("function_call_arguments", "arguments", item, place)
        else:
            yield from self._call("custom_tool_call_input", "input", item, place)

    def _message(self, part: dict[str, Any], place: dict[str, Any]) -> Iterator[bytes]:
        name = "refusal" if part["type"] == "refusal" else "text"
        extra: dict[str, Any] = {} if name == "refusal" else {"logprobs": []}
        yield self._event("content_part.added", part={**part, name: ""}, **place)
        yield from self._deltas(part["type"], self._said.pieces, {**extra, **place})
        yield self._event(f"{part['type']}.done", **{name: part[name]}, **extra, **place)
        yield self._event("content_part.done", part=part, **place)

    def _summary(self, part: dict[str, Any], place: dict[str, Any]) -> Iterator[bytes]:
        yield self._event("reasoning_summary_part.added", part={**part, "text": ""}, **place)
        yield from self._deltas("reasoning_summary_text", self._said.thoughts, place)
        yield self._event("reasoning_summary_text.done", text=part["text"], **place)
        yield self._event("reasoning_summary_part.done", part=part, **place)

    def _call(
        self, kind: str, name: str, item: dict[str, Any], place: dict[str, Any]
    ) -> Iterator[bytes]:
        words = item[name]
        middle = len(words) // 2
        pieces = [piece for piece in (words[:middle], words[middle:]) if piece]
        yield from self._deltas(kind, pieces, place)
        yield self._event(f"{kind}.done", **{name: words}, **place)

    def _deltas(self, kind: str, pieces: Sequence[str], place: dict[str, Any]) -> Iterator[bytes]:
        for piece in pieces:
            padding = {"obfuscation": "x" * (-len(piece) % PADDED_CHARACTERS)}
            extra = padding if self._padded else {}
            yield self._event(f"{kind}.delta", delta=piece, **extra, **place)


def _shell(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it starts."""
    match item["type"]:
        case "message":
            return {**item, "status": "in_progress", "content": []}
        case "reasoning":
            shell = {**item, "summary": []}
            sealed = item.get("encrypted_content")
            # What stands here is not whole with the real vendor, either.
            return shell if sealed is None else {**shell, "encrypted_content": sealed[:8]}
        case "function_call":
            return {**item, "status": "in_progress", "arguments": ""}
        case _:
            return {**item, "status": "in_progress", "input": ""}


def failure_events(error: Mapping[str, Any], refusal: Refusal) -> bytes:
    """The two events that end a broken stream; one alone where it breaks before it has started.

    The flat form is the one of the official types. A vendor is also seen to send the error as an
    object; that is added when the script names an error type.
    """
    first, last = (decode_event(event) for event in refusal.after)
    number = last.get("sequence_number", -1) + 1
    names = ("code", "message", "param")
    event: dict[str, Any] = {"type": "error", **{name: error[name] for name in names}}
    if refusal.error_type is not None:
        event["error"] = error
    data = encode_event({**event, "sequence_number": number})
    if "response" not in first:
        return data
    failed = {
        **first["response"],
        "status": "failed",
        "error": {"code": error["code"] or "server_error", "message": error["message"]},
    }
    value = {"type": "response.failed", "response": failed, "sequence_number": number + 1}
    return data + encode_event(value)
