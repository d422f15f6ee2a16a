"""Encoding of a request for an upstream of the responses family: fields of the body, and tools.

The vendor must never store the answer; encrypted reasoning is requested, to be sent back later.
"""

from typing import Any

from adapters.family.codec import Encoded, Target
from adapters.family.traits import Traits, nearest_effort, requested_effort
from adapters.faults import Condition, Fault
from adapters.ir.parts import Text
from adapters.ir.request import Feature, Output, Request, Thinking, Tool, ToolChoice
from adapters.json.jsonio import dumps
from adapters.json.structure import Steps
from adapters.openai import fit_name, short_name
from adapters.responses.encode_turns import InputItems, ResponsesToolNames

MIN_OUTPUT_TOKENS = 16  # upstreams refuse less
MAX_METADATA = 16
SCHEMA_NAME = "response"

Json = dict[str, Any]


def encode_request(request: Request, target: Target, count: bool) -> Steps[Encoded]:
    """Encode the body (see ``family.codec.UpstreamCodec``), with a yield after each turn."""
    names = ResponsesToolNames(request.tools, customs=target.traits.custom_tools)
    items = InputItems(names, target.traits)
    for turn in request.turns:
        items.add(turn)
        yield False
    items.end()
    instructions = "\n\n".join(
        part.text for part in request.system if isinstance(part, Text) and part.text
    )
    body: Json = {"model": target.model, "input": items.items}
    if instructions and not items.items:  # upstreams require some input
        content = [{"type": "input_text", "text": instructions}]
        body["input"] = [{"type": "message", "role": "user", "content": content}]
    elif instructions:
        body["instructions"] = instructions
    output_tool = _add_tools(body, request, target.traits, names)
    _add_text(body, request, as_tool=bool(output_tool), verbosity=target.traits.verbosity)
    if target.traits.thinking != "none":
        _add_reasoning(body, request.thinking, target.traits)
    dropped: tuple[Feature, ...] = ()
    if not count:
        dropped = _add_settings(body, request, target.traits)
    yield True
    try:
        written = dumps(body)
    except OverflowError:
        raise Fault(Condition.INVALID_FIELD, "The body is nested too deeply.") from None
    return Encoded(
        written,
        dropped=dropped,
        names=names.renamed,
        output_tool=output_tool,
        cut=() if count else request.stop,
    )


def _add_tools(body: Json, request: Request, traits: Traits, names: ResponsesToolNames) -> str:
    """Add tools and their choice. Return the name of the tool that stands for structured output."""
    tools = encode_tools(request, names, search=has_search(traits))
    choice = request.choice
    chosen = None if choice is None else encode_choice(choice, request, names)
    output_tool = ""
    if request.output.kind == "schema" and traits.structured == "tool":
        output_tool = _free_name({str(tool.get("name")) for tool in tools})
        only = not tools or (choice is not None and choice.mode == "none")
        tools.append(_output_tool(request.output, output_tool))
        if choice is None or choice.mode != "one":
            chosen = {"type": "function", "name": output_tool} if only else "required"
    if not tools:
        return ""
    body["tools"] = tools
    if chosen is not None:
        body["tool_choice"] = chosen
    if request.parallel_tools is False:
        body["parallel_tool_calls"] = False
    return output_tool


def _free_name(names: set[str]) -> str:
    name = OUTPUT_TOOL
    while name in names:
        name += "_"
    return name


def _output_tool(output: Output, name: str) -> Json:
    return {
        "type": "function",
        "name": name,
        "description": output.description or "Gives the answer; call it once, at the end.",
        "parameters": output.schema,
        "strict": bool(output.strict),
    }


def _add_text(body: Json, request: Request, *, as_tool: bool, verbosity: bool) -> None:
    text: Json = {}
    output = request.output
    if output.kind == "json":
        text["format"] = {"type": "json_object"}
    elif output.kind == "schema" and not as_tool:
        form: Json = {
            "type": "json_schema",
            "name": fit_name(output.name or SCHEMA_NAME),
            "schema": output.schema,
        }
        if output.description:
            form["description"] = output.description
        if output.strict is not None:
            form["strict"] = output.strict
        text["format"] = form
    if request.verbosity and verbosity:
        text["verbosity"] = request.verbosity
    if text:
        body["text"] = text


def _add_reasoning(body: Json, thinking: Thinking | None, traits: Traits) -> None:
    if thinking is None:
        return
    reasoning: Json = {}
    effort = requested_effort(thinking)
    level = None if effort is None else nearest_effort(effort, traits.efforts)
    if level is not None:
        reasoning["effort"] = "none" if level == "off" else level
    if thinking.show in ("summary", "full") and level != "off":
        reasoning["summary"] = "auto"
    if reasoning:
        body["reasoning"] = reasoning


def _add_settings(body: Json, request: Request, traits: Traits) -> tuple[Feature, ...]:
    """Add fields that affect an answer but not a count. Return the dropped features."""
    body["store"] = False
    if request.stream:
        body["stream"] = True
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = max(request.max_output_tokens, MIN_OUTPUT_TOKENS)
    _add_sampling(body, request, traits)
    if traits.openai_extras:
        _add_extras(body, request, traits)
    elif request.end_user:
        body["user"] = request.end_user
    metadata = request.metadata or {}
    fit = [(name, value) for name, value in metadata.items() if isinstance(value, str)][
        :MAX_METADATA
    ]
    if fit:
        body["metadata"] = dict(fit)
    return ("metadata",) if len(fit) < len(metadata) else ()


def _add_sampling(body: Json, request: Request, traits: Traits) -> None:
    if traits.sampling and request.temperature is not None:
        body["temperature"] = request.temperature
    if traits.sampling and request.top_p is not None:
        body["top_p"] = request.top_p
    if request.logprobs is not None:
        body["include"] = ["message.output_text.logprobs"]
        body["top_logprobs"] = request.logprobs


def _add_extras(body: Json, request: Request, traits: Traits) -> None:
    """Add fields that OpenAI has, but few others of this family."""
    if traits.thinking != "none" and body.get("reasoning", {}).get("effort") != "none":
        body.setdefault("include", []).append("reasoning.encrypted_content")
    if request.end_user:
        body["safety_identifier"] = short_name(request.end_user)
    if request.tier:
        body["service_tier"] = request.tier
    if request.cache_key:
        body["prompt_cache_key"] = short_name(request.cache_key)


OUTPUT_TOOL = "respond"  # stands for structured output if the model has none


def has_search(traits: Traits) -> bool:
    """Return true if the vendor can search the web; at OpenAI every model can."""
    return traits.search or traits.openai_extras


def encode_tools(
    request: Request, names: ResponsesToolNames, *, search: bool
) -> list[dict[str, Any]]:
    """Encode the tools that this family has, with a namespace's tools together at the place of the
    first. ``search``: the vendor has a tool that searches the web."""
    encoded_tools: list[dict[str, Any]] = []
    spaces: dict[str, list[dict[str, Any]]] = {}
    for tool in _allowed(request, names):
        encoded = _tool(tool, names, search=search)
        if encoded is None:
            continue
        if not tool.namespace:
            encoded_tools.append(encoded)
        elif tool.namespace in spaces:
            spaces[tool.namespace].append(encoded)
        else:
            spaces[tool.namespace] = [encoded]
            encoded_tools.append(
                {
                    "type": "namespace",
                    "name": tool.namespace,
                    "description": tool.namespace,
                    "tools": spaces[tool.namespace],
                }
            )
    return encoded_tools


def encode_choice(choice: ToolChoice, request: Request, names: ResponsesToolNames) -> object:
    """Encode which tools must be called."""
    by_name = {tool.name: tool for tool in request.tools if tool.kind != "hosted"}
    if choice.mode == "one":
        name = choice.names[0]
        return _named(by_name.get(name) or Tool("function", name), names)
    mode = "required" if choice.mode == "any" else choice.mode
    allowed = [_named(by_name[name], names) for name in choice.names if name in by_name]
    if not allowed or choice.mode == "none" or not names.customs:
        return mode
    return {"type": "allowed_tools", "mode": mode, "tools": allowed}


def _allowed(request: Request, names: ResponsesToolNames) -> list[Tool]:
    """Return all tools; for a vendor without support for subsets, only the allowed ones."""
    choice = request.choice
    if names.customs or choice is None or choice.mode == "one" or not choice.names:
        return list(request.tools)
    allowed_names = frozenset(choice.names)
    allowed = [tool for tool in request.tools if tool.name in allowed_names]
    return allowed or list(request.tools)


def _named(tool: Tool, names: ResponsesToolNames) -> dict[str, Any]:
    kind = "custom" if tool.kind == "custom" and names.customs else "function"
    return {"type": kind, "name": fit_name(tool.name)}


def _tool(tool: Tool, names: ResponsesToolNames, *, search: bool) -> dict[str, Any] | None:
    if tool.kind == "hosted":
        return {"type": "web_search"} if tool.search and search else None
    encoded = _named(tool, names)
    if tool.description:
        encoded["description"] = tool.description
    if encoded["type"] == "function":
        encoded["parameters"] = _free_text(tool) if tool.kind == "custom" else _schema(tool)
        encoded["strict"] = bool(tool.strict)  # absent: strict if the schema can be
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
    """Return the parameters of the function that stands for a free-text tool."""
    text = {"type": "string"}
    if tool.grammar:
        syntax = tool.grammar_syntax
        text["description"] = f"It must follow this grammar ({syntax}):\n{tool.grammar}"
    return {"type": "object", "properties": {"input": text}, "required": ["input"]}
