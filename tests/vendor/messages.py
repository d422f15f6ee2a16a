"""The tests' vendor in the messages family. Shapes: public API as of November 2026."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from demo import messages as demo
from demo.family import ModelAnswer, ModelRequest, Route
from demo.messages import content_of
from demo.speech import count_tokens
from tests.vendor.directives import Script
from tests.vendor.family import BAD_KEY_PREFIX, Refusal, StrictFamily, bearer, without
from tests.vendor.messages_request import VERSIONS, check_request
from tests.vendor.threads import Threads

MODELS_PAGE = 20
MODELS_PAGE_MAX = 1000
REFUSED = {
    "stop_reason": "refusal",
    "stop_details": {"type": "refusal", "category": "general_harms", "explanation": None},
}
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
HEADERS = {
    "anthropic-organization-id": "demo-organization",
    "anthropic-ratelimit-requests-limit": "1000",
    "anthropic-ratelimit-requests-remaining": "999",
    "anthropic-ratelimit-requests-reset": "2026-11-18T00:00:00Z",
}


class Messages(StrictFamily, demo.Messages):
    garbage = b'event: content_block_delta\ndata: {"type":"content_block_delta","ind\n\n'
    error_event_status = 529
    headers = HEADERS

    def __init__(self) -> None:
        self._threads = Threads()

    def admit(self, headers: Mapping[str, str]) -> None:
        key = headers.get("x-api-key", "")
        if "authorization" in headers:
            key = bearer(headers)
        if not key:
            raise Refusal("x-api-key header is required", kind="plain", status=401)
        if key.startswith(BAD_KEY_PREFIX):
            raise Refusal("invalid x-api-key", kind="plain", status=401)
        version = headers.get("anthropic-version")
        if version is None:
            raise Refusal("anthropic-version: header is required", kind="plain")
        if version not in VERSIONS:
            message = f'anthropic-version: "{version}" is not a valid version'
            raise Refusal(message, kind="plain")

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        version = headers["anthropic-version"]
        body = self._threads.resumed(body)
        check_request(body, version, counting=route.task == "count")
        return super().read(route, headers, body)

    def lookup(self, route: Route) -> dict[str, Any]:
        limit = route.query.get("limit", str(MODELS_PAGE))
        if not re.fullmatch(r"[0-9]{1,4}", limit) or not 1 <= int(limit) <= MODELS_PAGE_MAX:
            raise Refusal(f"must be 1 to {MODELS_PAGE_MAX}", ("limit",))
        models = super().lookup(route)["data"]
        names = [model["id"] for model in models]
        if route.query.get("after_id") in names:
            models = models[names.index(route.query["after_id"]) + 1 :]
        page = models[: int(limit)]
        return {
            "data": page,
            "has_more": len(page) < len(models),
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
        }

    def scripted(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> dict[str, Any]:
        value = self.plain(request, answer)
        self._threads.keep(request, value["id"], value["content"])
        if script.refusal:
            value |= REFUSED
        return value

    def scripted_events(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> Iterator[dict[str, Any]]:
        events = self.events(request, answer)
        start = next(events)
        yield start
        output = answer.counts.reasoning
        for event in without(events, "message_stop"):
            if event["type"] == "message_delta":
                if script.refusal:
                    event["delta"] |= REFUSED
                yield from (event,) * (2 if script.usage == "repeated" else 1)
                continue
            yield event
            text = event.get("delta", {}).get("text")
            if script.usage == "cumulative" and text is not None:
                output = min(output + count_tokens(text), answer.counts.output)
                stop = {"stop_reason": None, "stop_sequence": None}
                yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": output}}
        if request.body.get("thread"):
            self._threads.keep(request, start["message"]["id"], content_of(request, answer))
        if not script.no_done:
            yield {"type": "message_stop"}

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        where = ".".join(map(str, refusal.path))
        message = {
            "missing": "Field required",
            "type": f"Input should be {refusal.message}",
        }.get(refusal.kind, refusal.message)
        usual = "api_error" if refusal.status >= 500 else "invalid_request_error"
        error: dict[str, Any] = {
            "type": refusal.error_type or ERROR_TYPES.get(refusal.status, usual),
            "message": f"{where}: {message}" if where else message,
        }
        if refusal.code is not None and refusal.code.startswith("thread_"):
            error["details"] = {"error_code": refusal.code}
        return {"type": "error", "error": error, "request_id": request_id}
