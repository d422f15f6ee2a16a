"""Tools and their choice for upstreams, and the names that these do not take.

Imported by ``encode_request`` and ``encode_items``.
"""

import hashlib
import re
from typing import Any

from adapters.family.traits import Traits
from adapters.ir.request import Request, Tool, ToolChoice

MAX_NAME_CHARS = 64
MAX_ID_CHARS = 64
OUTPUT_TOOL = "respond"  # stands for structured output where the model has none of its own
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """The tools of a request as the upstream gets them: their names, and whether it has such as
    take free text (``customs``). ``renamed``: names of those that differ -> the client's tools."""

    def __init__(self, tools: tuple[Tool, ...], *, customs: bool = True) -> None:
        self.customs = customs
        self.renamed: dict[str, Tool] = {}
        for tool in tools:
            if tool.kind == "hosted":
                continue
            sent = self.sent(tool.name)
            if sent != tool.name or (tool.kind == "custom" and not customs):
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


def has_search(traits: Traits) -> bool:
    """Whether the vendor searches the web: OpenAI does, by whatever model."""
    return traits.search or traits.openai_extras


def encode_tools(request: Request, names: ToolNames, *, search: bool) -> list[dict[str, Any]]:
    """The tools that this family has, those of a namespace together where the first of them
    stood; ``search``: whether the vendor has a tool that searches the web."""
    found: list[dict[str, Any]] = []
    spaces: dict[str, list[dict[str, Any]]] = {}
    for tool in _allowed(request, names):
        encoded = _tool(tool, names, search=search)
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
    if not allowed or choice.mode == "none" or not names.customs:
        return mode
    return {"type": "allowed_tools", "mode": mode, "tools": allowed}


def _allowed(request: Request, names: ToolNames) -> list[Tool]:
    """All tools; of a vendor that has no subsets of them, those that are allowed."""
    choice = request.choice
    if names.customs or choice is None or choice.mode == "one" or not choice.names:
        return list(request.tools)
    allowed_names = frozenset(choice.names)
    allowed = [tool for tool in request.tools if tool.name in allowed_names]
    return allowed or list(request.tools)


def _named(tool: Tool, names: ToolNames) -> dict[str, Any]:
    kind = "custom" if tool.kind == "custom" and names.customs else "function"
    return {"type": kind, "name": names.sent(tool.name)}


def _tool(tool: Tool, names: ToolNames, *, search: bool) -> dict[str, Any] | None:
    if tool.kind == "hosted":
        return {"type": "web_search"} if tool.search and search else None
    encoded = _named(tool, names)
    if tool.description:
        encoded["description"] = tool.description
    if encoded["type"] == "function":
        encoded["parameters"] = _free_text(tool) if tool.kind == "custom" else _schema(tool)
        encoded["strict"] = bool(tool.strict)  # absent would mean: strict, if the schema can be
    elif tool.grammar:
        encoded["format"] = {
            "type": "grammar",
            "syntax": tool.grammar_syntax,
            "definition": tool.grammar,
        }
    return encoded


def _schema(tool: Tool) -> dict[str, Any]:
    return tool.schema or {"type": "object", "properties": {}}


def _free_text(tool: Tool) -> dict[str, Any]:
    """The arguments of the function that stands for a tool that takes free text."""
    text = {"type": "string"}
    if tool.grammar:
        syntax = tool.grammar_syntax
        text["description"] = f"It must follow this grammar ({syntax}):\n{tool.grammar}"
    return {"type": "object", "properties": {"input": text}, "required": ["input"]}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
