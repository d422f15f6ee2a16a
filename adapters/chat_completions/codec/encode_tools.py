"""Tools for an upstream of the chat completions family: their names, and which must be called.

The family's names have at most 64 letters, digits, ``_`` and ``-``, and no groups; others are
renamed, and mapped back in the answer. Imported by ``encode_request`` and ``encode_turns``.
"""

import hashlib
import re
from typing import Any

from adapters.family.traits import Traits
from adapters.ir.request import Output, Request, Tool, ToolChoice

MAX_NAME_CHARS = 64
OUTPUT_TOOL = "respond"

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARS}}}")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_CHARS = 8


class ToolNames:
    """The tools of a request as they are sent."""

    def __init__(self, request: Request, traits: Traits) -> None:
        self.renamed: dict[str, Tool] = {}  # see ``Encoded.names``
        self._customs = traits.custom_tools
        self._taken: dict[str, tuple[str, str]] = {}
        self._sent: dict[tuple[str, str], str] = {}
        self._named: dict[str, list[Tool]] = {}
        self.tools = tuple(tool for tool in request.tools if tool.kind != "hosted")
        for tool in self.tools:
            self._add(tool)

    def of(self, name: str, namespace: str = "") -> str:
        """The name that is sent for a tool, also for one of the history that is no more offered."""
        return self._sent.get((namespace, name)) or fit_name(_full(name, namespace))

    def is_native(self, custom: bool) -> bool:
        """Whether a tool is sent as what it is, and not as a function with one field."""
        return not custom or self._customs

    def named(self, name: str) -> list[Tool]:
        """The tools that a choice means by a name."""
        return self._named.get(name, [])

    def free(self, name: str) -> str:
        """A name that no tool has."""
        return name if name not in self._taken else fit_name(f"{name} {len(self._taken)}")

    def _add(self, tool: Tool) -> None:
        for name in {tool.name, _full(tool.name, tool.namespace), tool.namespace}:
            self._named.setdefault(name, []).append(tool)
        key = (tool.namespace, tool.name)
        sent = fit_name(_full(tool.name, tool.namespace))
        if self._taken.setdefault(sent, key) != key:
            sent = _hashed(f"{tool.namespace} {tool.name}")
            self._taken[sent] = key
        self._sent[key] = sent
        if sent != tool.name or tool.namespace or not self.is_native(tool.kind == "custom"):
            self.renamed[sent] = tool


def fit_name(name: str) -> str:
    """``name`` where the family takes it, else one made of it that is the same each time."""
    return name if _NAME.fullmatch(name) else _hashed(name)


def encode_tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    """A function tool or a free-text one, as it is sent."""
    name = names.of(tool.name, tool.namespace)
    said: dict[str, Any] = {"name": name}
    if tool.description:
        said["description"] = tool.description
    if tool.kind == "custom":
        if not names.is_native(True):
            said["parameters"] = free_text_schema(tool)
            return {"type": "function", "function": said}
        if tool.grammar:
            grammar = {"syntax": tool.grammar_syntax or "lark", "definition": tool.grammar}
            said["format"] = {"type": "grammar", "grammar": grammar}
        return {"type": "custom", "custom": said}
    if tool.schema is not None:
        said["parameters"] = tool.schema
    if tool.strict is not None:
        said["strict"] = tool.strict
    return {"type": "function", "function": said}


def free_text_schema(tool: Tool) -> dict[str, Any]:
    """Arguments of the function that stands for a free-text tool."""
    field: dict[str, Any] = {"type": "string"}
    if tool.grammar:
        syntax = tool.grammar_syntax or "lark"
        field["description"] = f"Text that follows this grammar ({syntax}):\n{tool.grammar}"
    return {"type": "object", "properties": {"input": field}, "required": ["input"]}


def encode_tools(request: Request, traits: Traits, names: ToolNames) -> dict[str, Any]:
    """The fields ``tools``, ``tool_choice``, ``parallel_tool_calls``; empty without tools."""
    choice = request.choice
    tools = list(names.tools)
    allowed = _allowed(choice, names)
    if allowed is not None and not (allowed and traits.custom_tools):
        tools, allowed = allowed, None
    if not tools:
        return {}
    fields: dict[str, Any] = {"tools": [encode_tool(tool, names) for tool in tools]}
    if choice is not None:
        fields["tool_choice"] = _choice(choice, allowed, names)
    if request.parallel_tools is not None:
        fields["parallel_tool_calls"] = request.parallel_tools
    return fields


def with_output_tool(fields: dict[str, Any], output: Output, name: str) -> dict[str, Any]:
    """The same fields with the tool that stands for structured output; it or another is called."""
    said: dict[str, Any] = {
        "name": name,
        "description": output.description or "Give the final answer by calling this tool.",
        "parameters": output.schema or {"type": "object"},
    }
    tool = {"type": "function", "function": said}
    if "tools" not in fields or fields.get("tool_choice") == "none":
        one = {"type": "function", "function": {"name": name}}
        return {**fields, "tools": [tool], "tool_choice": one}
    return {**fields, "tools": [*fields["tools"], tool], "tool_choice": "required"}


def _allowed(choice: ToolChoice | None, names: ToolNames) -> list[Tool] | None:
    """The tools that may be called, in their order; None for all."""
    if choice is None or choice.mode in ("none", "one") or not choice.names:
        return None
    wanted = {id(tool) for name in {*choice.names} for tool in names.named(name)}
    return [tool for tool in names.tools if id(tool) in wanted]


def _choice(choice: ToolChoice, allowed: list[Tool] | None, names: ToolNames) -> Any:
    word = {"auto": "auto", "none": "none", "any": "required"}.get(choice.mode)
    if allowed is not None:
        chosen = [_reference(tool, names) for tool in allowed]
        return {"type": "allowed_tools", "allowed_tools": {"mode": word, "tools": chosen}}
    if word is not None:
        return word
    tools = [tool for name in choice.names for tool in names.named(name)]
    # A tool that is not there can be no choice; that one must be called still holds.
    return _reference(tools[0], names) if tools else "required"


def _reference(tool: Tool, names: ToolNames) -> dict[str, Any]:
    custom = tool.kind == "custom" and names.is_native(True)
    kind = "custom" if custom else "function"
    return {"type": kind, kind: {"name": names.of(tool.name, tool.namespace)}}


def _full(name: str, namespace: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _hashed(name: str) -> str:
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_HASH_CHARS]
    return f"{_OTHER.sub('_', name)[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"
