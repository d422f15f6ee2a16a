"""Encoding of a request for an upstream of the chat completions family: fields of the body, tools
and their names.

Tool names of the family have at most 64 letters, digits, ``_`` and ``-``, and no groups; others are
renamed, and mapped back in the answer. Source: the request types of the official OpenAI SDKs. The
model's traits say what it does not accept.
"""

from typing import Any

from adapters.chat_completions.encode_turns import ChatToolNames, encode_turns
from adapters.family.codec import Encoded, Target
from adapters.family.traits import Traits, nearest_effort, requested_effort
from adapters.faults import Condition, Fault
from adapters.ir.request import Effort, Feature, Output, Request, Thinking, Tool, ToolChoice
from adapters.json.jsonio import compact, dumps
from adapters.json.structure import Steps
from adapters.openai import fit_name, short_name

MAX_STOPS = 4
# names of fields that differ from the feature's name
_FIELDS: dict[Feature, str] = {"end_user": "user", "parallel_tools": "parallel_tool_calls"}


def encode_request(request: Request, target: Target, count: bool) -> Steps[Encoded]:
    """Encode the body, in steps (see ``family.codec.UpstreamCodec``). This family has no token
    counts, so ``count`` is never true."""
    traits = target.traits
    names = ChatToolNames(request, traits)
    messages = yield from encode_turns(request, traits, names)
    body: dict[str, Any] = {"model": target.model, "messages": messages}
    body |= encode_tools(request, traits, names)
    if request.stream:
        body["stream"] = True
        if target.stream_options:
            body["stream_options"] = {"include_usage": True}
    if request.max_output_tokens is not None:
        body[traits.token_bound] = request.max_output_tokens
    stops, cut = _stops(request, traits)
    if stops:
        body["stop"] = stops
    body |= _sampling(request, traits)
    body |= _other_fields(request, traits)
    for feature in traits.refuses:
        body.pop(_FIELDS.get(feature, feature), None)
    yield len(messages) > 0
    try:
        output_tool, dropped = _add_output(body, request.output, traits, names)
        dropped += _fit_thinking(body, request.thinking, traits)
        written = dumps(body)
    except OverflowError:
        raise Fault(Condition.INVALID_FIELD, "The body is nested too deeply.") from None
    return Encoded(written, names.renamed, output_tool, cut, dropped)


def _add_output(
    body: dict[str, Any], output: Output, traits: Traits, names: ChatToolNames
) -> tuple[str, tuple[Feature, ...]]:
    """Request the form of the answer. Return the name of the tool that stands for it, and dropped
    features."""
    messages = body["messages"]
    if output.kind == "schema" and not _has_object(output):
        # Upstreams accept only schemas of objects; other schemas go into the instructions.
        _instruct(messages, _in_words(output), traits)
        return "", ("schema_output",)
    if output.kind == "schema" and traits.structured == "tool":
        name = names.free(OUTPUT_TOOL)
        body |= with_output_tool(body, output, name)
        return name, ()
    if (form := _response_format(output)) is not None:
        body["response_format"] = form
        if output.kind == "json" and "json" not in compact(messages).lower():
            _instruct(messages, "Answer with one JSON object.", traits)  # else refused
    return "", ()


def _sampling(request: Request, traits: Traits) -> dict[str, Any]:
    fields: dict[str, Any] = {"seed": request.seed}
    if traits.sampling:
        fields |= {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "frequency_penalty": request.frequency_penalty,
            "presence_penalty": request.presence_penalty,
            "logit_bias": request.logit_bias if traits.logprobs else None,
        }
    if request.n > 1:
        fields["n"] = request.n
    if request.logprobs is not None:
        fields["logprobs"] = True
        fields["top_logprobs"] = request.logprobs or None
    return {name: value for name, value in fields.items() if value is not None}


def _other_fields(request: Request, traits: Traits) -> dict[str, Any]:
    """Encode the fields that do not concern the text itself."""
    fields: dict[str, Any] = {}
    if request.thinking is not None and (effort := effort_of(request.thinking, traits)):
        fields["reasoning_effort"] = "none" if effort == "off" else effort
    if request.verbosity and traits.verbosity:
        fields["verbosity"] = request.verbosity
    if request.end_user:
        name = "safety_identifier" if traits.openai_extras else "user"
        fields[name] = short_name(request.end_user)
    if traits.openai_extras:
        if request.tier:
            fields["service_tier"] = request.tier
        if request.cache_key:
            fields["prompt_cache_key"] = request.cache_key
    if traits.search and any(tool.search for tool in request.tools):
        fields["web_search_options"] = {}
    return fields


def _fit_thinking(
    body: dict[str, Any], thinking: Thinking | None, traits: Traits
) -> tuple[Feature, ...]:
    """Turn reasoning off if it is refused together with tools. Return the dropped features."""
    off = thinking is not None and thinking.effort == "off"
    if traits.thinking_switch and (off or body.get("tool_choice") not in (None, "auto", "none")):
        body["thinking"] = {"type": "disabled"}
        body.pop("reasoning_effort", None)
    elif not traits.effort_with_tools and "tools" in body:
        body.pop("reasoning_effort", None)
        if "off" in traits.efforts:
            body["reasoning_effort"] = "none"
    else:
        return ()
    return () if off or thinking is None else ("reasoning",)


def effort_of(thinking: Thinking, traits: Traits) -> Effort | None:
    """Return the model's effort for the requested one; None: the model decides."""
    effort = requested_effort(thinking)
    if effort is None or traits.thinking == "none":
        return None
    # A little reasoning is closer to the request than none.
    return nearest_effort(
        effort, [level for level in traits.efforts if level != "off" or effort == "off"]
    )


def _response_format(output: Output) -> dict[str, Any] | None:
    if output.kind == "text":
        return None
    if output.kind == "json":
        return {"type": "json_object"}
    described: dict[str, Any] = {"name": fit_name(output.name or "response")}
    if output.description:
        described["description"] = output.description
    described["schema"] = output.schema if output.schema is not None else {}
    if output.strict is not None:
        described["strict"] = output.strict
    return {"type": "json_schema", "json_schema": described}


def _has_object(output: Output) -> bool:
    """Return true if the schema describes an object or has no type."""
    return output.schema is None or output.schema.get("type", "object") == "object"


def _in_words(output: Output) -> str:
    schema = compact(output.schema)
    return f"Answer with nothing but JSON that follows this JSON Schema:\n{schema}"


def _instruct(messages: list[dict[str, Any]], text: str, traits: Traits) -> None:
    """Append a sentence to the instructions."""
    if messages and messages[0]["role"] == traits.system_role:
        messages[0]["content"] += "\n\n" + text
    else:
        messages.insert(0, {"role": traits.system_role, "content": text})


def _stops(request: Request, traits: Traits) -> tuple[list[str], tuple[str, ...]]:
    """Return the stop sequences to send, and those that the gateway must apply itself. Models that
    refuse sampling also refuse stop sequences."""
    most = MAX_STOPS if traits.sampling else 0
    return list(request.stop[:most]), request.stop[most:]


OUTPUT_TOOL = "respond"


def encode_tool(tool: Tool, names: ChatToolNames) -> dict[str, Any]:
    """Encode a function or free-text tool."""
    name = names.of(tool.name, tool.namespace)
    described: dict[str, Any] = {"name": name}
    if tool.description:
        described["description"] = tool.description
    if tool.kind == "custom":
        if not names.is_native(True):
            described["parameters"] = free_text_schema(tool)
            return {"type": "function", "function": described}
        if tool.grammar:
            grammar = {"syntax": tool.grammar_syntax or "lark", "definition": tool.grammar}
            described["format"] = {"type": "grammar", "grammar": grammar}
        return {"type": "custom", "custom": described}
    if tool.schema is not None:
        described["parameters"] = tool.schema
    if tool.strict is not None:
        described["strict"] = tool.strict
    return {"type": "function", "function": described}


def free_text_schema(tool: Tool) -> dict[str, Any]:
    """Return the parameters of the function that stands for a free-text tool."""
    field: dict[str, Any] = {"type": "string"}
    if tool.grammar:
        syntax = tool.grammar_syntax or "lark"
        field["description"] = f"Text that follows this grammar ({syntax}):\n{tool.grammar}"
    return {"type": "object", "properties": {"input": field}, "required": ["input"]}


def encode_tools(request: Request, traits: Traits, names: ChatToolNames) -> dict[str, Any]:
    """Encode ``tools``, ``tool_choice`` and ``parallel_tool_calls``; empty without tools."""
    choice = request.choice
    tools = list(names.tools)
    allowed = _allowed(choice, names)
    if allowed is not None and not (allowed and traits.custom_tools):
        tools, allowed = allowed, None
    if not tools:
        return {}
    fields: dict[str, Any] = {"tools": [encode_tool(tool, names) for tool in tools]}
    if choice is not None:
        fields["tool_choice"] = _tool_choice(choice, allowed, names)
    if request.parallel_tools is not None:
        fields["parallel_tool_calls"] = request.parallel_tools
    return fields


def with_output_tool(fields: dict[str, Any], output: Output, name: str) -> dict[str, Any]:
    """Return the fields with the tool that stands for structured output; some tool must be
    called."""
    described: dict[str, Any] = {
        "name": name,
        "description": output.description or "Give the final answer by calling this tool.",
        "parameters": output.schema or {"type": "object"},
    }
    tool = {"type": "function", "function": described}
    if "tools" not in fields or fields.get("tool_choice") == "none":
        choice = {"type": "function", "function": {"name": name}}
        return {**fields, "tools": [tool], "tool_choice": choice}
    return {**fields, "tools": [*fields["tools"], tool], "tool_choice": "required"}


def _allowed(choice: ToolChoice | None, names: ChatToolNames) -> list[Tool] | None:
    """Return the tools that may be called, in order; None for all."""
    if choice is None or choice.mode in ("none", "one") or not choice.names:
        return None
    allowed = {id(tool) for name in {*choice.names} for tool in names.named(name)}
    return [tool for tool in names.tools if id(tool) in allowed]


def _tool_choice(choice: ToolChoice, allowed: list[Tool] | None, names: ChatToolNames) -> Any:
    word = {"auto": "auto", "none": "none", "any": "required"}.get(choice.mode)
    if allowed is not None:
        chosen = [_reference(tool, names) for tool in allowed]
        return {"type": "allowed_tools", "allowed_tools": {"mode": word, "tools": chosen}}
    if word is not None:
        return word
    tools = [tool for name in choice.names for tool in names.named(name)]
    # A missing tool cannot be chosen, but some tool must still be called.
    return _reference(tools[0], names) if tools else "required"


def _reference(tool: Tool, names: ChatToolNames) -> dict[str, Any]:
    custom = tool.kind == "custom" and names.is_native(True)
    kind = "custom" if custom else "function"
    return {"type": kind, kind: {"name": names.of(tool.name, tool.namespace)}}
