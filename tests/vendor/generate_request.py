"""Checks of requests by the generate-content vendor.

proto_fields checks fields and types before. Source: rules in the public API's documentation as of
November 2026.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from demo.family import Route
from demo.generate_content import SIGNING_PREFIX, snake_case
from tests.vendor.family import Path, Refusal, is_signed
from tests.vendor.models import check_generate_model
from tests.vendor.proto_fields import read_message

STOPS_MAX = 5
CHOICES_MAX = 8
TOOLS_MAX = 512
LOGPROBS_MAX = 20
THINKING_TOKENS_MAX = 32_768
TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
MIME_TYPE = re.compile(r"[a-z]+/[a-zA-Z0-9.+-]+")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
ANSWER_TYPES = ("text/plain", "application/json")
ROLES = ("user", "model", "function")
PART_KINDS = (
    *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode"),
    *("codeExecutionResult", "toolCall", "toolResponse"),
)
STRING_FORMATS = ("enum", "date-time")
# Query parameters of every method of the vendor.
SYSTEM_PARAMETERS = frozenset(
    (
        *("key", "alt", "$alt", "prettyPrint", "fields", "$fields", "quotaUser", "callback"),
        *("access_token", "oauth_token", "uploadType", "upload_protocol", "$.xgafv"),
    )
)

# Documented values for calls that another model made.
BYPASSES = tuple(
    base64.urlsafe_b64decode(value)
    for value in ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
)
UNSIGNED = (
    "Function call is missing a thought_signature in functionCall parts. This is required for "
    "tools to work correctly. Additional data, function call `{name}`."
)


@dataclass(slots=True)
class Turn:
    """Consecutive contents of one side, as the vendor joins them."""

    model: bool
    parts: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)

    def of(self, kind: str) -> list[tuple[Path, dict[str, Any]]]:
        """Return the parts of one kind with their places: (path, the whole part)."""
        return [(path, part) for path, part in self.parts if kind in part]


def check_query(route: Route, *more: str) -> None:
    for name in route.query:
        if name not in SYSTEM_PARAMETERS and name not in more:
            problem = f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query '
            problem += f"parameter. Field '{name}' could not be found in request message."
            raise Refusal(problem, (), "type")
    alt = route.query.get("alt", "json")
    if alt not in ("json", "sse"):
        raise Refusal(f"Invalid value '{alt}' of the query parameter alt.", kind="plain")


def check_request(body: dict[str, Any], route: Route) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the request with camelCase names, and as it was sent, for counting its words.

    Raises Refusal: kind "type" if it is not a message of the API, otherwise "value" or "plain".
    """
    check_query(route)
    if route.argument.startswith("models/"):
        raise Refusal("unexpected model name format", ("model",))
    sent = body
    if route.task == "count":
        request = read_message("CountTokensRequest", body)
        if "generateContentRequest" in request:
            if "contents" in request:
                message = "contents and generate_content_request may not be set together"
                raise Refusal(message, ("contents",))
            request = request["generateContentRequest"]
            sent = body.get("generateContentRequest") or body.get("generate_content_request") or {}
    else:
        request = read_message("GenerateContentRequest", body)
    _check_generate(request, route)
    return request, sent


def _check_generate(request: dict[str, Any], route: Route) -> None:
    turns = _read_contents(request)
    _check_calls(turns)
    for turn in turns:
        for _, part in turn.of("thoughtSignature"):
            if part["thoughtSignature"]:
                _check_signature(part["thoughtSignature"])
    if route.argument.startswith(SIGNING_PREFIX):
        _check_signatures(turns)
    check_generate_model(request, route.argument)
    _check_system(request)
    if "cachedContent" in request:
        message = "CachedContent not found (or permission denied)"
        raise Refusal(message, kind="plain", status=403)
    config = request.get("generationConfig", {})
    _check_numbers(config)
    _check_tools(request)
    _check_thinking(config)
    _check_format(config)


# Contents.


def _read_contents(request: dict[str, Any]) -> list[Turn]:
    contents = request.get("contents", [])
    if not contents:
        raise Refusal("contents is not specified", ("contents",))
    turns: list[Turn] = []
    for index, content in enumerate(contents):
        path = ("contents", index)
        role = content.get("role") or "user"
        if role not in ROLES:
            raise Refusal("Please use a valid role: user, model.", kind="plain")
        if not turns or turns[-1].model is not (role == "model"):
            turns.append(Turn(role == "model"))
        turns[-1].parts += _read_parts(content, path, model=role == "model")
    return turns


def _read_parts(
    content: dict[str, Any], path: Path, *, model: bool
) -> Iterator[tuple[Path, dict[str, Any]]]:
    if not content.get("parts"):
        raise Refusal("contents.parts must not be empty.", (*path, "parts"))
    for index, part in enumerate(content["parts"]):
        at = (*path, "parts", index)
        _check_part(part, at)
        if ("functionResponse" if model else "functionCall") in part:
            problem = "Please ensure that function calls are of the role model, and their responses"
            raise Refusal(problem + " of the role user.", kind="plain")
        yield at, part


def _check_part(part: dict[str, Any], path: Path) -> None:
    kinds = [kind for kind in PART_KINDS if kind in part]
    if not kinds:
        problem = "required oneof field 'data' must have one initialized field"
        raise Refusal(problem, (*path, "data"))
    if len(kinds) > 1:
        problem = f"Invalid JSON payload received. Unknown name \"{kinds[1]}\": oneof field 'data'"
        raise Refusal(f"{problem} is already set by '{kinds[0]}'.", path, "type")
    kind = kinds[0]
    at = (*path, snake_case(kind))
    if kind in ("inlineData", "fileData"):
        _check_media(part[kind], at)
    elif kind in ("functionCall", "functionResponse"):
        if not part[kind].get("name"):
            raise Refusal("Name cannot be empty.", (*at, "name"))
        if kind == "functionResponse" and "response" not in part[kind]:
            raise Refusal("response must be set.", (*at, "response"))


def _check_media(media: dict[str, Any], path: Path) -> None:
    if "data" not in media and "fileUri" not in media:
        raise Refusal("must hold data or a file_uri", path)
    kind = media.get("mimeType", "")
    if not kind and "data" in media:
        raise Refusal("mime_type must be set", (*path, "mime_type"))
    unknown_image = kind.startswith("image/") and kind not in IMAGE_TYPES
    if kind and (unknown_image or not MIME_TYPE.fullmatch(kind)):
        raise Refusal(f"Unsupported MIME type: {kind}", kind="plain")
    if media.get("data") == b"":
        raise Refusal("Unable to process input: the data of a part are empty.", kind="plain")


def _check_system(request: dict[str, Any]) -> None:
    for index, part in enumerate(request.get("systemInstruction", {}).get("parts", [])):
        if "text" not in part or len(part) > 1:
            path = ("system_instruction", "parts", index)
            raise Refusal("system_instruction may hold text only", path)


def _check_calls(turns: list[Turn]) -> None:
    """Check that function calls follow content of the user, and that the next turn answers each."""
    opened: list[dict[str, Any]] = []
    for index, turn in enumerate(turns):
        answers = turn.of("functionResponse")
        if len(answers) != len(opened):
            raise _uneven()
        for path, part in answers:
            _check_answer(part["functionResponse"], path, opened)
        opened = [part["functionCall"] for _, part in turn.of("functionCall")]
        if opened and index == 0:
            problem = "Please ensure that function call turn comes immediately after a user turn "
            raise Refusal(problem + "or after a function response turn.", kind="plain")
    if opened:
        raise _uneven()


def _uneven() -> Refusal:
    problem = "Please ensure that the number of function response parts is equal to the number of "
    return Refusal(problem + "function call parts of the function call turn.", kind="plain")


def _check_answer(answer: dict[str, Any], path: Path, opened: list[dict[str, Any]]) -> None:
    """Remove the answered call from the open ones; ids decide if both have one."""
    for place, call in enumerate(opened):
        ids = call.get("id"), answer.get("id")
        if call["name"] == answer["name"] and (None in ids or ids[0] == ids[1]):
            del opened[place]
            return
    problem = f"answers no function call of the turn before: '{answer['name']}'"
    raise Refusal(problem, (*path, "function_response", "name"))


def _check_signatures(turns: list[Turn]) -> None:
    """Check that the first call of each step since the user's last message has a signature."""
    spoken = [index for index, turn in enumerate(turns) if not turn.model and _has_news(turn)]
    for turn in turns[spoken[-1] if spoken else 0 :]:
        for _, part in turn.of("functionCall")[:1]:
            if not part.get("thoughtSignature"):
                name = part["functionCall"]["name"]
                raise Refusal(UNSIGNED.format(name=name), kind="plain")


def _check_signature(signature: bytes) -> None:
    if signature not in BYPASSES and not is_signed(signature):
        raise Refusal("Corrupted thought signature.", kind="plain")


def _has_news(turn: Turn) -> bool:
    return any("functionResponse" not in part for _, part in turn.parts)


# Settings.


def _check_numbers(config: dict[str, Any]) -> None:
    for name, low, high in (
        ("temperature", 0, 2),
        ("topP", 0, 1),
        ("presencePenalty", -2, 2),
        ("frequencyPenalty", -2, 2),
        ("topK", 1, 2**31),
        ("maxOutputTokens", 1, 2**31),
        ("candidateCount", 1, CHOICES_MAX),
        ("logprobs", 0, LOGPROBS_MAX),
    ):
        if name in config and not low <= config[name] <= high:
            spelled = snake_case(name)
            raise _wrong(f"{spelled} must be in the range [{low}, {high}].", spelled)
    if "logprobs" in config and not config.get("responseLogprobs"):
        raise _wrong("logprobs needs response_logprobs to be true", "logprobs")
    stops = config.get("stopSequences", [])
    if len(stops) > STOPS_MAX:
        raise _wrong(f"must hold {STOPS_MAX} entries at most", "stop_sequences")
    if "" in stops:
        raise _wrong("stop sequences must not be empty", "stop_sequences")
    if set(config.get("responseModalities", ())) - {"TEXT"}:
        problem = "The requested combination of response modalities is not supported by the model."
        raise Refusal(problem, kind="plain")


def _wrong(problem: str, *place: str) -> Refusal:
    return Refusal(problem, ("generation_config", *place))


def _check_thinking(config: dict[str, Any]) -> None:
    thinking = config.get("thinkingConfig", {})
    budget, level = thinking.get("thinkingBudget"), thinking.get("thinkingLevel")
    if budget is not None and level is not None:
        message = "You can only set only one of thinking budget and thinking level."
        raise Refusal(message, kind="plain")
    if budget is not None and not -1 <= budget <= THINKING_TOKENS_MAX:
        message = f"thinking_budget must be in the range [-1, {THINKING_TOKENS_MAX}]."
        raise _wrong(message, "thinking_config", "thinking_budget")


def _check_format(config: dict[str, Any]) -> None:
    kind = config.get("responseMimeType", "text/plain")
    if kind not in ANSWER_TYPES:
        problem = f"allowed mimetypes of this vendor are {' and '.join(ANSWER_TYPES)}."
        raise _wrong(problem, "response_mime_type")
    older, newer = config.get("responseSchema"), config.get("responseJsonSchema")
    if older is not None and newer is not None:
        raise _wrong("may not be set together with response_json_schema", "response_schema")
    if (older is not None or newer is not None) and kind != "application/json":
        name = "response_schema" if newer is None else "response_json_schema"
        raise _wrong("only allowed with response_mime_type 'application/json'", name)
    if older is not None:
        _check_schema(older, ("generation_config", "response_schema"))
    if newer is not None:
        _check_json_schema(newer, ("generation_config", "response_json_schema"))


def _check_json_schema(value: Any, path: Path) -> None:
    if not isinstance(value, dict):
        raise Refusal("must be a JSON schema", path)


def _check_schema(schema: dict[str, Any], path: Path) -> None:
    kind, formatted = schema.get("type"), schema.get("format")
    if kind == "ARRAY" and "items" not in schema:
        raise Refusal("missing field.", (*path, "items"))
    properties = schema.get("properties", {})
    if kind == "OBJECT" and not properties:
        raise Refusal("should be non-empty for OBJECT type", (*path, "properties"))
    if "enum" in schema and kind != "STRING":
        raise Refusal("only allowed for STRING type", (*path, "enum"))
    if kind == "STRING" and formatted is not None and formatted not in STRING_FORMATS:
        problem = "only 'enum' and 'date-time' are supported for STRING type"
        raise Refusal(problem, (*path, "format"))
    for index, name in enumerate(schema.get("required", ())):
        if name not in properties:
            raise Refusal("property is not defined", (*path, "required", index))
    if "items" in schema:
        _check_schema(schema["items"], (*path, "items"))
    for name, inner in properties.items():
        _check_schema(inner, (*path, f"properties[{name}]"))
    for index, inner in enumerate(schema.get("anyOf", ())):
        _check_schema(inner, (*path, "any_of", index))


# Tools.


def _check_tools(request: dict[str, Any]) -> None:
    names: set[str] = set()
    for index, entry in enumerate(request.get("tools", [])):
        for place, declared in enumerate(entry.get("functionDeclarations", [])):
            _check_tool(declared, ("tools", index, "function_declarations", place))
            if declared["name"] in names:
                message = f"Duplicate function declaration found: {declared['name']}"
                raise Refusal(message, kind="plain")
            names.add(declared["name"])
    if len(names) > TOOLS_MAX:
        raise Refusal(f"must declare {TOOLS_MAX} functions at most", ("tools",))
    _check_calling(names, request.get("toolConfig", {}).get("functionCallingConfig", {}))


def _check_tool(declared: dict[str, Any], path: Path) -> None:
    if not TOOL_NAME.fullmatch(declared.get("name", "")):
        message = "Invalid function name. Must start with a letter or an underscore, then letters, "
        message += "digits, underscores, dots, colons and dashes, with a maximum length of 128."
        raise Refusal(message, (*path, "name"))
    older, newer = declared.get("parameters"), declared.get("parametersJsonSchema")
    if older is not None and newer is not None:
        message = "parameters and parameters_json_schema may not be set together"
        raise Refusal(message, (*path, "parameters"))
    if newer is not None:
        _check_json_schema(newer, (*path, "parameters_json_schema"))
    if older is not None:
        if older.get("type") != "OBJECT":
            raise Refusal("parameters schema should be of type OBJECT", (*path, "parameters"))
        _check_schema(older, (*path, "parameters"))


def _check_calling(names: set[str], calling: dict[str, Any]) -> None:
    forced = calling.get("mode") in ("ANY", "VALIDATED")
    path = ("tool_config", "function_calling_config", "allowed_function_names")
    if forced and not names:
        message = "Function calling config is set without function_declarations."
        raise Refusal(message, kind="plain")
    allowed = calling.get("allowedFunctionNames", [])
    if allowed and not forced:
        message = "allowed_function_names may only be set when the mode is ANY or VALIDATED"
        raise Refusal(message, path)
    for name in allowed:
        if name not in names:
            raise Refusal(f"'{name}' is not found in the function declarations", path)
