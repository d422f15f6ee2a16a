"""What the chat completions vendor accepts: the checks of a request, and what it asks for.

Source: protocols of the public API as of November 2026 (fields, ranges, rules between messages).
A field that is not known is accepted, as the real vendors of this family do.
"""

from __future__ import annotations

from typing import Any

from demo.family import ModelRequest, Tool
from demo.speech import prompt_tokens
from tests.vendor.family import Refusal
from tests.vendor.fields import Fields, read_schema, read_strings, read_tool_name
from tests.vendor.models import check_openai_model
from tests.vendor.strict_schemas import check_strict

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEXT_ROLES = ("system", "developer", "tool")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "flex", "scale", "priority", "fast")
CHOICES_MAX = 128
STOPS_MAX = 4
TOOLS_MAX = 128
TOOL_NAME_MAX = 64
# Fields of other families that only a gateway's mistake can bring here.
FOREIGN_FIELDS = (
    *("contents", "generationConfig", "include", "input", "instructions", "max_output_tokens"),
    *("output_config", "stop_sequences", "system", "systemInstruction", "text", "thinking"),
)


def read_request(body: dict[str, Any]) -> ModelRequest:
    request = Fields(body)
    for name in FOREIGN_FIELDS:
        if name in body:
            problem = f"Unrecognized request argument supplied: {name}"
            raise Refusal(problem, request.at(name), "plain", code="unknown_parameter")
    model = request.text("model")
    messages = request.entries("messages", filled=True)
    prompt, images = _check_messages(messages)
    _check_numbers(request)
    tools, tool_mode = _read_tools(request)
    stream = request.boolean("stream")
    schema = _read_format(request)
    check_openai_model(request, model, "reasoning_effort", schema=bool(schema))
    return ModelRequest(
        model=model,
        prompt=prompt,
        input_tokens=prompt_tokens(body["messages"], body.get("tools")),
        stream=stream,
        fresh=messages[-1].value["role"] != "tool",
        images=images,
        tools=tools,
        tool_mode=tool_mode,
        parallel=body.get("parallel_tool_calls") is not False,
        schema=schema,
        thinking=request.choice("reasoning_effort", *EFFORTS) not in (None, "none"),
        limit_tokens=_read_limit(request),
        stops=_read_stops(request),
        choices=request.integer("n", 1, CHOICES_MAX) or 1,
        include_usage=_read_stream_options(request, stream),
    )


def _check_numbers(request: Fields) -> None:
    request.number("temperature", 0, 2)
    request.number("top_p", 0, 1)
    request.number("frequency_penalty", -2, 2)
    request.number("presence_penalty", -2, 2)
    request.integer("seed", -(2**63), 2**63 - 1)
    request.object("logit_bias")
    request.object("metadata")
    request.string("user")
    request.boolean("parallel_tool_calls")
    request.choice("service_tier", *TIERS)
    request.choice("verbosity", "low", "medium", "high")
    if request.integer("top_logprobs", 0, 20) is not None and not request.boolean("logprobs"):
        raise Refusal("needs 'logprobs' to be true", request.at("top_logprobs"))


def _read_limit(request: Fields) -> int | None:
    newer = request.integer("max_completion_tokens", 1)
    older = request.integer("max_tokens", 1)
    if newer is not None and older is not None:
        problem = "cannot be set together with 'max_completion_tokens'"
        raise Refusal(problem, request.at("max_tokens"))
    return older if newer is None else newer


def _read_stops(request: Fields) -> tuple[str, ...]:
    if isinstance(request.value.get("stop"), str):
        return (request.text("stop"),)
    return read_strings(request, "stop", STOPS_MAX)


def _read_stream_options(request: Fields, stream: bool) -> bool:
    options = request.object("stream_options")
    if options is None:
        return False
    if not stream:
        problem = "is only allowed when 'stream' is true"
        raise Refusal(problem, request.at("stream_options"))
    options.boolean("include_obfuscation")
    return options.boolean("include_usage")


def _read_format(request: Fields) -> dict[str, Any] | None:
    wanted = request.object("response_format")
    if wanted is None:
        return None
    wanted.required("type")
    kind = wanted.choice("type", "text", "json_object", "json_schema")
    if kind == "text":
        return None
    if kind == "json_object":
        return {}
    wanted.required("json_schema")
    described = Fields(wanted.value["json_schema"], wanted.at("json_schema"))
    read_tool_name(described, TOOL_NAME_MAX)
    described.required("schema")
    schema = read_schema(described, "schema")
    if described.boolean("strict"):
        owner = f"response_format '{described.value['name']}'"
        check_strict(schema, described.at("schema"), owner)
    return schema


# Tools.


def _read_tools(request: Fields) -> tuple[tuple[Tool, ...], Any]:
    entries = request.entries("tools")
    if request.value.get("tools") == [] or len(entries) > TOOLS_MAX:
        raise Refusal(f"must hold 1 to {TOOLS_MAX} entries", request.at("tools"))
    tools = tuple(_read_tool(entry) for entry in entries)
    choice = request.value.get("tool_choice")
    if choice is None:
        return tools, "auto"
    if not tools:
        raise Refusal("is only allowed when 'tools' are given", request.at("tool_choice"))
    if isinstance(choice, str):
        request.choice("tool_choice", "none", "auto", "required")
        return tools, "any" if choice == "required" else choice
    return _narrowed(Fields(choice, request.at("tool_choice")), tools)


def _read_tool(entry: Fields) -> Tool:
    entry.required("type")
    kind = entry.choice("type", "function", "custom") or ""
    entry.required(kind)
    described = Fields(entry.value[kind], entry.at(kind))
    name = read_tool_name(described, TOOL_NAME_MAX)
    described.string("description")
    if kind == "custom":
        described.object("format")
        return Tool(name, {}, custom=True)
    schema = read_schema(described, "parameters")
    if described.boolean("strict"):
        check_strict(schema, described.at("parameters"), f"function '{name}'")
    return Tool(name, schema)


def _narrowed(choice: Fields, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], Any]:
    choice.required("type")
    kind = choice.choice("type", "function", "custom", "allowed_tools") or ""
    choice.required(kind)
    inner = Fields(choice.value[kind], choice.at(kind))
    if kind == "allowed_tools":
        mode = inner.choice("mode", "auto", "required")
        allowed = [
            entry.object("function") or entry.object("custom") or entry
            for entry in inner.entries("tools", filled=True)
        ]
        named = [entry.text("name") for entry in allowed]
        chosen = tuple(tool for tool in tools if tool.name in named)
        return chosen, "any" if mode == "required" else "auto"
    name = inner.text("name")
    chosen = tuple(tool for tool in tools if tool.name == name)
    if not chosen:
        raise Refusal(f"names the tool '{name}', which is not in 'tools'", choice.path)
    return chosen, "any"


# Messages.


def _check_messages(messages: list[Fields]) -> tuple[str, int]:
    """The last words of the user, and the number of images in all messages."""
    prompt, images = "", 0
    open_ids: list[str] = []
    for message in messages:
        message.required("role")
        role = message.choice("role", *ROLES)
        message.string("name")
        if role == "tool":
            called = message.text("tool_call_id")
            if called not in open_ids:
                problem = f"answers no tool call of the message before: '{called}'"
                raise Refusal(problem, message.at("tool_call_id"))
            open_ids.remove(called)
        elif open_ids:
            raise _unanswered(open_ids, message)
        if role == "assistant":
            open_ids = _read_calls(message)
        text, seen = _read_content(message, str(role), optional=bool(open_ids))
        images += seen
        if role == "user":
            prompt = text
    if open_ids:
        raise _unanswered(open_ids, messages[-1])
    return prompt, images


def _unanswered(open_ids: list[str], message: Fields) -> Refusal:
    ids = ", ".join(open_ids)
    return Refusal(f"tool calls must be answered by 'tool' messages first: {ids}", message.path)


def _read_calls(message: Fields) -> list[str]:
    ids = []
    for call in message.entries("tool_calls"):
        ids.append(call.text("id"))
        call.required("type")
        kind = call.choice("type", "function", "custom") or ""
        call.required(kind)
        described = Fields(call.value[kind], call.at(kind))
        described.text("name")
        text = "arguments" if kind == "function" else "input"
        described.required(text)
        described.string(text)
    if message.value.get("tool_calls") == [] or len(set(ids)) != len(ids):
        raise Refusal("must hold calls with ids of their own", message.at("tool_calls"))
    return ids


def _read_content(message: Fields, role: str, *, optional: bool) -> tuple[str, int]:
    content = message.value.get("content")
    if content is None:
        # Old function calls, refusals and audio stand in for the text of an assistant.
        stands_in = any(map(message.has, ("function_call", "refusal", "audio")))
        if role != "assistant" or not (optional or stands_in):
            raise Refusal("required", message.at("content"), "missing")
        return "", 0
    if isinstance(content, str):
        return content, 0
    if not isinstance(content, list):
        raise Refusal("a string or an array of parts", message.at("content"), "type")
    parts = [_read_part(part, role) for part in message.entries("content", filled=True)]
    return "\n".join(text for text, _ in parts if text), sum(image for _, image in parts)


def _read_part(part: Fields, role: str) -> tuple[str, int]:
    part.required("type")
    if role in TEXT_ROLES:
        kind = part.choice("type", "text")
    elif role == "assistant":
        kind = part.choice("type", "text", "refusal")
    else:
        kind = part.choice("type", "text", "image_url", "input_audio", "file")
    if kind in ("text", "refusal"):
        part.required(kind)
        return part.string(kind) or "", 0
    part.required(str(kind))
    inner = Fields(part.value[str(kind)], part.at(str(kind)))
    if kind == "image_url":
        _check_image(inner)
        return "", 1
    if kind == "input_audio":
        inner.text("data")
        inner.required("format")
        inner.choice("format", "wav", "mp3")
    elif not (inner.has("file_data") or inner.has("file_id")):
        raise Refusal("required", inner.at("file_data"), "missing")
    return "", 0


def _check_image(image: Fields) -> None:
    url = image.text("url")
    if not url.startswith(("https://", "http://", "data:image/")):
        raise Refusal("must be an http(s) URL or a data URL of an image", image.at("url"))
    image.choice("detail", "auto", "low", "high", "original")
