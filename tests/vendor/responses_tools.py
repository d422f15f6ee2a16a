"""The responses vendor's checks of tools and of the choice among them.

Source: the official types of the openai SDK as of November 2026. An unknown field is refused, as
by the real vendor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from openai.types.responses.tool_param import ToolParam

from demo.family import Tool, ToolMode
from tests.vendor.family import Path, Refusal, written
from tests.vendor.fields import Fields, read_schema, read_tool_name
from tests.vendor.sdk_types import fields_by_kind
from tests.vendor.strict_schemas import check_strict

TOOLS_MAX = 128
TOOL_NAME_MAX = 64
TOOL_FIELDS = fields_by_kind(*get_args(ToolParam))
OURS = ("function", "custom", "namespace")
# Tools that the vendor runs itself: accepted and never called; their content is not checked.
HOSTED = tuple(sorted(TOOL_FIELDS.keys() - set(OURS)))
# Other names by which a choice may refer to a hosted tool.
HOSTED_CHOICES = (*HOSTED, "computer_use")


def unknown_parameter(path: Path) -> Refusal:
    message = f"Unknown parameter: '{written(path)}'."
    return Refusal(message, path, "plain", code="unknown_parameter")


def check_known(fields: Fields, allowed: Iterable[str]) -> None:
    """Raise Refusal for the first field that is not allowed."""
    for name in fields.value:
        if name not in allowed:
            raise unknown_parameter(fields.at(name))


def read_tools(request: Fields) -> tuple[tuple[Tool, ...], ToolMode]:
    """Return the tools that may be called, and whether one must be."""
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
        mode: ToolMode = "none" if choice == "none" else "any" if choice == "required" else "auto"
        return tools, mode
    return _narrowed(Fields(choice, request.at("tool_choice")), tools, entries)


def _read_tool(entry: Fields) -> list[Tool]:
    entry.required("type")
    kind = entry.choice("type", *OURS, *HOSTED)
    if kind == "function":
        return [_read_function(entry)]
    if kind == "custom":
        name = read_tool_name(entry, TOOL_NAME_MAX)
        check_known(entry, TOOL_FIELDS["custom"])
        entry.string("description")
        _check_custom_format(entry.object("format"))
        return [Tool(name, {}, custom=True)]
    if kind != "namespace":
        return []
    read_tool_name(entry, TOOL_NAME_MAX)
    check_known(entry, TOOL_FIELDS["namespace"])
    entry.required("description")
    entry.string("description")
    for inner in entry.entries("tools", filled=True):
        inner.required("type")
        inner.choice("type", "function", "custom")
    return [tool for inner in entry.entries("tools") for tool in _read_tool(inner)]


def _read_function(entry: Fields) -> Tool:
    name = read_tool_name(entry, TOOL_NAME_MAX)
    check_known(entry, TOOL_FIELDS["function"])
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
) -> tuple[tuple[Tool, ...], ToolMode]:
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
