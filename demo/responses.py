"""The demo vendor's responses. Shapes: official types of the openai SDK, 2026-11."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from demo.chat_completions import ChatCompletions, text_of
from demo.family import (
    Family,
    ModelAnswer,
    ModelRequest,
    Route,
    TokenCounts,
    Tool,
    ToolCall,
    ToolMode,
    halves,
    new_id,
    object_of,
    objects,
)
from demo.speech import last_words, prompt_tokens, sign

SEALED_REASONING = "reasoning.encrypted_content"
RESULTS = ("function_call_output", "custom_tool_call_output")
REPEATED = (
    *("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id"),
    *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user"),
)
# Settings that answers repeat, and their values if the request does not set them.
USUAL = {
    "metadata": {},
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}


class Responses(ChatCompletions):
    """Another endpoint of the chat completions vendor, with the same headers and errors."""

    name = "responses"
    last_bytes = b""
    encode = Family.encode

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        if path == "/v1/responses":
            return Route("generate")
        return Route("count") if path == "/v1/responses/input_tokens" else None

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        sent = body.get("input")
        items = [{"role": "user", "content": sent}] if isinstance(sent, str) else objects(sent)
        users = [text_of(item.get("content")) for item in items if item.get("role") == "user"]
        parts = [part for item in items for part in objects(item.get("content"))]
        tools, tool_mode = _read_tools(body)
        reasoning = body.get("reasoning")
        thinking = isinstance(reasoning, dict) and reasoning.get("effort") != "none"
        return ModelRequest(
            model=body.get("model") or "",
            prompt=last_words(users),
            input_tokens=prompt_tokens(
                *(body.get(name) for name in ("instructions", "input", "tools"))
            ),
            stream=bool(body.get("stream")),
            fresh=not items or items[-1].get("type") not in RESULTS,
            images=sum(part.get("type") == "input_image" for part in parts),
            tools=tools,
            tool_mode=tool_mode,
            parallel=body.get("parallel_tool_calls") is not False,
            schema=_read_format(object_of(body, "text", "format")),
            thinking=thinking,
            thinking_shown=thinking and bool(_summary(reasoning or {})),
            limit_tokens=body.get("max_output_tokens"),
            body=body,
        )

    def count(self, request: ModelRequest) -> dict[str, Any]:
        return {"object": "response.input_tokens", "input_tokens": request.input_tokens}

    def plain(self, request: ModelRequest, answer: ModelAnswer) -> dict[str, Any]:
        return _finished(opened_response(request), answer, output_items(request, answer))

    def events(self, request: ModelRequest, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
        return numbered(response_events(request, answer, output_items(request, answer)))


def numbered(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Number the events, and add the prefix to their types."""
    for number, event in enumerate(events):
        yield {**event, "type": f"response.{event['type']}", "sequence_number": number}


def response_events(
    request: ModelRequest, answer: ModelAnswer, output: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    opened = opened_response(request)
    yield {"type": "created", "response": opened}
    yield {"type": "in_progress", "response": opened}
    for index, item in enumerate(output):
        yield {"type": "output_item.added", "output_index": index, "item": _shell(item)}
        yield from _item_events(item, answer, {"item_id": item["id"], "output_index": index})
        yield {"type": "output_item.done", "output_index": index, "item": item}
    finished = _finished(opened, answer, output)
    yield {"type": finished["status"], "response": finished}


def output_items(request: ModelRequest, answer: ModelAnswer) -> list[dict[str, Any]]:
    """Return the finished items of an answer, in order."""
    items = []
    cut = answer.finish == "length"
    if answer.thoughts:
        items.append(_thought(request, answer))
    if answer.pieces or not (answer.calls or cut):
        part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": []}
        part["text"] = "".join(answer.pieces)
        message = {"id": new_id("msg"), "type": "message", "role": "assistant"}
        status = "incomplete" if cut else "completed"
        items.append({**message, "status": status, "content": [part]})
    spaces = _namespaces(request.body)
    items.extend(_call(call, spaces) for call in answer.calls)
    return items


def opened_response(request: ModelRequest) -> dict[str, Any]:
    """Return a response in its initial form: the settings of the request, no output, no usage."""
    body = request.body
    tier = body.get("service_tier")
    reasoning = object_of(body, "reasoning")
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": bool(body.get("background")),
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": request.model,
        "output": [],
        "parallel_tool_calls": request.parallel,
        "reasoning": {"effort": reasoning.get("effort"), "summary": _summary(reasoning)},
        "service_tier": "default" if tier in (None, "auto") else tier,
        "store": body.get("store") is not False,
        "text": _text_config(object_of(body, "text")),
        "tools": [_tool(tool) for tool in objects(body.get("tools"))],
        "usage": None,
        **{name: body.get(name) for name in REPEATED},
        **{name: usual if body.get(name) is None else body[name] for name, usual in USUAL.items()},
    }


def _finished(
    opened: dict[str, Any], answer: ModelAnswer, output: list[dict[str, Any]]
) -> dict[str, Any]:
    cut = answer.finish == "length"
    return {
        **opened,
        "status": "incomplete" if cut else "completed",
        "completed_at": None if cut else int(time.time()),
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": usage_of(answer.counts),
    }


def usage_of(counts: TokenCounts) -> dict[str, Any]:
    cached = {"cached_tokens": counts.cached, "cache_write_tokens": counts.written}
    return {
        "input_tokens": counts.input,
        "input_tokens_details": cached,
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.input + counts.output,
    }


# Settings.


def _summary(reasoning: Mapping[str, Any]) -> str | None:
    return reasoning.get("summary") or reasoning.get("generate_summary")


def _text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    described = config.get("format") or {"type": "text"}
    if described["type"] == "json_schema":
        described = {"description": None, **described, "strict": bool(described.get("strict"))}
    return {"format": described, "verbosity": config.get("verbosity") or "medium"}


def _read_format(described: Mapping[str, Any]) -> dict[str, Any] | None:
    if described.get("type") == "json_schema":
        return object_of(described, "schema")
    return {} if described.get("type") == "json_object" else None


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        return dict(tool)
    usual = {"description": None, "parameters": None}
    return {**usual, **tool, "strict": tool.get("strict") is not False}


def _read_tools(body: Mapping[str, Any]) -> tuple[tuple[Tool, ...], ToolMode]:
    """Read the tools that may be called; the vendor's own are never called."""
    entries = [
        entry
        for tool in objects(body.get("tools"))
        for entry in (objects(tool["tools"]) if tool["type"] == "namespace" else [tool])
    ]
    tools = tuple(
        Tool(entry["name"], object_of(entry, "parameters"), entry["type"] == "custom")
        for entry in entries
        if entry["type"] in ("function", "custom")
    )
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        return tuple(tool for tool in tools if tool.name == choice.get("name")), "any"
    return tools, "none" if choice == "none" else "any" if choice == "required" else "auto"


# Items and their events.


def _thought(request: ModelRequest, answer: ModelAnswer) -> dict[str, Any]:
    text = "".join(answer.thoughts)
    summary = [{"type": "summary_text", "text": text}] if request.thinking_shown else []
    item: dict[str, Any] = {"id": new_id("rs"), "type": "reasoning", "summary": summary}
    if SEALED_REASONING in (request.body.get("include") or ()):
        item["encrypted_content"] = sign(text.encode("utf-8", "replace"))
    return item


def _namespaces(body: Mapping[str, Any]) -> dict[str, str]:
    spaces = [tool for tool in objects(body.get("tools")) if tool["type"] == "namespace"]
    return {inner["name"]: space["name"] for space in spaces for inner in space["tools"]}


def _call(call: ToolCall, spaces: Mapping[str, str]) -> dict[str, Any]:
    item = {
        "id": f"{'ctc' if call.custom else 'fc'}_{call.id}",
        "type": "custom_tool_call" if call.custom else "function_call",
        "status": "completed",
        "call_id": f"call_{call.id}",
        "name": call.name,
        "input" if call.custom else "arguments": call.arguments,
    }
    return {**item, "namespace": spaces[call.name]} if call.name in spaces else item


def _shell(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item in its initial form."""
    match item["type"]:
        case "message":
            return {**item, "status": "in_progress", "content": []}
        case "reasoning":
            shell = {**item, "summary": []}
            sealed = item.get("encrypted_content")
            # The real vendor also sends an incomplete value here.
            return shell if sealed is None else {**shell, "encrypted_content": sealed[:8]}
        case "function_call":
            return {**item, "status": "in_progress", "arguments": ""}
        case _:
            return {**item, "status": "in_progress", "input": ""}


def _item_events(
    item: dict[str, Any], answer: ModelAnswer, place: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    match item["type"]:
        case "message":
            part = item["content"][0]
            place = {**place, "content_index": 0}
            yield {"type": "content_part.added", "part": {**part, "text": ""}, **place}
            yield from _deltas("output_text", answer.pieces, {"logprobs": [], **place})
            yield {"type": "output_text.done", "text": part["text"], "logprobs": [], **place}
            yield {"type": "content_part.done", "part": part, **place}
        case "reasoning":
            for part in item["summary"]:
                place, kind = {**place, "summary_index": 0}, "reasoning_summary_part"
                yield {"type": f"{kind}.added", "part": {**part, "text": ""}, **place}
                yield from _deltas("reasoning_summary_text", answer.thoughts, place)
                yield {"type": "reasoning_summary_text.done", "text": part["text"], **place}
                yield {"type": f"{kind}.done", "part": part, **place}
        case "function_call":
            words = item["arguments"]
            yield from _deltas("function_call_arguments", halves(words), place)
            yield {"type": "function_call_arguments.done", "arguments": words, **place}
        case _:
            words = item["input"]
            yield from _deltas("custom_tool_call_input", halves(words), place)
            yield {"type": "custom_tool_call_input.done", "input": words, **place}


def _deltas(kind: str, pieces: Sequence[str], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return ({"type": f"{kind}.delta", "delta": piece, **place} for piece in pieces)
