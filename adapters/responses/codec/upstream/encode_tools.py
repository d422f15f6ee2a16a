"""Tools and their choice for upstreams, and the names that these do not take.

Imported by ``encode_request`` and ``encode_items``.
"""

import hashlib
import re
from typing import Any

from adapters.ir.request import Request, Tool, ToolChoice

MAX_NAME_CHARS = 64
MAX_ID_CHARS = 64
OUTPUT_TOOL = "respond"  # stands for structured output where the model has none of its own
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_NO_ARGUMENTS = {"type": "object", "properties": {}}


class ToolNames:
    """The names of a request's tools as the upstream gets them. ``renamed``: those that differ ->
    the client's tools."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self.renamed: dict[str, Tool] = {}
        for tool in tools:
            if tool.kind != "hosted" and (sent := self.sent(tool.name)) != tool.name:
                self.renamed[sent] = tool

    def sent(self, name: str) -> str:
        """The name for the upstream: the client's, or one made from it that is always the same."""
        if _NAME.fullmatch(name):
            return name
        return f"{_ODD.sub('_', name)[: MAX_NAME_CHARS - 9]}_{_hash(name)[:8]}"


def call_id(said: str) -> str:
    """The id of a call, not longer than upstreams take; the same for the call and its result."""
    return said if 0 < len(said) <= MAX_ID_CHARS else f"call_{_hash(said)[:32]}"


def short_name(said: str) -> str:
    """The name of a user or a cache, not longer than upstreams take."""
    return said if len(said) <= MAX_ID_CHARS else _hash(said)


def encode_tools(request: Request, names: ToolNames) -> list[dict[str, Any]]:
    """The tools that this family has, those of a namespace together where the first of them
    stood."""
    found: list[dict[str, Any]] = []
    spaces: dict[str, list[dict[str, Any]]] = {}
    for tool in request.tools:
        encoded = _tool(tool, names)
        if encoded is None:
            continue
        if not tool.namespace:
            found.append(encoded)
        elif tool.namespace in spaces:
            spaces[tool.namespace].append(encoded)
        else:
            spaces[tool.namespace] = [encoded]
            found.append(
                {
                    "type": "namespace",
                    "name": tool.namespace,
                    "description": tool.namespace,
                    "tools": spaces[tool.namespace],
                }
            )
    return found


def encode_choice(choice: ToolChoice, request: Request, names: ToolNames) -> object:
    """Which tools must be called."""
    by_name = {tool.name: tool for tool in request.tools if tool.kind != "hosted"}
    if choice.mode == "one":
        name = choice.names[0]
        return _named(by_name.get(name) or Tool("function", name), names)
    mode = "required" if choice.mode == "any" else choice.mode
    allowed = [_named(by_name[name], names) for name in choice.names if name in by_name]
    if not allowed or choice.mode == "none":
        return mode
    return {"type": "allowed_tools", "mode": mode, "tools": allowed}


def _named(tool: Tool, names: ToolNames) -> dict[str, Any]:
    return {"type": tool.kind, "name": names.sent(tool.name)}


def _tool(tool: Tool, names: ToolNames) -> dict[str, Any] | None:
    if tool.kind == "hosted":
        return {"type": "web_search"} if tool.search else None
    encoded: dict[str, Any] = {"type": tool.kind, "name": names.sent(tool.name)}
    if tool.description:
        encoded["description"] = tool.description
    if tool.kind == "function":
        encoded["parameters"] = tool.schema or _NO_ARGUMENTS
        encoded["strict"] = bool(tool.strict)  # absent would mean: strict, if the schema can be
    elif tool.grammar:
        encoded["format"] = {
            "type": "grammar",
            "syntax": tool.grammar_syntax,
            "definition": tool.grammar,
        }
    return encoded


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
