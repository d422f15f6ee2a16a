"""What the responses vendor accepts as tools and as the choice among them.

Source: the official types of the openai SDK as of November 2026. A field that is not known is
refused, as the real vendor refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from demo.family import Tool
from tests.vendor.family import Refusal, written
from tests.vendor.fields import Fields, read_schema, read_tool_name
from tests.vendor.strict_schemas import check_strict

TOOLS_MAX = 128
TOOL_NAME_MAX = 64
FUNCTION_FIELDS = (
    *("type", "name", "description", "parameters", "strict", "async", "defer_loading"),
    *("output_schema", "allowed_callers"),
)
CUSTOM_FIELDS = (
    *("type", "name", "description", "format", "async", "defer_loading", "allowed_callers"),
)
# Tools the vendor runs itself: accepted, and never called; their insides are not checked.
HOSTED = (
    *("file_search", "web_search", "web_search_2025_08_26", "web_search_preview"),
    *("web_search_preview_2025_03_11", "computer", "computer_use_preview", "mcp"),
    *("code_interpreter", "image_generation", "local_shell", "shell", "apply_patch"),
    *("tool_search", "programmatic_tool_calling"),
)
# The other words by which a choice may name a hosted tool.
HOSTED_CHOICES = (*HOSTED, "computer_use")

Mode = Literal["auto", "none", "any"]


def check_known(fields: Fields, allowed: Iterable[str]) -> None:
    for name in fields.value:
        if name not in allowed:
            where = written(fields.at(name))
            problem = f"Unknown parameter: '{where}'."
            raise Refusal(problem, fields.at(name), "plain", code="unknown_parameter")


def read_tools(request: Fields) -> tuple[tuple[Tool, ...], Mode]:
    """The tools that may be called, and whether one must be."""
    entries = request.entries("tools")
    if len(entries) > TOOLS_MAX:
        raise Refusal(f"must hold {TOOLS_MAX} entries at most", request.at("tools"))
    tools = tuple(tool for entry in entries for tool in _read_tool(entry))
    choice = request.value.get("tool_choice")
    if choice is None:
        return tools, "auto"
    if isinstance(choice, str):
        request.choice("tool_choice", "none", "auto", "required")
        if choice == "required" and not entries:
            problem = "Tool choice 'required' must be specified with 'tools' parameter."
            raise Refusal(problem, request.at("tool_choice"), "plain")
        mode: Mode = "none" if choice == "none" else "any" if choice == "required" else "auto"
        return tools, mode
    return _narrowed(Fields(choice, request.at("tool_choice")), tools, entries)


def _read_tool(entry: Fields) -> list[Tool]:
    entry.required("type")
    kind = entry.choice("type", "function", "custom", "namespace", *HOSTED)
    if kind == "function":
        return [_read_function(entry)]
    if kind == "custom":
        name = read_tool_name(entry, TOOL_NAME_MAX)
        check_known(entry, CUSTOM_FIELDS)
        entry.string("description")
        _check_custom_format(entry.object("format"))
        return [Tool(name, {}, custom=True)]
    if kind != "namespace":
        return []
    read_tool_name(entry, TOOL_NAME_MAX)
    check_known(entry, ("type", "name", "description", "tools"))
    entry.required("description")
    entry.string("description")
    for inner in entry.entries("tools", filled=True):
        inner.required("type")
        inner.choice("type", "function", "custom")
    return [tool for inner in entry.entries("tools") for tool in _read_tool(inner)]


def _read_function(entry: Fields) -> Tool:
    name = read_tool_name(entry, TOOL_NAME_MAX)
    check_known(entry, FUNCTION_FIELDS)
    entry.string("description")
    entry.boolean("defer_loading")
    schema = read_schema(entry, "parameters")
    if entry.boolean("strict"):
        check_strict(schema, entry.at("parameters"), f"function '{name}'")
    return Tool(name, schema)


def _check_custom_format(described: Fields | None) -> None:
    if described is None:
        return
    described.required("type")
    if described.choice("type", "text", "grammar") == "grammar":
        described.text("definition")
        described.required("syntax")
        described.choice("syntax", "lark", "regex")


def _narrowed(
    choice: Fields, tools: tuple[Tool, ...], entries: list[Fields]
) -> tuple[tuple[Tool, ...], Mode]:
    choice.required("type")
    kind = choice.choice("type", "function", "custom", "allowed_tools", *HOSTED_CHOICES)
    if kind in ("function", "custom"):
        name = choice.text("name")
        check_known(choice, ("type", "name"))
        chosen = tuple(
            tool for tool in tools if tool.name == name and tool.custom == (kind == "custom")
        )
        if not chosen:
            raise _not_found(name, choice)
        return chosen, "any"
    if kind == "allowed_tools":
        check_known(choice, ("type", "mode", "tools"))
        choice.required("mode")
        mode = choice.choice("mode", "auto", "required")
        named = [entry.string("name") for entry in choice.entries("tools", filled=True)]
        allowed = tuple(tool for tool in tools if tool.name in named)
        return allowed, "any" if mode == "required" else "auto"
    if not any(entry.value["type"] == kind for entry in entries):
        raise _not_found(str(kind), choice)
    return (), "auto"


def _not_found(name: str, choice: Fields) -> Refusal:
    problem = f"Tool choice '{name}' not found in 'tools' parameter."
    return Refusal(problem, choice.path, "plain")
