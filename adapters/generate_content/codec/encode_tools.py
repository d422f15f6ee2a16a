"""Tools and which of them must be called, for an upstream. Imported by this folder's
``encode_request``."""

from typing import Any

from adapters.family.traits import Traits
from adapters.generate_content.codec.wire.names import Names
from adapters.generate_content.codec.wire.schema import Nodes, to_subset
from adapters.ir.request import Feature, Request, Tool, ToolChoice
from adapters.json.structure import Steps

_FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The text for the tool."}},
    "required": ["input"],
}

_Wire = dict[str, Any]


def encode_tools(
    request: Request, names: Names, traits: Traits, nodes: Nodes
) -> Steps[tuple[_Wire, tuple[Feature, ...]]]:
    """The fields ``tools`` and ``toolConfig``, as far as there are some, and what was left out; in
    steps.

    A search beside functions is refused by the vendor: the functions are the client's own and
    stay.
    """
    declared = [tool for tool in _allowed(request) if tool.kind != "hosted"]
    searches = any(tool.search for tool in request.tools if tool.kind == "hosted")
    fields: _Wire = {}
    if declared:
        functions: list[_Wire] = []
        for tool in declared:
            functions.append(_declaration(tool, names, traits, nodes))
            yield False
        fields["tools"] = [{"functionDeclarations": functions}]
        calling = _calling(request.choice, names)
        if calling:
            fields["toolConfig"] = {"functionCallingConfig": calling}
        return fields, ("hosted_search",) if searches else ()
    if searches:
        fields["tools"] = [{"googleSearch": {}}]
    return fields, ()


def encode_schema(schema: _Wire, traits: Traits, path: str, nodes: Nodes) -> tuple[bool, _Wire]:
    """A schema, and whether it is JSON Schema; else it is of the subset. Raises Fault INVALID_FIELD
    for one that cannot be said in the subset."""
    if traits.schemas == "json_schema":
        return True, schema
    return False, to_subset(schema, path, nodes)


def _allowed(request: Request) -> list[Tool]:
    """The tools that may be called: a subset with a free choice can only be said by leaving out the
    others."""
    choice = request.choice
    if choice is None or choice.mode != "auto" or not choice.names:
        return list(request.tools)
    names = frozenset(choice.names)
    return [tool for tool in request.tools if tool.kind == "hosted" or tool.name in names]


def _declaration(tool: Tool, names: Names, traits: Traits, nodes: Nodes) -> _Wire:
    declared: _Wire = {"name": names.sent(tool.name, tool.namespace)}
    description, schema = tool.description, tool.schema
    if tool.kind == "custom":
        schema = _FREE_TEXT
        if tool.grammar:
            rule = f"The text must follow this {tool.grammar_syntax or 'lark'} grammar:"
            description = f"{description}\n\n{rule}\n{tool.grammar}".strip()
    if description:
        declared["description"] = description
    if schema:
        written, encoded = encode_schema(schema, traits, tool.path, nodes)
        if written:
            declared["parametersJsonSchema"] = encoded
        elif encoded.get("type") == "OBJECT" and schema.get("properties"):
            declared["parameters"] = encoded
    return declared


def _calling(choice: ToolChoice | None, names: Names) -> _Wire | None:
    if choice is None:
        return None
    if choice.mode == "none":
        return {"mode": "NONE"}
    if choice.mode == "auto":
        return {"mode": "AUTO"}
    chosen = [name for each in dict.fromkeys(choice.names) for name in names.named(each)]
    return {"mode": "ANY"} | ({"allowedFunctionNames": chosen} if chosen else {})
