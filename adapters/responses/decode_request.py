"""Decoding of a client's request of the responses family: fields of the body, and tools.

Source: the request types of the official OpenAI SDK 3.57: responses, counts and compacting.
"""

from collections.abc import Mapping
from typing import Any, Literal

from adapters.family.codec import Asking
from adapters.family.reading import count, of_kind, one_of, optional, required, string
from adapters.faults import wrong_type, wrong_value
from adapters.ir.parts import Text, Turn
from adapters.ir.request import (
    TOOL_SEARCH,
    Ask,
    Effort,
    Feature,
    Output,
    Request,
    Thinking,
    Tool,
    ToolChoice,
)
from adapters.json.jsonio import Spans, elements, loads
from adapters.json.structure import Steps
from adapters.responses.decode_turns import TurnBuilder

_OF_OWN_NAME: tuple[Feature, ...] = (  # fields named like the feature that they ask for
    *("context_management", "include", "metadata", "moderation", "reasoning", "temperature"),
    *("top_p", "truncation"),
)
FIELDS: Mapping[str, Asking] = {
    **dict.fromkeys(("model", "input", "instructions", "stream", "max_output_tokens"), ""),
    **dict.fromkeys(("tools", "tool_choice", "stream_options"), ""),
    **dict.fromkeys(("background", "background_options"), "background"),
    **dict.fromkeys(("conversation", "previous_response_id", "prompt"), "stored_state"),
    **dict.fromkeys(
        ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"), "cache_key"
    ),
    **dict.fromkeys(("safety_identifier", "user"), "end_user"),
    **dict.fromkeys(("max_tool_calls", "store"), "other"),
    **{feature: feature for feature in _OF_OWN_NAME},
    "access_programs": "vendor_terms",
    "image": "image_detail",
    "parallel_tool_calls": "parallel_tools",
    "personality": "verbosity",
    "service_tier": "tier",
    "text": "schema_output",
    "top_logprobs": "logprobs",
}

_EFFORTS: dict[str, Effort] = {
    "none": "off",
    **{effort: effort for effort in ("minimal", "low", "medium", "high", "xhigh", "max")},
}
_SEALED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
Tier = Literal["", "auto", "default", "flex", "priority"]
_TIERS: dict[str, Tier] = {tier: tier for tier in ("auto", "default", "flex", "priority")}
_UNREAD = frozenset({"context", "mode"})  # of ``reasoning``
_NOTHING = (b"null", b"{}", b"[]", b'""', b"false")
# Fields that are decoded, each with its own asks, or that do not affect the answer.
_READ_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "stream", "stream_options", "max_output_tokens"),
        *("temperature", "top_p", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"),
        *("reasoning", "text", "include", "store", "metadata", "user", "safety_identifier"),
        *("prompt_cache_key", "service_tier", "truncation", "background"),
    }
)


def decode_request(spans: Spans, stream: bool, target: str | None) -> Steps[Request]:
    """Decode the request (see ``family.codec.ClientCodec``), with a yield after each item."""
    conversation = TurnBuilder()
    if instructions := _instructions(spans):
        conversation.system.append(Text(instructions))
    sent = spans.raw("input") or b"null"
    if sent.startswith(b"["):
        yield True
        for i, item in enumerate(elements(sent) or ()):
            conversation.add(loads(bytes(item)), f"input[{i}]")
            yield False
    elif (text := loads(sent)) is not None:
        conversation.add({"role": "user", "content": text}, "input")
    turns = conversation.turns()
    asks = conversation.asks
    tools = decode_tools(_large(spans, "tools"), asks)
    if conversation.added_tools:
        tools = _with_added(tools, conversation)
    return _request(spans, stream, conversation, turns, tools)


def _with_added(tools: tuple[Tool, ...], conversation: TurnBuilder) -> tuple[Tool, ...]:
    """Return the tools together with those added by items, which replace tools of the same name."""
    merged = {(tool.kind == "hosted", tool.namespace, tool.name): tool for tool in tools}
    for added, path in conversation.added_tools:
        for tool in decode_tools(added, conversation.asks, path):
            merged[tool.kind == "hosted", tool.namespace, tool.name] = tool
    return tuple(merged.values())


def _request(
    spans: Spans,
    stream: bool,
    conversation: TurnBuilder,
    turns: tuple[Turn, ...],
    tools: tuple[Tool, ...],
) -> Request:
    asks = conversation.asks
    output, verbosity = _text(spans, asks)
    return Request(
        "responses",
        stream,
        turns,
        tuple(conversation.system),
        tools,
        decode_choice(spans.value("tool_choice"), tools, asks),
        parallel_tools=_parallel(spans, asks),
        output=output,
        verbosity=verbosity,
        thinking=_thinking(spans, asks),
        temperature=_number(spans, "temperature", asks),
        top_p=_number(spans, "top_p", asks),
        max_output_tokens=count(spans, "max_output_tokens") or None,
        logprobs=_logprobs(spans, asks),
        end_user=_end_user(spans, asks),
        metadata=_metadata(spans, asks),
        tier=_tier(spans, asks),
        cache_key=_name(spans, "prompt_cache_key", "cache_key", asks),
        compacts=conversation.compacts,
        tool_search=any(tool.kind == "function" and tool.raw is not None for tool in tools),
        # Must be last: the other arguments append to the asks.
        asks=_all_asks(spans, asks),
    )


def _large(spans: Spans, name: str) -> Any:
    """Decode a field of any size; None if it is null or absent."""
    sent = spans.raw(name)
    return None if sent is None else loads(sent)


def _instructions(spans: Spans) -> str:
    return of_kind(_large(spans, "instructions"), str, "instructions") or ""


def _object(spans: Spans, name: str) -> dict[str, Any]:
    return of_kind(_large(spans, name), dict, name) or {}


def _number(spans: Spans, name: Literal["temperature", "top_p"], asks: list[Ask]) -> float | None:
    value = spans.value(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(name, "expected a number")
    asks.append(Ask(name, name))
    return value


def _name(spans: Spans, field: str, feature: Feature, asks: list[Ask]) -> str:
    value = of_kind(spans.value(field), str, field) or ""
    if value:
        asks.append(Ask(feature, field))
    return value


def _end_user(spans: Spans, asks: list[Ask]) -> str:
    """Return the caller's name for its user; ``user`` is the older field."""
    name = _name(spans, "safety_identifier", "end_user", asks)
    older = _name(spans, "user", "end_user", asks)
    return name or older


def _tier(spans: Spans, asks: list[Ask]) -> Tier:
    tier = of_kind(spans.value("service_tier"), str, "service_tier") or ""
    if tier and tier != "auto":
        asks.append(Ask("tier" if tier in _TIERS else "speed", "service_tier"))
    return _TIERS.get(tier, "")


def _parallel(spans: Spans, asks: list[Ask]) -> bool | None:
    value = of_kind(spans.value("parallel_tool_calls"), bool, "parallel_tool_calls")
    if value is False:
        asks.append(Ask("parallel_tools", "parallel_tool_calls"))
    return value


def _metadata(spans: Spans, asks: list[Ask]) -> dict[str, Any] | None:
    metadata = _object(spans, "metadata")
    if metadata:
        asks.append(Ask("metadata", "metadata"))
    return metadata or None


def _thinking(spans: Spans, asks: list[Ask]) -> Thinking | None:
    reasoning = _object(spans, "reasoning")
    level = one_of(reasoning, "effort", "reasoning", tuple(_EFFORTS))
    summary = reasoning.get("summary") or reasoning.get("generate_summary")
    if not level and not summary:
        return None
    asks.append(Ask("reasoning", "reasoning"))
    # A request to show reasoning implies reasoning, the default of models of this family.
    return Thinking(_EFFORTS.get(level, "auto"), show="summary" if summary else None)


def _logprobs(spans: Spans, asks: list[Ask]) -> int | None:
    most = count(spans, "top_logprobs")
    requested = False
    for i, name in enumerate(of_kind(spans.value("include"), list, "include") or ()):
        if name == _LOGPROBS:
            requested = True
            asks.append(Ask("logprobs", f"include[{i}]"))
        elif name != _SEALED:
            asks.append(Ask("include", f"include[{i}]"))
    return (most or 0) if requested else None  # ``top_logprobs`` alone has no effect


def _text(spans: Spans, asks: list[Ask]) -> tuple[Output, str]:
    """Decode the form of the text and its verbosity."""
    text = _object(spans, "text")
    verbosity = string(text, "verbosity", "text")
    if verbosity:
        asks.append(Ask("verbosity", "text.verbosity"))
    form = optional(text, "format", "text", dict)
    if form is None:
        return Output(), verbosity
    kind = required(form, "type", "text.format", str)
    if kind == "text":
        return Output(), verbosity
    if kind == "json_object":
        asks.append(Ask("json_output", "text.format"))
        return Output("json"), verbosity
    if kind != "json_schema":
        raise wrong_value("text.format.type", "expected text, json_object or json_schema")
    asks.append(Ask("schema_output", "text.format"))
    return _schema(form), verbosity


def _schema(form: dict[str, Any]) -> Output:
    schema = form.get("schema")
    if not isinstance(schema, dict):
        raise wrong_type("text.format.schema", "expected an object")
    strict = optional(form, "strict", "text.format", bool)
    name = string(form, "name", "text.format")
    description = string(form, "description", "text.format")
    return Output("schema", schema, name, description, strict)


def _all_asks(spans: Spans, asks: list[Ask]) -> tuple[Ask, ...]:
    """Return all asks, including those of fields that are not decoded otherwise."""
    if spans.value("truncation") not in (None, "disabled"):
        asks.append(Ask("truncation", "truncation"))
    if spans.raw("background") == b"true":
        asks.append(Ask("background", "background"))
    if spans.raw("store") == b"true":  # also the default, but then it may not be needed
        asks.append(Ask("other", "store"))
    for name, value in _object(spans, "reasoning").items():
        if name in _UNREAD and value:
            asks.append(Ask("other", f"reasoning.{name}"))
    for name in spans.places:
        if name not in _READ_FIELDS and spans.raw(name) not in _NOTHING:
            asks.append(Ask(FIELDS.get(name) or "other", name))
    return tuple(dict.fromkeys(asks))


_SEARCH = ("web_search", "web_search_preview")  # also with a date
_SEARCH_OPTIONS = ("filters", "user_location")  # not available in this form in other families
_MODES = {"auto": "auto", "required": "any", "none": "none"}
_BY_NAME = frozenset({"function", "custom"})


def decode_tools(tools: object, asks: list[Ask], field: str = "tools") -> tuple[Tool, ...]:
    """Decode the tools of a field, including each tool of a namespace, and add their asks to
    ``asks``. Raises Fault INVALID_FIELD, FIELD_MISSING with the tool's path."""
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise wrong_type(field, "expected an array")
    decoded: list[Tool] = []
    for i, tool in enumerate(tools):
        path = f"{field}[{i}]"
        if isinstance(tool, dict) and tool.get("type") == "namespace":
            name = required(tool, "name", path, str)
            inner = tool.get("tools")
            if not isinstance(inner, list):
                raise wrong_type(f"{path}.tools", "expected an array")
            asks.append(Ask("tool_namespace", path))
            places = [f"{path}.tools[{j}]" for j in range(len(inner))]
            decoded += [
                _tool(entry, at, name, asks) for entry, at in zip(inner, places, strict=True)
            ]
        else:
            decoded.append(_tool(tool, path, "", asks))
    return tuple(decoded)


def _tool(tool: object, path: str, namespace: str, asks: list[Ask]) -> Tool:
    if not isinstance(tool, dict):
        raise wrong_type(path, "expected an object")
    kind = required(tool, "type", path, str)
    if kind == "function":
        return _function(tool, path, namespace, asks)
    if kind == "custom":
        return _custom(tool, path, namespace, asks)
    if kind == TOOL_SEARCH and tool.get("execution") == "client":
        return _function({"name": TOOL_SEARCH, **tool}, path, "", asks, raw=tool)
    search = kind.startswith(_SEARCH)
    if search:
        options = [option for option in _SEARCH_OPTIONS if tool.get(option)]
        asks.extend(Ask("other", f"{path}.{option}") for option in options)
    asks.append(Ask("hosted_search" if search else "hosted_tool", path))
    return Tool("hosted", kind, search=search, raw=tool, path=path)


def _function(
    tool: dict[str, Any],
    path: str,
    namespace: str,
    asks: list[Ask],
    raw: dict[str, Any] | None = None,
) -> Tool:
    schema = optional(tool, "parameters", path, dict)
    strict = optional(tool, "strict", path, bool)
    if strict:
        asks.append(Ask("strict_tool", f"{path}.strict"))
    return Tool(
        "function",
        required(tool, "name", path, str),
        string(tool, "description", path),
        schema,
        strict,
        namespace,
        raw=raw,
        path=path,
    )


def _custom(tool: dict[str, Any], path: str, namespace: str, asks: list[Ask]) -> Tool:
    asks.append(Ask("custom_tool", path))
    form = tool.get("format")
    grammar, syntax = "", ""
    if isinstance(form, dict) and form.get("type") == "grammar":
        grammar = required(form, "definition", f"{path}.format", str)
        syntax = required(form, "syntax", f"{path}.format", str)
    return Tool(
        "custom",
        required(tool, "name", path, str),
        string(tool, "description", path),
        namespace=namespace,
        grammar=grammar,
        grammar_syntax="regex" if syntax == "regex" else "lark" if grammar else "",
        raw=tool,
        path=path,
    )


def decode_choice(choice: object, tools: tuple[Tool, ...], asks: list[Ask]) -> ToolChoice | None:
    """Decode which tools must be called. None if the request does not say, or names a tool of the
    vendor, which is then among ``asks``."""
    if choice is None:
        return None
    if isinstance(choice, str):
        return _mode(choice, tools, asks)
    if not isinstance(choice, dict):
        raise wrong_type("tool_choice", "expected a string or an object")
    kind = required(choice, "type", "tool_choice", str)
    if kind in _BY_NAME:
        return ToolChoice("one", (required(choice, "name", "tool_choice", str),))
    if kind == "allowed_tools":
        return _allowed(choice, asks)
    forced: Feature = "forced_search" if kind.startswith(_SEARCH) else "forced_hosted_tool"
    asks.append(Ask(forced, "tool_choice"))
    return None


def _mode(mode: str, tools: tuple[Tool, ...], asks: list[Ask]) -> ToolChoice:
    if mode not in _MODES:
        raise wrong_value("tool_choice", "expected none, auto, required or an object")
    if mode == "required" and tools and all(tool.kind == "hosted" for tool in tools):
        search = any(tool.search for tool in tools)
        asks.append(Ask("forced_search" if search else "forced_hosted_tool", "tool_choice"))
    return ToolChoice(_MODES[mode])  # type: ignore[arg-type]


def _allowed(choice: dict[str, Any], asks: list[Ask]) -> ToolChoice:
    asks.append(Ask("allowed_tools", "tool_choice"))
    listed, path = choice.get("tools"), "tool_choice.tools"
    if not isinstance(listed, list):
        raise wrong_type(path, "expected an array")
    names = []
    for i, entry in enumerate(listed):
        if not isinstance(entry, dict):
            raise wrong_type(f"{path}[{i}]", "expected an object")
        if string(entry, "type", f"{path}[{i}]") in _BY_NAME:
            names.append(required(entry, "name", f"{path}[{i}]", str))
    return ToolChoice("any" if choice.get("mode") == "required" else "auto", tuple(names))
