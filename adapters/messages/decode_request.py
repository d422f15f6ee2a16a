"""Clients' requests of the messages family, decoded into ``adapters.ir``: fields, tools, and the
tool choice. Turns are in ``decode_turns``.

Source: the request types of the official Anthropic SDK 2.14, including beta types; the SDK sends
three of the fields as headers. Imported by this folder's ``__init__``.
"""

from collections.abc import Mapping
from typing import Any

from adapters.family.codec import Asking, stop_sequences
from adapters.family.reading import MAX_NUMBER, integer, number, optional, required, string, strings
from adapters.faults import Condition, Fault, wrong_value
from adapters.ir.request import Ask, Effort, Feature, Output, Request, Thinking, Tool, ToolChoice
from adapters.json.jsonio import Spans, loads
from adapters.json.structure import Steps
from adapters.messages.decode_turns import blocks, decode_mark, decode_system, turn_steps

_OF_OWN_NAME: tuple[Feature, ...] = (  # fields named like the feature that they ask for
    *("container", "context_management", "speed", "temperature", "top_k", "top_p"),
)
FIELDS: Mapping[str, Asking] = {
    **dict.fromkeys(("model", "messages", "max_tokens", "system", "stream"), ""),
    **dict.fromkeys(("tools", "tool_choice", "betas"), ""),
    **{feature: feature for feature in _OF_OWN_NAME},
    **dict.fromkeys(
        ("billing_policy", "inference_geo", "user_profile_id", "workspace_id"), "vendor_terms"
    ),
    **dict.fromkeys(("fallback_credit_token", "fallbacks"), "other"),
    **dict.fromkeys(("output_config", "output_format"), "schema_output"),
    "cache_control": "cache_mark",
    "compaction": "output_modalities",
    "diagnostics": "include",
    "mcp_servers": "hosted_tool",
    "metadata": "end_user",
    "service_tier": "tier",
    "stop_sequences": "stop",
    "thinking": "reasoning",
    "thread": "stored_state",
}


# Options that change how a tool is called; streaming its arguments in chunks does not.
_TOOL_OPTIONS = ("allowed_callers", "defer_loading", "input_examples")
# Options of a search that other families lack, at least in this form.
_SEARCH_OPTIONS = ("max_uses", "allowed_domains", "blocked_domains", "user_location")


def decode_tools(fields: dict[str, Any], asks: list[Ask]) -> tuple[Tool, ...]:
    """Return the tools in the field ``tools``."""
    return tuple(_tool(tool, path, asks) for tool, path in blocks(fields, "tools", ""))


def _tool(fields: dict[str, Any], path: str, asks: list[Ask]) -> Tool:
    kind = string(fields, "type", path)
    name = "" if kind and "name" not in fields else required(fields, "name", path, str)
    mark = decode_mark(fields, path, asks)
    if kind not in ("", "custom"):
        search = kind.startswith("web_search")
        asks.append(Ask("hosted_search" if search else "hosted_tool", path))
        if search:
            options = [option for option in _SEARCH_OPTIONS if fields.get(option)]
            asks.extend(Ask("other", f"{path}.{option}") for option in options)
        raw = {"kind": kind} | fields
        return Tool("hosted", name, search=search, cache=mark, raw=raw, path=path)
    asks.extend(Ask("other", f"{path}.{name}") for name in _TOOL_OPTIONS if fields.get(name))
    strict = optional(fields, "strict", path, bool)
    if strict:
        asks.append(Ask("strict_tool", f"{path}.strict"))
    return Tool(
        "function",
        name,
        description=string(fields, "description", path),
        schema=required(fields, "input_schema", path, dict),
        strict=strict,
        cache=mark,
        path=path,
    )


def decode_choice(
    fields: dict[str, Any], tools: tuple[Tool, ...], asks: list[Ask]
) -> tuple[ToolChoice | None, bool | None]:
    """Return the tool choice, and whether several tools may be called at once."""
    choice = optional(fields, "tool_choice", "", dict)
    if not choice:
        return None, None
    alone = optional(choice, "disable_parallel_tool_use", "tool_choice", bool)
    if alone:
        asks.append(Ask("parallel_tools", "tool_choice.disable_parallel_tool_use"))
    parallel = None if alone is None else not alone
    kind = required(choice, "type", "tool_choice", str)
    if kind == "auto":
        return ToolChoice("auto"), parallel
    if kind == "any":
        return ToolChoice("any"), parallel
    if kind == "none":
        return ToolChoice("none"), parallel
    if kind != "tool":
        raise wrong_value("tool_choice.type", "expected auto, any, tool or none")
    name = required(choice, "name", "tool_choice", str)
    chosen = [tool for tool in tools if tool.name == name]
    if not chosen:
        raise wrong_value("tool_choice.name", "expected the name of one of the tools")
    if chosen[0].kind == "hosted":
        search = chosen[0].search
        asks.append(Ask("forced_search" if search else "forced_hosted_tool", "tool_choice"))
        return ToolChoice("auto"), parallel
    return ToolChoice("one", (name,)), parallel


_EFFORTS: dict[str, Effort] = {
    effort: effort for effort in ("low", "medium", "high", "xhigh", "max")
}
_READ = frozenset(
    {
        *("model", "max_tokens", "messages", "system", "stream", "stop_sequences", "temperature"),
        *("top_p", "top_k", "tools", "tool_choice", "thinking", "output_config", "output_format"),
        *("metadata", "service_tier", "speed"),
    }
)
# Fields that every request has; many have no others.
_FRAME = frozenset({"model", "max_tokens", "system", "stream"})


def decode_request(spans: Spans, stream: bool, target: str | None) -> Steps[Request]:
    """Return a client's request (see ``family.codec.ClientCodec``)."""
    asks: list[Ask] = []
    fields = {
        name: loads(spans.raw(name) or b"null")
        for name in spans.places
        if name in _READ and name != "messages"
    }
    system = decode_system(fields, asks)
    leading, turns = yield from turn_steps(spans, asks)
    settings = {} if fields.keys() <= _FRAME else _settings(fields, asks)
    bound = integer(fields, "max_tokens", 0, MAX_NUMBER)
    return Request(
        family="messages",
        stream=stream,
        turns=turns,
        system=system + leading,
        # A bound of 0, which warms a cache, is unknown to other families.
        max_output_tokens=None if bound is None else max(bound, 1),
        asks=(*asks, *_other_asks(spans)),
        **settings,
    )


def _settings(fields: dict[str, Any], asks: list[Ask]) -> dict[str, Any]:
    """Return tools, sampling and all other fields that many requests lack."""
    tools = decode_tools(fields, asks)
    choice, parallel = decode_choice(fields, tools, asks)
    output, effort = _output(fields, asks)
    return {
        "tools": tools,
        "choice": choice,
        "parallel_tools": parallel,
        "output": output,
        **_sampling(fields, asks),
        "thinking": _thinking(fields, effort, asks),
        "top_k": _top_k(fields, asks),
        "stop": _stop(fields, asks),
        "end_user": _end_user(fields, asks),
        "tier": _tier(fields, asks),
    }


def _sampling(fields: dict[str, Any], asks: list[Ask]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    features: tuple[Feature, ...] = ("temperature", "top_p")
    for name in features:
        values[name] = number(fields, name, 0, MAX_NUMBER)
        if values[name] is not None:
            asks.append(Ask(name, name))
    return values


def _top_k(fields: dict[str, Any], asks: list[Ask]) -> int | None:
    top_k = integer(fields, "top_k", 0, MAX_NUMBER)
    if top_k is not None:
        asks.append(Ask("top_k", "top_k"))
    return top_k


def _stop(fields: dict[str, Any], asks: list[Ask]) -> tuple[str, ...]:
    name = "stop_sequences"
    stop = stop_sequences(strings(fields, name, ""), name)
    if stop:
        asks.append(Ask("stop", name))
    return stop


def _end_user(fields: dict[str, Any], asks: list[Ask]) -> str:
    metadata = optional(fields, "metadata", "", dict) or {}
    user = string(metadata, "user_id", "metadata")
    if user:
        asks.append(Ask("end_user", "metadata.user_id"))
    return user


def _tier(fields: dict[str, Any], asks: list[Ask]) -> Any:
    """Return the tier. ``speed`` is a tier of its own that no other family has."""
    if string(fields, "speed", "") not in ("", "standard"):
        asks.append(Ask("speed", "speed"))
    tier = string(fields, "service_tier", "")
    if tier == "standard_only":
        asks.append(Ask("tier", "service_tier"))
        return "default"
    return "auto" if tier == "auto" else ""


def _output(fields: dict[str, Any], asks: list[Ask]) -> tuple[Output, Effort | None]:
    """Return the form of the answer and the effort, which share one field."""
    config = optional(fields, "output_config", "", dict) or {}
    effort = string(config, "effort", "output_config")
    if effort and effort not in _EFFORTS:
        raise wrong_value("output_config.effort", f"expected one of {', '.join(_EFFORTS)}")
    asks.extend(
        Ask("other", f"output_config.{name}")
        for name, value in config.items()
        if name not in ("effort", "format") and value is not None
    )
    path, form = "output_config.format", optional(config, "format", "output_config", dict)
    if form is None:  # the older field
        path, form = "output_format", optional(fields, "output_format", "", dict)
    if form is None:
        return Output(), _EFFORTS.get(effort)
    if form.get("type") != "json_schema":
        raise wrong_value(f"{path}.type", "expected json_schema")
    schema = required(form, "schema", path, dict)
    asks.append(Ask("schema_output", path))
    name = string(form, "name", path)
    return Output("schema", schema, name), _EFFORTS.get(effort)


def _thinking(fields: dict[str, Any], effort: Effort | None, asks: list[Ask]) -> Thinking | None:
    config = optional(fields, "thinking", "", dict) or {}
    if config or effort:
        asks.append(Ask("reasoning", "thinking" if config else "output_config.effort"))
    if not config:
        return Thinking(effort) if effort else None
    kind = required(config, "type", "thinking", str)
    display = string(config, "display", "thinking")
    if kind == "disabled":
        return Thinking("off")
    show: Any = {"omitted": "none", "summarized": "summary"}.get(display, "full")
    if kind == "enabled":
        budget = integer(config, "budget_tokens", 0, MAX_NUMBER, "thinking")
        if budget is None:
            raise Fault(Condition.FIELD_MISSING, param="thinking.budget_tokens")
        return Thinking(budget_tokens=budget, show=show)
    if kind not in ("adaptive", "between_tools"):
        raise wrong_value("thinking.type", "expected enabled, adaptive or disabled")
    return Thinking(effort or "auto", show=show)


def _other_asks(spans: Spans) -> list[Ask]:
    """Return asks for the fields that are not read, in order."""
    return [
        Ask(FIELDS.get(name) or "other", name)
        for name in spans.places
        if name not in _READ and spans.raw(name) not in (b"null", b"[]", b"{}")
    ]
