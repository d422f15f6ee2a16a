"""A client's tools, and which of them must be called.

Imported by ``decode_request``.
"""

from typing import Any

from adapters.faults import wrong_type, wrong_value
from adapters.ir.request import Ask, Tool, ToolChoice
from adapters.responses.codec.client.decode_content import optional_string, string

_SEARCH = ("web_search", "web_search_preview")  # and dated ones
_MODES = {"auto": "auto", "required": "any", "none": "none"}
_BY_NAME = frozenset({"function", "custom"})


def decode_tools(tools: object, asks: list[Ask]) -> tuple[Tool, ...]:
    """The tools, those of a namespace one by one; what they ask for is added to ``asks``. Raises
    Fault INVALID_FIELD, FIELD_MISSING with the tool's path."""
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise wrong_type("tools", "expected an array")
    found: list[Tool] = []
    for i, tool in enumerate(tools):
        path = f"tools[{i}]"
        if isinstance(tool, dict) and tool.get("type") == "namespace":
            name = string(tool, "name", path)
            inner = tool.get("tools")
            if not isinstance(inner, list):
                raise wrong_type(f"{path}.tools", "expected an array")
            asks.append(Ask("tool_namespace", path))
            places = [f"{path}.tools[{j}]" for j in range(len(inner))]
            found += [_tool(one, at, name, asks) for one, at in zip(inner, places, strict=True)]
        else:
            found.append(_tool(tool, path, "", asks))
    return tuple(found)


def _tool(tool: object, path: str, namespace: str, asks: list[Ask]) -> Tool:
    if not isinstance(tool, dict):
        raise wrong_type(path, "expected an object")
    kind = string(tool, "type", path)
    if kind == "function":
        return _function(tool, path, namespace, asks)
    if kind == "custom":
        return _custom(tool, path, namespace, asks)
    search = kind.startswith(_SEARCH)
    asks.append(Ask("hosted_search" if search else "hosted_tool", path))
    return Tool("hosted", kind, search=search, raw=tool, path=path)


def _function(tool: dict[str, Any], path: str, namespace: str, asks: list[Ask]) -> Tool:
    schema, strict = tool.get("parameters"), tool.get("strict")
    if schema is not None and not isinstance(schema, dict):
        raise wrong_type(f"{path}.parameters", "expected an object")
    if strict is not None and not isinstance(strict, bool):
        raise wrong_type(f"{path}.strict", "expected a boolean")
    if strict:
        asks.append(Ask("strict_tool", f"{path}.strict"))
    return Tool(
        "function",
        string(tool, "name", path),
        optional_string(tool, "description", path),
        schema,
        strict,
        namespace,
        path=path,
    )


def _custom(tool: dict[str, Any], path: str, namespace: str, asks: list[Ask]) -> Tool:
    asks.append(Ask("custom_tool", path))
    form = tool.get("format")
    grammar, syntax = "", ""
    if isinstance(form, dict) and form.get("type") == "grammar":
        grammar = string(form, "definition", f"{path}.format")
        syntax = string(form, "syntax", f"{path}.format")
    return Tool(
        "custom",
        string(tool, "name", path),
        optional_string(tool, "description", path),
        namespace=namespace,
        grammar=grammar,
        grammar_syntax="regex" if syntax == "regex" else "lark" if grammar else "",
        raw=tool,
        path=path,
    )


def decode_choice(choice: object, tools: tuple[Tool, ...], asks: list[Ask]) -> ToolChoice | None:
    """Which tools must be called; None when the client did not say, or named a tool of the vendor,
    which is among ``asks`` then."""
    if choice is None:
        return None
    if isinstance(choice, str):
        return _mode(choice, tools, asks)
    if not isinstance(choice, dict):
        raise wrong_type("tool_choice", "expected a string or an object")
    kind = string(choice, "type", "tool_choice")
    if kind in _BY_NAME:
        return ToolChoice("one", (string(choice, "name", "tool_choice"),))
    if kind == "allowed_tools":
        return _allowed(choice, asks)
    asks.append(Ask("forced_hosted_tool", "tool_choice"))
    return None


def _mode(mode: str, tools: tuple[Tool, ...], asks: list[Ask]) -> ToolChoice:
    if mode not in _MODES:
        raise wrong_value("tool_choice", "expected none, auto, required or an object")
    if mode == "required" and tools and all(tool.kind == "hosted" for tool in tools):
        asks.append(Ask("forced_hosted_tool", "tool_choice"))
    return ToolChoice(_MODES[mode])  # type: ignore[arg-type]


def _allowed(choice: dict[str, Any], asks: list[Ask]) -> ToolChoice:
    asks.append(Ask("allowed_tools", "tool_choice"))
    listed, path = choice.get("tools"), "tool_choice.tools"
    if not isinstance(listed, list):
        raise wrong_type(path, "expected an array")
    names = []
    for i, one in enumerate(listed):
        if not isinstance(one, dict):
            raise wrong_type(f"{path}[{i}]", "expected an object")
        if optional_string(one, "type", f"{path}[{i}]") in _BY_NAME:
            names.append(string(one, "name", f"{path}[{i}]"))
    return ToolChoice("any" if choice.get("mode") == "required" else "auto", tuple(names))
