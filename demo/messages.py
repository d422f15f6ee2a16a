"""The demo vendor's messages. Shapes: public API as of November 2026."""

import hashlib
import json
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
    halves,
    new_id,
    object_of,
    objects,
)
from demo.speech import last_words, prompt_tokens, sign

MODELS_CREATED_AT = "2026-11-18T00:00:00Z"
FIRST_OUTPUT_TOKENS = 1  # in message_start, before the count is known
FINISH_REASONS = {"stop": "end_turn", "length": "max_tokens", "tools": "tool_use"}


class Messages(Family):
    name = "messages"
    request_id_header = "request-id"

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        if path in ("/v1/messages", "/v1/messages/count_tokens"):
            return Route("count" if path.endswith("count_tokens") else "generate")
        # Another family has the same path. The version header tells the client's family.
        models = path == "/v1/models" and "anthropic-version" in headers
        return Route("models", "GET") if models else None

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        entries = [entry for entry in objects(body.get("messages")) if entry["role"] != "system"]
        users = [_words(entry) for entry in entries if entry["role"] == "user"]
        last = _blocks(entries[-1]) if entries else []
        tools, tool_mode, parallel = _read_tools(body)
        thinking = object_of(body, "thinking")
        described = object_of(body, "output_config", "format") or object_of(body, "output_format")
        counted = (body.get(name) for name in ("system", "messages", "tools"))
        blocks = [block for entry in entries for block in _blocks(entry)]
        return ModelRequest(
            model=body.get("model") or "",
            prompt=last_words(users),
            input_tokens=prompt_tokens(*counted),
            stream=bool(body.get("stream")),
            fresh=all(block.get("type") != "tool_result" for block in last),
            images=sum(block.get("type") == "image" for block in blocks),
            tools=tools,
            tool_mode=tool_mode,
            parallel=parallel,
            schema=object_of(described, "schema") if described else None,
            thinking=thinking.get("type") in ("enabled", "adaptive"),
            thinking_shown=thinking.get("display") != "omitted",
            limit_tokens=body.get("max_tokens"),
            stops=tuple(body.get("stop_sequences") or ()),
            body=body,
        )

    def lookup(self, route: Route) -> dict[str, Any]:
        models = [
            {
                "id": name,
                "type": "model",
                "display_name": name.replace("-", " ").title(),
                "created_at": MODELS_CREATED_AT,
                "max_input_tokens": 200_000,
                "max_tokens": 32_000,
            }
            for name in MODEL_NAMES
        ]
        first, last = MODEL_NAMES[0], MODEL_NAMES[-1]
        return {"data": models, "has_more": False, "first_id": first, "last_id": last}

    def count(self, request: ModelRequest) -> dict[str, Any]:
        return {"input_tokens": request.input_tokens}

    def plain(self, request: ModelRequest, answer: ModelAnswer) -> dict[str, Any]:
        usage = {**_input_usage(answer.counts), **_output_usage(answer.counts)}
        content = content_of(request, answer)
        return {**_base(request), "content": content, **_stop(answer), "usage": usage}

    def events(self, request: ModelRequest, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
        usage = {**_input_usage(answer.counts), "output_tokens": FIRST_OUTPUT_TOKENS}
        start: dict[str, Any] = {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        yield {"type": "message_start", "message": {**_base(request), **start}}
        for index, (block, deltas) in enumerate(_blocks_of(request, answer)):
            place = {"index": index}
            yield {"type": "content_block_start", **place, "content_block": block}
            for delta in deltas:
                yield {"type": "content_block_delta", **place, "delta": delta}
            yield {"type": "content_block_stop", **place}
        usage = _output_usage(answer.counts)
        yield {"type": "message_delta", "delta": _stop(answer), "usage": usage}
        yield {"type": "message_stop"}

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        kind = "api_error" if refusal.status >= 500 else "invalid_request_error"
        error = {"type": kind, "message": refusal.message}
        return {"type": "error", "error": error, "request_id": request_id}


def sign_thought(visible: str) -> str:
    """Return the signature of a thought in its visible form."""
    return sign(hashlib.sha256(visible.encode("utf-8", "replace")).digest())


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def _words(message: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in _blocks(message) if block.get("type") == "text")


def _read_tools(body: Mapping[str, Any]) -> tuple[tuple[Tool, ...], ToolMode, bool]:
    """Read the tools that may be called; the vendor's own are never called."""
    tools = tuple(
        Tool(entry.get("name") or "", object_of(entry, "input_schema"))
        for entry in objects(body.get("tools"))
        if entry.get("type") in (None, "custom")
    )
    choice = object_of(body, "tool_choice")
    parallel = not choice.get("disable_parallel_tool_use")
    if choice.get("type") == "tool":
        named = tuple(tool for tool in tools if tool.name == choice.get("name"))
        return named, "any", parallel
    mode: ToolMode = "auto"
    if choice.get("type") in ("any", "none"):
        mode = "any" if choice["type"] == "any" else "none"
    return tools, mode, parallel


def _stop(answer: ModelAnswer) -> dict[str, Any]:
    reason = FINISH_REASONS.get(answer.finish, answer.finish)
    return {"stop_reason": reason, "stop_sequence": answer.stop_sequence}


def _base(request: ModelRequest) -> dict[str, Any]:
    name = new_id("msg", 12)
    return {"id": name, "type": "message", "role": "assistant", "model": request.model}


def content_of(request: ModelRequest, answer: ModelAnswer) -> list[dict[str, Any]]:
    """Return the blocks of a whole answer."""
    content: list[dict[str, Any]] = []
    if answer.thoughts:
        visible = "".join(answer.thoughts) if request.thinking_shown else ""
        content.append(
            {"type": "thinking", "thinking": visible, "signature": sign_thought(visible)}
        )
    if answer.pieces:
        content.append({"type": "text", "text": "".join(answer.pieces)})
    content.extend(_tool_use(call, json.loads(call.arguments)) for call in answer.calls)
    return content


def _tool_use(call: ToolCall, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": arguments}


def _blocks_of(
    request: ModelRequest, answer: ModelAnswer
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield each block in its initial form, and the deltas that fill it. The text is never
    joined."""
    if answer.thoughts:
        visible = answer.thoughts if request.thinking_shown else ()
        deltas = [{"type": "thinking_delta", "thinking": thought} for thought in visible]
        deltas.append({"type": "signature_delta", "signature": sign_thought("".join(visible))})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if answer.pieces:
        texts = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
        yield {"type": "text", "text": ""}, texts
    for call in answer.calls:
        pieces = ("", *halves(call.arguments))
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        yield _tool_use(call, {}), deltas


def _input_usage(counts: TokenCounts) -> dict[str, Any]:
    return {
        "input_tokens": counts.input - counts.cached - counts.written,
        "cache_creation_input_tokens": counts.written,
        "cache_read_input_tokens": counts.cached,
        "cache_creation": {
            "ephemeral_5m_input_tokens": counts.written,
            "ephemeral_1h_input_tokens": 0,
        },
        "service_tier": "standard",
    }


def _output_usage(counts: TokenCounts) -> dict[str, Any]:
    usage: dict[str, Any] = {"output_tokens": counts.output}
    if counts.reasoning:
        usage["output_tokens_details"] = {"thinking_tokens": counts.reasoning}
    return usage
