"""Tools of a client's request, and which of them it wants called.

``functions`` and ``function_call``, from before there were tools, are read as tools. Imported by
``decode_request``.
"""

from typing import Any

from adapters.chat_completions.codec.reading import (
    named,
    needed,
    objects,
    place,
    string,
    typed,
    word,
)
from adapters.faults import wrong_type, wrong_value
from adapters.ir.request import Ask, Tool, ToolChoice

_CHOICE_WORDS = ("none", "auto", "required")


def decode_tools(fields: dict[str, Any], asks: list[Ask]) -> tuple[Tool, ...]:
    """The tools of a request, in their order; a search by the vendor comes last."""
    tools = [_tool(entry, at, asks) for entry, at in objects(fields, "tools", "")]
    tools += [_function(entry, at, at, asks) for entry, at in objects(fields, "functions", "")]
    if typed(fields, "web_search_options", "", dict) is not None:
        raw = {"type": "web_search", **fields["web_search_options"]}
        asks.append(Ask("hosted_search", "web_search_options"))
        tools.append(Tool("hosted", "web_search", search=True, raw=raw, path="web_search_options"))
    return tuple(tools)


def decode_choice(fields: dict[str, Any], asks: list[Ask]) -> ToolChoice | None:
    """Which tools must be called; None when the client did not say."""
    said = fields.get("tool_choice")
    if said is None:
        return _older_choice(fields.get("function_call"))
    if isinstance(said, str):
        return _by_word(said, "tool_choice")
    if not isinstance(said, dict):
        raise wrong_type("tool_choice", "expected a string or an object")
    kind = word(said, "type", "tool_choice", ("function", "custom", "allowed_tools"))
    kind = kind or "function"
    inner, at = needed(said, kind, "tool_choice", dict), f"tool_choice.{kind}"
    if kind != "allowed_tools":
        return ToolChoice("one", (named(inner, "name", at),))
    asks.append(Ask("allowed_tools", "tool_choice"))
    mode = word(inner, "mode", at, ("auto", "required"))
    names = tuple(_allowed_name(entry, path) for entry, path in objects(inner, "tools", at))
    if not names:
        raise wrong_value(place(at, "tools"), "expected at least one tool")
    return ToolChoice("any" if mode == "required" else "auto", names)


def _tool(entry: dict[str, Any], at: str, asks: list[Ask]) -> Tool:
    kind = word(entry, "type", at, ("function", "custom")) or "function"
    inner, path = needed(entry, kind, at, dict), place(at, kind)
    if kind == "function":
        return _function(inner, path, at, asks)
    asks.append(Ask("custom_tool", at))
    name, description = named(inner, "name", path), string(inner, "description", path)
    form = typed(inner, "format", path, dict) or {}
    grammar: dict[str, Any] = {}
    if form.get("type") == "grammar":
        grammar = needed(form, "grammar", place(path, "format"), dict)
        path = place(path, "format.grammar")
    return Tool(
        "custom",
        name,
        description,
        grammar=string(grammar, "definition", path),
        grammar_syntax="regex" if grammar.get("syntax") == "regex" else "lark" if grammar else "",
        path=at,
    )


def _function(said: dict[str, Any], path: str, at: str, asks: list[Ask]) -> Tool:
    strict = typed(said, "strict", path, bool)
    if strict:
        asks.append(Ask("strict_tool", place(path, "strict")))
    return Tool(
        "function",
        named(said, "name", path),
        string(said, "description", path),
        typed(said, "parameters", path, dict),
        strict,
        path=at,
    )


def _by_word(said: str, at: str) -> ToolChoice:
    if said not in _CHOICE_WORDS:
        raise wrong_value(at, "expected one of " + ", ".join(_CHOICE_WORDS))
    if said == "required":
        return ToolChoice("any")
    return ToolChoice("none") if said == "none" else ToolChoice("auto")


def _older_choice(said: object) -> ToolChoice | None:
    if said is None:
        return None
    if isinstance(said, str):
        return _by_word(said, "function_call")
    if not isinstance(said, dict):
        raise wrong_type("function_call", "expected a string or an object")
    return ToolChoice("one", (named(said, "name", "function_call"),))


def _allowed_name(entry: dict[str, Any], at: str) -> str:
    kind = string(entry, "type", at)
    inner = typed(entry, kind, at, dict) if kind in ("function", "custom") else None
    return named(entry, "name", at) if inner is None else named(inner, "name", place(at, kind))
