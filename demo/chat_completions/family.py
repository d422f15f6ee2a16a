"""The scripted vendor as a speaker of chat completions: routes, answers, streams and errors.

The checks of a request are in request.py. Shapes: public API as of November 2026.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from demo.chat_completions.request import read_request
from demo.script.directives import Script
from demo.script.family import (
    BAD_KEY_PREFIX,
    MODEL_NAMES,
    MODELS_CREATED_S,
    Ask,
    Call,
    Counts,
    Family,
    Path,
    Refusal,
    Route,
    Said,
)
from demo.script.speech import count_tokens

BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(\S+)")
FINGERPRINT = "fp_demo"
DONE = b"data: [DONE]\n\n"
FINISH_REASONS = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tools": "tool_calls",
    "refusal": "stop",
}
ERROR_TYPES = {403: "permission_error", 429: "rate_limit_error"}
ERROR_CODES = {
    401: "invalid_api_key",
    404: "model_not_found",
    405: "method_not_allowed",
    429: "rate_limit_exceeded",
}
KIND_CODES = {"missing": "missing_required_parameter", "type": "invalid_type"}


def encode_event(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8", "replace") + b"\n\n"


class ChatCompletions:
    name = "chat_completions"
    garbage = b'data: {"id":"chatcmpl-demo","choices":[{"del\n\n'

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        if path == "/v1/chat/completions":
            return Route("generate", "POST")
        if path == "/v1/models" or path.startswith("/v1/models/"):
            argument = path.removeprefix("/v1/models").removeprefix("/")
            return Route("model" if argument else "models", "GET", argument)
        return None

    def admit(self, headers: Mapping[str, str]) -> None:
        match = BEARER.fullmatch(headers.get("authorization", ""))
        if match is None:
            raise Refusal("You did not provide an API key.", kind="plain", status=401)
        if match[1].startswith(BAD_KEY_PREFIX):
            problem = f"Incorrect API key provided: {match[1][:6]}****."
            raise Refusal(problem, kind="plain", status=401)

    def check_content_type(self, value: str) -> None:
        if value.partition(";")[0].strip().lower() != "application/json":
            problem = f"Unsupported content type: '{value}'. Use 'application/json'."
            raise Refusal(problem, kind="plain", status=415, code="unsupported_content_type")

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
        return read_request(body)

    def lookup(self, route: Route, query: Mapping[str, str]) -> dict[str, Any]:
        if route.task == "models":
            return {"object": "list", "data": [_model(name) for name in MODEL_NAMES]}
        if route.argument not in MODEL_NAMES:
            problem = f"The model '{route.argument}' does not exist."
            raise Refusal(problem, ("model",), "plain", status=404)
        return _model(route.argument)

    def count(self, ask: Ask) -> dict[str, Any]:
        raise Refusal("This family counts no tokens.", kind="plain", status=404)

    def plain(self, ask: Ask, said: Said, script: Script) -> dict[str, Any]:
        answer = {**_base(ask, "chat.completion"), "choices": []}
        text = "".join(said.pieces)
        refused = said.finish == "refusal"
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if said.calls or refused else text,
            "refusal": text if refused else None,
            "annotations": [],
        }
        if said.thoughts:
            message["reasoning_content"] = "".join(said.thoughts)
        if said.calls:
            message["tool_calls"] = [_call(call) for call in said.calls]
        answer["choices"] = [
            {
                "index": index,
                "message": message,
                "logprobs": None,
                "finish_reason": FINISH_REASONS[said.finish],
            }
            for index in range(ask.choices)
        ]
        if script.usage != "none":
            answer["usage"] = _usage(said.counts, ask.choices)
        return answer

    def events(self, ask: Ask, said: Said, script: Script) -> Iterator[bytes]:
        base = _base(ask, "chat.completion.chunk")
        whole = _usage(said.counts, ask.choices)
        nulls: dict[str, Any] = {"usage": None} if ask.include_usage else {}
        so_far = said.counts.reasoning
        for delta in _deltas(said):
            so_far = min(so_far + count_tokens(delta.get("content") or ""), said.counts.output)
            extra = nulls
            if script.usage == "cumulative":
                growing = replace(said.counts, output=so_far)
                extra = {"usage": _usage(growing, ask.choices)}
            for index in range(ask.choices):
                yield encode_event({**base, "choices": [_chunk(index, delta)], **extra})
        if script.usage in ("finish_chunk", "cumulative"):
            nulls = {"usage": whole}
        for index in range(ask.choices):
            last = _chunk(index, {}, FINISH_REASONS[said.finish])
            yield encode_event({**base, "choices": [last], **nulls})
        if ask.include_usage and script.usage not in ("none", "finish_chunk", "cumulative"):
            for _ in range(2 if script.usage == "repeated" else 1):
                yield encode_event({**base, "choices": [], "usage": whole})
        if not script.no_done:
            yield DONE

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        where = _written(refusal.path)
        message = {
            "missing": f"Missing required parameter: '{where}'.",
            "type": f"Invalid type for '{where}': expected {refusal.problem}.",
            "value": f"Invalid value for '{where}': {refusal.problem}.",
            "plain": refusal.problem,
        }[refusal.kind]
        status = refusal.status
        usual = "server_error" if status >= 500 else "invalid_request_error"
        code = refusal.code or KIND_CODES.get(refusal.kind) or ERROR_CODES.get(status)
        if code is None and refusal.kind == "value":
            code = "invalid_value"
        return {
            "error": {
                "message": message,
                "type": refusal.error_type or ERROR_TYPES.get(status, usual),
                "param": where or None,
                "code": code,
            }
        }

    def error_event(self, refusal: Refusal, request_id: str) -> bytes:
        return encode_event(self.refusal(refusal, request_id))

    def ping(self) -> bytes:
        return b""

    def answer_headers(self, request_id: str) -> dict[str, str]:
        return {
            "x-request-id": request_id,
            "openai-organization": "demo-organization",
            "openai-processing-ms": "12",
            "openai-version": "2020-10-01",
            "x-ratelimit-limit-requests": "10000",
            "x-ratelimit-remaining-requests": "9999",
            "x-ratelimit-reset-requests": "6ms",
            "set-cookie": "__demo=1; path=/; HttpOnly",
        }


def _written(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": MODELS_CREATED_S, "owned_by": "demo"}


def _base(ask: Ask, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": kind,
        "created": int(time.time()),
        "model": ask.model,
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    }


def _call(call: Call) -> dict[str, Any]:
    if call.custom:
        described = {"name": call.name, "input": call.arguments}
        return {"id": f"call_{call.id}", "type": "custom", "custom": described}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{call.id}", "type": "function", "function": function}


def _chunk(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


def _deltas(said: Said) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if said.calls else "", "refusal": None}
    for thought in said.thoughts:
        yield {"reasoning_content": thought}
    for piece in said.pieces:
        yield {"refusal" if said.finish == "refusal" else "content": piece}
    for place, call in enumerate(said.calls):
        yield from _call_deltas(place, call)


def _call_deltas(place: int, call: Call) -> Iterator[dict[str, Any]]:
    opened = _call(call)
    kind = opened["type"]
    field = "input" if call.custom else "arguments"
    opened[kind][field] = ""
    yield {"tool_calls": [{"index": place, **opened}]}
    middle = len(call.arguments) // 2
    for piece in (call.arguments[:middle], call.arguments[middle:]):
        if piece:
            yield {"tool_calls": [{"index": place, kind: {field: piece}}]}


def _usage(counts: Counts, choices: int) -> dict[str, Any]:
    output = counts.output * choices
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": output,
        "total_tokens": counts.input + output,
        "prompt_tokens_details": {
            "cached_tokens": counts.cached,
            "cache_write_tokens": counts.written,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": counts.reasoning * choices,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


CHAT_COMPLETIONS: Family = ChatCompletions()
