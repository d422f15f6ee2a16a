"""The demo vendor's chat completions. Shapes: public API as of November 2026."""

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from demo.family import (
    MODEL_NAMES,
    Family,
    ModelAnswer,
    ModelRequest,
    Refusal,
    Route,
    TokenCounts,
    Tool,
    ToolCall,
    ToolMode,
    encode_json,
    halves,
    object_of,
    objects,
)
from demo.speech import prompt_tokens

MODELS_CREATED_S = 1_795_000_000
FINGERPRINT = "fp_demo"
DONE = b"data: [DONE]\n\n"
FINISH_REASONS = {"stop_sequence": "stop", "tools": "tool_calls"}  # others keep their name


class ChatCompletions(Family):
    name = "chat_completions"
    last_bytes = DONE

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        if path == "/v1/chat/completions":
            return Route("generate")
        return Route("models", "GET") if path == "/v1/models" else None

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        messages = objects(body.get("messages"))
        users = [message for message in messages if message.get("role") == "user"]
        parts = [part for message in messages for part in objects(message.get("content"))]
        tools, tool_mode = read_tools(body)
        newer, older = body.get("max_completion_tokens"), body.get("max_tokens")
        stop = body.get("stop") or ()
        return ModelRequest(
            model=body.get("model") or "",
            prompt=text_of(users[-1].get("content")) if users else "",
            input_tokens=prompt_tokens(body.get("messages"), body.get("tools")),
            stream=bool(body.get("stream")),
            fresh=not messages or messages[-1].get("role") != "tool",
            images=sum(part.get("type") == "image_url" for part in parts),
            tools=tools,
            tool_mode=tool_mode,
            parallel=body.get("parallel_tool_calls") is not False,
            schema=_read_format(object_of(body, "response_format")),
            thinking=body.get("reasoning_effort") not in (None, "none"),
            limit_tokens=older if newer is None else newer,
            stops=(stop,) if isinstance(stop, str) else tuple(stop),
            choices=body.get("n") or 1,
            include_usage=bool(object_of(body, "stream_options").get("include_usage")),
        )

    def lookup(self, route: Route) -> dict[str, Any]:
        model = {"object": "model", "created": MODELS_CREATED_S, "owned_by": "demo"}
        return {"object": "list", "data": [{"id": name, **model} for name in MODEL_NAMES]}

    def plain(self, request: ModelRequest, answer: ModelAnswer) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if answer.calls else "".join(answer.pieces),
            "refusal": None,
            "annotations": [],
        }
        if answer.thoughts:
            message["reasoning_content"] = "".join(answer.thoughts)
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        choices = [
            {
                "index": index,
                "message": message,
                "logprobs": None,
                "finish_reason": FINISH_REASONS.get(answer.finish, answer.finish),
            }
            for index in range(request.choices)
        ]
        usage = usage_of(answer.counts, request.choices)
        return {**_base(request, "chat.completion"), "choices": choices, "usage": usage}

    def events(self, request: ModelRequest, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
        base = _base(request, "chat.completion.chunk")
        nulls: dict[str, Any] = {"usage": None} if request.include_usage else {}
        for delta in _deltas(answer):
            for index in range(request.choices):
                yield {**base, "choices": [_choice(index, delta)], **nulls}
        for index in range(request.choices):
            last = _choice(index, {}, FINISH_REASONS.get(answer.finish, answer.finish))
            yield {**base, "choices": [last], **nulls}
        if request.include_usage:
            yield {**base, "choices": [], "usage": usage_of(answer.counts, request.choices)}

    def encode(self, event: Mapping[str, Any]) -> bytes:
        return b"data: " + encode_json(event) + b"\n\n"

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
        error = {"message": refusal.message, "type": kind, "param": None, "code": None}
        return {"error": error}


def text_of(content: Any) -> str:
    """Join the texts of a content, which is a string or parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in objects(content) if isinstance(part.get("text"), str))


def read_tools(body: Mapping[str, Any]) -> tuple[tuple[Tool, ...], ToolMode]:
    tools = []
    for entry in objects(body.get("tools")):
        custom = entry.get("type") == "custom"
        described = object_of(entry, "custom" if custom else "function")
        schema = {} if custom else object_of(described, "parameters")
        tools.append(Tool(described.get("name") or "", schema, custom))
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        mode: ToolMode = "none" if choice == "none" else "any" if choice == "required" else "auto"
        return tuple(tools), mode
    named = object_of(choice, "function") or object_of(choice, "custom")
    return tuple(tool for tool in tools if tool.name == named.get("name")), "any"


def _read_format(described: Mapping[str, Any]) -> dict[str, Any] | None:
    if described.get("type") == "json_schema":
        return object_of(described, "json_schema", "schema")
    return {} if described.get("type") == "json_object" else None


def _base(request: ModelRequest, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    }


def _call(call: ToolCall) -> dict[str, Any]:
    if call.custom:
        described = {"name": call.name, "input": call.arguments}
        return {"id": f"call_{call.id}", "type": "custom", "custom": described}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{call.id}", "type": "function", "function": function}


def _choice(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


def _deltas(answer: ModelAnswer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if answer.calls else "", "refusal": None}
    for thought in answer.thoughts:
        yield {"reasoning_content": thought}
    for piece in answer.pieces:
        yield {"content": piece}
    for place, call in enumerate(answer.calls):
        yield from _call_deltas(place, call)


def _call_deltas(place: int, call: ToolCall) -> Iterator[dict[str, Any]]:
    opened = _call(call)
    kind = opened["type"]
    field = "input" if call.custom else "arguments"
    opened[kind][field] = ""
    yield {"tool_calls": [{"index": place, **opened}]}
    for piece in halves(call.arguments):
        yield {"tool_calls": [{"index": place, kind: {field: piece}}]}


def usage_of(counts: TokenCounts, choices: int) -> dict[str, Any]:
    output = counts.output * choices
    sent = {"cached_tokens": counts.cached, "cache_write_tokens": counts.written}
    produced = {"reasoning_tokens": counts.reasoning * choices, "accepted_prediction_tokens": 0}
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": output,
        "total_tokens": counts.input + output,
        "prompt_tokens_details": {**sent, "audio_tokens": 0},
        "completion_tokens_details": {
            **produced,
            "rejected_prediction_tokens": 0,
            "audio_tokens": 0,
        },
    }
