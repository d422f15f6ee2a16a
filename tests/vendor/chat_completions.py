"""The tests' vendor in the chat completions family. Shapes: public API as of November 2026."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from demo import chat_completions as demo
from demo.chat_completions import read_tools, usage_of
from demo.family import ModelAnswer, ModelRequest, Route
from demo.speech import count_tokens
from tests.vendor.chat_request import check_request
from tests.vendor.directives import Script
from tests.vendor.family import BAD_KEY_PREFIX, Refusal, StrictFamily, bearer, is_json, written

ERROR_TYPES = {403: "permission_error", 429: "rate_limit_error"}
ERROR_CODES = {
    401: "invalid_api_key",
    404: "model_not_found",
    405: "method_not_allowed",
    429: "rate_limit_exceeded",
}
KIND_CODES = {"missing": "missing_required_parameter", "type": "invalid_type"}
HEADERS = {
    "openai-organization": "demo-organization",
    "openai-processing-ms": "12",
    "openai-version": "2020-10-01",
    "x-ratelimit-limit-requests": "10000",
    "x-ratelimit-remaining-requests": "9999",
    "x-ratelimit-reset-requests": "6ms",
}


class OpenAIFamily(StrictFamily):
    """The common part of the vendor's two families: credentials, headers, errors."""

    headers = HEADERS

    def admit(self, headers: Mapping[str, str]) -> None:
        key = bearer(headers)
        if not key:
            raise Refusal("You did not provide an API key.", kind="plain", status=401)
        if key.startswith(BAD_KEY_PREFIX):
            message = f"Incorrect API key provided: {key[:6]}****."
            raise Refusal(message, kind="plain", status=401)

    def check_content_type(self, value: str) -> None:
        if not is_json(value):
            message = f"Unsupported content type: '{value}'. Use 'application/json'."
            raise Refusal(message, kind="plain", status=415, code="unsupported_content_type")

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        where = written(refusal.path)
        message = {
            "missing": f"Missing required parameter: '{where}'.",
            "type": f"Invalid type for '{where}': expected {refusal.message}.",
            "value": f"Invalid value for '{where}': {refusal.message}.",
            "plain": refusal.message,
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


class ChatCompletions(OpenAIFamily, demo.ChatCompletions):
    garbage = b'data: {"id":"chatcmpl-demo","choices":[{"del\n\n'

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        check_request(body)
        request = super().read(route, headers, body)
        choice = body.get("tool_choice")
        if not isinstance(choice, dict) or choice["type"] != "allowed_tools":
            return request
        allowed = choice["allowed_tools"]
        entries = [tool.get("function") or tool.get("custom") or tool for tool in allowed["tools"]]
        names = [entry["name"] for entry in entries]
        tools, _ = read_tools({**body, "tool_choice": None})
        tools = tuple(tool for tool in tools if tool.name in names)
        mode = "any" if allowed["mode"] == "required" else "auto"
        return replace(request, tools=tools, tool_mode=mode)

    def scripted(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> dict[str, Any]:
        value = self.plain(request, answer)
        if script.refusal:
            for choice in value["choices"]:
                choice["message"] |= {"content": None, "refusal": "".join(answer.pieces)}
        if script.no_call_ids:
            for choice in value["choices"]:
                _drop_ids(choice["message"])
        return value

    def scripted_events(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> Iterator[dict[str, Any]]:
        whole = usage_of(answer.counts, request.choices)
        output = answer.counts.reasoning
        for event in self.events(request, answer):
            if script.tier:
                event["service_tier"] = script.tier
            if not event["choices"]:
                if script.usage not in ("finish_chunk", "cumulative"):
                    yield from (event,) * (2 if script.usage == "repeated" else 1)
                continue
            [choice] = event["choices"]
            delta = choice["delta"]
            if choice["index"] == 0:
                tokens = count_tokens(delta.get("content") or "")
                output = min(output + tokens, answer.counts.output)
            if script.no_call_ids:
                _drop_ids(delta)
            if script.refusal and delta.get("content"):
                choice["delta"] = {"refusal": delta["content"]}
            if choice["finish_reason"] and script.usage in ("finish_chunk", "cumulative"):
                event["usage"] = whole
            elif script.usage == "cumulative":
                counts = replace(answer.counts, output=output)
                event["usage"] = usage_of(counts, request.choices)
            yield event


def _drop_ids(message: dict[str, Any]) -> None:
    for call in message.get("tool_calls") or ():
        call.pop("id", None)
