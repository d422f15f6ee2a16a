"""Tools and the choice among them, in requests of clients. Imported by ``decode_request``."""

from typing import Any

from adapters.faults import wrong_value
from adapters.ir.request import Ask, Tool, ToolChoice
from adapters.messages.codec.client import reading
from adapters.messages.codec.client.cache_marks import decode_mark

# What changes how a tool is called; that its arguments may come piece by piece does not.
_OTHER = ("allowed_callers", "defer_loading", "input_examples")


def decode_tools(value: object, asks: list[Ask]) -> tuple[Tool, ...]:
    """The tools of the field ``tools``."""
    return tuple(
        _tool(each, f"tools[{at}]", asks) for at, each in enumerate(reading.entries(value, "tools"))
    )


def _tool(given: dict[str, Any], path: str, asks: list[Ask]) -> Tool:
    kind = reading.optional_text(given.get("type"), f"{path}.type")
    name = reading.text(given.get("name", "" if kind else None), f"{path}.name")
    mark = decode_mark(given, path, asks)
    if kind not in ("", "custom"):
        search = kind.startswith("web_search")
        asks.append(Ask("hosted_search" if search else "hosted_tool", path))
        raw = {"kind": kind} | given
        return Tool("hosted", name, search=search, cache=mark, raw=raw, path=path)
    asks.extend(Ask("other", f"{path}.{name}") for name in _OTHER if given.get(name))
    strict = reading.optional_flag(given.get("strict"), f"{path}.strict")
    if strict:
        asks.append(Ask("strict_tool", f"{path}.strict"))
    return Tool(
        "function",
        name,
        description=reading.optional_text(given.get("description"), f"{path}.description"),
        schema=reading.entry(given.get("input_schema"), f"{path}.input_schema"),
        strict=strict,
        cache=mark,
        path=path,
    )


def decode_choice(
    value: object, tools: tuple[Tool, ...], asks: list[Ask]
) -> tuple[ToolChoice | None, bool | None]:
    """Which tools must be called, and whether several may be at once (None: not said)."""
    given = reading.optional_entry(value, "tool_choice")
    if not given:
        return None, None
    path = "tool_choice.disable_parallel_tool_use"
    alone = reading.optional_flag(given.get("disable_parallel_tool_use"), path)
    if alone:
        asks.append(Ask("parallel_tools", path))
    parallel = None if alone is None else not alone
    kind = reading.text(given.get("type"), "tool_choice.type")
    if kind == "auto":
        return ToolChoice("auto"), parallel
    if kind == "any":
        return ToolChoice("any"), parallel
    if kind == "none":
        return ToolChoice("none"), parallel
    if kind != "tool":
        raise wrong_value("tool_choice.type", "expected auto, any, tool or none")
    name = reading.text(given.get("name"), "tool_choice.name")
    chosen = [tool for tool in tools if tool.name == name]
    if not chosen:
        raise wrong_value("tool_choice.name", "expected the name of one of the tools")
    if chosen[0].kind == "hosted":
        asks.append(Ask("forced_hosted_tool", "tool_choice"))
    return ToolChoice("one", (name,)), parallel
