"""The scripted vendor as a speaker of messages: routes, answers, streams and errors.

The checks of a request are in request.py. Shapes: public API as of November 2026.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from demo.messages.blocks import sign_thought
from demo.messages.request import VERSIONS, read_request
from demo.messages.threads import Threads
from demo.script.directives import Script
from demo.script.family import (
    BAD_KEY_PREFIX,
    MODEL_NAMES,
    Ask,
    Call,
    Counts,
    Family,
    Refusal,
    Route,
    Said,
)
from demo.script.speech import count_tokens

BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(\S+)")
MODELS_CREATED_AT = "2026-11-18T00:00:00Z"
MODELS_PAGE = 20
MODELS_PAGE_MAX = 1000
FIRST_OUTPUT_TOKENS = 1  # what message_start says before anything is known
FINISH_REASONS = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tools": "tool_use",
    "refusal": "refusal",
}
STOP_DETAILS = {"type": "refusal", "category": "general_harms", "explanation": None}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def encode_event(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    data = text.encode("utf-8", "replace")
    return b"event: %s\ndata: %s\n\n" % (value["type"].encode(), data)


class Messages:
    name = "messages"
    garbage = b'event: content_block_delta\ndata: {"type":"content_block_delta","ind\n\n'

    def __init__(self) -> None:
        self._threads = Threads()

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        if path in ("/v1/messages", "/v1/messages/count_tokens"):
            return Route("count" if path.endswith("count_tokens") else "generate", "POST")
        # Another family has the same path; the version header tells whose client asks.
        models = path == "/v1/models" or path.startswith("/v1/models/")
        if models and "anthropic-version" in headers:
            argument = path.removeprefix("/v1/models").removeprefix("/")
            return Route("model" if argument else "models", "GET", argument)
        return None

    def admit(self, headers: Mapping[str, str]) -> None:
        key = headers.get("x-api-key", "")
        if "authorization" in headers:
            match = BEARER.fullmatch(headers["authorization"])
            key = match[1] if match else ""
        if not key:
            raise Refusal("x-api-key header is required", kind="plain", status=401)
        if key.startswith(BAD_KEY_PREFIX):
            raise Refusal("invalid x-api-key", kind="plain", status=401)
        version = headers.get("anthropic-version")
        if version is None:
            raise Refusal("anthropic-version: header is required", kind="plain")
        if version not in VERSIONS:
            problem = f'anthropic-version: "{version}" is not a valid version'
            raise Refusal(problem, kind="plain")

    def check_content_type(self, value: str) -> None:
        if value.partition(";")[0].strip().lower() != "application/json":
            raise Refusal("Content-Type must be application/json", kind="plain")

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
        version = headers["anthropic-version"]
        body = self._threads.resumed(body)
        return replace(read_request(body, version, counting=route.task == "count"), body=body)

    def lookup(self, route: Route, query: Mapping[str, str]) -> dict[str, Any]:
        if route.task == "models":
            return _model_page(query)
        if route.argument not in MODEL_NAMES:
            raise Refusal(f"model: {route.argument}", kind="plain", status=404)
        return _model(route.argument)

    def count(self, ask: Ask) -> dict[str, Any]:
        return {"input_tokens": ask.input_tokens}

    def plain(self, ask: Ask, said: Said, script: Script) -> dict[str, Any]:
        content = _content(ask, said)
        base = _base(ask)
        self._threads.keep(ask, base["id"], content)
        answer = {
            **base,
            "content": content,
            "stop_reason": FINISH_REASONS[said.finish],
            "stop_sequence": said.stop_sequence,
        }
        if said.finish == "refusal":
            answer["stop_details"] = STOP_DETAILS
        if script.usage != "none":
            answer["usage"] = {**_input_usage(said.counts), **_output_usage(said.counts)}
        return answer

    def events(self, ask: Ask, said: Said, script: Script) -> Iterator[bytes]:
        message = {**_base(ask), "content": [], "stop_reason": None, "stop_sequence": None}
        if script.usage != "none":
            message["usage"] = {**_input_usage(said.counts), "output_tokens": FIRST_OUTPUT_TOKENS}
        yield encode_event({"type": "message_start", "message": message})
        for index, (block, deltas) in enumerate(_blocks(ask, said)):
            start = {"type": "content_block_start", "index": index, "content_block": block}
            yield encode_event(start)
            yield from _block_deltas(index, deltas, said, script)
            yield encode_event({"type": "content_block_stop", "index": index})
        delta: dict[str, Any] = {
            "stop_reason": FINISH_REASONS[said.finish],
            "stop_sequence": said.stop_sequence,
        }
        if said.finish == "refusal":
            delta["stop_details"] = STOP_DETAILS
        end: dict[str, Any] = {"type": "message_delta", "delta": delta}
        if script.usage != "none":
            end["usage"] = _output_usage(said.counts)
        for _ in range(2 if script.usage == "repeated" else 1):
            yield encode_event(end)
        self._threads.keep(ask, message["id"], _content(ask, said))
        if not script.no_done:
            yield encode_event({"type": "message_stop"})

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        where = ".".join(map(str, refusal.path))
        problem = {
            "missing": "Field required",
            "type": f"Input should be {refusal.problem}",
        }.get(refusal.kind, refusal.problem)
        error: dict[str, Any] = {
            "type": refusal.error_type or ERROR_TYPES.get(refusal.status, _usual(refusal.status)),
            "message": f"{where}: {problem}" if where else problem,
        }
        if refusal.code is not None and refusal.code.startswith("thread_"):
            error["details"] = {"error_code": refusal.code}
        return {"type": "error", "error": error, "request_id": request_id}

    def error_event(self, refusal: Refusal, request_id: str) -> bytes:
        return encode_event(self.refusal(refusal, request_id))

    def ping(self) -> bytes:
        return PING

    def answer_headers(self, request_id: str) -> dict[str, str]:
        return {
            "request-id": request_id,
            "anthropic-organization-id": "demo-organization",
            "anthropic-ratelimit-requests-limit": "1000",
            "anthropic-ratelimit-requests-remaining": "999",
            "anthropic-ratelimit-requests-reset": "2026-11-18T00:00:00Z",
            "set-cookie": "__demo=1; path=/; HttpOnly",
        }


def _usual(status: int) -> str:
    return "api_error" if status >= 500 else "invalid_request_error"


def _model(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "type": "model",
        "display_name": name.replace("-", " ").title(),
        "created_at": MODELS_CREATED_AT,
        "lifecycle": "active",
        "max_input_tokens": 200_000,
        "max_tokens": 32_000,
    }


def _model_page(query: Mapping[str, str]) -> dict[str, Any]:
    limit = query.get("limit", str(MODELS_PAGE))
    if not re.fullmatch(r"[0-9]{1,4}", limit) or not 1 <= int(limit) <= MODELS_PAGE_MAX:
        raise Refusal(f"must be 1 to {MODELS_PAGE_MAX}", ("limit",))
    names = list(MODEL_NAMES)
    after = query.get("after_id")
    if after in names:
        names = names[names.index(after) + 1 :]
    page = names[: int(limit)]
    return {
        "data": [_model(name) for name in page],
        "has_more": len(page) < len(names),
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def _base(ask: Ask) -> dict[str, Any]:
    name = f"msg_{secrets.token_hex(12)}"
    return {"id": name, "type": "message", "role": "assistant", "model": ask.model}


def _content(ask: Ask, said: Said) -> list[dict[str, Any]]:
    """The blocks of a whole answer."""
    content: list[dict[str, Any]] = []
    if said.thoughts:
        content.append(_thinking(ask, said))
    if said.pieces:
        content.append({"type": "text", "text": "".join(said.pieces)})
    for call in said.calls:
        content.append({**_tool_use(call), "input": json.loads(call.arguments)})
    return content


def _thinking(ask: Ask, said: Said) -> dict[str, Any]:
    shown = "".join(said.thoughts) if ask.thinking_shown else ""
    return {"type": "thinking", "thinking": shown, "signature": sign_thought(shown)}


def _tool_use(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": {}}


def _blocks(ask: Ask, said: Said) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each content block as it starts, and the deltas that fill it."""
    if said.thoughts:
        deltas = [
            {"type": "thinking_delta", "thinking": thought}
            for thought in said.thoughts
            if ask.thinking_shown
        ]
        shown = "".join(said.thoughts) if ask.thinking_shown else ""
        deltas.append({"type": "signature_delta", "signature": sign_thought(shown)})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if said.pieces:
        texts = [{"type": "text_delta", "text": piece} for piece in said.pieces]
        yield {"type": "text", "text": ""}, texts
    for call in said.calls:
        middle = len(call.arguments) // 2
        pieces = ("", call.arguments[:middle], call.arguments[middle:])
        yield (
            _tool_use(call),
            [{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
        )


def _block_deltas(
    index: int, deltas: list[dict[str, Any]], said: Said, script: Script
) -> Iterator[bytes]:
    so_far = said.counts.reasoning
    for delta in deltas:
        yield encode_event({"type": "content_block_delta", "index": index, "delta": delta})
        if script.usage == "cumulative" and delta["type"] == "text_delta":
            so_far = min(so_far + count_tokens(delta["text"]), said.counts.output)
            yield encode_event(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": None, "stop_sequence": None},
                    "usage": {"output_tokens": so_far},
                }
            )


def _input_usage(counts: Counts) -> dict[str, Any]:
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


def _output_usage(counts: Counts) -> dict[str, Any]:
    usage: dict[str, Any] = {"output_tokens": counts.output}
    if counts.reasoning:
        usage["output_tokens_details"] = {"thinking_tokens": counts.reasoning}
    return usage


MESSAGES: Family = Messages()
