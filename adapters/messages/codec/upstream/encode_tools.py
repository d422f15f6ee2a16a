"""Tools and the choice among them, for upstreams.

The family has letters, digits, ``_`` and ``-`` in names, no free-text tools and no groups of tools:
such tools get another name or shape, and ``Encoded.names`` says which. Imported by
``encode_request`` and ``encode_turns``.
"""

import hashlib
import re
from typing import Any

from adapters.family.codec import Target
from adapters.ir.parts import ToolCall
from adapters.ir.request import Request, Tool
from adapters.messages.codec.upstream.cache_marks import with_mark
from adapters.messages.codec.upstream.schema import NO_ARGUMENTS, fits_answer, for_answer, for_tool

MAX_NAME_CHARS = 128
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_CHARS = 8
_OUTPUT_TOOL = "respond"
# Of all models that have a search; newer ones run code, which not every account may.
_SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def sent_name(name: str, namespace: str = "") -> str:
    """The name of a tool as the vendor takes it: the same for the same tool in every call."""
    full = f"{namespace}__{name}" if namespace else name
    fit = _UNFIT.sub("_", full)
    if fit == full and 0 < len(fit) <= MAX_NAME_CHARS:
        return fit
    mark = hashlib.sha256(full.encode(errors="replace")).hexdigest()[:_HASH_CHARS]
    return f"{fit[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{mark}"


def encode_tools(request: Request, target: Target) -> tuple[list[dict[str, Any]], dict[str, Tool]]:
    """The tools, in the client's order, and the client's tools by names that differ from theirs."""
    allowed = _allowed(request)
    tools: list[dict[str, Any]] = []
    names: dict[str, Tool] = {}
    known: set[str] = set()
    for tool in request.tools:
        name = sent_name(tool.name, tool.namespace)
        if tool.kind == "hosted":
            if tool.search and target.traits.search and "web_search" not in known:
                known.add("web_search")
                tools.append(with_mark(_SEARCH.copy(), tool.cache))
            continue
        if name in known or (allowed and tool.name not in allowed):
            continue
        known.add(name)
        if name != tool.name or tool.kind == "custom":
            names[name] = tool
        tools.append(with_mark(_tool(tool, name, target), tool.cache))
    return tools or _called_before(request), names


def encode_choice(
    request: Request, tools: list[dict[str, Any]], output_tool: str
) -> dict[str, Any] | None:
    """The choice among ``tools``; None: the vendor's own, which is auto."""
    if not tools:
        return None
    choice = request.choice
    mode = choice.mode if choice is not None else "auto"
    written: dict[str, Any] = {"type": mode}
    if output_tool:
        others = [tool for tool in tools if tool["name"] != output_tool]
        written = {"type": "any"}
        if mode == "none" or not others:
            written = {"type": "tool", "name": output_tool}
    elif not any(tool.kind != "hosted" or tool.search for tool in request.tools):
        written = {"type": "none"}  # the client has offered none of these
    elif mode == "one" and choice is not None:
        written = {"type": "tool", "name": _chosen_name(request, choice.names[0])}
    if request.parallel_tools is False and written["type"] != "none":
        written["disable_parallel_tool_use"] = True
    return written if written != {"type": "auto"} else None


def output_tool(schema: dict[str, Any], request: Request) -> dict[str, Any]:
    """The tool that stands for structured output at models that have no field for it."""
    taken = {sent_name(tool.name, tool.namespace) for tool in request.tools}
    name = _OUTPUT_TOOL
    while name in taken:
        name += "_"
    description = request.output.description or "Gives the final answer to the user."
    return {"name": name, "description": description, "input_schema": schema}


def _tool(tool: Tool, name: str, target: Target) -> dict[str, Any]:
    written: dict[str, Any] = {"name": name}
    description = tool.description
    if tool.grammar:
        follows = f"The input must follow this {tool.grammar_syntax} grammar:\n{tool.grammar}"
        description = f"{description}\n\n{follows}".lstrip()
    if description:
        written["description"] = description
    if tool.kind == "custom":
        text = {"type": "string", "description": "The input of the tool, as plain text."}
        properties = {"input": text}
        required = {"type": "object", "properties": properties, "required": ["input"]}
        return written | {"input_schema": required}
    schema = for_tool(tool.schema)
    if tool.strict and target.traits.strict_tools and fits_answer(schema):
        return written | {"input_schema": for_answer(schema), "strict": True}
    return written | {"input_schema": schema}


def _allowed(request: Request) -> frozenset[str]:
    """The names of the subset that may be called; empty: all may."""
    choice = request.choice
    subset = choice is not None and choice.mode in ("auto", "any")
    return frozenset(choice.names if choice is not None and subset else ())


def _chosen_name(request: Request, name: str) -> str:
    chosen = [tool for tool in request.tools if name in (tool.name, _flat(tool))]
    return sent_name(chosen[0].name, chosen[0].namespace) if chosen else sent_name(name)


def _flat(tool: Tool) -> str:
    return f"{tool.namespace}__{tool.name}"


def _called_before(request: Request) -> list[dict[str, Any]]:
    """The tools of the history, for a request that offers none: the vendor wants them declared."""
    calls = [part for turn in request.turns for part in turn.parts if isinstance(part, ToolCall)]
    names = dict.fromkeys(sent_name(call.name, call.namespace) for call in calls)
    return [{"name": name, "input_schema": NO_ARGUMENTS} for name in names]
