"""Checks of requests by the chat completions vendor.

The openai SDK gives the fields and types; this module has the rules between them. Source:
protocols of the public API as of November 2026. Unknown fields are accepted, as by the real
vendors of this family.
"""

from __future__ import annotations

from typing import Any

from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from tests.vendor.family import Refusal
from tests.vendor.fields import Fields, read_schema, read_tool_name
from tests.vendor.models import check_openai_model
from tests.vendor.sdk_types import RequestType
from tests.vendor.strict_schemas import check_strict

CREATE = RequestType(CompletionCreateParamsBase, forbid=False)
CHOICES_MAX = 128
STOPS_MAX = 4
TOOLS_MAX = 128
TOOL_NAME_MAX = 64
# Fields of other families; they can get here only by a mistake of the gateway.
FOREIGN_FIELDS = (
    *("contents", "generationConfig", "include", "input", "instructions", "max_output_tokens"),
    *("output_config", "stop_sequences", "system", "systemInstruction", "text", "thinking"),
)


def check_request(body: dict[str, Any]) -> None:
    """Raise Refusal for what the vendor would refuse."""
    request = Fields(body)
    for name in FOREIGN_FIELDS:
        if name in body:
            message = f"Unrecognized request argument supplied: {name}"
            raise Refusal(message, request.at(name), "plain", code="unknown_parameter")
    model = request.text("model")
    messages = request.entries("messages", filled=True)
    CREATE.check(body)
    _check_messages(messages)
    _check_numbers(request)
    _check_tools(request)
    stream = request.boolean("stream")
    if request.has("stream_options") and not stream:
        raise Refusal("is only allowed when 'stream' is true", request.at("stream_options"))
    schema = _check_format(request)
    check_openai_model(request, model, "reasoning_effort", schema=schema)


def _check_numbers(request: Fields) -> None:
    request.number("temperature", 0, 2)
    request.number("top_p", 0, 1)
    request.number("frequency_penalty", -2, 2)
    request.number("presence_penalty", -2, 2)
    request.integer("seed", -(2**63), 2**63 - 1)
    request.integer("n", 1, CHOICES_MAX)
    request.integer("max_completion_tokens", 1)
    request.integer("max_tokens", 1)
    if request.has("max_tokens") and request.has("max_completion_tokens"):
        message = "cannot be set together with 'max_completion_tokens'"
        raise Refusal(message, request.at("max_tokens"))
    if request.integer("top_logprobs", 0, 20) is not None and not request.boolean("logprobs"):
        raise Refusal("needs 'logprobs' to be true", request.at("top_logprobs"))
    stops = request.value.get("stop")
    if stops == "" or (isinstance(stops, list) and len(stops) > STOPS_MAX):
        raise Refusal(f"must hold 1 to {STOPS_MAX} entries", request.at("stop"))


def _check_format(request: Fields) -> bool:
    """Check the schema of the answer's format. Return True if there is one."""
    described = request.value.get("response_format") or {}
    if described.get("type") != "json_schema":
        return False
    inner = Fields(described["json_schema"], ("response_format", "json_schema"))
    read_tool_name(inner, TOOL_NAME_MAX)
    inner.required("schema")
    schema = read_schema(inner, "schema")
    if inner.boolean("strict"):
        check_strict(schema, inner.at("schema"), f"response_format '{inner.value['name']}'")
    return bool(schema)


# Tools.


def _check_tools(request: Fields) -> None:
    tools = request.entries("tools")
    if request.value.get("tools") == [] or len(tools) > TOOLS_MAX:
        raise Refusal(f"must hold 1 to {TOOLS_MAX} entries", request.at("tools"))
    names = [_check_tool(tool) for tool in tools]
    choice = request.value.get("tool_choice")
    if choice is not None and not tools:
        raise Refusal("is only allowed when 'tools' are given", request.at("tool_choice"))
    if not isinstance(choice, dict) or choice["type"] == "allowed_tools":
        return
    name = choice[choice["type"]]["name"]
    if name not in names:
        message = f"names the tool '{name}', which is not in 'tools'"
        raise Refusal(message, request.at("tool_choice"))


def _check_tool(tool: Fields) -> str:
    kind = tool.value["type"]
    described = Fields(tool.value[kind], tool.at(kind))
    name = read_tool_name(described, TOOL_NAME_MAX)
    if kind == "function":
        schema = read_schema(described, "parameters")
        if described.boolean("strict"):
            check_strict(schema, described.at("parameters"), f"function '{name}'")
    return name


# Messages.


def _check_messages(messages: list[Fields]) -> None:
    open_ids: list[str] = []
    for message in messages:
        role = message.value["role"]
        if role == "tool":
            called = message.value["tool_call_id"]
            if called not in open_ids:
                text = f"answers no tool call of the message before: '{called}'"
                raise Refusal(text, message.at("tool_call_id"))
            open_ids.remove(called)
        elif open_ids:
            raise _unanswered(open_ids, message)
        if role == "assistant":
            open_ids = _read_calls(message)
        _check_content(message, optional=bool(open_ids))
    if open_ids:
        raise _unanswered(open_ids, messages[-1])


def _unanswered(open_ids: list[str], message: Fields) -> Refusal:
    ids = ", ".join(open_ids)
    return Refusal(f"tool calls must be answered by 'tool' messages first: {ids}", message.path)


def _read_calls(message: Fields) -> list[str]:
    calls = message.entries("tool_calls")
    for call in calls:
        Fields(call.value[call.value["type"]], call.at(call.value["type"])).text("name")
    ids = [call.text("id") for call in calls]
    if message.value.get("tool_calls") == [] or len(set(ids)) != len(ids):
        raise Refusal("must hold calls with ids of their own", message.at("tool_calls"))
    return ids


def _check_content(message: Fields, *, optional: bool) -> None:
    if not message.has("content"):
        # Old function calls, refusals and audio may replace the text of an assistant.
        stands_in = any(map(message.has, ("function_call", "refusal", "audio")))
        if message.value["role"] != "assistant" or not (optional or stands_in):
            raise Refusal("required", message.at("content"), "missing")
    elif isinstance(message.value["content"], list):
        for part in message.entries("content", filled=True):
            _check_part(part)


def _check_part(part: Fields) -> None:
    match part.value["type"]:
        case "image_url":
            image = Fields(part.value["image_url"], part.at("image_url"))
            if not image.text("url").startswith(("https://", "http://", "data:image/")):
                message = "must be an http(s) URL or a data URL of an image"
                raise Refusal(message, image.at("url"))
        case "input_audio":
            Fields(part.value["input_audio"], part.at("input_audio")).text("data")
        case "file":
            file = Fields(part.value["file"], part.at("file"))
            if not (file.has("file_data") or file.has("file_id")):
                raise Refusal("required", file.at("file_data"), "missing")
