"""The demo vendor's generate-content. Shapes: public API as of November 2026."""

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise
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
    objects,
)
from demo.speech import count_tokens, last_words, prompt_tokens, sign

ACTION_PATH = re.compile(r"/(v1|v1beta)/models/(.+):([A-Za-z]+)")
ACTIONS = {
    "generateContent": "generate",
    "streamGenerateContent": "generate",
    "countTokens": "count",
}
SIGNING_PREFIX = "gemini-3"  # models with this prefix sign their function calls
FINISH_REASONS = {"stop": "STOP", "stop_sequence": "STOP", "length": "MAX_TOKENS", "tools": "STOP"}


class GenerateContent(Family):
    name = "generate_content"

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        action = ACTION_PATH.fullmatch(path)
        if action is not None and action[3] in ACTIONS:
            stream = action[3].startswith("stream")
            return Route(ACTIONS[action[3]], argument=action[2], stream=stream)
        # Other families have the path of /v1 too. The header tells the client's family.
        models = path == "/v1beta/models" or (path == "/v1/models" and "x-goog-api-key" in headers)
        return Route("models", "GET") if models else None

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        body = _field(body, "generateContentRequest") or body
        contents = objects(_field(body, "contents"))
        users = [_words(content) for content in contents if content.get("role") != "model"]
        last = _parts(contents[-1]) if contents else []
        parts = [part for content in contents for part in _parts(content)]
        media = [_field(part, "inlineData") or _field(part, "fileData") or {} for part in parts]
        config = _field(body, "generationConfig") or {}
        thinking = _field(config, "thinkingConfig") or {}
        budget, level = _field(thinking, "thinkingBudget"), _field(thinking, "thinkingLevel")
        thoughts_shown = bool(_field(thinking, "includeThoughts"))
        any_json = _field(config, "responseMimeType") == "application/json"
        schema = _schema(config, "responseSchema", "responseJsonSchema")
        tools, tool_mode = _read_tools(body)
        return ModelRequest(
            model=route.argument,
            prompt=last_words(users),
            input_tokens=prompt_tokens(*(body[name] for name in body if name != "model")),
            stream=route.stream,
            framing="sse" if route.query.get("alt") == "sse" else "json_array",
            fresh=all(_field(part, "functionResponse") is None for part in last),
            images=sum((_field(item, "mimeType") or "").startswith("image/") for item in media),
            tools=tools,
            tool_mode=tool_mode,
            schema={} if schema is None and any_json else schema,
            thinking=budget != 0 and (thoughts_shown or budget is not None or level is not None),
            thinking_shown=thoughts_shown,
            limit_tokens=_field(config, "maxOutputTokens"),
            stops=tuple(_field(config, "stopSequences") or ()),
            choices=_field(config, "candidateCount") or 1,
        )

    def lookup(self, route: Route) -> dict[str, Any]:
        models = [
            {
                "name": f"models/{name}",
                "displayName": name.replace("-", " ").title(),
                "inputTokenLimit": 200_000,
                "outputTokenLimit": 32_000,
                "supportedGenerationMethods": list(ACTIONS),
            }
            for name in MODEL_NAMES
        ]
        return {"models": models}

    def count(self, request: ModelRequest) -> dict[str, Any]:
        return {"totalTokens": request.input_tokens}

    def usage(self, request: ModelRequest, counts: TokenCounts) -> dict[str, Any]:
        """Return the usage. It counts all candidates together, without the tokens of the
        thoughts."""
        thoughts = counts.reasoning * request.choices
        visible = (counts.output - counts.reasoning) * request.choices
        usage = {
            "promptTokenCount": counts.input,
            "candidatesTokenCount": visible,
            "totalTokenCount": counts.input + visible + thoughts,
        }
        return {**usage, "thoughtsTokenCount": thoughts} if thoughts else usage

    def plain(self, request: ModelRequest, answer: ModelAnswer) -> dict[str, Any]:
        parts: list[dict[str, Any]] = []
        if answer.thoughts and request.thinking_shown:
            parts.append({"text": "".join(answer.thoughts), "thought": True})
        if answer.pieces:
            signed = _signs(request, answer)
            signature = {"thoughtSignature": _signature(answer)} if signed else {}
            parts.append({"text": "".join(answer.pieces), **signature})
        parts.extend(_call_parts(request, answer))
        reason = FINISH_REASONS[answer.finish]
        candidates = [_candidate(index, parts, reason) for index in range(request.choices)]
        usage = self.usage(request, answer.counts)
        return {"candidates": candidates, "usageMetadata": usage, **_base(request)}

    def events(self, request: ModelRequest, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
        base = _base(request)
        counts = answer.counts
        output = counts.reasoning
        for part, following in pairwise(chain(_stream_parts(request, answer), (None,))):
            assert part is not None
            if not part.get("thought"):
                output = min(output + count_tokens(part.get("text", "")), counts.output)
            is_last = following is None
            usage = self.usage(request, counts if is_last else replace(counts, output=output))
            reason = FINISH_REASONS[answer.finish] if is_last else None
            parts = [part] if part else []
            for index in range(request.choices):
                candidates = [_candidate(index, parts, reason)]
                yield {"candidates": candidates, "usageMetadata": usage, **base}

    def encode(self, event: Mapping[str, Any]) -> bytes:
        # Some readers treat these characters as line ends.
        data = encode_json(event).replace(b"\xe2\x80\xa8", b"\\u2028")
        return b"data: " + data.replace(b"\xe2\x80\xa9", b"\\u2029") + b"\r\n\r\n"

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        word = "INTERNAL" if refusal.status >= 500 else "INVALID_ARGUMENT"
        error = {"code": refusal.status, "message": refusal.message, "status": word}
        return {"error": error}


def json_array(events: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a stream of events as the JSON array that is sent without alt=sse."""
    mark = b"["
    for event in events:
        yield mark + event.removeprefix(b"data: ").strip()
        mark = b",\r\n"
    yield b"]"


def snake_case(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), name)


def _field(value: Mapping[str, Any], name: str) -> Any:
    """Return a field by its camelCase name, in either of its two spellings."""
    return value[name] if name in value else value.get(snake_case(name))


def _parts(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    return objects(_field(content, "parts"))


def _words(content: Mapping[str, Any]) -> str:
    texts = [part for part in _parts(content) if "text" in part and not part.get("thought")]
    return "\n".join(part["text"] for part in texts)


def _read_tools(body: Mapping[str, Any]) -> tuple[tuple[Tool, ...], ToolMode]:
    tools = tuple(
        Tool(declared["name"], _schema(declared, "parameters", "parametersJsonSchema") or {})
        for entry in objects(_field(body, "tools"))
        for declared in objects(_field(entry, "functionDeclarations"))
    )
    calling = _field(_field(body, "toolConfig") or {}, "functionCallingConfig") or {}
    names = _field(calling, "allowedFunctionNames")
    modes: dict[str, ToolMode] = {"ANY": "any", "NONE": "none"}
    mode = modes.get((calling.get("mode") or "").upper(), "auto")
    return tuple(tool for tool in tools if not names or tool.name in names), mode


def _schema(described: Mapping[str, Any], own: str, other: str) -> dict[str, Any] | None:
    schema: dict[str, Any] | None = _field(described, own)
    return _field(described, other) if schema is None else schema


def _base(request: ModelRequest) -> dict[str, Any]:
    return {"modelVersion": request.model, "responseId": secrets.token_urlsafe(16)}


def _candidate(index: int, parts: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
    content: dict[str, Any] = {"parts": parts} if parts else {}
    candidate = {"content": content | {"role": "model"}, "index": index}
    return candidate | ({"finishReason": reason} if reason else {})


def _signs(request: ModelRequest, answer: ModelAnswer) -> bool:
    return bool(answer.thoughts) or request.model.startswith(SIGNING_PREFIX)


def _signature(answer: ModelAnswer) -> str:
    """Return the signature of the thoughts before a part."""
    return sign(hashlib.sha256("".join(answer.thoughts).encode("utf-8", "replace")).digest())


def _call_parts(request: ModelRequest, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
    for place, call in enumerate(answer.calls):
        part = {"functionCall": _call(request, call)}
        if place == 0 and _signs(request, answer):
            yield part | {"thoughtSignature": _signature(answer)}
        else:
            yield part


def _call(request: ModelRequest, call: ToolCall) -> dict[str, Any]:
    """Encode a call. Only newer models give their calls ids."""
    named = {"id": call.id} if request.model.startswith(SIGNING_PREFIX) else {}
    return {**named, "name": call.name, "args": json.loads(call.arguments)}


def _stream_parts(request: ModelRequest, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
    """Yield the part of each chunk, at least one. Parts that belong to the end have an
    empty text."""
    if request.thinking_shown:
        for thought in answer.thoughts:
            yield {"text": thought, "thought": True}
    for piece in answer.pieces:
        yield {"text": piece}
    yield from _call_parts(request, answer)
    if answer.calls:
        yield {"text": ""}
    elif answer.pieces and _signs(request, answer):
        yield {"text": "", "thoughtSignature": _signature(answer)}
    elif not answer.pieces and not (answer.thoughts and request.thinking_shown):
        yield {}
