"""The tests' vendor in the generate-content family. Shapes: public API as of November 2026.

A stream is written as SSE; without alt=sse the composer turns it into a JSON array.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from demo import generate_content as demo
from demo.family import ModelAnswer, ModelRequest, Route, TokenCounts
from demo.generate_content import ACTION_PATH, ACTIONS
from demo.speech import IMAGE_TOKENS, prompt_tokens
from tests.vendor.directives import Script
from tests.vendor.family import BAD_KEY_PREFIX, Refusal, StrictFamily, bearer, written
from tests.vendor.generate_request import check_query, check_request

MODELS_PAGE = 50
MODELS_PAGE_MAX = 1000
STATUSES = {
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
DETAIL = "type.googleapis.com/google.rpc."
DOMAIN = "googleapis.com"
UNREGISTERED = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use "
    "API Key or other form of API consumer identity to call this API."
)
HEADERS = {
    "server-timing": "gfet4t7; dur=12",
    "vary": "Origin, X-Origin, Referer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
}


class GenerateContent(StrictFamily, demo.GenerateContent):
    garbage = b'data: {"candidates":[{"content":{"par\r\n\r\n'
    headers = HEADERS

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        action = ACTION_PATH.fullmatch(path)
        # An unknown action is answered with "not found", like an unknown model.
        offered = action is None or action[3] in ACTIONS
        return super().find(path, headers) if offered else Route("unknown", argument=path)

    def admit(self, headers: Mapping[str, str]) -> None:
        """Admit a key also in the header in which a gateway's upstream key comes: Authorization."""
        key = headers.get("x-goog-api-key") or bearer(headers)
        if not key:
            raise Refusal(UNREGISTERED, kind="plain", status=403)
        if key.startswith(BAD_KEY_PREFIX):
            message = "API key not valid. Please pass a valid API key."
            raise Refusal(message, kind="plain", code="API_KEY_INVALID")

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        if route.task == "unknown":
            message = f"{route.argument} is not found for this API version, or is not supported."
            raise Refusal(message, kind="plain", status=404)
        request, sent = check_request(body, route)
        counted = (value for name, value in sent.items() if name != "model")
        tokens = prompt_tokens(*counted)
        return replace(super().read(route, headers, request), input_tokens=tokens)

    def lookup(self, route: Route) -> dict[str, Any]:
        check_query(route, "pageSize", "pageToken")
        size = route.query.get("pageSize", "0")
        if not re.fullmatch(r"[0-9]{1,9}", size):
            message = f"Invalid value at 'page_size' (TYPE_INT32), \"{size}\""
            raise Refusal(message, ("page_size",), "type")
        models = super().lookup(route)["models"]
        tokens = [base64.urlsafe_b64encode(b"%04d" % at).decode() for at in range(len(models))]
        token = route.query.get("pageToken")
        if token is not None:
            if token not in tokens:
                raise Refusal("Invalid page token.", kind="plain")
            models, tokens = models[tokens.index(token) + 1 :], tokens[tokens.index(token) + 1 :]
        page = models[: min(int(size), MODELS_PAGE_MAX) or MODELS_PAGE]
        following = {"nextPageToken": tokens[len(page) - 1]} if len(page) < len(models) else {}
        return {"models": page, **following}

    def count(self, request: ModelRequest) -> dict[str, Any]:
        details = _prompt_details(request, request.input_tokens)
        return {**super().count(request), "promptTokensDetails": details}

    def usage(self, request: ModelRequest, counts: TokenCounts) -> dict[str, Any]:
        usage = super().usage(request, counts)
        shown = {"modality": "TEXT", "tokenCount": usage["candidatesTokenCount"]}
        usage["promptTokensDetails"] = _prompt_details(request, counts.input)
        usage["candidatesTokensDetails"] = [shown]
        if counts.cached:
            usage["cachedContentTokenCount"] = counts.cached
            usage["cacheTokensDetails"] = [{"modality": "TEXT", "tokenCount": counts.cached}]
        return usage

    def scripted(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> dict[str, Any]:
        return _marked(self.plain(request, _shown(answer, script)), script)

    def scripted_events(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> Iterator[dict[str, Any]]:
        event: dict[str, Any] = {}
        for event in self.events(request, _shown(answer, script)):
            is_last = "finishReason" in event["candidates"][0]
            usage = event["usageMetadata"]
            if script.usage == "finish_chunk" and not is_last:
                event = {name: value for name, value in event.items() if value is not usage}
            yield _marked(event, script)
        if script.usage == "repeated":
            yield {name: value for name, value in event.items() if name != "candidates"}

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        where, message = written(refusal.path), refusal.message
        details: list[dict[str, Any]] = []
        if refusal.kind == "type":
            violation = {"field": where, "description": message}
            if not where:
                del violation["field"]
            details.append({"@type": DETAIL + "BadRequest", "fieldViolations": [violation]})
        elif where:
            message = f"* GenerateContentRequest.{where}: {message}\n"
        if refusal.code is not None:
            reason = {"reason": refusal.code, "domain": DOMAIN, "metadata": {"service": "demo"}}
            details.append({"@type": DETAIL + "ErrorInfo", **reason})
        if refusal.retry_after_s is not None:
            delay = f"{refusal.retry_after_s}s"
            details.append({"@type": DETAIL + "RetryInfo", "retryDelay": delay})
        usual = "INTERNAL" if refusal.status >= 500 else "INVALID_ARGUMENT"
        error: dict[str, Any] = {
            "code": refusal.status,
            "message": message,
            "status": refusal.error_type or STATUSES.get(refusal.status, usual),
        }
        return {"error": error | ({"details": details} if details else {})}

    def answer_headers(self, request_id: str) -> dict[str, str]:
        headers = super().answer_headers(request_id)
        del headers[self.request_id_header]
        return headers


def _shown(answer: ModelAnswer, script: Script) -> ModelAnswer:
    """Leave out content that a safety refusal hides."""
    return replace(answer, pieces=()) if script.refusal else answer


def _marked(value: dict[str, Any], script: Script) -> dict[str, Any]:
    for candidate in value["candidates"] if script.refusal else ():
        if "finishReason" in candidate:
            candidate["finishReason"] = "SAFETY"
    return value


def _prompt_details(request: ModelRequest, tokens: int) -> list[dict[str, Any]]:
    images = min(request.images * IMAGE_TOKENS, tokens)
    details = [{"modality": "TEXT", "tokenCount": tokens - images}]
    if images:
        details.append({"modality": "IMAGE", "tokenCount": images})
    return details
