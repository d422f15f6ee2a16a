"""The tools of a client's request and which of them must be called. Imported by this folder's
``decode_request``."""

from typing import Any

from adapters.faults import wrong_type, wrong_value
from adapters.generate_content.codec.wire.fields import Fields
from adapters.generate_content.codec.wire.schema import to_json_schema
from adapters.ir.request import Ask, Tool, ToolChoice
from adapters.json.structure import Steps

_SEARCHES = ("googleSearch", "googleSearchRetrieval")
_FUNCTIONS = "functionDeclarations"


def decode_tools(body: Fields) -> Steps[tuple[list[Tool], list[Ask]]]:
    """All tools, and what some upstreams lack of them, in steps. Raises Fault INVALID_FIELD."""
    tools: list[Tool] = []
    asks: list[Ask] = []
    for entry in body.objects("tools"):
        for kind in entry:
            if kind == _FUNCTIONS:
                for said, path in entry.items(kind):
                    tools.append(_function(Fields(said, path)))
                    yield False
                continue
            search = kind in _SEARCHES
            path = entry.at(kind)
            raw = {"kind": kind, "value": entry.value(kind)}
            tools.append(Tool("hosted", kind, search=search, raw=raw, path=path))
            asks.append(Ask("hosted_search" if search else "hosted_tool", path))
    return tools, asks


def decode_choice(body: Fields, tools: list[Tool]) -> tuple[ToolChoice | None, list[Ask]]:
    """Which tools must be called; None when nothing is said. Raises Fault INVALID_FIELD for a
    function that is not declared."""
    config = body.object("toolConfig")
    if config is None:
        return None, []
    asks = [Ask("other", config.at(name)) for name in config if name != "functionCallingConfig"]
    calling = config.object("functionCallingConfig")
    if calling is None:
        return None, asks
    mode = calling.text("mode").upper()
    names = calling.texts("allowedFunctionNames")
    declared = {tool.name for tool in tools if tool.kind == "function"}
    for index, name in enumerate(names):
        if name not in declared:
            path = f"{calling.at('allowedFunctionNames')}[{index}]"
            raise wrong_value(path, "expected the name of a function in tools")
    if mode == "NONE":
        return ToolChoice("none"), asks
    if mode == "ANY":
        if not declared:
            raise wrong_value(calling.at("mode"), "ANY needs functions in tools")
        if len(names) == 1:
            return ToolChoice("one", names), asks
    elif mode not in ("", "MODE_UNSPECIFIED", "AUTO", "VALIDATED"):
        raise wrong_value(calling.at("mode"), "expected AUTO, ANY, NONE or VALIDATED")
    if names:
        asks.append(Ask("allowed_tools", calling.at("allowedFunctionNames")))
    return ToolChoice("any" if mode == "ANY" else "auto", names), asks


def _function(said: Fields) -> Tool:
    name = said.text("name")
    if not name:
        raise wrong_value(said.at("name"), "expected the name of a function")
    return Tool("function", name, said.text("description"), _schema(said), path=said.path)


def _schema(said: Fields) -> dict[str, Any] | None:
    """The schema of the arguments; both ways to write it are not taken together."""
    written = said.value("parametersJsonSchema")
    dialect = said.value("parameters")
    if written is not None and dialect is not None:
        raise wrong_value(said.at("parameters"), "parametersJsonSchema stands beside it")
    if written is not None:
        if not isinstance(written, dict):
            raise wrong_type(said.at("parametersJsonSchema"), "expected a JSON schema")
        return written
    return None if dialect is None else to_json_schema(dialect, said.at("parameters"))
