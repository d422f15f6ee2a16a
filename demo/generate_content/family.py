"""The scripted vendor as a speaker of generate-content: routes, answers, streams and errors.

The checks of a request are in fields.py and request.py. Shapes: public API as of November 2026.
A stream is written as SSE; without alt=sse the vendor's server makes the JSON array of it.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from demo.generate_content.fields import written
from demo.generate_content.request import SIGNING_PREFIX, check_query, read_request, sign_thoughts
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
    Task,
)
from demo.script.speech import IMAGE_TOKENS, count_tokens

ACTION_PATH = re.compile(r"/(v1|v1beta)/models/(.+):([A-Za-z]+)")
MODELS_PATH = re.compile(r"/(v1|v1beta)/models(?:/(.+))?")
ACTIONS: dict[str, Task] = {
    "generateContent": "generate",
    "streamGenerateContent": "generate",
    "countTokens": "count",
}
BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(\S+)")
MODELS_PAGE = 50
MODELS_PAGE_MAX = 1000
FINISH_REASONS = {
    "stop": "STOP",
    "stop_sequence": "STOP",
    "length": "MAX_TOKENS",
    "tools": "STOP",
    "refusal": "SAFETY",
}
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
EMPTY_LINE = b"\r\n"


def encode_event(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Some readers take them for ends of lines.
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return b"data: " + text.encode("utf-8", "replace") + b"\r\n\r\n"


class GenerateContent:
    name = "generate_content"
    garbage = b'data: {"candidates":[{"content":{"par\r\n\r\n'

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        action = ACTION_PATH.fullmatch(path)
        if action is not None and action[3] in ACTIONS:
            stream = action[3].startswith("stream")
            return Route(ACTIONS[action[3]], "POST", action[2], stream=stream)
        match = MODELS_PATH.fullmatch(path)
        # Other families have the same path under /v1; the header tells whose client asks.
        if match is None or (match[1] == "v1" and "x-goog-api-key" not in headers):
            return None
        if match[2] is None:
            return Route("models", "GET")
        # An action that is not offered is not found, as a model is not.
        return Route("model", "GET", match[2], also=(("POST", "model"),) if action else ())

    def admit(self, headers: Mapping[str, str]) -> None:
        """The key may come as a gateway's upstream key does, too: Authorization."""
        match = BEARER.fullmatch(headers.get("authorization", ""))
        key = headers.get("x-goog-api-key") or (match[1] if match else "")
        if not key:
            raise Refusal(UNREGISTERED, kind="plain", status=403)
        if key.startswith(BAD_KEY_PREFIX):
            problem = "API key not valid. Please pass a valid API key."
            raise Refusal(problem, kind="plain", code="API_KEY_INVALID")

    def check_content_type(self, value: str) -> None:
        if value.partition(";")[0].strip().lower() != "application/json":
            raise Refusal("The content type must be application/json.", kind="plain")

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
        return read_request(body, route)

    def lookup(self, route: Route, query: Mapping[str, str]) -> dict[str, Any]:
        if route.task == "models":
            check_query(route, "pageSize", "pageToken")
            return _model_page(query)
        check_query(route)
        if route.argument not in MODEL_NAMES:
            problem = f"models/{route.argument} is not found for this API version, or is not "
            problem += "supported for this method."
            raise Refusal(problem, kind="plain", status=404)
        return _model(route.argument)

    def count(self, ask: Ask) -> dict[str, Any]:
        details = _prompt_details(ask, ask.input_tokens)
        return {"totalTokens": ask.input_tokens, "promptTokensDetails": details}

    def plain(self, ask: Ask, said: Said, script: Script) -> dict[str, Any]:
        said = _shown(said)
        parts: list[dict[str, Any]] = []
        if said.thoughts and ask.thinking_shown:
            parts.append({"text": "".join(said.thoughts), "thought": True})
        if said.pieces:
            signed = {"thoughtSignature": _signature(said)} if _signs(ask, said) else {}
            parts.append({"text": "".join(said.pieces), **signed})
        parts.extend(_call_parts(ask, said))
        reason = FINISH_REASONS[said.finish]
        answer: dict[str, Any] = {
            "candidates": [_candidate(index, parts, reason) for index in range(ask.choices)]
        }
        if script.usage != "none":
            answer["usageMetadata"] = _usage(ask, said.counts)
        return answer | _base(ask)

    def events(self, ask: Ask, said: Said, script: Script) -> Iterator[bytes]:
        said = _shown(said)
        base = _base(ask)
        whole = _usage(ask, said.counts)
        so_far = said.counts.reasoning
        for part, is_last in _marked_last(_stream_parts(ask, said)):
            if part is not None and not part.get("thought"):
                so_far = min(so_far + count_tokens(part.get("text", "")), said.counts.output)
            usage = {"usageMetadata": _usage(ask, _grown(said.counts, so_far))}
            if is_last:
                usage = {"usageMetadata": whole}
            if script.usage == "none" or (script.usage == "finish_chunk" and not is_last):
                usage = {}
            reason = FINISH_REASONS[said.finish] if is_last else None
            parts = [] if part is None else [part]
            for index in range(ask.choices):
                chunk = {"candidates": [_candidate(index, parts, reason)]}
                yield encode_event(chunk | usage | base)
        if script.usage == "repeated":
            yield encode_event({"usageMetadata": whole} | base)

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        where, message = written(refusal.path), refusal.problem
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

    def error_event(self, refusal: Refusal, request_id: str) -> bytes:
        return encode_event(self.refusal(refusal, request_id))

    def ping(self) -> bytes:
        return EMPTY_LINE

    def answer_headers(self, request_id: str) -> dict[str, str]:
        return {
            "server-timing": "gfet4t7; dur=12",
            "vary": "Origin, X-Origin, Referer",
            "x-content-type-options": "nosniff",
            "x-frame-options": "SAMEORIGIN",
            "set-cookie": "__demo=1; path=/; HttpOnly",
        }


def _model(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "baseModelId": name,
        "version": "1",
        "displayName": name.replace("-", " ").title(),
        "description": "A model of the built-in demo upstream.",
        "inputTokenLimit": 200_000,
        "outputTokenLimit": 32_000,
        "supportedGenerationMethods": list(ACTIONS),
        "thinking": True,
        "temperature": 1,
        "maxTemperature": 2,
        "topP": 0.95,
        "topK": 64,
    }


def _model_page(query: Mapping[str, str]) -> dict[str, Any]:
    size = query.get("pageSize", "0")
    if not re.fullmatch(r"[0-9]{1,9}", size):
        problem = f"Invalid value at 'page_size' (TYPE_INT32), \"{size}\""
        raise Refusal(problem, ("page_size",), "type")
    names = list(MODEL_NAMES)
    token = query.get("pageToken")
    if token is not None:
        if token not in map(_page_token, MODEL_NAMES):
            raise Refusal("Invalid page token.", kind="plain")
        names = [name for name in names if _page_token(name) > token]
    page = names[: min(int(size), MODELS_PAGE_MAX) or MODELS_PAGE]
    answer: dict[str, Any] = {"models": [_model(name) for name in page]}
    if len(page) < len(names):
        answer["nextPageToken"] = _page_token(page[-1])
    return answer


def _page_token(name: str) -> str:
    """Behind this model; tokens are in the order of the list."""
    return base64.urlsafe_b64encode(b"%04d" % MODEL_NAMES.index(name)).decode()


def _base(ask: Ask) -> dict[str, Any]:
    return {"modelVersion": ask.model, "responseId": secrets.token_urlsafe(16)}


def _candidate(index: int, parts: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
    content: dict[str, Any] = {"parts": parts} if parts else {}
    candidate = {"content": content | {"role": "model"}, "index": index}
    return candidate | ({"finishReason": reason} if reason else {})


def _shown(said: Said) -> Said:
    """What is held back for safety is not shown."""
    return replace(said, pieces=()) if said.finish == "refusal" else said


def _signs(ask: Ask, said: Said) -> bool:
    return bool(said.thoughts) or ask.model.startswith(SIGNING_PREFIX)


def _signature(said: Said) -> str:
    return base64.b64encode(sign_thoughts("".join(said.thoughts))).decode()


def _call_parts(ask: Ask, said: Said) -> Iterator[dict[str, Any]]:
    for place, call in enumerate(said.calls):
        part = {"functionCall": _call(ask, call)}
        if place == 0 and _signs(ask, said):
            yield part | {"thoughtSignature": _signature(said)}
        else:
            yield part


def _call(ask: Ask, call: Call) -> dict[str, Any]:
    """Only the newer models give their calls ids."""
    named = {"id": call.id} if ask.model.startswith(SIGNING_PREFIX) else {}
    return {**named, "name": call.name, "args": json.loads(call.arguments)}


def _stream_parts(ask: Ask, said: Said) -> Iterator[dict[str, Any]]:
    """The part of each chunk. What belongs to the end comes with an empty text."""
    if ask.thinking_shown:
        for thought in said.thoughts:
            yield {"text": thought, "thought": True}
    for piece in said.pieces:
        yield {"text": piece}
    yield from _call_parts(ask, said)
    if said.calls:
        yield {"text": ""}
    elif said.pieces and _signs(ask, said):
        yield {"text": "", "thoughtSignature": _signature(said)}


def _marked_last(
    parts: Iterator[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any] | None, bool]]:
    """Each part and whether it is the last; a None that is the last where there are no parts."""
    waiting = next(parts, None)
    for part in parts:
        yield waiting, False
        waiting = part
    yield waiting, True


def _grown(counts: Counts, output: int) -> Counts:
    return replace(counts, output=output)


def _usage(ask: Ask, counts: Counts) -> dict[str, Any]:
    """Of all candidates together; what they hold does not include the thoughts."""
    thoughts = counts.reasoning * ask.choices
    shown = (counts.output - counts.reasoning) * ask.choices
    usage: dict[str, Any] = {
        "promptTokenCount": counts.input,
        "candidatesTokenCount": shown,
        "totalTokenCount": counts.input + shown + thoughts,
        "promptTokensDetails": _prompt_details(ask, counts.input),
        "candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": shown}],
    }
    if thoughts:
        usage["thoughtsTokenCount"] = thoughts
    if counts.cached:
        usage["cachedContentTokenCount"] = counts.cached
        details = [{"modality": "TEXT", "tokenCount": counts.cached}]
        usage["cacheTokensDetails"] = details
    return usage


def _prompt_details(ask: Ask, tokens: int) -> list[dict[str, Any]]:
    images = min(ask.images * IMAGE_TOKENS, tokens)
    details = [{"modality": "TEXT", "tokenCount": tokens - images}]
    if images:
        details.append({"modality": "IMAGE", "tokenCount": images})
    return details


GENERATE_CONTENT: Family = GenerateContent()
